//! Nodes that are lost: what their pods do meanwhile, and afterwards.

use std::sync::Arc;

use landfall_apiserver::write::update::Part;
use serde_json::{Value, json};

use super::{command, echo};
use crate::agent::last_words;
use crate::agent::objects::Change;
use crate::testing::{World, at, condition, get};

/// Creates a pod on the other node.
async fn pod_on_n2(world: &World, name: &str, mut spec: Value) {
    spec["nodeName"] = json!("n2");
    let metadata = json!({"name": name, "namespace": "default"});
    world
        .create("", "pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
        .await;
}

/// Waits so long, measured by what happens on the other node.
async fn wait_s(world: &World, name: &str, seconds: u32) {
    pod_on_n2(world, name, command("Never", &["sleep", &seconds.to_string()])).await;
    world.pod_until(name, "it is done", |pod| pod["status"]["phase"] == "Succeeded").await;
}

/// When a node had been away, others had said that its pods are not ready, and it never said otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_insists_that_it_is_ready() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let before = world.ready("web").await;
    let unready = |pod: &mut Value| {
        let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().filter(|c| c["type"] == "Ready").for_each(|c| c["status"] = json!("False"));
    };
    world.change("", "pods", "web", Part::Status, unready).await;
    let version = |pod: &Value| pod["metadata"]["resourceVersion"].clone();
    let is_new = |pod: &Value| version(pod) != version(&before) && condition(pod, "Ready") == "True";
    world.pod_until("web", "it is ready again", is_new).await;
    world.gate.change(|faults| assert!(faults.nodes_lost.insert("n1".into())));
    while get(at(&before, 8080), "/").await.is_ok() {}
    world.change("", "pods", "web", Part::Status, unready).await;
    world.gate.heal();
    world.ready("web").await;
    world.stop().await;
}

/// Probes went on while the wires were cut, and what they found restarted containers when the node was back.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_restarted_because_the_node_was_lost() {
    let world = World::start().await;
    let mut spec = echo();
    let probe = json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1, "failureThreshold": 1});
    spec["containers"][0]["livenessProbe"] = probe.clone();
    spec["containers"][0]["readinessProbe"] = probe;
    world.pod("web", spec).await;
    let to = at(&world.ready("web").await, 8080);
    for (round, dead) in [("one", false), ("two", true)] {
        world.gate.change(|faults| {
            faults.dead = dead;
            faults.nodes_lost.insert("n1".into());
        });
        while get(to, "/").await.is_ok() {}
        if dead {
            // Nothing else is there to wait for: everything is gone.
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        } else {
            wait_s(&world, &format!("away-{round}"), 2).await;
        }
        world.gate.heal();
        wait_s(&world, &format!("back-{round}"), 2).await;
        let pod = world.ready("web").await;
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{round}");
        assert!(get(to, "/").await.is_ok());
    }
    let events = world.events("web");
    assert!(!events.iter().any(|event| event.starts_with("Unhealthy")), "{events:?}");
    world.stop().await;
}

/// A pod on its way out when its node was lost was removed by the node that nobody could hear.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_removes_nothing() {
    let world = World::start().await;
    let mut spec = echo();
    spec["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
    world.pod("web", spec).await;
    let to = at(&world.ready("web").await, 8080);
    world.delete("pods", "web", None).await;
    let leaving = world.pod_until("web", "it leaves", |pod| condition(pod, "Ready") == "False").await;
    world.gate.change(|faults| assert!(faults.nodes_lost.insert("n1".into())));
    while get(to, "/").await.is_ok() {}
    wait_s(&world, "meanwhile", 2).await;
    let still = world.pod_until("web", "it is there", |_| true).await;
    assert_eq!(still["metadata"]["resourceVersion"], leaving["metadata"]["resourceVersion"]);
    world.gate.heal();
    world.pod_until("web", "it is gone", Value::is_null).await;
    world.stop().await;
}

/// Under load a pod was made, given an address and deleted within one batch of changes; the oldest of them was told last, and
/// the pod never left.
#[test]
fn of_many_words_on_one_pod_the_last_counts() {
    let change =
        |name: &str, version: i64| Change { key: name.into(), object: Some(Arc::new(json!(version))) };
    let words =
        vec![change("a", 1), change("b", 2), change("a", 3), Change { key: "c".into(), object: None }];
    let last: Vec<(Arc<str>, Option<Value>)> = last_words(words)
        .into_iter()
        .map(|change| (change.key, change.object.map(|object| (*object).clone())))
        .collect();
    assert_eq!(last, [("b".into(), Some(json!(2))), ("a".into(), Some(json!(3))), ("c".into(), None)]);
}
