//! What is lost on real clusters: the hub that leads, a whole cluster, one that never returns and returns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::federated::{Federation, HUB, MEMBERS, becomes};
use crate::kinds::WEB;

const RC: &str = "rc my-service -n my-namespace";
/// How soon a cluster that is lost must be told as such.
const OFFLINE: Duration = Duration::from_secs(10);
/// How many of six may be there while replicas move: a quarter more.
const MOST: i64 = 8;

/// Two hubs on one etcd. The one that leads dies in the middle; the other finishes, and nothing is lost or there twice.
pub(crate) fn the_leader_dies_during_a_rollout(federation: &mut Federation) {
    let before = federation.leader();
    let uids =
        |federation: &Federation| MEMBERS.map(|name| federation.object(name, WEB)["metadata"]["uid"].clone());
    let made = uids(federation);
    // From cluster to cluster, so that there is a middle.
    federation
        .kubectl(HUB, r#"annotate deployment web -n my-namespace landfall.dev/rollout={"soakSeconds":3}"#);
    federation.kubectl(HUB, "set env deployment/web -n my-namespace VERSION=2");
    federation.kubectl(HUB, "scale deployment/web -n my-namespace --replicas=9");
    federation.kubectl(HUB, "create configmap late -n my-namespace --from-literal=x=1");
    becomes("it has begun", &true, || versions(federation).contains(&"2".into()));
    federation.kill_hub(&before);
    let midway = versions(federation);
    assert!(midway.contains(&Value::Null), "it died in the middle: {midway:?}");
    becomes("another leads", &true, || federation.leader() != before);
    federation.kubectl(HUB, "rollout status deployment/web -n my-namespace --timeout=120s");
    assert_eq!(federation.numbers(WEB, "/status/updatedReplicas"), [3, 3, 3], "finished");
    becomes("nothing is lost", &[true; 3], || {
        MEMBERS.map(|name| federation.object(name, "configmap late -n my-namespace") != Value::Null)
    });
    assert_eq!(uids(federation), made, "the same shards");
    assert_eq!(versions(federation), ["2"; 3]);
    for name in MEMBERS {
        let sets = federation.object(name, "rs -l app=web -n my-namespace");
        let live =
            sets["items"].as_array().unwrap().iter().filter(|set| set["spec"]["replicas"] != 0).count();
        assert_eq!(live, 1, "nothing is there twice in {name}: {sets}");
    }
    federation.start_hub();
    federation.kubectl(HUB, &format!("delete {WEB} --timeout=60s"));
}

/// Which version every cluster was told to run; null for the first.
fn versions(federation: &Federation) -> [Value; 3] {
    let path = "/apis/apps/v1/namespaces/my-namespace/deployments/web";
    [0, 1, 2].map(|at| {
        let web = federation.rig.cluster(at).api().get(path).unwrap_or_default();
        web.pointer("/spec/template/spec/containers/0/env/0/value").cloned().unwrap_or_default()
    })
}

/// Counts, as often as it can, until it is told to stop: the most that were asked for, and the most pods there were.
fn count(federation: &Federation, done: &AtomicBool) -> (i64, i64, usize) {
    let rc = "/api/v1/namespaces/my-namespace/replicationcontrollers/my-service";
    let pods = "/api/v1/namespaces/my-namespace/pods?labelSelector=run%3Dmy-service";
    let alive = |pod: &&Value| {
        let ended = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        !ended && pod["metadata"]["deletionTimestamp"].is_null()
    };
    let (mut asked, mut made, mut looks) = (0, 0, 0);
    while !done.load(Ordering::Acquire) {
        let (mut asked_now, mut made_now) = (0, 0);
        for at in 0..MEMBERS.len() {
            let cluster = federation.rig.cluster(at);
            // Pods of a cluster whose plugs are pulled are not there, whatever it says when it is back.
            let (Ok(shard), Ok(list)) = (cluster.api().get(rc), cluster.api().get(pods)) else { continue };
            asked_now += shard["spec"]["replicas"].as_i64().unwrap_or(0);
            let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            made_now += i64::try_from(items.iter().filter(alive).count()).unwrap();
        }
        (asked, made, looks) = (asked.max(asked_now), made.max(made_now), looks + 1);
    }
    (asked, made, looks)
}

pub(crate) fn replicas_move_from_a_lost_cluster_and_back(federation: &Federation) {
    federation.kubectl(
        HUB,
        r#"annotate rc my-service -n my-namespace landfall.dev/replica-policy={"holdDownSeconds":5}"#,
    );
    let spread = || federation.numbers(RC, "/status/readyReplicas");
    let done = AtomicBool::new(false);
    let (asked, made, looks) = std::thread::scope(|scope| {
        let counter = scope.spawn(|| count(federation, &done));
        // Also when something below fails: a scope waits for its threads.
        let _done = Done(&done);
        federation.rig.kill_cluster("us-east").unwrap();
        let killed = Instant::now();
        becomes("offline", &"True".to_owned(), || federation.offline("us-east"));
        let seen = killed.elapsed();
        assert!(seen < OFFLINE, "a lost cluster is offline after {seen:?}");
        becomes("moved", &vec![-1, 3, 3], spread);
        becomes("it says why", &"False ClusterOffline".to_owned(), || federation.propagated(RC));
        federation.rig.heal().unwrap();
        becomes("moved back", &vec![2, 2, 2], spread);
        becomes("well again", &"True Propagated".to_owned(), || federation.propagated(RC));
        done.store(true, Ordering::Release);
        counter.join().unwrap()
    });
    println!("{looks} looks: at most {asked} asked for, {made} pods");
    assert!(asked <= MOST && made <= MOST, "{asked} asked for and {made} pods, of {MOST} at the most");
    assert!(asked >= 6 && looks > 10, "{looks} looks saw at most {asked}");
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What is owed to a cluster that is given up is dropped; when it returns after all, it joins as itself, and what it has is found.
pub(crate) fn a_dead_cluster_is_forgotten_and_joins_again(federation: &Federation) {
    federation.rig.kill_api("us-east").unwrap();
    becomes("offline", &"True".to_owned(), || federation.offline("us-east"));
    federation.kubectl(HUB, "delete configmap settings -n my-namespace --timeout=60s");
    federation.kubectl(HUB, "delete secret words -n my-namespace --timeout=60s");
    let owed = federation.kubectl(HUB, "get configmap owed-us-east -n landfall-system -o jsonpath={.data}");
    assert!(owed.contains("ConfigMap_my-namespace_settings"), "{owed}");
    let said = federation.landfall("forget us-east");
    assert!(said.ends_with("cluster.landfall.dev/us-east has left\n"), "{said}");
    becomes("nothing is owed", &Value::Null, || {
        federation.object(HUB, "configmap owed-us-east -n landfall-system")
    });
    becomes("the others run all", &vec![3, 3], || {
        federation.numbers(RC, "/status/readyReplicas").split_off(1)
    });
    // Made anew meanwhile: what is meant now wins over what is there.
    federation.kubectl(HUB, "create configmap settings -n my-namespace --from-literal=color=blue");

    federation.rig.heal().unwrap();
    let pods = || {
        federation.kubectl("us-east", "get pods -n my-namespace -l run=my-service -o name").lines().count()
    };
    assert_eq!(pods(), 2, "nobody has touched what it runs");
    let said = federation.landfall("join us-east --kubeconfig MEMBERS --context us-east");
    assert!(said.ends_with("us-east is ready.\n"), "{said}");
    becomes("as it is meant", &"blue".to_owned(), || {
        let object = federation.object("us-east", "configmap settings -n my-namespace");
        object["data"]["color"].as_str().unwrap_or("").to_owned()
    });
    becomes("two in each again", &vec![2, 2, 2], || federation.numbers(RC, "/status/readyReplicas"));
    becomes("well again", &"True Propagated".to_owned(), || federation.propagated(RC));
    assert_ne!(
        federation.object("us-east", "secret words -n my-namespace"),
        Value::Null,
        "what was owed was dropped"
    );
    federation.kubectl("us-east", "delete secret words -n my-namespace");
    let screen = federation.landfall("status");
    let well = |line: &&str| line.split_whitespace().nth(1) == Some("True");
    assert_eq!(screen.lines().filter(well).count(), 3, "{screen}");
}
