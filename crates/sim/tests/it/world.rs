//! A whole world: controllers and node agents together, broken and mended.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use landfall_apiserver::housekeeping::client::Place;
use landfall_apiserver::local::Local;
use landfall_apiserver::write::delete::DeleteOptions;
use landfall_sim::controllers::read::condition_true;
use landfall_sim::world::config::WorldConfig;
use landfall_sim::world::fault::{Fault, Pods};
use landfall_sim::world::{Start, World};
use serde_json::{Value, json};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

async fn world() -> (World, Local) {
    let config: WorldConfig = "clusters: [{name: lab, nodes: 2}]".parse().unwrap();
    let world = World::start(&config, &Start::default(), |_| {}).await.unwrap();
    let api = world.sites()[0].member.client("test");
    (world, api)
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn job(name: &str, spec: &Value, script: &str, policy: &str) -> Value {
    let container = json!({"name": "work", "image": "busybox", "command": ["sh", "-c", script]});
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": policy, "containers": [container]}}},
    });
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

async fn create(api: &Local, group: &str, plural: &str, object: Value) {
    api.create(&Place::new(group, plural, "default", ""), object).await.unwrap();
}

async fn get(api: &Local, group: &str, plural: &str, name: &str) -> Value {
    api.get(&Place::new(group, plural, "default", name)).await.unwrap()
}

fn pods(api: &Local, phase: &str) -> Vec<Value> {
    api.list("", "pods", "default").into_iter().filter(|pod| pod["status"]["phase"] == phase).collect()
}

/// The agent once reported every deleted container as well done, so that a Job whose pod was deleted was complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_pod_of_a_job_is_no_success() {
    let (world, api) = world().await;
    create(&api, "batch", "jobs", job("long", &json!({}), "sleep 1000", "Never")).await;
    let first = eventually("a running pod", async || pods(&api, "Running").pop()).await;
    let name = first["metadata"]["name"].as_str().unwrap().to_owned();
    api.delete(&Place::new("", "pods", "default", &name), &DeleteOptions::BACKGROUND).await.unwrap();
    let second = eventually("another pod", async || {
        pods(&api, "Running").into_iter().find(|pod| pod["metadata"]["name"] != name.as_str())
    })
    .await;
    assert_ne!(second["metadata"]["uid"], first["metadata"]["uid"]);
    eventually("the first pod's end", async || {
        api.get(&Place::new("", "pods", "default", &name)).await.is_err().then_some(())
    })
    .await;
    let job = get(&api, "batch", "jobs", "long").await;
    assert_eq!(job["status"]["succeeded"].as_u64().unwrap_or(0), 0, "{}", job["status"]);
    world.stop().await;
}

/// Counters once went back with the deleted pod, which the API refuses, so that the Job stood still for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_pod_was_deleted_completes() {
    let (world, api) = world().await;
    create(&api, "batch", "jobs", job("short", &json!({}), "sleep 3", "Never")).await;
    let first = eventually("a running pod", async || pods(&api, "Running").pop()).await;
    let name = first["metadata"]["name"].as_str().unwrap();
    api.delete(&Place::new("", "pods", "default", name), &DeleteOptions::BACKGROUND).await.unwrap();
    let job = eventually("it completes", async || {
        let job = get(&api, "batch", "jobs", "short").await;
        job["status"]["completionTime"].is_string().then_some(job)
    })
    .await;
    assert_eq!(job["status"]["succeeded"], json!(1), "{job}");
    // What is gone before it was counted does not count.
    assert!(job["status"]["failed"].as_i64().unwrap_or(0) <= 1, "{job}");
    world.stop().await;
}

/// Finished pods once kept their addresses, of which a node has 126.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_pods_finish_than_there_are_addresses() {
    let (world, api) = world().await;
    let many = json!({"completions": 300, "parallelism": 60});
    create(&api, "batch", "jobs", job("many", &many, "true", "Never")).await;
    eventually("300 completions", async || {
        let job = get(&api, "batch", "jobs", "many").await;
        (job["status"]["succeeded"] == 300).then_some(())
    })
    .await;
    world.stop().await;
}

/// The node controller once had the last word on pods of a node that came back before they were evicted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_node_that_returns_are_ready_again() {
    let (world, api) = world().await;
    let template = json!({
        "metadata": {"labels": {"app": "d"}},
        "spec": {"containers": [{"name": "echo", "image": "echo"}]},
    });
    let daemons = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template},
    });
    create(&api, "apps", "daemonsets", daemons).await;
    let ready =
        async |api: &Local| get(api, "apps", "daemonsets", "d").await["status"]["numberReady"].as_u64();
    eventually("two ready daemons", async || (ready(&api).await == Some(2)).then_some(())).await;
    let fault = Fault::NodeDown { cluster: "lab".into(), node: "lab-1".into() };
    world.break_or_mend(&fault).await.unwrap();
    eventually("one is not ready", async || (ready(&api).await == Some(1)).then_some(())).await;
    world.break_or_mend(&Fault::Heal { clusters: Vec::new() }).await.unwrap();
    eventually("both are ready again", async || (ready(&api).await == Some(2)).then_some(())).await;
    world.stop().await;
}

fn deployment(replicas: u32) -> Value {
    let probe = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 1});
    let container = json!({"name": "c", "image": "echo", "ports": [{"containerPort": 8080}],
        "livenessProbe": probe, "readinessProbe": probe});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}},
    })
}

