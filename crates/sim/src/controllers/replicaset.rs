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
use super::read::{omit_empty, replicas, text};
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
    for owner in context.view.all(known) {
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
            let name = context.luck.name(&prefix);
            let note = Note::normal(owner, "SuccessfulCreate", format!("Created pod: {name}"));
            let pod = pods::from_template(owner, &owner["spec"]["template"], name, Some(&prefix));
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

/// The name of a ReplicaSet's template hash, or "".
pub fn template_hash(owner: &Value) -> &str {
    text(owner, "/metadata/labels/pod-template-hash")
}
