//! What every backend must do. Each case gets an empty store of its own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use landfall_store::{Error, Event, Revision, Store, Watch};
use tokio::task::JoinSet;

/// A store under test.
pub(crate) type Shared = Arc<dyn Store>;
/// A case.
pub(crate) type Case = fn(Shared) -> BoxFuture<'static, ()>;

/// All cases.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("create, read, update, delete", |store| crud(store).boxed()),
    ("conditions", |store| conditions(store).boxed()),
    ("sizes", |store| sizes(store).boxed()),
    ("ranges", |store| ranges(store).boxed()),
    ("earlier states", |store| earlier_states(store).boxed()),
    ("watch live and replay", |store| watch_live_and_replay(store).boxed()),
    ("watch prefixes", |store| watch_prefixes(store).boxed()),
    ("watch hand-over under writes", |store| watch_hand_over(store).boxed()),
    ("progress", |store| progress(store).boxed()),
    ("compaction", |store| compaction(store).boxed()),
    ("time to live", |store| time_to_live(store).boxed()),
    ("concurrent writers", |store| concurrent_writers(store).boxed()),
    ("close", |store| close(store).boxed()),
];

/// Runs all cases, each on a store that `make` makes.
pub(crate) async fn run<F: Future<Output = Shared>>(make: impl Fn() -> F) {
    for (name, case) in CASES {
        let store = make().await;
        let done = tokio::time::timeout(Duration::from_secs(30), case(Arc::clone(&store))).await;
        assert!(done.is_ok(), "case {name:?} hangs");
        store.close().await;
    }
}

/// A value of one byte string.
pub(crate) fn value(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The next `count` changes of a watch, as `+key=value@revision` or `-key@revision`.
pub(crate) async fn next(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        let mut events = Vec::new();
        let ready = tokio::time::timeout(Duration::from_secs(20), watch.next_batch(&mut events, count)).await;
        ready.expect("an event comes").expect("the watch goes on");
        lines.extend(events.iter().filter_map(line));
    }
    lines
}

fn line(event: &Event) -> Option<String> {
    let Event::Change(change) = event else { return None };
    let entry = &change.entry;
    let text = String::from_utf8_lossy(&entry.value);
    Some(match change.removed {
        true => format!("-{}={text}@{}", entry.key, entry.revision),
        false => format!("+{}={text}@{}", entry.key, entry.revision),
    })
}

/// The keys and values under a prefix after a barrier.
pub(crate) async fn list(store: &Shared, prefix: &str) -> Vec<String> {
    store.barrier().await.unwrap();
    let state = store.snapshot();
    state
        .range(prefix, "")
        .map(|entry| format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value)))
        .collect()
}

async fn put(store: &Shared, key: &str, text: &str) -> Revision {
    store.create(key, value(text), None).await.unwrap().revision
}

async fn crud(store: Shared) {
    let start = store.barrier().await.unwrap();
    let made = store.create("a/1", value("one"), None).await.unwrap();
    assert!(made.revision > start);
    assert_eq!((made.created, &*made.key, &*made.value), (made.revision, "a/1", &b"one"[..]));
    let changed = store.update("a/1", value("two"), made.revision, None).await.unwrap();
    assert!(changed.revision > made.revision);
    assert_eq!((changed.created, &*changed.value), (made.revision, &b"two"[..]));
    assert_eq!(list(&store, "").await, ["a/1=two"]);
    let gone = store.delete("a/1", changed.revision).await.unwrap();
    assert!(gone.revision > changed.revision);
    assert_eq!((gone.created, &*gone.value), (made.revision, &b"two"[..]));
    assert!(list(&store, "").await.is_empty());
    assert_eq!(store.barrier().await.unwrap(), gone.revision);
    let anew = store.create("a/1", value(""), None).await.unwrap();
    assert_eq!(anew.created, anew.revision);
    assert_eq!(list(&store, "").await, ["a/1="]);
    store.check().await.unwrap();
}