/// Waits for so many ready pods; gives all there are.
async fn ready(api: &Local, count: usize) -> Vec<Value> {
    eventually(&format!("{count} ready pods"), async || {
        let pods = api.list("", "pods", "default");
        (pods.iter().filter(|pod| condition_true(pod, "Ready")).count() == count).then_some(pods)
    })
    .await
}

/// Probes once went on while the wires of a node were cut, and restarted its pods when it was back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_node_that_returns_are_the_same_and_were_not_restarted() {
    let (world, api) = world().await;
    create(&api, "apps", "deployments", deployment(4)).await;
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
    let before: BTreeSet<String> = ready(&api, 4).await.iter().map(uid).collect();
    let fault = Fault::NodeDown { cluster: "lab".into(), node: "lab-1".into() };
    world.break_or_mend(&fault).await.unwrap();
    ready(&api, 2).await;
    world.break_or_mend(&Fault::Heal { clusters: Vec::new() }).await.unwrap();
    let after = ready(&api, 4).await;
    assert_eq!(after.iter().map(uid).collect::<BTreeSet<_>>(), before);
    for pod in after {
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{}", pod["status"]);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashing_pods_heal() {
    let (world, api) = world().await;
    create(&api, "apps", "deployments", deployment(3)).await;
    ready(&api, 3).await;
    let crash = Fault::Crash { clusters: vec!["lab".into()], pods: Pods::default() };
    world.break_or_mend(&crash).await.unwrap();
    eventually("all crash", async || {
        let pods = api.list("", "pods", "default");
        let reason =
            |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
        pods.iter().all(|pod| reason(pod) == "CrashLoopBackOff").then_some(())
    })
    .await;
    world.break_or_mend(&Fault::Heal { clusters: Vec::new() }).await.unwrap();
    ready(&api, 3).await;
    world.stop().await;
}

/// Every object but events as `KIND NAMESPACE/NAME UID`.
fn census(api: &Local) -> BTreeSet<String> {
    let kinds = [
        ("", "namespaces"),
        ("", "nodes"),
        ("", "pods"),
        ("", "services"),
        ("", "serviceaccounts"),
        ("", "configmaps"),
        ("", "endpoints"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("batch", "jobs"),
        ("discovery.k8s.io", "endpointslices"),
        ("coordination.k8s.io", "leases"),
    ];
    let line = |plural: &str, object: &Value| {
        let metadata = &object["metadata"];
        let [namespace, name, uid] =
            ["namespace", "name", "uid"].map(|key| metadata[key].as_str().unwrap_or(""));
        format!("{plural} {namespace}/{name} {uid}")
    };
    kinds
        .iter()
        .flat_map(|(group, plural)| api.list(group, plural, "").into_iter().map(|o| line(plural, &o)))
        .collect()
}

/// How many there are in the end of the day below, when everybody is done.
const OBJECTS_OF_A_DAY: usize = 32;

/// What a user does in a world with this seed, and what there is in the end; then a Deployment of an old name.
async fn a_day_of(seed: u64) -> (BTreeSet<String>, [String; 2]) {
    let config: WorldConfig = format!("seed: {seed}\nclusters: [{{name: lab, nodes: 2}}]").parse().unwrap();
    let world = World::start(&config, &Start::default(), |_| {}).await.unwrap();
    let api = world.sites()[0].member.client("test");
    let template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "echo", "ports": [{"containerPort": 8080}]}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    let made =
        api.create(&Place::new("apps", "deployments", "default", ""), deployment.clone()).await.unwrap();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 8080}]}});
    create(&api, "", "services", service).await;
    create(&api, "batch", "jobs", job("once", &json!({"completions": 2}), "exit 0", "Never")).await;
    let generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "notes-"}});
    create(&api, "", "configmaps", generated).await;
    eventually("four pods and a finished job", async || {
        let done = get(&api, "batch", "jobs", "once").await["status"]["succeeded"] == 2;
        let sliced = |slice: &Value| slice["endpoints"].as_array().is_some_and(|all| all.len() == 4);
        let sliced = api.list("discovery.k8s.io", "endpointslices", "default").iter().any(sliced);
        let all = census(&api).len() == OBJECTS_OF_A_DAY;
        (all && done && sliced && pods(&api, "Running").len() == 4).then_some(())
    })
    .await;
    let before = census(&api);
    let place = Place::new("apps", "deployments", "default", "web");
    api.delete(&place, &DeleteOptions::BACKGROUND).await.unwrap();
    let again = api.create(&Place::new("apps", "deployments", "default", ""), deployment).await.unwrap();
    world.stop().await;
    (before, [made, again].map(|object| object["metadata"]["uid"].as_str().unwrap().to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_seeds_give_equal_names_and_uids() {
    let (first, uids) = a_day_of(7).await;
    assert_ne!(uids[0], uids[1], "another object of the same name is another object");
    assert_eq!(a_day_of(7).await, (first.clone(), uids));
    let other = a_day_of(8).await.0;
    let uid = |line: &String| line.rsplit(' ').next().unwrap().to_owned();
    let (one, two): (BTreeSet<_>, BTreeSet<_>) =
        (first.iter().map(uid).collect(), other.iter().map(uid).collect());
    assert!(one.is_disjoint(&two), "and another seed gives others");
    assert_eq!(one.len(), first.len(), "no uid is there twice");
}
