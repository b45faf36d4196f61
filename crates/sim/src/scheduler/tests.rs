//! Which node a pod gets, or why none.

use serde_json::{Value, json};

use super::*;
use crate::controllers::testing::{Bench, node, pod_on};

fn waiting(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name, "namespace": "a", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Pending"}});
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// Three nodes in two zones; the third has a taint.
fn bench() -> Bench {
    let mut bench = Bench::default();
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b")] {
        let mut object = node(name, json!({}));
        object["metadata"]["labels"]["zone"] = json!(zone);
        if name == "n3" {
            object["spec"]["taints"] = json!([{"key": "only", "value": "b", "effect": "NoSchedule"}]);
        }
        bench.put(Known::Node, object);
    }
    bench
}

/// What becomes of a pod: its node, or the beginning of the message.
fn outcome(bench: &Bench) -> String {
    let plan = bench.decide(&CONTROLLER);
    match &plan.actions[0].deed {
        Deed::Bind(node, ..) => node.clone(),
        _ => plan.actions[0].why.split(". no new").next().unwrap().to_owned(),
    }
}

#[track_caller]
fn check(bench: &mut Bench, spec: &Value, expected: &str) {
    bench.put(Known::Pod, waiting("p", spec));
    assert_eq!(outcome(bench), expected, "{spec}");
    bench.remove(Known::Pod, "a", "p");
}

fn asks(cpu: &str) -> Value {
    json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
}

#[test]
fn nodes_are_filtered_as_kubernetes_does() {
    let bench = &mut bench();
    let tolerates = json!([{"key": "only", "operator": "Exists"}]);
    check(bench, &json!({}), "n1");
    check(bench, &json!({"nodeSelector": {"kubernetes.io/hostname": "n2"}}), "n2");
    check(
        bench,
        &json!({"nodeSelector": {"zone": "b"}}),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match Pod's node affinity/selector",
    );
    check(bench, &json!({"nodeSelector": {"zone": "b"}, "tolerations": tolerates}), "n3");
    check(
        bench,
        &json!({"containers": asks("5")}),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu",
    );
    let term = |operator: &str, values: Value| {
        let expression = json!({"key": "zone", "operator": operator, "values": values});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}, "tolerations": tolerates})
    };
    check(bench, &term("In", json!(["b"])), "n3");
    check(bench, &term("NotIn", json!(["a"])), "n3");
    let none = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector";
    check(bench, &term("DoesNotExist", json!([])), none);
    let prefers = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 50, "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In",
            "values": ["n2"]}]}}]}}});
    check(bench, &prefers, "n2");
}

#[test]
fn what_runs_counts() {
    let bench = &mut bench();
    let mut big = pod_on("big", "n1", true);
    big["spec"]["containers"] = json!([{"name": "c", "ports": [{"hostPort": 80}],
        "resources": {"requests": {"cpu": "3500m"}}}]);
    bench.put(Known::Pod, big);
    check(bench, &json!({"containers": asks("1")}), "n2");
    check(bench, &json!({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}), "n2");
    let mut full = (**bench.view.get(Known::Node, "", "n2").unwrap()).clone();
    full["status"]["allocatable"]["pods"] = json!("0");
    bench.put(Known::Node, full);
    check(
        bench,
        &json!({"containers": asks("1")}),
        "0/3 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) had untolerated taint(s)",
    );
}

#[test]
fn pods_keep_together_or_apart() {
    let bench = &mut bench();
    let mut other = pod_on("other", "n2", true);
    other["metadata"]["labels"] = json!({"app": "x"});
    bench.put(Known::Pod, other);
    let rule = |kind: &str, key: &str, app: &str| {
        json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}})
    };
    check(bench, &rule("podAffinity", "kubernetes.io/hostname", "x"), "n2");
    check(bench, &rule("podAntiAffinity", "kubernetes.io/hostname", "x"), "n1");
    check(
        bench,
        &rule("podAntiAffinity", "zone", "x"),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match pod anti-affinity rules",
    );
    check(
        bench,
        &rule("podAffinity", "zone", "nobody"),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match pod affinity rules",
    );
    bench.remove(Known::Pod, "a", "other");
    check(bench, &rule("podAffinity", "zone", "x"), "n1");
}

#[test]
fn domains_are_filled_evenly() {
    let bench = &mut bench();
    let mut untainted = (**bench.view.get(Known::Node, "", "n3").unwrap()).clone();
    untainted["spec"] = json!({});
    bench.put(Known::Node, untainted);
    let mut other = pod_on("other", "n1", true);
    other["metadata"]["labels"] = json!({"app": "x"});
    bench.put(Known::Pod, other);
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}}]});
    check(bench, &spread, "n3");
}

#[test]
fn a_refusal_is_said_once_and_the_whole_message_is_kubernetes() {
    let mut bench = bench();
    bench.put(Known::Pod, waiting("p", &json!({"containers": asks("5")})));
    let plan = bench.decide(&CONTROLLER);
    let expected = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new claims to \
         deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    assert_eq!(plan.actions[0].why, expected);
    assert_eq!(plan.actions[0].note.as_ref().unwrap().reason, "FailedScheduling");
    bench.perform(plan);
    assert!(bench.decide(&CONTROLLER).actions.is_empty());
    let mut gated = waiting("q", &json!({"schedulingGates": [{"name": "wait"}]}));
    bench.put(Known::Pod, gated.clone());
    gated["metadata"]["name"] = json!("r");
    gated["spec"] = json!({"schedulerName": "mine", "containers": []});
    bench.put(Known::Pod, gated);
    assert!(bench.decide(&CONTROLLER).actions.is_empty(), "neither is ours to place");
}

#[test]
fn a_pod_gets_the_labels_that_say_where_it_is() {
    let mut bench = Bench::default();
    let mut home = node("n1", json!({}));
    home["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("a");
    bench.put(Known::Node, home);
    bench.put(Known::Pod, waiting("p", &json!({})));
    bench.settle(&CONTROLLER);
    let pod = bench.view.all(Known::Pod).next().unwrap();
    assert_eq!(meta::label(pod, "topology.kubernetes.io/zone"), Some("a"));
    assert_eq!(meta::label(pod, "topology.kubernetes.io/region"), None, "the node has none");
}

#[test]
fn one_pass_fills_no_node_beyond_its_room() {
    let mut bench = bench();
    for at in 0..10 {
        bench.put(Known::Pod, waiting(&format!("p{at}"), &json!({"containers": asks("1")})));
    }
    let plan = bench.decide(&CONTROLLER);
    let bound = |node: &str| {
        plan.actions.iter().filter(|a| matches!(&a.deed, Deed::Bind(n, ..) if n == node)).count()
    };
    assert_eq!((bound("n1"), bound("n2"), bound("n3")), (4, 4, 0));
}