async fn conditions(store: Shared) {
    let made = store.create("a/1", value("one"), None).await.unwrap();
    match store.create("a/1", value("again"), None).await {
        Err(Error::Exists(found)) => {
            assert_eq!((found.revision, &*found.value), (made.revision, &b"one"[..]))
        }
        other => panic!("not {other:?}"),
    }
    match store.update("a/1", value("two"), made.revision + 7, None).await {
        Err(Error::Conflict(Some(found))) => assert_eq!(found.revision, made.revision),
        other => panic!("not {other:?}"),
    }
    match store.delete("a/1", made.revision - 1).await {
        Err(Error::Conflict(Some(found))) => assert_eq!(found.revision, made.revision),
        other => panic!("not {other:?}"),
    }
    for result in [
        store.update("a/none", value("two"), made.revision, None).await,
        store.update("a/none", value("two"), 0, None).await,
        store.delete("a/none", made.revision).await,
        store.delete("a/none", 0).await,
    ] {
        assert!(matches!(result, Err(Error::Conflict(None))), "not {result:?}");
    }
    assert_eq!(store.barrier().await.unwrap(), made.revision, "a refused write takes no revision");
}

async fn sizes(store: Shared) {
    for (key, size) in [("", 1), (&*"k".repeat(5000), 1), ("a/large", 64 << 20)] {
        let result = store.create(key, Bytes::from(vec![0; size]), None).await;
        assert!(matches!(result, Err(Error::TooLarge(_))), "not {result:?}");
    }
    assert!(list(&store, "").await.is_empty());
}

async fn ranges(store: Shared) {
    for key in ["a/1", "a/2", "a/20", "a/b/1", "b/1", "a0", "ä/1"] {
        put(&store, key, "x").await;
    }
    store.barrier().await.unwrap();
    let state = store.snapshot();
    let check = |prefix: &str, after: &str, expected: &[&str]| {
        let keys: Vec<_> = state.range(prefix, after).map(|entry| &*entry.key).collect();
        assert_eq!(keys, expected, "range of {prefix:?} after {after:?}");
    };
    check("a/", "", &["a/1", "a/2", "a/20", "a/b/1"]);
    check("a/", "a/2", &["a/20", "a/b/1"]);
    check("a/", "a/1zzz", &["a/2", "a/20", "a/b/1"]);
    check("a/", "b", &[]);
    check("", "b/", &["b/1", "ä/1"]);
    check("none/", "", &[]);
    assert_eq!(state.len(), 7);
    assert!(state.get("a/2").is_some() && state.get("a/").is_none());
}

async fn earlier_states(store: Shared) {
    let first = put(&store, "a/1", "one").await;
    let second = store.update("a/1", value("two"), first, None).await.unwrap().revision;
    let third = put(&store, "a/2", "x").await;
    let fourth = store.delete("a/1", second).await.unwrap().revision;
    store.barrier().await.unwrap();
    for (revision, expected) in [
        (first, vec!["one"]),
        (second, vec!["two"]),
        (third, vec!["two", "x"]),
        (fourth, vec!["x"]),
        (second, vec!["two"]),
    ] {
        let state = store.snapshot_at(revision).await.unwrap();
        let values: Vec<_> =
            state.range("a/", "").map(|entry| String::from_utf8_lossy(&entry.value)).collect();
        assert_eq!(values, expected, "at {revision}");
        assert_eq!(state.revision(), revision);
    }
    let future = store.snapshot_at(fourth + 1000).await;
    assert!(matches!(future, Err(Error::Future { .. })), "not {future:?}");
}

