//! Eviction by taints, and pods whose node is gone.
//!
//! Reads:      Nodes, Pods
//! Writes:     deletes Pods; events TaintManagerEviction
//! Wakes on:   a toleration that runs out
//! Guarantees: a pod that tolerates a taint for so long stays for so long, counted from when the taint was added

use landfall_api::meta;
use serde_json::Value;

use super::action::{Action, Deed, Note, Plan};
use super::read::{Millis, items, parse_time, text};
use super::{Context, Controller};
use crate::scheduler::taints;
use crate::view::Known;

/// Its row.
pub(super) const CONTROLLER: Controller =
    Controller { name: "taint-eviction-controller", reads: &[Known::Node, Known::Pod], decide };

/// The row of pods whose node is gone.
pub(super) const GARBAGE: Controller =
    Controller { name: "pod-garbage-collector", reads: &[Known::Node, Known::Pod], decide: collect };

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for pod in context.view.all(Known::Pod).filter(|pod| !meta::deleting(pod)) {
        let Some(node) = context.view.get(Known::Node, "", text(pod, "/spec/nodeName")) else { continue };
        match leaves_at(pod, node) {
            None => {}
            Some(at) if at > context.now => plan.again(at),
            Some(_) => {
                let place = format!("{}/{}", meta::namespace(pod), meta::name(pod));
                let message = format!("Marking for deletion Pod {place}");
                let note = Note::normal(pod, "TaintManagerEviction", message);
                let why = "its node has a taint that it does not tolerate (any longer)";
                plan.act(Action::on(Known::Pod, pod, Deed::Delete(None), why).noting(note));
            }
        }
    }
    plan
}

/// When a pod must leave its node; none for never.
fn leaves_at(pod: &Value, node: &Value) -> Option<Millis> {
    let mut due = None;
    for taint in items(node, "/spec/taints").iter().filter(|t| text(t, "/effect") == "NoExecute") {
        let tolerations = items(pod, "/spec/tolerations").iter();
        let mut covering = tolerations.filter(|t| taints::covers(t, taint)).peekable();
        if covering.peek().is_none() {
            return Some(0);
        }
        let seconds = covering.filter_map(|t| t.get("tolerationSeconds").and_then(Value::as_i64)).min();
        let since = parse_time(text(taint, "/timeAdded")).unwrap_or(0);
        let at = seconds.map(|s| since.saturating_add(s.max(0).saturating_mul(1000)));
        due = [due, at].into_iter().flatten().min();
    }
    due
}

fn collect(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for pod in context.view.all(Known::Pod) {
        let node = text(pod, "/spec/nodeName");
        if !node.is_empty() && context.view.get(Known::Node, "", node).is_none() {
            let why = format!("its node {node} is gone");
            plan.act(Action::on(Known::Pod, pod, Deed::Delete(Some(0)), why));
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Bench, deeds, node, pod_on};
    use super::*;

    fn check(tolerations: &Value, expected: Option<i64>) {
        let taint = json!({"key": "k", "effect": "NoExecute", "timeAdded": "1970-01-01T00:01:00Z"});
        let node = node("n", json!({"taints": [taint, {"key": "soft", "effect": "NoSchedule"}]}));
        let mut pod = pod_on("p", "n", true);
        pod["spec"]["tolerations"] = tolerations.clone();
        assert_eq!(leaves_at(&pod, &node), expected, "{tolerations}");
    }

    #[test]
    fn tolerations_say_how_long() {
        check(&json!([]), Some(0));
        check(&json!([{"key": "k", "operator": "Exists"}]), None);
        check(&json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 30}]), Some(90_000));
        check(&json!([{"key": "k", "operator": "Exists", "tolerationSeconds": -5}]), Some(60_000));
        let two = json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 30},
            {"operator": "Exists", "tolerationSeconds": 10}]);
        check(&two, Some(70_000));
    }

    #[test]
    fn pods_leave_in_time_and_pods_of_no_node_go_at_once() {
        let mut bench = Bench::default();
        let added = super::super::read::time_text(bench.now);
        let taint = json!({"key": "k", "effect": "NoExecute", "timeAdded": added});
        bench.put(Known::Node, node("n", json!({"taints": [taint]})));
        let mut pod = pod_on("p", "n", true);
        pod["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 5}]);
        bench.put(Known::Pod, pod);
        bench.put(Known::Pod, pod_on("lost", "nowhere", true));
        let plan = bench.decide(&CONTROLLER);
        assert!(plan.actions.is_empty() && plan.again == Some(bench.now + 5000));
        bench.now += 5000;
        assert_eq!(bench.decide(&CONTROLLER).actions.len(), 1);
        assert_eq!(deeds(&bench.decide(&GARBAGE)), ["delete Pod a/lost (its node nowhere is gone)"]);
    }
}
