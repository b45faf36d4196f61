//! Measures the embedded store: durable writes per second and what one costs, and many watches of one prefix.
//!
//! `cargo run --release -p landfall-store --example measure [DIRECTORY]`, or with the address of an (empty) etcd such as
//! `http://127.0.0.1:2379` in place of the directory to measure the store on that.
#![expect(clippy::print_stdout, reason = "a program that prints its findings")]
#![expect(clippy::disallowed_methods, reason = "a program of its own, whose tasks end with it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use landfall_store::embedded::Config;
use landfall_store::{Event, Store, connect_etcd, etcd, open_embedded};

const WRITERS: usize = 256;
const WRITES_EACH: usize = 200;
const VALUE_BYTES: usize = 1024;
const WATCHES: usize = 1000;
const WATCHED_WRITES: u32 = 2500;
const WATCHED_RATE: u32 = 500;

fn main() {
    let directory =
        std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/measure-store"), PathBuf::from);
    let _fresh = std::fs::remove_dir_all(&directory);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    if let Some(endpoint) = directory.to_str().filter(|text| text.starts_with("http")) {
        return runtime.block_on(async {
            let store = connect_etcd(etcd::Config::new([endpoint])).await.expect("etcd answers");
            writes(&store).await;
            watches(&store, Some(Duration::from_millis(20))).await;
        });
    }
    runtime.block_on(async {
        let store = open_embedded(Config::new(&directory)).expect("a new store opens");
        fill(&store).await;
        println!("resident: {} MB with {} entries", resident_mb(), store.snapshot().len());
        let store = reopen(store, &directory).await;
        writes(&store).await;
        println!("resident: {} MB with {} entries and a full history", resident_mb(), store.snapshot().len());
        let store = reopen(store, &directory).await;
        watches(&store, None).await;
        watches(&store, Some(Duration::from_millis(20))).await;
        store.close().await;
    });
    let _done = std::fs::remove_dir_all(&directory);
}

async fn writes(store: &Arc<dyn Store>) {
    let total = WRITERS * WRITES_EACH;
    for what in ["create", "update", "delete"] {
        let (begin, cpu) = (Instant::now(), cpu_seconds());
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = Arc::clone(store);
                tokio::spawn(async move {
                    for index in 0..WRITES_EACH {
                        write(&*store, what, &format!("core/configmaps/ns-{writer}/name-{index}")).await;
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.expect("a writer ends");
        }
        let (took, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        #[expect(clippy::cast_precision_loss, reason = "a rounded figure")]
        let count = total as f64;
        println!(
            "{what}: {total} of {VALUE_BYTES} bytes by {WRITERS} writers: {:.0}/s, {:.1} us of CPU each",
            count / took,
            cpu * 1e6 / count
        );
    }
}

async fn reopen(store: Arc<dyn Store>, directory: &Path) -> Arc<dyn Store> {
    store.close().await;
    drop(store);
    let begin = Instant::now();
    let store = open_embedded(Config::new(directory)).expect("the store opens again");
    println!("open with {} entries: {:?}", store.snapshot().len(), begin.elapsed());
    store
}

/// As many objects as kube-apiserver was measured with.
async fn fill(store: &Arc<dyn Store>) {
    let fill: Vec<_> = (0..16_000)
        .map(|index| {
            let store = Arc::clone(store);
            tokio::spawn(
                async move { write(&*store, "create", &format!("core/secrets/ns/name-{index}")).await },
            )
        })
        .collect();
    for one in fill {
        one.await.expect("a writer ends");
    }
}

async fn write(store: &dyn Store, what: &str, key: &str) {
    let current = store.snapshot().get(key).map_or(0, |entry| entry.revision);
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    match what {
        "create" => store.create(key, value, None).await,
        "update" => store.update(key, value, current, None).await,
        _ => store.delete(key, current).await,
    }
    .expect("a write is done");
}

async fn watches(store: &Arc<dyn Store>, pace: Option<Duration>) {
    let after = store.snapshot().revision();
    let watchers: Vec<_> = (0..WATCHES)
        .map(|_| {
            let mut watch = store.watch("core/pods/", after).expect("a watch begins");
            if let Some(pace) = pace {
                watch = watch.with_pace(pace);
            }
            tokio::spawn(async move {
                let (mut seen, mut batches, mut events) = (0_u32, 0_u64, Vec::new());
                while seen < WATCHED_WRITES {
                    events.clear();
                    watch.next_batch(&mut events, 1000).await.expect("the watch goes on");
                    batches += 1;
                    let changes = events.iter().filter(|event| matches!(event, Event::Change(_))).count();
                    seen += u32::try_from(changes).expect("few");
                }
                batches
            })
        })
        .collect();
    let (begin, cpu) = (Instant::now(), cpu_seconds());
    let pace_name = pace.map_or_else(|| "none".to_owned(), |pace| format!("{pace:?}"));
    for index in 0..WATCHED_WRITES {
        tokio::time::sleep_until((begin + Duration::from_secs(1) / WATCHED_RATE * index).into()).await;
        let key = format!("core/pods/ns-{pace_name}/name-{index}");
        let store = Arc::clone(store);
        tokio::spawn(async move { write(&*store, "create", &key).await });
    }
    let mut batches = 0;
    for watcher in watchers {
        batches += watcher.await.expect("a watcher ends");
    }
    let (took, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    println!(
        "{WATCHES} watches x {WATCHED_RATE} writes/s, pace {pace_name}: every event seen in {took:.2} s, {batches} batches, \
         {:.0} % of a core",
        cpu / took * 100.0
    );
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

fn resident_mb() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4 / 1024
}