async fn watch_live_and_replay(store: Shared) {
    let start = store.barrier().await.unwrap();
    let mut live = store.watch("a/", start).unwrap();
    let first = put(&store, "a/1", "one").await;
    let second = store.update("a/1", value("two"), first, None).await.unwrap().revision;
    let third = store.delete("a/1", second).await.unwrap().revision;
    let all = [format!("+a/1=one@{first}"), format!("+a/1=two@{second}"), format!("-a/1=two@{third}")];
    assert_eq!(next(&mut live, 3).await, all);
    for (after, skip) in [(start, 0), (first, 1), (second, 2)] {
        let mut replay = store.watch("a/", after).unwrap();
        assert_eq!(next(&mut replay, 3 - skip).await, all[skip..]);
        assert!(replay.yielded() >= third);
    }
    let mut from_now = store.watch("a/", third).unwrap();
    let fourth = put(&store, "a/2", "x").await;
    assert_eq!(next(&mut from_now, 1).await, [format!("+a/2=x@{fourth}")]);
    assert_eq!(next(&mut live, 1).await, [format!("+a/2=x@{fourth}")]);

    let mut events = Vec::new();
    store.watch("a/", first).unwrap().next_batch(&mut events, 1).await.unwrap();
    let [Event::Change(change)] = &events[..] else { panic!("not {events:?}") };
    assert_eq!(change.previous.as_ref().map(|entry| &*entry.value), Some(&b"one"[..]));
}

async fn watch_prefixes(store: Shared) {
    let start = store.barrier().await.unwrap();
    let prefixes = ["", "a/", "a/b/", "a/b", "a/bc", "b/"];
    let watches: Vec<_> = prefixes.iter().map(|prefix| store.watch(prefix, start).unwrap()).collect();
    for key in ["a/b", "a/b/1", "a/bc", "b/1", "c/1"] {
        put(&store, key, "x").await;
    }
    let expected: [&[&str]; 6] = [
        &["a/b", "a/b/1", "a/bc", "b/1", "c/1"],
        &["a/b", "a/b/1", "a/bc"],
        &["a/b/1"],
        &["a/b"],
        &["a/bc"],
        &["b/1"],
    ];
    let keys = |lines: Vec<String>| -> Vec<String> {
        lines.iter().map(|line| line.trim_start_matches('+').split('=').next().unwrap().to_owned()).collect()
    };
    for ((prefix, mut watch), expected) in prefixes.iter().zip(watches).zip(expected) {
        assert_eq!(keys(next(&mut watch, expected.len()).await), expected, "live watch of {prefix:?}");
        let mut replay = store.watch(prefix, start).unwrap();
        assert_eq!(keys(next(&mut replay, expected.len()).await), expected, "replay of {prefix:?}");
    }
}

/// Watches that begin at any moment while others write see every change once and in order.
async fn watch_hand_over(store: Shared) {
    const WRITES: usize = 300;
    let start = store.barrier().await.unwrap();
    let mut writer = JoinSet::new();
    {
        let store = Arc::clone(&store);
        writer.spawn(async move {
            for index in 0..WRITES {
                let key = if index % 3 == 0 { "b" } else { "a" };
                put(&store, &format!("{key}/{index}"), "x").await;
            }
        });
    }
    let mut watchers = JoinSet::new();
    for size in 0..40 {
        let mut watch = store.watch("a/", start).unwrap();
        watchers.spawn(async move {
            let mut keys = Vec::new();
            let mut events = Vec::new();
            while keys.len() < WRITES * 2 / 3 {
                events.clear();
                watch.next_batch(&mut events, 1 + size % 7).await.unwrap();
                keys.extend(events.iter().filter_map(line));
            }
            keys
        });
        tokio::task::yield_now().await;
    }
    writer.join_all().await;
    let expected: Vec<_> = {
        let mut all = store.watch("a/", start).unwrap();
        next(&mut all, WRITES * 2 / 3).await
    };
    assert_eq!(expected.len(), WRITES * 2 / 3);
    for seen in watchers.join_all().await {
        assert_eq!(seen, expected);
    }
}

