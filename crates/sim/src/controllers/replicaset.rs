//! ReplicaSet and ReplicationController: as many pods as wanted.
//!
//! Reads:      ReplicaSets (ReplicationControllers), Pods
//! Decides:    here: too few, too many, and which go first
//! Writes:     Pods; status of the owner; events SuccessfulCreate, SuccessfulDelete
//! Guarantees: idempotent; counts only what it sees, so it acts once its own writes have come back
//! Limits:     500 pods made or deleted for one owner at once

use std::sync::Arc;

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::{Value, json};

use super::action::{Action, Deed, Note, Plan};
use super::read::{omit_empty, replicas};
use super::{Context, Controller, owned, pods};
use crate::view::Known;

/// The row of ReplicaSets.
pub const CONTROLLER: Controller = Controller {
    name: "replicaset-controller",
    reads: &[Known::ReplicaSet, Known::Pod],
    decide: |context| decide(context, Known::ReplicaSet),
};

/// The row of ReplicationControllers.
pub const REPLICATION: Controller = Controller {
    name: "replication-controller",
    reads: &[Known::ReplicationController, Known::Pod],
    decide: |context| decide(context, Known::ReplicationController),
};

/// Pods made or deleted for one owner at once, as in Kubernetes.
const BURST: usize = 500;

fn decide(context: &Context<'_>, known: Known) -> Plan {
    let mut plan = Plan::default();
    for owner in context.subjects(known) {
        reconcile(context, known, owner, &mut plan);
    }
    plan
}

fn selector(known: Known, owner: &Value) -> Selector {
    let selector = owner.pointer("/spec/selector");
    match known {
        Known::ReplicationController => Selector::from_map(selector),
        _ => Selector::from_object(selector).unwrap_or_else(|_| Selector::nothing()),
    }
}

fn reconcile(context: &Context<'_>, known: Known, owner: &Arc<Value>, plan: &mut Plan) {
    let selector = selector(known, owner);
    let claimed = owned::claim(context.view, Known::Pod, owner, &selector, plan);
    let active: Vec<&Value> = claimed.iter().map(|pod| &***pod).filter(|pod| pods::is_active(pod)).collect();
    if !meta::deleting(owner) {
        manage(context, owner, &active, plan);
    }
    let terminating = claimed.iter().filter(|pod| pods::is_terminating(pod)).count();
    let status = status(context, known, owner, &active, terminating, plan);
    plan.status(known, owner, status, "what was counted");
}

/// Makes what is missing and deletes what is too much.
fn manage(context: &Context<'_>, owner: &Value, active: &[&Value], plan: &mut Plan) {
    let wanted = usize::try_from(replicas(owner).max(0)).unwrap_or(usize::MAX);
    if active.len() < wanted {
        let missing = (wanted - active.len()).min(BURST);
        let prefix = format!("{}-", meta::name(owner));
        for _ in 0..missing {
            let name = context.settings.luck.name(meta::namespace(owner), &prefix);
            let note = Note::normal(owner, "SuccessfulCreate", format!("Created pod: {name}"));
            let pod = pods::from_template(owner, &owner["spec"]["template"], &name, Some(&prefix));
            let why = format!("{} of {wanted} replicas", active.len());
            plan.act(Action::create(Known::Pod, pod, why).noting(note));
        }
    }
    let mut candidates = active.to_vec();
    let siblings = pods::by_node(active.iter().copied());
    pods::sort_for_deletion(&mut candidates, &siblings);
    let surplus = active.len().saturating_sub(wanted).min(BURST);
    for pod in candidates.into_iter().take(surplus) {
        let note = Note::normal(owner, "SuccessfulDelete", format!("Deleted pod: {}", meta::name(pod)));
        let why = format!("{} replicas, {wanted} wanted", active.len());
        plan.act(Action::on(Known::Pod, pod, Deed::Delete(None), why).noting(note));
    }
}

