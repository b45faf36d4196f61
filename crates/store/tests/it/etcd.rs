//! The store on etcd: the battery on one member and on three with client certificates, and what only etcd does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use landfall_store::etcd::Config;
use landfall_store::{Error, Event, OpenError, connect_etcd};

use crate::battery::{self, next, value};
use crate::cluster::{self, Cluster, Options, free_ports};

async fn run_battery(cluster: &Cluster) {
    let count = AtomicUsize::new(0);
    battery::run(async || {
        cluster.connect(&format!("/case-{}/", count.fetch_add(1, Ordering::Relaxed))).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_battery_on_one_member() {
    let Some(cluster) = cluster::start(Options { members: 1, ..Options::default() }) else { return };
    run_battery(&cluster).await;
    roots_are_apart(&cluster).await;
    several_hubs(&cluster).await;
    keys_of_one_lease_come_together(&cluster).await;
    large_values_are_refused(&cluster).await;
    dead_endpoints_are_passed_over(&cluster).await;
    a_starting_hub_reads_many_pages(&cluster).await;
    hubs_compact_in_turn(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_battery_on_three_members_with_certificates() {
    let Some(cluster) = cluster::start(Options { members: 3, tls: true, ..Options::default() }) else {
        return;
    };
    run_battery(&cluster).await;
    several_hubs(&cluster).await;

    let mut config = cluster.config("/refused/");
    config.request_timeout = Duration::from_secs(1);
    config.tls.as_mut().unwrap().client_pem = None;
    let refused = connect_etcd(config).await.err().unwrap();
    assert!(matches!(refused, OpenError::Unreachable(_)), "not {refused}");
}

async fn roots_are_apart(cluster: &Cluster) {
    let (one, other) = (cluster.connect("/one/").await, cluster.connect("/one0/").await);
    one.create("a/1", value("x"), None).await.unwrap();
    assert!(battery::list(&other, "").await.is_empty());
    other.create("a/1", value("y"), None).await.unwrap();
    assert_eq!(battery::list(&one, "").await, ["a/1=x"]);
}

/// An acknowledged write on one hub is read on the other, and a watch goes on there, also on one that starts later.
async fn several_hubs(cluster: &Cluster) {
    let (a, b) = (cluster.connect("/hubs/").await, cluster.connect("/hubs/").await);
    let start = a.barrier().await.unwrap();
    for index in 0..50 {
        let key = format!("a/{index}");
        let (writer, reader) = if index % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let made = writer.create(&key, value("x"), None).await.unwrap();
        let reached = reader.barrier().await.unwrap();
        assert!(reached >= made.revision);
        assert_eq!(reader.snapshot().get(&key).unwrap().revision, made.revision);
    }
    let mut on_a = a.watch("a/", start).unwrap();
    let first = next(&mut on_a, 20).await;
    let reached = on_a.yielded();
    assert!(reached > start);
    let rest = next(&mut a.watch("a/", reached).unwrap(), 50 - first.len()).await;
    let late = cluster.connect("/hubs/").await;
    for hub in [&b, &late] {
        let mut resumed = hub.watch("a/", reached).unwrap();
        assert_eq!(next(&mut resumed, rest.len()).await, rest);
    }
    let ahead = a.create("a/ahead", value("x"), None).await.unwrap();
    let mut not_there_yet = b.watch("a/", ahead.revision).unwrap();
    let more = a.create("a/more", value("x"), None).await.unwrap();
    assert_eq!(next(&mut not_there_yet, 1).await, [format!("+a/more=x@{}", more.revision)]);
}

/// Keys on one lease are removed at one revision; no batch ends between them.
async fn keys_of_one_lease_come_together(cluster: &Cluster) {
    let store = cluster.connect("/lease/").await;
    let ttl = Some(Duration::from_secs(3));
    let made =
        futures::future::join_all(["a/1", "a/2", "a/3"].map(|key| store.create(key, value("x"), ttl))).await;
    let last = made.into_iter().map(|made| made.unwrap().revision).max().unwrap();
    let mut watch = store.watch("a/", last).unwrap();
    let mut removed = Vec::new();
    while removed.len() < 3 {
        let mut events = Vec::new();
        watch.next_batch(&mut events, 1).await.unwrap();
        let revisions = events.iter().map(|event| match event {
            Event::Change(change) if change.removed => change.revision(),
            other => panic!("not {other:?}"),
        });
        removed.extend(revisions);
    }
    assert_eq!(removed, [removed[0]; 3], "one lease ends at one revision");
    assert_eq!(store.snapshot_at(last).await.unwrap().len(), 3);
    assert_eq!(store.snapshot_at(removed[0]).await.unwrap().len(), 0);
}

async fn large_values_are_refused(cluster: &Cluster) {
    let store = cluster.connect("/large/").await;
    let refused = store.create("a/large", Bytes::from(vec![0; 1_700_000]), None).await;
    assert!(matches!(refused, Err(Error::TooLarge(_))), "not {refused:?}");
    store.create("a/fits", Bytes::from(vec![0; 1_400_000]), None).await.unwrap();
}

async fn dead_endpoints_are_passed_over(cluster: &Cluster) {
    let dead = format!("http://127.0.0.1:{}", free_ports(1)[0]);
    let mut config = cluster.config("/dead/");
    config.endpoints.insert(0, dead.clone());
    config.endpoints.push(dead.clone());
    let store = connect_etcd(config).await.unwrap();
    store.create("a/1", value("x"), None).await.unwrap();
    assert_eq!(battery::list(&store, "").await, ["a/1=x"]);

    let config = Config { request_timeout: Duration::from_millis(300), ..Config::new([dead.clone()]) };
    let unreachable = connect_etcd(config).await.err().unwrap();
    assert!(unreachable.to_string().contains(&dead), "{unreachable}");
    let none = connect_etcd(Config::new(Vec::<String>::new())).await.err().unwrap();
    assert!(matches!(none, OpenError::Config(_)), "not {none}");
}

async fn a_starting_hub_reads_many_pages(cluster: &Cluster) {
    let store = cluster.connect("/pages/").await;
    let writes = (0..2500).map(|index| {
        let store = &store;
        async move { store.create(&format!("a/{index}"), value("x"), None).await.unwrap() }
    });
    futures::stream::iter(writes).buffer_unordered(64).for_each(async |_| {}).await;
    let late = cluster.connect("/pages/").await;
    assert_eq!(late.snapshot().len(), 2500);
    let reached = late.snapshot().revision();
    assert!(matches!(late.watch("a/", 1), Err(Error::TooOld { .. })));
    assert_eq!(
        late.snapshot_at(reached - 2000).await.unwrap().len(),
        500,
        "etcd still has what this hub never saw"
    );
}

async fn hubs_compact_in_turn(cluster: &Cluster) {
    let mut config = cluster.config("/compact/");
    config.compact_every = Some(Duration::from_millis(300));
    let (a, b) = (cluster::connect(config.clone()).await, cluster::connect(config).await);
    let first = a.create("a/1", value("x"), None).await.unwrap();
    let outsider = cluster.connect("/compact/").await;
    outsider.compact(first.revision).await.unwrap();
    let mut watch = a.watch("a/", first.revision).unwrap();
    for index in 2..12 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let made = b.create(&format!("a/{index}"), value("x"), None).await.unwrap();
        assert_eq!(next(&mut watch, 1).await, [format!("+a/{index}=x@{}", made.revision)]);
    }
    // A hub that starts now finds the first revision compacted.
    let late = cluster.connect("/compact/").await;
    assert!(matches!(late.snapshot_at(first.revision).await, Err(Error::TooOld { .. })));
    assert_eq!(late.snapshot().len(), 11);
}
