//! Many members in one process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_runtime::tasks::Tasks;
use landfall_sim::address::Claim;
use landfall_sim::controllers::read::{items, text};
use landfall_sim::{Member, Timings};
use serde_json::json;

use crate::lab;

/// Resident memory of this process in MiB.
fn resident_mib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096 / (1 << 20)
}

/// Starts so many members, gives each a Deployment of so many pods, and says what they cost.
async fn many(members: usize, pods: usize) -> (Duration, usize, usize) {
    let before = resident_mib();
    let began = Instant::now();
    let claims: Vec<Claim> = (0..members).map(|_| Claim::take(None).unwrap()).collect();
    let starts = claims.iter().enumerate().map(|(at, claim)| {
        let config = lab::config(&format!("m{at}"), claim, Timings::KUBERNETES);
        async move { Arc::new(Member::start(config).await.unwrap()) }
    });
    let all: Vec<Arc<Member>> = futures::future::join_all(starts).await;
    let (took, idle) = (began.elapsed(), resident_mib() - before);
    let tasks = Tasks::default();
    for member in &all {
        tasks.spawn_until_stop(lab::agent(member.clone(), lab::Silent::default(), Arc::new(|_| true)));
        let place =
            landfall_apiserver::housekeeping::client::Place::new("apps", "deployments", "default", "web");
        let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": pods,
            "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "echo"}]}}}});
        member.client("test").create(&place, deployment).await.unwrap();
    }
    for member in &all {
        let ready = || {
            let objects = member.client("test").list("apps", "deployments", "default");
            objects.iter().any(|d| d["status"]["availableReplicas"] == json!(pods))
        };
        let deadline = Instant::now() + Duration::from_secs(240);
        while !ready() {
            assert!(Instant::now() < deadline, "{}: not all available", member.name());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let pods = member.client("test").list("", "pods", "default");
        assert!(pods.iter().all(|pod| text(pod, "/status/podIP").starts_with("127.")));
        assert!(!items(&pods[0], "/status/conditions").is_empty());
    }
    let full = resident_mib() - before;
    tasks.join().await;
    for member in &all {
        member.stop().await;
    }
    (took, idle, full)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "how many is asked on the command line")]
async fn members_are_cheap() {
    let many_members = std::env::var("LANDFALL_MEMBERS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let (took, idle, full) = many(many_members, 25).await;
    println!("{many_members} members: {took:?} to start, {idle} MiB idle, {full} MiB with 25 pods each");
    // 200 with 5,000 pods must fit in 2 GiB: 10 MiB each.
    assert!(full < many_members * 10, "{full} MiB");
}
