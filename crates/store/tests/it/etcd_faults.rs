//! etcd loses its leader, its quorum, its space, or its connection to us.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use landfall_store::{Error, Event, Watch};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::battery::{self, Shared, next, value};
use crate::cluster::{self, Options};

/// Writes `prefix0`, `prefix1`, … until told to stop; gives the acknowledged keys.
async fn write_until(store: Shared, prefix: &'static str, stop: Arc<AtomicBool>) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for index in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{prefix}{index}");
        match store.create(&key, value("x"), None).await {
            Ok(_) => drop(acknowledged.insert(key)),
            Err(Error::Unavailable(_)) => {}
            Err(other) => panic!("not {other}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    acknowledged
}

/// Reads a watch until the key `end`; the keys before it in order, each at most once.
async fn read_until(mut watch: Watch, end: &str) -> Vec<String> {
    let mut keys = Vec::new();
    loop {
        let mut events = Vec::new();
        watch.next_batch(&mut events, 100).await.expect("the watch survives");
        for event in events {
            let Event::Change(change) = event else { continue };
            if *change.entry.key == *end {
                return keys;
            }
            keys.push(change.entry.key.to_string());
        }
    }
}

/// Waits until a write is done; gives how long that took.
async fn write_when_possible(store: &Shared, key: &str) -> Duration {
    let begin = Instant::now();
    loop {
        match store.create(key, value("x"), None).await {
            Ok(_) | Err(Error::Exists(_)) => return begin.elapsed(),
            Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(other) => panic!("not {other}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "writes never work again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_killed_in_turn_and_then_the_quorum() {
    let Some(mut cluster) = cluster::start(Options { members: 3, ..Options::default() }) else { return };
    let (a, b) = (cluster.connect("/faults/").await, cluster.connect("/faults/").await);
    let start = a.barrier().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    writers.spawn(write_until(Arc::clone(&a), "w/a", Arc::clone(&stop)));
    writers.spawn(write_until(Arc::clone(&b), "w/b", Arc::clone(&stop)));
    let mut readers = JoinSet::new();
    for hub in [&a, &b] {
        let watch = hub.watch("w/", start).unwrap();
        readers.spawn(read_until(watch, "w/end"));
    }

    // One of them is the leader.
    for member in 0..3 {
        cluster.kill(member);
        write_when_possible(&a, &format!("m/{member}")).await;
        write_when_possible(&b, &format!("m/{member}")).await;
        cluster.revive(member);
        write_when_possible(&a, &format!("n/{member}")).await;
    }

    cluster.kill(0);
    cluster.kill(1);
    let begin = Instant::now();
    let failed = loop {
        match a.create("m/quorum", value("x"), None).await {
            Err(error) => break error,
            Ok(made) => drop(a.delete("m/quorum", made.revision).await),
        }
    };
    assert!(matches!(failed, Error::Unavailable(_)), "not {failed}");
    assert!(begin.elapsed() < Duration::from_secs(15), "failing took {:?}", begin.elapsed());
    assert!(
        matches!(a.barrier().await, Err(Error::Unavailable(_))),
        "a stale read does not pass for a fresh one"
    );
    assert!(a.check().await.is_err());
    assert!(a.snapshot().len() > 3, "what is known can still be read");
    cluster.revive(0);
    cluster.revive(1);
    write_when_possible(&a, "m/back").await;
    write_when_possible(&b, "m/back-b").await;
    tokio::time::sleep(Duration::from_millis(200)).await;

    stop.store(true, Ordering::Relaxed);
    let acknowledged: BTreeSet<String> = writers.join_all().await.into_iter().flatten().collect();
    write_when_possible(&a, "w/end").await;
    b.barrier().await.unwrap();
    let present: BTreeSet<String> = b.snapshot().range("w/", "").map(|entry| entry.key.to_string()).collect();
    assert!(acknowledged.is_subset(&present), "an acknowledged write is lost");
    assert!(acknowledged.len() > 5, "only {} writes: nothing was tried", acknowledged.len());
    let seen = readers.join_all().await;
    assert_eq!(seen[0], seen[1], "both hubs tell the same story");
    let unique: BTreeSet<_> = seen[0].iter().cloned().collect();
    assert_eq!(unique.len(), seen[0].len(), "a change came twice");
    let mut expected = present;
    expected.remove("w/end");
    assert_eq!(unique, expected, "a change is missing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_without_space() {
    let options = Options { members: 1, quota: 4 << 20, ..Options::default() };
    let Some(cluster) = cluster::start(options) else { return };
    let store = cluster.connect("/full/").await;
    let mut written = 0;
    let full = loop {
        let bytes = Bytes::from(vec![b'x'; 500_000]);
        match store.create(&format!("a/{written}"), bytes, None).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "etcd never becomes full");
    };
    assert!(matches!(full, Error::Full(_)), "not {full}");
    store.barrier().await.unwrap();
    assert_eq!(store.snapshot().len(), written, "what is refused is not there, what is acknowledged is");
    let entry = Arc::clone(store.snapshot().get("a/0").unwrap());
    store.delete("a/0", entry.revision).await.unwrap();
    assert_eq!(store.snapshot().len(), written - 1, "room can be made");
}

/// etcd comes back with less than it had: restored from a backup, or empty. Nobody is told old state as new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_emptied() {
    let Some(mut cluster) = cluster::start(Options { members: 1, ..Options::default() }) else { return };
    let store = cluster.connect("/emptied/").await;
    for index in 0..20 {
        store.create(&format!("a/{index}"), value("x"), None).await.unwrap();
    }
    let mut watch = store.watch("a/", store.barrier().await.unwrap()).unwrap();
    cluster.kill(0);
    cluster.wipe(0);
    cluster.revive(0);
    let lost = watch_after_barriers(&store, &mut watch).await;
    assert!(matches!(lost, Error::TooOld { .. }), "not {lost}");
    assert!(battery::list(&store, "").await.is_empty());
    write_when_possible(&store, "a/new").await;
    assert_eq!(battery::list(&store, "").await, ["a/new=x"]);
}

/// Calls barriers until the watch ends.
async fn watch_after_barriers(store: &Shared, watch: &mut Watch) -> Error {
    for _ in 0..100 {
        let _stale = store.barrier().await;
        let wait = Duration::from_millis(100);
        if let Ok(Err(error)) = tokio::time::timeout(wait, watch.next_batch(&mut Vec::new(), 9)).await {
            return error;
        }
    }
    panic!("the watch never ends");
}

/// A proxy on loopback that can be cut.
struct Cable {
    port: u16,
    whole: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Cable {
    async fn new(target: &str) -> Self {
        let target = target.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (whole, state) = watch::channel(true);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut inbound, _) = listener.accept().await.unwrap();
                let (mut state, target) = (state.clone(), target.clone());
                if !*state.borrow() {
                    continue;
                }
                connections.spawn(async move {
                    let mut outbound = TcpStream::connect(target).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut inbound, &mut outbound) => {}
                        _ = state.wait_for(|whole| !whole) => {}
                    }
                });
            }
        });
        Self { port, whole, _task: task }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_is_cut_off_and_comes_back() {
    let Some(cluster) = cluster::start(Options { members: 1, ..Options::default() }) else { return };
    let a = cluster.connect("/cut/").await;
    let mut config = cluster.config("/cut/");
    let cable = Cable::new(&config.endpoints[0]).await;
    config.endpoints = vec![format!("http://127.0.0.1:{}", cable.port)];
    config.request_timeout = Duration::from_millis(500);
    let b = cluster::connect(config).await;
    let start = a.barrier().await.unwrap();
    let mut watch = b.watch("a/", start).unwrap();
    let first = a.create("a/1", value("x"), None).await.unwrap();
    assert_eq!(next(&mut watch, 1).await, [format!("+a/1=x@{}", first.revision)]);

    // Missed changes come later, in order.
    cable.whole.send_replace(false);
    let second = a.update("a/1", value("y"), first.revision, None).await.unwrap();
    let third = a.delete("a/1", second.revision).await.unwrap();
    assert!(matches!(b.barrier().await, Err(Error::Unavailable(_))));
    assert!(matches!(b.create("a/2", value("x"), None).await, Err(Error::Unavailable(_))));
    assert_eq!(b.snapshot().len(), 1, "what is known can still be read");
    cable.whole.send_replace(true);
    let expected = [format!("+a/1=y@{}", second.revision), format!("-a/1=y@{}", third.revision)];
    assert_eq!(next(&mut watch, 2).await, expected);

    // What is missed and compacted cannot come: the watch says so, and the state is right again.
    cable.whole.send_replace(false);
    let fourth = a.create("a/3", value("x"), None).await.unwrap();
    let fifth = a.update("a/3", value("y"), fourth.revision, None).await.unwrap();
    a.compact(fifth.revision).await.unwrap();
    cable.whole.send_replace(true);
    let lost = watch.next_batch(&mut Vec::new(), 10).await;
    assert!(matches!(lost, Err(Error::TooOld { .. })), "not {lost:?}");
    assert_eq!(battery::list(&b, "").await, ["a/3=y"]);
    let sixth = b.create("a/4", value("x"), None).await.unwrap();
    assert_eq!(
        next(&mut b.watch("a/", fifth.revision).unwrap(), 1).await,
        [format!("+a/4=x@{}", sixth.revision)]
    );
}