async fn progress(store: Shared) {
    let start = store.barrier().await.unwrap();
    let mut watch = store.watch("a/", start).unwrap().with_progress(Duration::from_millis(50));
    assert_eq!(watch.began_at(), start);
    let mine = put(&store, "a/1", "x").await;
    let other = put(&store, "b/1", "x").await;
    store.barrier().await.unwrap();
    let mut seen = Vec::new();
    let mut reached = 0;
    while reached < other {
        let mut events = Vec::new();
        watch.next_batch(&mut events, 10).await.unwrap();
        for event in events {
            match event {
                Event::Change(change) => {
                    assert!(change.revision() > reached, "a progress mark ran ahead");
                    seen.push(change.revision());
                }
                Event::Progress(revision) => {
                    assert!(revision >= reached);
                    reached = revision;
                }
            }
        }
    }
    assert_eq!(seen, [mine]);
    assert_eq!(watch.yielded(), other);
}

async fn compaction(store: Shared) {
    let first = put(&store, "a/1", "one").await;
    let second = put(&store, "a/2", "two").await;
    let third = put(&store, "a/3", "three").await;
    store.barrier().await.unwrap();
    store.compact(second).await.unwrap();
    let old = store.watch("a/", first);
    assert!(
        matches!(old, Err(Error::TooOld { asked, oldest }) if asked == first && oldest == second),
        "not {old:?}"
    );
    let old = store.snapshot_at(first).await;
    assert!(matches!(old, Err(Error::TooOld { .. })), "not {old:?}");
    assert_eq!(store.snapshot_at(second).await.unwrap().len(), 2);
    let mut watch = store.watch("a/", second).unwrap();
    assert_eq!(next(&mut watch, 1).await, [format!("+a/3=three@{third}")]);
    let future = store.compact(third + 1000).await;
    assert!(matches!(future, Err(Error::Future { .. })), "not {future:?}");
}

async fn time_to_live(store: Shared) {
    let ttl = Some(Duration::from_secs(1));
    let start = store.barrier().await.unwrap();
    let mut watch = store.watch("a/", start).unwrap();
    let short = store.create("a/short", value("x"), ttl).await.unwrap();
    let kept = store.create("a/kept", value("x"), ttl).await.unwrap();
    let kept = store.update("a/kept", value("y"), kept.revision, None).await.unwrap();
    next(&mut watch, 3).await;
    let mut events = Vec::new();
    watch.next_batch(&mut events, 10).await.unwrap();
    let [Event::Change(change)] = &events[..] else { panic!("not {events:?}") };
    assert!(change.removed && *change.entry.key == *short.key && change.revision() > kept.revision);
    assert_eq!(list(&store, "a/").await, ["a/kept=y"]);
}

async fn concurrent_writers(store: Shared) {
    put(&store, "counter", "0").await;
    let writers: JoinSet<()> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            async move {
                for _ in 0..10 {
                    store.barrier().await.unwrap();
                    let mut entry = Arc::clone(store.snapshot().get("counter").unwrap());
                    loop {
                        let count: u64 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
                        let next = value(&(count + 1).to_string());
                        match store.update("counter", next, entry.revision, None).await {
                            Ok(_) => break,
                            Err(Error::Conflict(Some(newer))) => entry = newer,
                            Err(other) => panic!("not {other}"),
                        }
                    }
                }
            }
        })
        .collect();
    writers.join_all().await;
    assert_eq!(list(&store, "").await, ["counter=80"]);
}

async fn close(store: Shared) {
    let start = store.barrier().await.unwrap();
    let mut watch = store.watch("a/", start).unwrap();
    let made = put(&store, "a/1", "one").await;
    store.close().await;
    assert_eq!(next(&mut watch, 1).await, [format!("+a/1=one@{made}")]);
    let ended = watch.next_batch(&mut Vec::new(), 1).await;
    assert!(matches!(ended, Err(Error::Closed)), "not {ended:?}");
    assert!(matches!(store.create("a/2", value("x"), None).await, Err(Error::Closed)));
    assert!(matches!(store.barrier().await, Err(Error::Closed)));
    assert!(matches!(store.check().await, Err(Error::Closed)));
    assert!(matches!(store.watch("a/", made), Err(Error::Closed)));
    assert_eq!(store.snapshot().len(), 1, "what was read stays readable");
}
