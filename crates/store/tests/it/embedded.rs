//! The embedded store: the battery, restarts, damage, and who may open it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use landfall_store::embedded::Config;
use landfall_store::{Error, HistoryLimits, OpenError, open_embedded, open_memory};

use crate::battery::{self, Shared, next, value};

fn open(directory: &tempfile::TempDir) -> Shared {
    open_embedded(Config::new(directory.path())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_battery() {
    let directories = parking_lot::Mutex::new(Vec::new());
    battery::run(async || {
        let directory = tempfile::tempdir().unwrap();
        let store = open(&directory);
        directories.lock().push(directory);
        store
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_battery_in_memory() {
    battery::run(async || open_memory(Config::new("")).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_state_revision_and_watches() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let start = store.snapshot().revision();
    let first = store.create("a/1", value("one"), None).await.unwrap();
    let second = store.update("a/1", value("two"), first.revision, None).await.unwrap();
    let third = store.create("a/2", value("x"), None).await.unwrap();
    let fourth = store.delete("a/1", second.revision).await.unwrap();
    let fifth = store.create("a/1", value("anew"), None).await.unwrap();
    let lines = async |store: &Shared| next(&mut store.watch("a/", start).unwrap(), 5).await;
    let before = lines(&store).await;
    store.close().await;
    drop(store);

    let store = open(&directory);
    assert_eq!(store.snapshot().revision(), fifth.revision);
    assert_eq!(battery::list(&store, "").await, ["a/1=anew", "a/2=x"]);
    assert_eq!(lines(&store).await, before);
    let earlier = store.snapshot_at(third.revision).await.unwrap();
    assert_eq!(earlier.get("a/1").unwrap().revision, second.revision);
    assert!(store.snapshot_at(fourth.revision).await.unwrap().get("a/1").is_none());
    let sixth = store.create("a/3", value("x"), None).await.unwrap();
    assert_eq!(sixth.revision, fifth.revision + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_bounded_also_over_a_restart() {
    for history in [
        HistoryLimits { changes_max: 10, bytes_max: 1 << 30 },
        HistoryLimits { changes_max: 1 << 30, bytes_max: 10 * 1400 },
    ] {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { history, ..Config::new(directory.path()) };
        let store = open_embedded(config.clone()).unwrap();
        let mut slow = store.watch("a/", store.snapshot().revision()).unwrap();
        let mut quiet = store.watch("b/", store.snapshot().revision()).unwrap();
        let mut entry = store.create("a/1", value("x"), None).await.unwrap();
        let first = entry.revision;
        for _ in 0..100 {
            entry = store.update("a/1", value(&"x".repeat(1200)), entry.revision, None).await.unwrap();
        }
        let lost = slow.next_batch(&mut Vec::new(), 10).await;
        assert!(matches!(lost, Err(Error::TooOld { .. })), "not {lost:?}");
        let made = store.create("b/1", value("x"), None).await.unwrap();
        assert_eq!(
            next(&mut quiet, 1).await,
            [format!("+b/1=x@{}", made.revision)],
            "others' changes lose nothing"
        );
        let check = |store: &Shared| {
            let too_old = store.watch("a/", first);
            let Err(Error::TooOld { oldest, .. }) = too_old else { panic!("not {too_old:?}") };
            assert!(oldest >= made.revision - 12, "{oldest} is too far from {}", made.revision);
            store.watch("a/", oldest).unwrap();
        };
        check(&store);
        store.close().await;
        drop(store);
        check(&open_embedded(config).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_expire_also_over_a_restart() {
    fn today() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 20_000)
    }
    fn tomorrow() -> SystemTime {
        today() + Duration::from_hours(25)
    }
    let directory = tempfile::tempdir().unwrap();
    let store = open_embedded(Config { now: today, ..Config::new(directory.path()) }).unwrap();
    let day = Some(Duration::from_hours(24));
    store.create("a/day", value("x"), day).await.unwrap();
    let last = store.create("a/ever", value("x"), None).await.unwrap();
    assert_eq!(store.snapshot().len(), 2);
    store.close().await;
    drop(store);

    let store = open_embedded(Config { now: tomorrow, ..Config::new(directory.path()) }).unwrap();
    let mut watch = store.watch("a/", last.revision).unwrap();
    assert_eq!(next(&mut watch, 1).await, [format!("-a/day=x@{}", last.revision + 1)]);
    assert_eq!(battery::list(&store, "").await, ["a/ever=x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_opening_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let second = open_embedded(Config::new(directory.path())).err().unwrap();
    assert!(matches!(second, OpenError::InUse { .. }), "not {second}");
    assert!(second.to_string().contains(directory.path().to_str().unwrap()), "{second}");
    store.close().await;
    drop(store);
    open(&directory);
}

/// Damage anywhere is either harmless (nothing differs) or reported; never a wrong or an empty state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    for index in 0..300 {
        store.create(&format!("a/{index}"), value(&index.to_string().repeat(300)), None).await.unwrap();
    }
    let expected = battery::list(&store, "").await;
    store.close().await;
    drop(store);
    let file = directory.path().join("store.redb");
    let whole = std::fs::read(&file).unwrap();

    let mut damages: Vec<(String, Vec<u8>)> = vec![
        ("emptied".into(), Vec::new()),
        ("cut".into(), whole[..whole.len() / 2].to_vec()),
        ("a text".into(), b"not a data file".repeat(1000)),
        ("zeroed".into(), vec![0; whole.len()]),
    ];
    for at in (0..whole.len()).step_by(whole.len() / 60) {
        let mut bytes = whole.clone();
        bytes[at..(at + 64).min(whole.len())].iter_mut().for_each(|byte| *byte ^= 0x5a);
        damages.push((format!("flipped at {at}"), bytes));
    }
    let mut reported = 0;
    for (name, bytes) in damages {
        std::fs::write(&file, bytes).unwrap();
        match open_embedded(Config::new(directory.path())) {
            Ok(store) => {
                assert_eq!(battery::list(&store, "").await, expected, "{name}");
                store.close().await;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("store.redb") && text.contains("backup"), "{name}: {text}");
                reported += 1;
            }
        }
    }
    assert!(reported > 10, "only {reported} reported");
    std::fs::write(&file, whole).unwrap();
    assert_eq!(battery::list(&open(&directory), "").await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_write_leaves_the_store_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    for index in 0..50 {
        let key = format!("a/{index}");
        let write = store.create(&key, value("x"), None);
        drop(tokio::time::timeout(Duration::ZERO, write).await);
    }
    store.create("last", value("x"), None).await.unwrap();
    let state = store.snapshot();
    assert_eq!(state.len() as u64, state.revision() - 1);
    assert!(Arc::strong_count(&store) == 1);
}
