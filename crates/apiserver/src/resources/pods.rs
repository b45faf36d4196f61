//! What only pods of a member can be asked: to be bound to a node, and to be evicted.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body as HttpBody;
use landfall_api::selector::Selector;
use landfall_api::status::Cause;
use landfall_api::{Kind, Reason, Status, meta};
use serde_json::{Value, json};

use super::{Place, by, content, manager};
use crate::http::answer;
use crate::http::body::{self, Body};
use crate::read::get;
use crate::serve::Call;
use crate::write::body::value as decode_value;
use crate::write::delete::{self, DeleteOptions};
use crate::write::update::{self, Part};
use crate::write::{By, Wanted};
use crate::{encode, keys};

const BUDGETS: (&str, &str) = ("policy", "poddisruptionbudgets");
const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// `/binding`: gives a pod its node.
pub(super) async fn bind<B>(call: &Call<'_>, place: &Place<'_>, sent: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let bytes = body::read(sent).await?;
    let binding = decode_value(("v1", "Binding"), content(call), &bytes)?;
    let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or("").to_owned();
    if node.is_empty() {
        return Err(Status::bad_request("target.name: Required value"));
    }
    let manager = manager(call);
    let by = by(call, place, &manager);
    let now = call.api.now_text();
    let bound = |old: &Value| {
        let mut pod = old.clone();
        pod["spec"]["nodeName"] = json!(node);
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
        let conditions = old.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let others = conditions.filter(|c| c["type"] != "PodScheduled").cloned();
        pod["status"]["conditions"] = others.chain([scheduled]).collect();
        Ok(Wanted::new(pod, Vec::new()))
    };
    let (namespace, name) = (place.namespace(), place.name());
    update::update(call.api, &place.home, namespace, name, Part::Binding, &by, bound).await?;
    Ok(created(call))
}

/// `/eviction`: deletes a pod unless a disruption budget speaks against it.
pub(super) async fn evict<B>(call: &Call<'_>, place: &Place<'_>, sent: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let bytes = body::read(sent).await?;
    let eviction = decode_value(("policy/v1", "Eviction"), content(call), &bytes)?;
    let options = eviction.get("deleteOptions").cloned().unwrap_or(Value::Null);
    let options = DeleteOptions::parse(&options, call.options)?;
    let (namespace, name) = (place.namespace(), place.name());
    let entry = get::entry(&*call.api.store, &place.home, namespace, name, "").await?;
    let pod = update::current(&place.home, &entry)?;
    let manager = manager(call);
    let by = By { dry_run: call.options.dry_run || options.dry_run, ..by(call, place, &manager) };
    if !needs_no_budget(&pod) {
        spend(call, &pod, &by).await?;
    }
    delete::delete(call.api, &place.home, namespace, name, &options, &by).await?;
    Ok(created(call))
}

fn created(call: &Call<'_>) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    answer::object(StatusCode::CREATED, &status, call.style)
}

/// Pods that do not run are no disruption.
fn needs_no_budget(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("");
    meta::deleting(pod) || matches!(phase, "Succeeded" | "Failed" | "Pending")
}

/// Takes one from the budget that a pod falls under, if there is one.
async fn spend(call: &Call<'_>, pod: &Value, by: &By<'_>) -> Result<(), Status> {
    let prefix = keys::namespace(BUDGETS.0, BUDGETS.1, meta::namespace(pod));
    let snapshot = call.api.store.snapshot();
    let covers = |budget: &Value| {
        let selector = Selector::from_object(budget.pointer("/spec/selector"));
        selector.is_ok_and(|selector| selector.matches_object(pod))
    };
    let all = snapshot.range(&prefix, "").filter_map(|entry| encode::decode(entry).ok());
    let mut covering = all.filter(covers);
    let Some(budget) = covering.next() else { return Ok(()) };
    if covering.next().is_some() {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::internal(why));
    }
    let catalog = call.api.catalog.load_full();
    let Some(kind) = catalog.find_resource(BUDGETS.0, BUDGETS.1) else { return Ok(()) };
    let now = call.api.now_text();
    let spent = |old: &Value| {
        let mut budget = old.clone();
        if decide(old, pod)? == Cost::One {
            let left = count(old, "disruptionsAllowed") - 1;
            budget["status"]["disruptionsAllowed"] = json!(left);
            budget["status"]["disruptedPods"][meta::name(pod)] = json!(now);
        }
        Ok(Wanted::new(budget, Vec::new()))
    };
    let (namespace, name) = (meta::namespace(&budget), meta::name(&budget));
    update::update(call.api, kind as &Kind, namespace, name, Part::Status, by, spent).await.map(drop)
}

/// What an eviction takes from a budget.
#[derive(Debug, PartialEq, Eq)]
enum Cost {
    Nothing,
    One,
}

fn count(budget: &Value, field: &str) -> i64 {
    budget.get("status").and_then(|s| s.get(field)).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether a budget lets a pod go, and what it costs.
fn decide(budget: &Value, pod: &Value) -> Result<Cost, Status> {
    let name = meta::name(budget);
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let ready = conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    let policy = budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str);
    let (healthy, wanted) = (count(budget, "currentHealthy"), count(budget, "desiredHealthy"));
    if !ready && (policy == Some("AlwaysAllow") || (wanted > 0 && healthy >= wanted)) {
        return Ok(Cost::Nothing);
    }
    if count(budget, "observedGeneration") < meta::generation(budget) {
        return Err(refuse(
            10,
            format!("The disruption budget {name} is still being processed by the server."),
        ));
    }
    if count(budget, "disruptionsAllowed") <= 0 {
        let why =
            format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently");
        return Err(refuse(0, why));
    }
    Ok(Cost::One)
}

fn refuse(retry_after_s: u32, message: String) -> Status {
    let mut status = Status::new(Reason::TooManyRequests, VIOLATION);
    status.retry_after_s = retry_after_s;
    status.causes.push(Cause { reason: "DisruptionBudget".into(), message, field: String::new() });
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: &Value, ready: &str, expected: &Result<Cost, &str>) {
        let budget = json!({"metadata": {"name": "b", "generation": 1}, "spec": {}, "status": status});
        let pod = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let found = decide(&budget, &pod).map_err(|status| status.causes[0].message.clone());
        assert_eq!(found.as_ref().map_err(String::as_str), expected.as_ref().map_err(|e| *e), "{status}");
    }

    #[test]
    fn budgets_are_spent_and_kept() {
        let of = |allowed: i64, healthy: i64, seen: i64| {
            json!({"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 2,
                "observedGeneration": seen})
        };
        check(&of(1, 3, 1), "True", &Ok(Cost::One));
        let none = "The disruption budget b needs 2 healthy pods and has 2 currently";
        check(&of(0, 2, 1), "True", &Err(none));
        check(&of(0, 2, 1), "False", &Ok(Cost::Nothing));
        check(&of(1, 3, 0), "True", &Err("The disruption budget b is still being processed by the server."));
    }
}
