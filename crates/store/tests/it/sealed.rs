//! Sealed values: what lies on disk and in etcd, other keys, and rotation, on both backends.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use landfall_store::{Error, Keyring, OpenError, Seals, connect_etcd, embedded, open_embedded};

use crate::battery::{self, Shared, next, value};
use crate::cluster::{self, Cluster, Options};

/// What must not be read outside.
const SECRET: &str = "correct horse battery staple";

fn seals(keys: &[&String], prefix: &str) -> Seals {
    let text: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
    Seals::new(Keyring::parse(&text.join("\n")).unwrap(), [prefix])
}

fn open(directory: &Path, seals: &Seals) -> Result<Shared, OpenError> {
    let seals = seals.clone();
    open_embedded(embedded::Config { seals, ..embedded::Config::new(directory) })
}

async fn connect(cluster: &Cluster, root: &str, seals: &Seals) -> Result<Shared, OpenError> {
    let seals = seals.clone();
    connect_etcd(landfall_store::etcd::Config { seals, ..cluster.config(root) }).await
}

fn holds(directory: &Path, text: &str) -> bool {
    let bytes = std::fs::read(directory.join("store.redb")).unwrap();
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_battery_on_disk() {
    let key = Keyring::generate();
    let directories = parking_lot::Mutex::new(Vec::new());
    battery::run(async || {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), &seals(&[&key], "")).unwrap();
        directories.lock().push(directory);
        store
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_on_disk_and_history_survives() {
    let (directory, key) = (tempfile::tempdir().unwrap(), Keyring::generate());
    let one = seals(&[&key], "secrets/");
    let store = open(directory.path(), &one).unwrap();
    assert_eq!(one.renew(&*store).await.unwrap(), 0);
    let start = store.snapshot().revision();
    let first = store.create("secrets/a", value(SECRET), None).await.unwrap();
    let second =
        store.update("secrets/a", value("another one, as long as it"), first.revision, None).await.unwrap();
    store.delete("secrets/a", second.revision).await.unwrap();
    store.create("secrets/b", value(SECRET), None).await.unwrap();
    store.create("configs/b", value("everybody may read this"), None).await.unwrap();
    let lines = async |store: &Shared| next(&mut store.watch("secrets/", start).unwrap(), 4).await;
    let before = lines(&store).await;
    store.close().await;
    drop(store);
    assert!(!holds(directory.path(), SECRET) && !holds(directory.path(), "another one, as"));
    assert!(holds(directory.path(), "everybody may read this"));

    let store = open(directory.path(), &seals(&[&key], "secrets/")).unwrap();
    assert_eq!(lines(&store).await, before, "watches resume over a restart");
    assert_eq!(store.snapshot().get("secrets/b").unwrap().value, SECRET);
    store.close().await;
    drop(store);
    let other = open(directory.path(), &seals(&[&Keyring::generate()], "secrets/")).err().unwrap();
    assert!(matches!(&other, OpenError::Sealed(why) if why.contains("is encrypted with the key")), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_key_is_refused_before_there_is_any_value() {
    let directory = tempfile::tempdir().unwrap();
    let one = seals(&[&Keyring::generate()], "secrets/");
    let store = open(directory.path(), &one).unwrap();
    one.renew(&*store).await.unwrap();
    store.close().await;
    drop(store);
    let other = open(directory.path(), &seals(&[&Keyring::generate()], "secrets/"));
    assert!(matches!(other, Err(OpenError::Sealed(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_values_are_sealed_and_keys_rotate() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &Seals::default()).unwrap();
    store.create("secrets/a", value(SECRET), None).await.unwrap();
    store.close().await;
    drop(store);
    let (old, new) = (Keyring::generate(), Keyring::generate());
    // From plain to the first key, to the second beside it, to the second alone.
    for (keys, renewed) in [(vec![&old], 1), (vec![&old], 0), (vec![&new, &old], 3), (vec![&new], 0)] {
        let seals = seals(&keys, "secrets/");
        let store = open(directory.path(), &seals).unwrap();
        assert_eq!(store.snapshot().get("secrets/a").unwrap().value, SECRET);
        assert_eq!(seals.renew(&*store).await.unwrap(), renewed, "{} keys", keys.len());
        store.create(&format!("secrets/{}", store.snapshot().revision()), value("x"), None).await.unwrap();
        store.close().await;
    }
    assert!(open(directory.path(), &seals(&[&old], "secrets/")).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_etcd() {
    let Some(cluster) = cluster::start(Options { members: 1, ..Options::default() }) else { return };
    let (key, other) = (Keyring::generate(), Keyring::generate());
    let count = AtomicUsize::new(0);
    let everything = seals(&[&key], "");
    // Until etcd answers.
    cluster.connect("/ready/").await;
    battery::run(async || {
        let root = format!("/sealed-{}/", count.fetch_add(1, Ordering::Relaxed));
        connect(&cluster, &root, &everything).await.unwrap()
    })
    .await;

    let one = seals(&[&key], "secrets/");
    let a = connect(&cluster, "/s/", &one).await.unwrap();
    one.renew(&*a).await.unwrap();
    // A hub with another key is refused although there is no value yet.
    let refused = connect(&cluster, "/s/", &seals(&[&other], "secrets/")).await.err().unwrap();
    assert!(
        matches!(&refused, OpenError::Sealed(why) if why.contains("is encrypted with the key")),
        "{refused}"
    );
    let written = a.create("secrets/a", value(SECRET), None).await.unwrap();
    a.create("configs/a", value("plain"), None).await.unwrap();
    let raw = cluster.connect("/s/").await;
    let stored = raw.snapshot().get("secrets/a").unwrap().value.clone();
    assert!(stored.starts_with(b"\0sealed1") && !stored.windows(7).any(|part| part == b"battery"));
    assert_eq!(raw.snapshot().get("configs/a").unwrap().value, "plain");
    // A create that meets it and an update that comes too late are told what is there.
    let exists = a.create("secrets/a", value("x"), None).await.unwrap_err();
    assert!(matches!(exists, Error::Exists(entry) if entry.value == SECRET));

    // Rotation: the new key is known everywhere first, then seals, then the old one goes.
    let two = seals(&[&other, &key], "secrets/");
    let b = connect(&cluster, "/s/", &two).await.unwrap();
    assert_eq!(two.renew(&*b).await.unwrap(), 1);
    let c = connect(&cluster, "/s/", &seals(&[&other], "secrets/")).await.unwrap();
    let entry = c.snapshot().get("secrets/a").cloned().unwrap();
    assert_eq!((&entry.value, entry.created), (&value(SECRET), written.revision));
    // The hub that does not know the new key stands still and says so; it does not take what it cannot read for gone.
    assert_eq!(a.snapshot().get("secrets/a").unwrap().value, SECRET);
    let barrier = tokio::time::timeout(Duration::from_secs(20), a.barrier()).await.unwrap();
    assert!(matches!(barrier, Err(Error::Sealed(_))), "{barrier:?}");
}
