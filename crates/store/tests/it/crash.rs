//! A process that writes is killed hundreds of times: every acknowledged write is there, none is half there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use landfall_store::embedded::Config;
use landfall_store::{Error, Snapshot, open_embedded};
use tokio::task::JoinSet;

use crate::battery::Shared;

const KILLS: u64 = 200;
const WRITERS: usize = 8;
/// Says to the child test where to write.
const DIRECTORY: &str = "LANDFALL_TEST_CRASH_DIRECTORY";

/// The value of a counter: recognisable as a whole, of many sizes.
fn value(count: u64) -> Bytes {
    let size = usize::try_from(count * 131 % 9000).unwrap();
    format!("{count}:{}", count.to_string().chars().cycle().take(size).collect::<String>()).into()
}

fn count(bytes: &Bytes) -> u64 {
    let text = std::str::from_utf8(bytes).unwrap();
    let count = text.split(':').next().unwrap().parse().unwrap();
    assert_eq!(*bytes, value(count), "half a value");
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_hundreds_of_times() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeMap::new();
    let mut luck = 20_261_115_u64;
    for kill in 0..KILLS {
        luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = Duration::from_micros((luck >> 33) % 30_000);
        run_and_kill(directory.path(), after, &mut acknowledged);
        let store = open_embedded(Config::new(directory.path())).unwrap();
        check(&store.snapshot(), &mut acknowledged, kill);
        store.close().await;
    }
    let total: u64 = acknowledged.values().sum();
    assert!(total > KILLS * 2, "only {total} writes in all: nothing was tried");
}

/// Starts the child test, notes what it says is acknowledged, and kills it some time after its first word.
fn run_and_kill(directory: &Path, after: Duration, acknowledged: &mut BTreeMap<String, u64>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_that_writes", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut timer = None;
    while lines.read_line(&mut line).unwrap() > 0 {
        if let Some((key, count)) =
            line.strip_suffix('\n').and_then(|line| line.strip_prefix("done ")?.split_once(' '))
        {
            acknowledged.insert(key.to_owned(), count.parse().unwrap());
        }
        if line.starts_with("ready") {
            let pid = child.id().to_string();
            timer = Some(std::thread::spawn(move || {
                std::thread::sleep(after);
                Command::new("kill").args(["-9", &pid]).status().unwrap();
            }));
        }
        line.clear();
    }
    timer.expect("the child got ready").join().unwrap();
    assert!(!child.wait().unwrap().success(), "the child was not killed");
}

/// Every counter is where it was acknowledged, or one further: that write was done and not yet acknowledged.
fn check(state: &Snapshot, acknowledged: &mut BTreeMap<String, u64>, kill: u64) {
    for writer in 0..WRITERS {
        let key = format!("w/{writer}");
        let known = acknowledged.get(&key).copied().unwrap_or(0);
        let found = state.get(&key).map_or(0, |entry| count(&entry.value));
        assert!(
            found == known || found == known + 1,
            "kill {kill}: {key} is {found}, acknowledged is {known}"
        );
        // The child makes a marker with every count and removes the one before.
        let markers: Vec<_> =
            state.range(&format!("m/{writer}/"), "").map(|entry| entry.key.to_string()).collect();
        let near =
            |key: &String| (found.saturating_sub(1)..=found + 1).any(|n| *key == format!("m/{writer}/{n}"));
        assert!(
            markers.len() <= 2 && markers.iter().all(near),
            "kill {kill}: count {found}, markers {markers:?}"
        );
        acknowledged.insert(key, found);
    }
    assert!(
        state
            .range("", "")
            .all(|entry| entry.revision <= state.revision() && entry.created <= entry.revision)
    );
}

/// Not a test of its own: what [`killed_hundreds_of_times`] runs and kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes() {
    #[expect(clippy::disallowed_methods, reason = "how the parent tells its child test what to do")]
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let store = open_embedded(Config::new(directory)).unwrap();
    say("ready");
    let writers: JoinSet<()> = (0..WRITERS).map(|writer| count_up(Arc::clone(&store), writer)).collect();
    writers.join_all().await;
}

async fn count_up(store: Shared, writer: usize) {
    let key = format!("w/{writer}");
    let mut entry = match store.create(&key, value(1), None).await {
        Ok(entry) | Err(Error::Exists(entry)) => entry,
        Err(other) => panic!("not {other}"),
    };
    loop {
        let now = count(&entry.value);
        say(&format!("done {key} {now}"));
        let marker = format!("m/{writer}/{now}");
        match store.create(&marker, Bytes::from_static(b"x"), None).await {
            Ok(_) | Err(Error::Exists(_)) => {}
            Err(other) => panic!("not {other}"),
        }
        let before = format!("m/{writer}/{}", now - 1);
        if let Some(before) = store.snapshot().get(&before) {
            store.delete(&before.key, before.revision).await.unwrap();
        }
        entry = store.update(&key, value(now + 1), entry.revision, None).await.unwrap();
    }
}

/// Says a whole line at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
}
