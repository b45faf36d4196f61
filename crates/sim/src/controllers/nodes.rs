//! Node lifecycle: notices nodes that fall silent, taints them, and says so of their pods.
//!
//! Reads:      Nodes, Leases in kube-node-lease, Pods
//! Writes:     Nodes' conditions and taints; the condition Ready of pods on nodes that are not; events NodeNotReady
//! Wakes on:   a heartbeat that stays away
//! Guarantees: a node is silent only if nothing was heard while we listened; other taints are left alone

use landfall_api::meta;
use serde_json::{Value, json};

use super::action::{Action, Deed, Note, Plan};
use super::read::{
    Millis, condition, condition_true, created, is_true, items, parse_time, set, text, time_text,
};
use super::{Context, Controller, pods};
use crate::member::nodes::LEASES;
use crate::view::Known;

/// Its row.
pub(super) const CONTROLLER: Controller =
    Controller { name: "node-controller", reads: &[Known::Node, Known::Lease, Known::Pod], decide };

/// Conditions that nobody knows anything about when a node is silent.
const WATCHED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Taints that stand for a condition: its type, the status, the taint, whether pods must leave.
const TAINTS: [(&str, &str, &str, bool); 5] = [
    ("Ready", "Unknown", "node.kubernetes.io/unreachable", true),
    ("Ready", "False", "node.kubernetes.io/not-ready", true),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure", false),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure", false),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure", false),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for node in context.view.all(Known::Node).filter(|node| !meta::deleting(node)) {
        reconcile(context, node, &mut plan);
    }
    plan
}

fn reconcile(context: &Context<'_>, node: &Value, plan: &mut Plan) {
    let grace = i64::try_from(context.settings.timings.node_grace.as_millis()).unwrap_or(i64::MAX);
    let due = heard(context, node).saturating_add(grace);
    if due > context.now {
        plan.again(due);
    } else if WATCHED.iter().any(|ty| !says(node, ty, "Unknown")) {
        let mut action =
            Action::on(Known::Node, node, Deed::Status(silent(node, context.now)), "no heartbeat in time");
        if condition_true(node, "Ready") {
            let message = format!("Node {} status is now: NodeNotReady", meta::name(node));
            action = action.noting(Note::normal(node, "NodeNotReady", message));
        }
        plan.act(action);
        return;
    }
    let taints = taints(node, context.now);
    if taints.as_slice() != items(node, "/spec/taints") {
        let value = (!taints.is_empty()).then(|| json!(taints));
        let deed = Deed::Set(vec![("/spec/taints".into(), value)]);
        plan.act(Action::on(Known::Node, node, deed, "as its conditions say"));
        return;
    }
    if !condition_true(node, "Ready") {
        unready_pods(context, node, plan);
    }
}

/// When a node was last heard of. What it said before we listened counts, and so does that we have just begun.
fn heard(context: &Context<'_>, node: &Value) -> Millis {
    let lease = context.view.get(Known::Lease, LEASES, meta::name(node));
    let renewed = lease.and_then(|lease| parse_time(text(lease, "/spec/renewTime"))).unwrap_or(0);
    let posted = condition(node, "Ready")
        .filter(|c| text(c, "/status") != "Unknown")
        .and_then(|c| parse_time(text(c, "/lastHeartbeatTime")))
        .unwrap_or(0);
    renewed.max(posted).max(context.begun).max(created(node))
}

fn says(node: &Value, ty: &str, status: &str) -> bool {
    condition(node, ty).is_some_and(|c| text(c, "/status") == status)
}

/// The status of a silent node.
fn silent(node: &Value, now: Millis) -> Value {
    let mut status = node.get("status").cloned().unwrap_or_else(|| json!({}));
    let mut conditions: Vec<Value> = items(node, "/status/conditions").to_vec();
    for ty in WATCHED {
        let unknown = json!({
            "type": ty, "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": time_text(now),
        });
        match conditions.iter_mut().find(|c| text(c, "/type") == ty) {
            Some(c) if text(c, "/status") == "Unknown" => {}
            Some(c) => {
                let heard = c["lastHeartbeatTime"].clone();
                *c = unknown;
                c["lastHeartbeatTime"] = heard;
            }
            None => conditions.push(unknown),
        }
    }
    set(&mut status, &["conditions"], json!(conditions));
    status
}

