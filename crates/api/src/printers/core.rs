//! Sheets of small kinds: config maps, secrets, namespaces, leases, quotas, pod templates, priority classes.

use serde_json::{Value, json};

use super::cells::{age, containers, entries, labels, name, plain, text};
use super::sheet::{Col, Sheet};

pub(super) const CONFIG_MAP: Sheet =
    Sheet::new(&[Col::NAME, Col::text("Data", "How many keys it has."), Col::AGE], |object, now_s| {
        let keys = entries(object, "/data").saturating_add(entries(object, "/binaryData"));
        vec![name(object), json!(keys), age(object, now_s)]
    });

pub(super) const SECRET: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Type", "What kind of secret it is."),
        Col::text("Data", "How many keys it has."),
        Col::AGE,
    ],
    |object, now_s| {
        vec![name(object), text(object, "/type").into(), json!(entries(object, "/data")), age(object, now_s)]
    },
);

pub(super) const NAMESPACE: Sheet = Sheet::new(
    &[Col::NAME, Col::text("Status", "The status of the namespace."), Col::AGE],
    |object, now_s| vec![name(object), text(object, "/status/phase").into(), age(object, now_s)],
);

pub(super) const LEASE: Sheet =
    Sheet::new(&[Col::NAME, Col::text("Holder", "Who holds the lease."), Col::AGE], |object, now_s| {
        vec![name(object), text(object, "/spec/holderIdentity").into(), age(object, now_s)]
    });

pub(super) const POD_TEMPLATE: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Containers", "Names of the template's containers."),
        Col::text("Images", "Images of the template's containers."),
        Col::text("Pod Labels", "Labels of the template."),
    ],
    |object, _| {
        let [names, images] = containers(object, "/template/spec");
        vec![name(object), names, images, labels(object.pointer("/template/metadata/labels")).into()]
    },
);

pub(super) const PRIORITY_CLASS: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::integer("Value", "The priority of pods of this class."),
        Col::of("boolean", "Global-Default", "Whether pods without a class get this one."),
        Col::AGE,
        Col::text("PreemptionPolicy", "Whether pods of this class may push out others."),
    ],
    |object, now_s| {
        vec![
            name(object),
            json!(super::cells::number(object, "/value")),
            json!(object.pointer("/globalDefault").and_then(Value::as_bool).unwrap_or(false)),
            age(object, now_s),
            text(object, "/preemptionPolicy").into(),
        ]
    },
);

pub(super) const RESOURCE_QUOTA: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Request", "Used and allowed requests."),
        Col::text("Limit", "Used and allowed limits."),
        Col::AGE,
    ],
    |object, now_s| {
        let [requests, limits] = quota(object);
        vec![name(object), requests.into(), limits.into(), age(object, now_s)]
    },
);

/// `pods: 1/4, cpu: 0/1` for requests, and the same for limits.
fn quota(object: &Value) -> [String; 2] {
    let empty = serde_json::Map::new();
    let hard = object.pointer("/status/hard").and_then(Value::as_object).unwrap_or(&empty);
    let used = object.pointer("/status/used").and_then(Value::as_object).unwrap_or(&empty);
    let mut resources: Vec<&String> = hard.keys().collect();
    resources.sort_unstable();
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for resource in resources {
        let amount =
            |of: &serde_json::Map<String, Value>| plain(of.get(resource)).unwrap_or_else(|| "0".into());
        let side = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        side.push(format!("{resource}: {}/{}", amount(used), amount(hard)));
    }
    [requests.join(", "), limits.join(", ")]
}