fn status(
    context: &Context<'_>,
    known: Known,
    owner: &Value,
    active: &[&Value],
    terminating: usize,
    plan: &mut Plan,
) -> Value {
    let labels = Selector::from_map(owner.pointer("/spec/template/metadata/labels"));
    let min_ready_s = super::read::int(owner, "/spec/minReadySeconds");
    let mut available = 0;
    for pod in active {
        match pods::is_available(pod, min_ready_s, context.now) {
            Ok(()) => available += 1,
            Err(Some(due)) => plan.again(due),
            Err(None) => {}
        }
    }
    let mut status = json!({
        "replicas": active.len(),
        "fullyLabeledReplicas": active.iter().filter(|pod| labels.matches_object(pod)).count(),
        "readyReplicas": active.iter().filter(|pod| pods::is_ready(pod)).count(),
        "availableReplicas": available,
        "observedGeneration": meta::generation(owner),
        "conditions": owner.pointer("/status/conditions").cloned().unwrap_or(Value::Null),
    });
    omit_empty(&mut status, &["replicas"]);
    if known == Known::ReplicaSet {
        status["terminatingReplicas"] = json!(terminating);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, deeds};
    use super::*;

    fn set(replicas: i64) -> Value {
        json!({"metadata": {"name": "r", "namespace": "a", "uid": "r"}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x", "extra": "1"}}, "spec": {"containers": []}}}})
    }

    fn pod(name: &str, node: &str, phase: &str, ready: bool) -> Value {
        json!({"metadata": {"name": name, "namespace": "a", "labels": {"app": "x"},
                "ownerReferences": [{"uid": "r", "controller": true}]},
            "spec": {"nodeName": node}, "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" },
                 "lastTransitionTime": "2027-01-15T00:00:00Z"}]}})
    }

    fn status(bench: &Bench) -> Value {
        bench.view.get(Known::ReplicaSet, "a", "r").unwrap()["status"].clone()
    }

    #[test]
    fn missing_pods_are_made_and_counted() {
        let mut bench = Bench::default();
        bench.put(Known::ReplicaSet, set(3));
        bench.put(Known::Pod, pod("old", "n", "Running", true));
        bench.put(Known::Pod, pod("over", "n", "Failed", false));
        let plan = bench.decide(&CONTROLLER);
        let creates = deeds(&plan).iter().filter(|d| d.starts_with("create Pod a/r-")).count();
        assert_eq!(creates, 2, "what has ended does not count: {:?}", deeds(&plan));
        assert_eq!(plan.actions[0].note.as_ref().unwrap().reason, "SuccessfulCreate");
        bench.settle(&CONTROLLER);
        let expected = json!({"replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 1,
            "availableReplicas": 1, "observedGeneration": 1, "terminatingReplicas": 0});
        assert_eq!(status(&bench), expected);
    }

    #[test]
    fn those_that_are_missed_least_go_first() {
        let mut bench = Bench::default();
        bench.put(Known::ReplicaSet, set(0));
        let mut cheap = pod("f-cheap", "m", "Running", true);
        cheap["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": "-5"});
        for object in [
            pod("a-alone", "m", "Running", true),
            pod("b-crowded", "n", "Running", true),
            pod("c-crowded", "n", "Running", true),
            pod("d-unready", "n", "Running", false),
            pod("e-pending", "n", "Pending", false),
            cheap,
            pod("g-unassigned", "", "Pending", false),
        ] {
            bench.put(Known::Pod, object);
        }
        let names: Vec<String> = bench.decide(&CONTROLLER).actions.iter().map(|a| a.name.clone()).collect();
        let order =
            ["g-unassigned", "e-pending", "d-unready", "f-cheap", "b-crowded", "c-crowded", "a-alone", "r"];
        assert_eq!(names, order);
    }

    #[test]
    fn orphans_are_adopted_and_strangers_released() {
        let mut bench = Bench::default();
        bench.put(Known::ReplicaSet, set(2));
        let mut orphan = pod("orphan", "n", "Running", true);
        orphan["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        let mut stranger = pod("stranger", "n", "Running", true);
        stranger["metadata"]["labels"] = json!({"app": "other"});
        bench.put(Known::Pod, orphan);
        bench.put(Known::Pod, stranger);
        bench.put(Known::Pod, pod("mine", "n", "Running", true));
        let plan = bench.decide(&CONTROLLER);
        bench.perform(plan);
        let owner = |bench: &Bench, name: &str| {
            let pod = bench.view.get(Known::Pod, "a", name).unwrap();
            crate::view::controller_uid(pod).map(ToOwned::to_owned)
        };
        assert_eq!(owner(&bench, "orphan").as_deref(), Some("r"));
        assert_eq!(owner(&bench, "stranger"), None);
        bench.settle(&CONTROLLER);
        assert_eq!(bench.view.owned_by(Known::Pod, "r").len(), 2, "the one made too many is gone again");
    }

    #[test]
    fn availability_takes_time() {
        let mut bench = Bench::default();
        let mut object = set(1);
        object["spec"]["minReadySeconds"] = json!(10);
        bench.put(Known::ReplicaSet, object);
        let mut fresh = pod("p", "n", "Running", true);
        fresh["status"]["conditions"][0]["lastTransitionTime"] =
            json!(super::super::read::time_text(bench.now));
        bench.put(Known::Pod, fresh);
        let plan = bench.decide(&CONTROLLER);
        assert_eq!(plan.again, Some(bench.now + 10_000));
        bench.settle(&CONTROLLER);
        assert_eq!(status(&bench).get("availableReplicas"), None);
        bench.now += 10_000;
        bench.settle(&CONTROLLER);
        assert_eq!(status(&bench)["availableReplicas"], json!(1));
    }

    #[test]
    fn replication_controllers_select_by_a_plain_map() {
        let mut bench = Bench::default();
        let mut object = set(1);
        object["spec"]["selector"] = json!({"app": "x"});
        bench.put(Known::ReplicationController, object);
        bench.settle(&REPLICATION);
        assert_eq!(bench.view.owned_by(Known::Pod, "r").len(), 1);
        let owner = bench.view.get(Known::ReplicationController, "a", "r").unwrap();
        assert_eq!(owner["status"]["replicas"], json!(1));
    }
}
