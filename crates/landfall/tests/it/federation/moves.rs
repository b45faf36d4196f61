//! Clusters die and come back; replicas move, and never more of them run than the policy allows.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{MEMBERS, becomes, playground};

const WORKLOAD: &str = r#"
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web
  annotations:
    landfall.dev/replica-policy: '{"holdDownSeconds": 2, "surgePercent": 25}'
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: echo, image: echo}]
"#;

#[test]
fn replicas_move_when_a_cluster_dies_and_move_back_when_it_returns() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("replicas move", base.path()) else { return };
    playground.give(WORKLOAD);
    let spread = || playground.numbers("rs web", "/status/readyReplicas");
    becomes("spread", &vec![2, 2, 2], spread);

    playground.fault(&["kill", "us-east"]);
    becomes("moved", &vec![3, 3, -1], spread);
    becomes("it says why", &"False ClusterOffline".to_owned(), || playground.propagated("rs web"));
    let told = playground.object("federation", "rs web")["metadata"]["annotations"]["landfall.dev/clusters"]
        .to_string();
    assert!(told.contains("OfflineMigrated") && told.contains("no proof that its pods are dead"), "{told}");

    // While they move back, at most a quarter more than asked for are wanted, and never fewer than asked for are ready.
    let done = AtomicBool::new(false);
    let (most, fewest) = std::thread::scope(|scope| {
        let counter = scope.spawn(|| {
            let (mut most, mut fewest) = (0, i64::MAX);
            while !done.load(Ordering::Acquire) {
                let wanted = playground.numbers("rs web", "/spec/replicas");
                let live: i64 = wanted.iter().filter(|number| **number >= 0).sum();
                most = most.max(live);
                let ready: i64 = spread().iter().map(|number| (*number).max(0)).sum();
                fewest = fewest.min(ready);
            }
            (most, fewest)
        });
        playground.fault(&["heal", "us-east"]);
        becomes("moved back", &vec![2, 2, 2], spread);
        done.store(true, Ordering::Release);
        counter.join().unwrap()
    });
    assert!(fewest >= 6, "{fewest} ready at the least");
    assert!(most <= 8, "{most} wanted at the most");
    becomes("well again", &"True Propagated".to_owned(), || playground.propagated("rs web"));
}

#[test]
fn a_short_outage_moves_nothing_and_a_drain_moves_everything() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("drain", base.path()) else { return };
    playground.kubectl_ok("create deployment web --image=echo --replicas=6");
    let ready = || playground.numbers("deployment web", "/status/readyReplicas");
    becomes("spread", &vec![2, 2, 2], ready);
    // The default hold-down is a minute.
    playground.fault(&["api-down", "eu-west"]);
    becomes("offline", &"False ClusterOffline".to_owned(), || playground.propagated("deployment web"));
    let condition = playground.kubectl_ok(
        "get cluster eu-west -o jsonpath={.status.conditions[?(@.type==\"Offline\")].status}:{.status.region}",
    );
    assert_eq!(condition, "True:eu-west", "the region survives going offline");
    playground.fault(&["heal", "eu-west"]);
    becomes("back", &"True Propagated".to_owned(), || playground.propagated("deployment web"));
    assert_eq!(playground.numbers("deployment web", "/spec/replicas"), [2, 2, 2]);

    playground
        .kubectl_ok(r#"patch cluster eu-west --type=merge -p {"spec":{"cordoned":true,"draining":true}}"#);
    becomes("drained", &vec![3, -1, 3], ready);
    playground
        .kubectl_ok(r#"patch cluster eu-west --type=merge -p {"spec":{"cordoned":false,"draining":false}}"#);
    playground.kubectl_ok("scale deployment web --replicas=9");
    becomes("in use again", &vec![3, 3, 3], ready);
    assert_eq!(MEMBERS.len(), 3);
}

/// Pods that wait for a node or crash are no capacity; where others run, their share runs there.
#[test]
fn replicas_that_cannot_run_in_one_cluster_run_elsewhere() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("replicas that cannot run", base.path()) else { return };
    let warned = |what: &str| {
        playground.kubectl_ok("get events --field-selector reason=WarningInCluster").contains(what)
    };
    playground.give(WORKLOAD);
    let spread = || playground.numbers("rs web", "/status/readyReplicas");
    becomes("spread", &vec![2, 2, 2], spread);
    playground.fault(&["crash", "eu-west"]);
    becomes("away from where they crash", &vec![3, -1, 3], spread);
    becomes("it says why", &true, || warned("eu-west: BackOff: Pod web-"));
    playground.kubectl_ok("delete rs web");
    playground.fault(&["heal"]);

    let overrides = r#"[{"clusters": ["eu-west"], "patch": [{"op": "add", "path": "/spec/template/spec/containers/0/resources", "value": {"requests": {"cpu": "1000"}}}]}]"#;
    let annotations = format!(
        "landfall.dev/replica-policy: '{{\"unschedulableSeconds\": 1}}'\n    landfall.dev/overrides: '{overrides}'"
    );
    let policy = r#"landfall.dev/replica-policy: '{"holdDownSeconds": 2, "surgePercent": 25}'"#;
    playground.give(&WORKLOAD.replace(policy, &annotations).replace("name: web", "name: big"));
    becomes("away from where there is no room", &vec![3, -1, 3], || {
        playground.numbers("rs big", "/status/readyReplicas")
    });
    becomes("it says why", &true, || warned("eu-west: FailedScheduling: Pod big-"));
}

#[test]
fn what_is_left_to_autoscalers_does_not_move() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("autoscalers stand in", base.path()) else { return };
    let policy = r#"{"holdDownSeconds": 2, "surgePercent": 25}"#;
    playground.give(&WORKLOAD.replace(policy, r#"{"onClusterLoss": "Autoscale"}"#));
    becomes("spread", &vec![2, 2, 2], || playground.numbers("rs web", "/status/readyReplicas"));
    playground.fault(&["kill", "us-east"]);
    becomes("it says so", &true, || {
        let object = playground.object("federation", "rs web");
        object["metadata"]["annotations"]["landfall.dev/clusters"].to_string().contains("OfflineAutoscaled")
    });
    assert_eq!(playground.numbers("rs web", "/spec/replicas"), [2, 2, -1]);
}
