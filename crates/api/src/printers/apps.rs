//! Sheets of workloads that keep a number of pods running, and of disruption budgets.

use serde_json::{Value, json};

use super::cells::{
    NONE, age, containers, items, labels, name, number, plain, selector, selector_words, text,
};
use super::sheet::{Col, Sheet};

const CONTAINERS: Col = Col::text("Containers", "Names of the template's containers.").wide();
const IMAGES: Col = Col::text("Images", "Images of the template's containers.").wide();
const SELECTOR: Col = Col::text("Selector", "Which pods are its own.").wide();
const DESIRED: Col = Col::integer("Desired", "How many pods are wanted.");
const CURRENT: Col = Col::integer("Current", "How many pods there are.");
const READY: Col = Col::integer("Ready", "How many pods are ready.");

pub(super) const DEPLOYMENT: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Ready", "How many pods are ready, of how many wanted."),
        Col::text("Up-to-date", "How many pods have the newest template."),
        Col::text("Available", "How many pods have been ready for long enough."),
        Col::AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now_s| {
        let [names, images] = containers(object, "/spec/template/spec");
        let selector = selector_words(object.pointer("/spec/selector")).unwrap_or_else(|| "<invalid>".into());
        vec![
            name(object),
            ready(object),
            json!(number(object, "/status/updatedReplicas")),
            json!(number(object, "/status/availableReplicas")),
            age(object, now_s),
            names,
            images,
            selector.into(),
        ]
    },
);

pub(super) const STATEFUL_SET: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Ready", "How many pods are ready, of how many wanted."),
        Col::AGE,
        CONTAINERS,
        IMAGES,
    ],
    |object, now_s| {
        let [names, images] = containers(object, "/spec/template/spec");
        vec![name(object), ready(object), age(object, now_s), names, images]
    },
);

pub(super) const REPLICA_SET: Sheet = Sheet::new(
    &[Col::NAME, DESIRED, CURRENT, READY, Col::AGE, CONTAINERS, IMAGES, SELECTOR],
    |object, now_s| replicas(object, now_s, selector(object.pointer("/spec/selector"))),
);

pub(super) const REPLICATION_CONTROLLER: Sheet = Sheet::new(
    &[Col::NAME, DESIRED, CURRENT, READY, Col::AGE, CONTAINERS, IMAGES, SELECTOR],
    |object, now_s| replicas(object, now_s, labels(object.pointer("/spec/selector"))),
);

pub(super) const DAEMON_SET: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::integer("Desired", "How many nodes should run a pod."),
        Col::integer("Current", "How many nodes that should run a pod do."),
        Col::integer("Ready", "How many nodes have a ready pod."),
        Col::integer("Up-to-date", "How many nodes have a pod of the newest template."),
        Col::integer("Available", "How many nodes have a pod that has been ready for long enough."),
        Col::text("Node Selector", "Which nodes run a pod."),
        Col::AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now_s| {
        let [names, images] = containers(object, "/spec/template/spec");
        vec![
            name(object),
            json!(number(object, "/status/desiredNumberScheduled")),
            json!(number(object, "/status/currentNumberScheduled")),
            json!(number(object, "/status/numberReady")),
            json!(number(object, "/status/updatedNumberScheduled")),
            json!(number(object, "/status/numberAvailable")),
            labels(object.pointer("/spec/template/spec/nodeSelector")).into(),
            age(object, now_s),
            names,
            images,
            selector(object.pointer("/spec/selector")).into(),
        ]
    },
);

pub(super) const CONTROLLER_REVISION: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Controller", "Whose revision it is."),
        Col::text("Revision", "Its number."),
        Col::AGE,
    ],
    |object, now_s| {
        vec![name(object), controller(object).into(), json!(number(object, "/revision")), age(object, now_s)]
    },
);

pub(super) const DISRUPTION_BUDGET: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Min Available", "How many pods must stay available."),
        Col::text("Max Unavailable", "How many pods may be unavailable."),
        Col::integer("Allowed Disruptions", "How many pods may be evicted now."),
        Col::AGE,
    ],
    |object, now_s| {
        let bound = |pointer| plain(object.pointer(pointer)).unwrap_or_else(|| "N/A".into());
        vec![
            name(object),
            bound("/spec/minAvailable").into(),
            bound("/spec/maxUnavailable").into(),
            json!(number(object, "/status/disruptionsAllowed")),
            age(object, now_s),
        ]
    },
);

fn ready(object: &Value) -> Value {
    format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")).into()
}

fn replicas(object: &Value, now_s: i64, selector: String) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template/spec");
    vec![
        name(object),
        json!(number(object, "/spec/replicas")),
        json!(number(object, "/status/replicas")),
        json!(number(object, "/status/readyReplicas")),
        age(object, now_s),
        names,
        images,
        selector.into(),
    ]
}

/// `statefulset.apps/web`: the owner that controls the object.
fn controller(object: &Value) -> String {
    let owners = items(object, "/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|o| o.get("controller") == Some(&Value::Bool(true))) else {
        return NONE.into();
    };
    let kind = text(owner, "/kind").to_lowercase();
    let name = text(owner, "/name");
    match text(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()),
        None => format!("{kind}/{name}"),
    }
}
