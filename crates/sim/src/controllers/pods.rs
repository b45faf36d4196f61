//! What controllers of pods share: whether a pod counts, which goes first, and making one from a template.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use landfall_api::meta;
use serde_json::{Value, json};

use super::read::{
    Millis, condition, condition_true, controller_reference, created, int, items, parse_time, text,
};

/// Whether a pod counts as a replica: it has not ended and is not being deleted.
pub fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !meta::deleting(pod)
}

/// Whether a pod has ended.
pub fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether a pod is being deleted but has not ended.
pub fn is_terminating(pod: &Value) -> bool {
    meta::deleting(pod) && !is_finished(pod)
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Value) -> bool {
    condition_true(pod, "Ready")
}

/// Whether a pod has been ready for so many seconds; else when it will have been, if it goes on.
pub fn is_available(pod: &Value, min_ready_s: i64, now: Millis) -> Result<(), Option<Millis>> {
    if !is_ready(pod) {
        return Err(None);
    }
    if min_ready_s == 0 {
        return Ok(());
    }
    let since = condition(pod, "Ready").map_or("", |c| text(c, "/lastTransitionTime"));
    let due = parse_time(since).unwrap_or(now).saturating_add(min_ready_s.saturating_mul(1000));
    if due <= now { Ok(()) } else { Err(Some(due)) }
}

/// Puts pods in the order in which they are deleted: those that are missed least first. `siblings`: active pods of
/// the same service, by node, so that crowded nodes are relieved first.
pub fn sort_for_deletion(pods: &mut [&Value], siblings: &BTreeMap<String, usize>) {
    pods.sort_by_cached_key(|pod| {
        let node = text(pod, "/spec/nodeName");
        let phase = match text(pod, "/status/phase") {
            "Pending" | "" => 0,
            "Unknown" => 1,
            _ => 2,
        };
        let cost: i64 = meta::annotation(pod, "controller.kubernetes.io/pod-deletion-cost")
            .and_then(|cost| cost.parse().ok())
            .unwrap_or(0);
        let ready_since = condition(pod, "Ready").map_or("", |c| text(c, "/lastTransitionTime"));
        let ready_since = if is_ready(pod) { parse_time(ready_since).unwrap_or(0) } else { 0 };
        (
            !node.is_empty(),
            phase,
            is_ready(pod),
            cost,
            Reverse(siblings.get(node).copied().unwrap_or(0)),
            Reverse(whole_seconds(ready_since)),
            Reverse(restarts(pod)),
            Reverse(created(pod)),
            meta::name(pod).to_owned(),
        )
    });
}

/// Without milliseconds, so that pods that became ready together fall to the later rules.
fn whole_seconds(at: Millis) -> Millis {
    at.div_euclid(1000)
}

/// The most restarts of any container.
pub fn restarts(pod: &Value) -> i64 {
    items(pod, "/status/containerStatuses").iter().map(|c| int(c, "/restartCount")).max().unwrap_or(0)
}

/// Active pods by node.
pub fn by_node<'a>(pods: impl Iterator<Item = &'a Value>) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for pod in pods.filter(|pod| is_active(pod)) {
        *count.entry(text(pod, "/spec/nodeName").to_owned()).or_insert(0) += 1;
    }
    count
}

/// A pod from a template, owned by `owner`. `prefix`: what its name was made from, if it was made.
pub fn from_template(owner: &Value, template: &Value, name: &str, prefix: Option<&str>) -> Value {
    let mut metadata = json!({
        "name": name, "namespace": meta::namespace(owner),
        "ownerReferences": [controller_reference(owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.get("metadata").and_then(|m| m.get(field)) {
            metadata[field] = value.clone();
        }
    }
    if let Some(prefix) = prefix {
        metadata["generateName"] = json!(prefix);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}
