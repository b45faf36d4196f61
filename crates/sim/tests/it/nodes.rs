//! Nodes that are lost, come back, are cordoned and removed.

use landfall_api::meta;
use landfall_apiserver::housekeeping::client::Place;
use landfall_apiserver::write::update::Part;
use landfall_sim::controllers::driver::now;
use landfall_sim::controllers::read::{condition_true, text};
use landfall_sim::member::nodes;
use serde_json::{Value, json};

use crate::lab::{has, lab};

fn ready_on<'a>(pods: &'a [Value], node: &'a str) -> impl Iterator<Item = &'a Value> {
    pods.iter().filter(move |p| text(p, "/spec/nodeName") == node && condition_true(p, "Ready"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_node_is_noticed_and_its_pods_are_replaced() {
    let Some(lab) = lab("node-lost").await else { return };
    lab.ok("create deployment web --image=echo:1 --replicas=3").await;
    lab.ok("rollout status deployment/web --timeout=30s").await;
    lab.silent.lock().push("node-3".into());
    lab.until("not ready", |api| {
        let all = api.list("", "nodes", "");
        all.iter().any(|n| meta::name(n) == "node-3" && !condition_true(n, "Ready"))
            && ready_on(&api.list("", "pods", "default"), "node-3").count() == 0
    })
    .await;
    has(&lab.ok("get node node-3").await, "NotReady");
    has(&lab.ok("describe node node-3").await, "node.kubernetes.io/unreachable:NoExecute");
    has(&lab.ok("describe node node-3").await, "NodeStatusUnknown");
    lab.until("replaced", |api| {
        let pods = api.list("", "pods", "default");
        pods.iter().filter(|p| condition_true(p, "Ready") && !meta::deleting(p)).count() == 3
    })
    .await;
    has(&lab.ok("get pods").await, "Terminating");

    // The node comes back: it says so, ends what was deleted meanwhile, and is used again.
    lab.silent.lock().clear();
    let api = lab.member.client("kubelet");
    let healthy = |old: &Value| {
        let mut node = old.clone();
        node["status"]["conditions"] = json!(nodes::conditions(now()));
        Ok(node)
    };
    api.modify(&Place::new("", "nodes", "", "node-3"), Part::Status, healthy).await.unwrap();
    lab.until("no taints", |api| {
        let all = api.list("", "nodes", "");
        all.iter().all(|n| n.pointer("/spec/taints").is_none())
    })
    .await;
    has(&lab.ok("get node node-3").await, " Ready");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordoned_node_takes_nothing_and_a_removed_one_loses_its_pods() {
    let Some(lab) = lab("cordon").await else { return };
    lab.ok("cordon node-1").await;
    lab.ok("cordon node-2").await;
    lab.ok("create deployment web --image=echo:1 --replicas=2").await;
    lab.ok("rollout status deployment/web --timeout=30s").await;
    assert_eq!(ready_on(&lab.list("", "pods"), "node-3").count(), 2);
    lab.ok("cordon node-3").await;
    lab.ok("delete node node-3").await;
    lab.until("pods wait", |api| {
        let pods = api.list("", "pods", "default");
        pods.len() == 2 && pods.iter().all(|p| text(p, "/spec/nodeName").is_empty())
    })
    .await;
    lab.until("and say why", |api| {
        let pods = api.list("", "pods", "default");
        let says = |p: &Value| {
            text(p, "/status/conditions/0/message")
                .starts_with("0/2 nodes are available: 2 node(s) were unschedulable.")
        };
        pods.iter().all(says)
    })
    .await;
    lab.ok("uncordon node-1").await;
    lab.ok("rollout status deployment/web --timeout=30s").await;
    lab.ok("create pdb web --selector=app=web --max-unavailable=0").await;
    lab.until("the budget is counted", |api| {
        let budgets = api.list("policy", "poddisruptionbudgets", "default");
        budgets.iter().any(|b| b["status"]["currentHealthy"] == json!(2))
    })
    .await;
    has(&lab.run("drain node-1 --force --timeout=2s").await, "violate the pod's disruption budget");
    lab.ok("delete pdb web").await;
    let drained = lab.ok("drain node-1 --force --timeout=30s").await;
    has(&drained, "evicting pod default/web-");
    has(&drained, "drained");
    lab.stop().await;
}