/// The taints that a node should have: others' as they are, and ours as its conditions say.
fn taints(node: &Value, now: Millis) -> Vec<Value> {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (ty, status, key, leave) in TAINTS {
        if says(node, ty, status) {
            wanted.push((key, "NoSchedule"));
            if leave {
                wanted.push((key, "NoExecute"));
            }
        }
    }
    if is_true(node, "/spec/unschedulable") {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let ours = |taint: &Value| {
        let key = text(taint, "/key");
        key == UNSCHEDULABLE || TAINTS.iter().any(|row| row.2 == key)
    };
    let is = |taint: &Value, (key, effect): (&str, &str)| {
        text(taint, "/key") == key && text(taint, "/effect") == effect
    };
    let existing = items(node, "/spec/taints");
    let mut taints: Vec<Value> =
        existing.iter().filter(|t| !ours(t) || wanted.iter().any(|w| is(t, *w))).cloned().collect();
    for (key, effect) in wanted {
        if !existing.iter().any(|t| is(t, (key, effect))) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": time_text(now)}));
        }
    }
    taints
}

/// Nobody can say that pods on such a node are ready.
fn unready_pods(context: &Context<'_>, node: &Value, plan: &mut Plan) {
    let on_it = context.view.all(Known::Pod).filter(|pod| text(pod, "/spec/nodeName") == meta::name(node));
    for pod in on_it.filter(|pod| pods::is_ready(pod) && !pods::is_finished(pod)) {
        let mut status = pod["status"].clone();
        let conditions = status["conditions"].as_array_mut().into_iter().flatten();
        for c in conditions.filter(|c| text(c, "/type") == "Ready") {
            c["status"] = json!("False");
            c["lastTransitionTime"] = json!(time_text(context.now));
        }
        let note = Note::warning(pod, "NodeNotReady", "Node is not ready");
        plan.act(Action::on(Known::Pod, pod, Deed::Status(status), "its node is not ready").noting(note));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, deeds, node, pod_on};
    use super::*;

    #[test]
    fn a_silent_node_is_tainted_and_its_pods_are_not_ready() {
        let mut bench = Bench::default();
        bench.put(Known::Node, node("n", json!({})));
        bench.put(Known::Pod, pod_on("p", "n", true));
        let plan = bench.decide(&CONTROLLER);
        assert_eq!(deeds(&plan), Vec::<String>::new());
        let grace = bench.grace();
        assert_eq!(plan.again, Some(bench.begun + grace), "counted from when we began to listen");

        let lease = json!({"metadata": {"name": "n", "namespace": LEASES},
            "spec": {"renewTime": time_text(bench.begun + 2000)}});
        bench.put(Known::Lease, lease);
        bench.now = bench.begun + grace;
        assert!(bench.decide(&CONTROLLER).actions.is_empty(), "it was heard of");
        bench.now = bench.begun + 2000 + grace;
        bench.check(&CONTROLLER, &["status of Node n (no heartbeat in time)"]);
        bench.settle(&CONTROLLER);
        let node_now = bench.view.get(Known::Node, "", "n").unwrap();
        assert!(says(node_now, "Ready", "Unknown"));
        let keys: Vec<&str> = items(node_now, "/spec/taints").iter().map(|t| text(t, "/effect")).collect();
        assert_eq!(keys, ["NoSchedule", "NoExecute"]);
        assert!(!pods::is_ready(bench.view.get(Known::Pod, "a", "p").unwrap()));

        // It comes back: the taints go.
        let mut healthy = (**bench.view.get(Known::Node, "", "n").unwrap()).clone();
        healthy["status"]["conditions"] = json!(crate::member::nodes::conditions(bench.now));
        bench.put(Known::Node, healthy);
        bench.check(&CONTROLLER, &["set -/spec/taints of Node n (as its conditions say)"]);
    }

    #[test]
    fn taints_of_others_stay_and_cordoned_nodes_get_one() {
        let mut bench = Bench::default();
        let other = json!({"key": "mine", "effect": "NoSchedule"});
        let mut object = node("n", json!({"taints": [other], "unschedulable": true}));
        object["status"]["conditions"][0]["status"] = json!("True");
        bench.put(Known::Node, object);
        bench.settle(&CONTROLLER);
        let node_now = bench.view.get(Known::Node, "", "n").unwrap();
        let keys: Vec<&str> = items(node_now, "/spec/taints").iter().map(|t| text(t, "/key")).collect();
        assert_eq!(keys, ["mine", "node.kubernetes.io/memory-pressure", UNSCHEDULABLE]);
    }
}
