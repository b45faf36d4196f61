//! Scheduler: gives each pod a node.
//!
//! Reads:      Pods, Nodes
//! Decides:    `filters` (which nodes can), `score` (which is best)
//! Writes:     Pods' node; the condition PodScheduled; events Scheduled and FailedScheduling
//! Wakes on:   any change of pods and nodes
//! Guarantees: a node is never given more than its allocatable by one scheduler; what is decided within one pass counts
//!
//! Absent: preemption, volumes, extended scoring. What Kubernetes says about them in its messages is said all the same.

pub mod affinity;
mod filters;
pub mod resources;
mod score;
mod spread;
pub mod taints;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_api::meta;
use serde_json::{Value, json};

use crate::controllers::action::{Action, Deed, Note, Plan};
use crate::controllers::read::{condition, created, int, items, set, text, time_text};
use crate::controllers::{Context, Controller, conditions, pods};
use crate::view::Known;
use filters::Refusal;
use resources::Amounts;

/// Its row.
pub const CONTROLLER: Controller =
    Controller { name: "default-scheduler", reads: &[Known::Pod, Known::Node], decide };

/// A node with what runs on it.
pub struct Room<'a> {
    /// The node.
    pub node: &'a Value,
    /// The pods on it that have not ended, those assumed in this pass included.
    pub pods: Vec<&'a Value>,
    /// What they ask for.
    pub used: Amounts,
}

impl<'a> Room<'a> {
    fn add(&mut self, pod: &'a Value) {
        self.used.add(&resources::requests(pod));
        self.pods.push(pod);
    }

    /// Its name.
    pub fn name(&self) -> &'a str {
        meta::name(self.node)
    }
}

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut waiting: Vec<&Arc<Value>> = context.view.all(Known::Pod).filter(|pod| is_waiting(pod)).collect();
    if waiting.is_empty() {
        return plan;
    }
    waiting.sort_by_key(|pod| (Reverse(int(pod, "/spec/priority")), created(pod), meta::name(pod)));
    let mut rooms = rooms(context);
    for pod in waiting {
        match place(pod, &rooms) {
            Ok(at) => {
                bind(context, pod, rooms[at].node, &mut plan);
                rooms[at].add(pod);
            }
            Err(why) => refuse(context, pod, &why, &mut plan),
        }
    }
    plan
}

/// Whether a pod waits for us.
fn is_waiting(pod: &Value) -> bool {
    text(pod, "/spec/nodeName").is_empty()
        && pods::is_active(pod)
        && matches!(text(pod, "/spec/schedulerName"), "" | "default-scheduler")
        && items(pod, "/spec/schedulingGates").is_empty()
}

fn rooms<'a>(context: &Context<'a>) -> Vec<Room<'a>> {
    let nodes = context.view.all(Known::Node).filter(|node| !meta::deleting(node));
    let mut rooms: Vec<Room<'a>> =
        nodes.map(|node| Room { node, pods: Vec::new(), used: Amounts::default() }).collect();
    let at: BTreeMap<&str, usize> = rooms.iter().enumerate().map(|(at, room)| (room.name(), at)).collect();
    for pod in context.view.all(Known::Pod).filter(|pod| !pods::is_finished(pod)) {
        if let Some(at) = at.get(text(pod, "/spec/nodeName")) {
            rooms[*at].add(pod);
        }
    }
    rooms
}

/// The best node for a pod; else why there is none, in Kubernetes' words.
pub fn place(pod: &Value, rooms: &[Room<'_>]) -> Result<usize, String> {
    if rooms.is_empty() {
        return Err("no nodes available to schedule pods".into());
    }
    let mut refusals = Vec::new();
    let mut fitting = Vec::new();
    for (at, room) in rooms.iter().enumerate() {
        match filters::check(pod, room, rooms) {
            Ok(()) => fitting.push(at),
            Err(refusal) => refusals.push(refusal),
        }
    }
    score::best(pod, &fitting, rooms).ok_or_else(|| message(rooms.len(), &refusals))
}

/// `0/3 nodes are available: …`, and what Kubernetes adds about claims and preemption.
fn message(total: usize, refusals: &[Refusal]) -> String {
    let reasons = histogram(refusals.iter().flat_map(|refusal| refusal.reasons.iter().map(String::as_str)));
    let help = histogram(refusals.iter().map(|refusal| {
        if refusal.for_good {
            "Preemption is not helpful for scheduling"
        } else {
            "No preemption victims found for incoming pod"
        }
    }));
    format!(
        "0/{total} nodes are available: {reasons}. no new claims to deallocate, preemption: 0/{total} nodes are available: {help}."
    )
}

fn histogram<'a>(reasons: impl Iterator<Item = &'a str>) -> String {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    reasons.for_each(|reason| *count.entry(reason).or_default() += 1);
    let mut lines: Vec<String> = count.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    lines.sort();
    lines.join(", ")
}

/// The labels of a node that its pods get too.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

fn bind(context: &Context<'_>, pod: &Value, node: &Value, plan: &mut Plan) {
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": time_text(context.now), "observedGeneration": meta::generation(pod),
    });
    let conditions = with_condition(pod, scheduled);
    let place = format!("{}/{}", meta::namespace(pod), meta::name(pod));
    let name = meta::name(node);
    let note = Note::normal(pod, "Scheduled", format!("Successfully assigned {place} to {name}"));
    let labels =
        TOPOLOGY.iter().filter_map(|key| Some(((*key).to_owned(), meta::label(node, key)?.to_owned())));
    let deed = Deed::Bind(name.to_owned(), conditions, labels.collect());
    plan.act(Action::on(Known::Pod, pod, deed, "the best node that can take it").noting(note));
}

fn refuse(context: &Context<'_>, pod: &Value, why: &str, plan: &mut Plan) {
    let before = condition(pod, "PodScheduled");
    if before.is_some_and(|c| text(c, "/message") == why && text(c, "/status") == "False") {
        return;
    }
    let unscheduled = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastProbeTime": null, "lastTransitionTime": time_text(context.now),
        "observedGeneration": meta::generation(pod),
    });
    let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    set(&mut status, &["conditions"], with_condition(pod, unscheduled));
    let note = Note::warning(pod, "FailedScheduling", why);
    plan.act(Action::on(Known::Pod, pod, Deed::Status(status), why).noting(note));
}

fn with_condition(pod: &Value, new: Value) -> Value {
    let mut all = items(pod, "/status/conditions").to_vec();
    conditions::put(&mut all, new);
    all.into()
}
