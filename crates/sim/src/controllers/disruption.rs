//! PodDisruptionBudget: how many pods may be evicted now.
//!
//! Reads:      PodDisruptionBudgets, Pods, and what controls the Pods
//! Writes:     status; the eviction of pods spends what it allows
//! Guarantees: allows nothing until it has looked at the newest spec
//! Limits:     an evicted pod that does not go counts again after two minutes

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::{Map, Value, json};

use super::action::Plan;
use super::conditions::since;
use super::read::{condition, counted, parse_time, replicas, scaled, text, time_text};
use super::{Context, Controller, pods};
use crate::view::{Known, controller_of};

/// Its row.
pub(super) const CONTROLLER: Controller = Controller {
    name: "disruption-controller",
    reads: &[Known::PodDisruptionBudget, Known::Pod, Known::ReplicaSet, Known::StatefulSet],
    decide,
};

/// How long an evicted pod may take until its deletion is seen.
const EVICTED_MS: i64 = 120_000;

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for budget in context.view.all(Known::PodDisruptionBudget) {
        reconcile(context, budget, &mut plan);
    }
    plan
}

fn reconcile(context: &Context<'_>, budget: &Value, plan: &mut Plan) {
    let selector = Selector::from_object(budget.pointer("/spec/selector")).unwrap_or(Selector::nothing());
    let namespace = meta::namespace(budget);
    let covered: Vec<&Value> = context
        .view
        .within(Known::Pod, namespace)
        .map(|pod| &**pod)
        .filter(|pod| selector.matches_object(pod) && !pods::is_finished(pod))
        .collect();
    // Evicted pods whose deletion has not been seen.
    let mut evicted = Map::new();
    let noted = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
    for (name, at) in noted.into_iter().flatten() {
        let due = parse_time(at.as_str().unwrap_or("")).unwrap_or(0).saturating_add(EVICTED_MS);
        let there = covered.iter().any(|pod| meta::name(pod) == name && !meta::deleting(pod));
        if there && due > context.now {
            plan.again(due);
            evicted.insert(name.clone(), at.clone());
        }
    }
    let is_healthy =
        |pod: &&&Value| pods::is_ready(pod) && !meta::deleting(pod) && !evicted.contains_key(meta::name(pod));
    let healthy = i64::try_from(covered.iter().filter(is_healthy).count()).unwrap_or(i64::MAX);
    let (expected, wanted) = wanted(context, budget, &covered);
    let allowed = if expected > 0 { (healthy - wanted).max(0) } else { 0 };
    let mut status = json!({
        "currentHealthy": healthy, "desiredHealthy": wanted, "expectedPods": expected,
        "disruptionsAllowed": allowed, "observedGeneration": meta::generation(budget),
        "conditions": conditions(context, budget, allowed > 0),
    });
    if !evicted.is_empty() {
        status["disruptedPods"] = Value::Object(evicted);
    }
    plan.status(Known::PodDisruptionBudget, budget, status, "what was counted");
}

/// How many pods there should be, and how many must be healthy.
fn wanted(context: &Context<'_>, budget: &Value, covered: &[&Value]) -> (i64, i64) {
    let count = i64::try_from(covered.len()).unwrap_or(i64::MAX);
    let at = |field: &str| budget.pointer(&format!("/spec/{field}")).filter(|value| !value.is_null());
    match (at("minAvailable"), at("maxUnavailable")) {
        (Some(least @ Value::Number(_)), _) => (count, counted(least.as_i64().unwrap_or(0))),
        (Some(least), _) => {
            let expected = expected(context, covered);
            (expected, scaled(Some(least), expected, true))
        }
        (None, most) => {
            let expected = expected(context, covered);
            (expected, (expected - scaled(most, expected, true)).max(0))
        }
    }
}

/// The replicas that the pods' controllers want.
fn expected(context: &Context<'_>, covered: &[&Value]) -> i64 {
    let mut seen = std::collections::BTreeMap::new();
    for pod in covered {
        let Some(owner) = controller_of(pod) else { continue };
        let (kind, name, uid) = (text(owner, "/kind"), text(owner, "/name"), text(owner, "/uid"));
        let found = Known::named(kind).and_then(|known| context.view.get(known, meta::namespace(pod), name));
        if let Some(found) = found {
            seen.insert(uid.to_owned(), replicas(found));
        }
    }
    counted(seen.values().sum())
}

fn conditions(context: &Context<'_>, budget: &Value, allowed: bool) -> Vec<Value> {
    let (status, reason) = if allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let fresh = json!({
        "type": "DisruptionAllowed", "status": status, "reason": reason, "message": "",
        "observedGeneration": meta::generation(budget), "lastTransitionTime": time_text(context.now),
    });
    vec![since(condition(budget, "DisruptionAllowed"), fresh)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, pod_on};
    use super::*;

    #[track_caller]
    fn check(spec: &Value, ready: usize, expected: (i64, i64, i64)) {
        let mut bench = Bench::default();
        let set = json!({"metadata": {"name": "r", "namespace": "a", "uid": "r"}, "spec": {"replicas": 4}});
        bench.put(Known::ReplicaSet, set);
        for at in 0..4 {
            let mut pod = pod_on(&format!("p{at}"), "n", at < ready);
            pod["metadata"]["ownerReferences"] =
                json!([{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
            bench.put(Known::Pod, pod);
        }
        let mut object = json!({"metadata": {"name": "b", "namespace": "a"}, "spec": spec});
        object["spec"]["selector"] = json!({});
        bench.put(Known::PodDisruptionBudget, object);
        bench.settle(&CONTROLLER);
        let status = &bench.view.get(Known::PodDisruptionBudget, "a", "b").unwrap()["status"];
        let field = |name: &str| status[name].as_i64().unwrap();
        let found = (field("currentHealthy"), field("desiredHealthy"), field("disruptionsAllowed"));
        assert_eq!(found, expected, "{spec}");
    }

    #[test]
    fn budgets_allow_what_is_beyond_need() {
        check(&json!({"minAvailable": 3}), 4, (4, 3, 1));
        check(&json!({"minAvailable": 3}), 2, (2, 3, 0));
        check(&json!({"minAvailable": "50%"}), 4, (4, 2, 2));
        check(&json!({"maxUnavailable": 1}), 4, (4, 3, 1));
        check(&json!({"maxUnavailable": "25%"}), 3, (3, 3, 0));
    }
}
