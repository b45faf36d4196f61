//! One look at one MultiClusterService: the federated Service that stands for it, and its status.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use landfall_api::landfall::MultiClusterServiceStatus;
use landfall_api::rules::read::{child, text};
use landfall_plan::propagation::drift;
use landfall_plan::routes::{ACCEPTED, Derived, derive};
use serde_json::{Value, json};

use super::source::{happenings, name_of, now, serving};
use super::write::{Work, submit};
use super::{SOON, group};
use crate::federation::Federation;
use crate::shelf::{Key, Seen};

/// Looks at one MultiClusterService.
pub(super) fn look(federation: &Arc<Federation>, key: &Key) {
    let routes = &federation.routes;
    let Some(seen) = routes.shelf(key.kind).get(key).filter(|seen| !seen.deleting) else {
        // The Service goes with its owner.
        routes.index.derive(key, None);
        return;
    };
    let object = seen.value();
    let members: Vec<(String, BTreeMap<String, String>)> = federation
        .all_members()
        .iter()
        .map(|member| {
            (member.name.clone(), member.cluster.read().metadata.labels.clone().unwrap_or_default())
        })
        .collect();
    let members = members.iter().map(|(name, labels)| (name.as_str(), labels));
    let derived = derive(&object, group(key.kind), members);
    let service = routes.service(&key.namespace, name_of(&derived.service));
    routes.index.derive(key, Some(service.clone()));
    if routes.writer.busy(&service) {
        routes.queue.push_after(key, SOON);
        return;
    }
    let found = federation.shelf(service.kind).get(&service);
    let taken = found.as_ref().is_some_and(|found| !owned(&found.value(), &seen.uid));
    let mut work = Work::new(key);
    if !taken {
        work.object = wanted(federation, key, &seen, &derived, found.as_deref());
    }
    let problem = match (&derived.problem, taken) {
        (Some(problem), _) => Some(("Invalid", problem.clone())),
        (None, true) => Some(("Conflict", format!("the Service {} is somebody else's", service.path()))),
        (None, false) => None,
    };
    tell(federation, key, (&object, &seen), &service, problem, &mut work);
    if !work.is_empty() {
        submit(federation, &service, work);
    }
}

fn owned(service: &Value, uid: &str) -> bool {
    let owners = service.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| text(owner, "uid") == uid)
}

/// The Service as it shall be; none where it is so already.
fn wanted(
    federation: &Federation,
    key: &Key,
    owner: &Seen,
    derived: &Derived,
    found: Option<&Seen>,
) -> Option<Value> {
    let mut wanted = derived.service.clone();
    let Some(found) = found else {
        let row = federation.kinds.get(key.kind);
        wanted["apiVersion"] = "v1".into();
        wanted["kind"] = "Service".into();
        wanted["metadata"]["ownerReferences"] = json!([{
            "apiVersion": row.api_version(), "kind": row.kind, "name": &*key.name, "uid": &*owner.uid, "controller": true,
        }]);
        return Some(wanted);
    };
    let mut object = found.value();
    if drift(&wanted, &object).is_empty()
        && object.pointer("/spec/selector") == wanted.pointer("/spec/selector")
    {
        return None;
    }
    for part in ["labels", "annotations"] {
        let fields = wanted.pointer(&format!("/metadata/{part}")).and_then(Value::as_object);
        for (name, value) in fields.into_iter().flatten() {
            object["metadata"][part][name] = value.clone();
        }
    }
    for field in ["selector", "ports"] {
        object["spec"][field] = child(child(&wanted, "spec"), field).clone();
    }
    Some(object)
}

/// Tells how it stands, where that is different.
fn tell(
    federation: &Federation,
    key: &Key,
    (object, seen): (&Value, &Seen),
    service: &Key,
    problem: Option<(&'static str, String)>,
    work: &mut Work,
) {
    let before: MultiClusterServiceStatus =
        serde_json::from_value(child(object, "status").clone()).unwrap_or_default();
    let (clusters, ready) = serving(federation, &key.namespace, &service.name);
    let status = if problem.is_some() { "False" } else { "True" };
    let (reason, message) =
        problem.unwrap_or_else(|| ("Accepted", format!("the Service {} stands for it", service.name)));
    let known = before.conditions.iter().find(|known| known.type_ == ACCEPTED && known.status == status);
    let condition = Condition {
        type_: ACCEPTED.into(),
        status: status.into(),
        reason: reason.into(),
        message,
        last_transition_time: known.map_or_else(now, |known| known.last_transition_time.clone()),
        observed_generation: object.pointer("/metadata/generation").and_then(Value::as_i64),
    };
    let status =
        MultiClusterServiceStatus { clusters, ready_endpoints: Some(ready), conditions: vec![condition] };
    if status != before {
        let news = happenings(&before.conditions, &status.conditions);
        work.happenings =
            news.into_iter().map(|one| (work.look.clone(), seen.uid.to_string(), one)).collect();
        work.source_status = serde_json::to_value(status).ok();
    }
}
