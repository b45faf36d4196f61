//! Many watchers of one namespace while it is written to: does each see every event?

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

use super::client::{Connection, Target, find};
use super::load;

/// The data of one object: small, as most events of controllers are.
const DATA_BYTES: usize = 64;
/// How long the last events may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// Writers; each waits for its turn and for its answer.
const WRITERS: usize = 16;

pub(crate) struct Seen {
    pub(crate) written: usize,
    pub(crate) least: usize,
    pub(crate) writes_per_s: f64,
}

pub(crate) async fn run(target: &Target, watchers: usize, per_s: u32, time: Duration) -> Result<Seen> {
    let namespace = "watched";
    load::create_namespace(target, namespace).await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let watch = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=600");
    let mut counts = Vec::with_capacity(watchers);
    let set = LocalSet::new();
    for _ in 0..watchers {
        let mut connection = target.connect().await?;
        let request = connection.head("GET", &watch, "");
        connection.stream.write_all(request.as_bytes()).await?;
        let count = Rc::new(Cell::new(0));
        counts.push(count.clone());
        set.spawn_local(count_events(connection, count));
    }
    let (written, took) = set.run_until(write(target, &path, per_s, time)).await?;
    let began = Instant::now();
    let least = || counts.iter().map(|count| count.get()).min().unwrap_or(0);
    while least() < written && began.elapsed() < PATIENCE {
        set.run_until(tokio::time::sleep(Duration::from_millis(50))).await;
    }
    Ok(Seen { written, least: least(), writes_per_s: written as f64 / took.as_secs_f64() })
}

/// Counts events of our own objects (a real cluster adds a ConfigMap of its own to every namespace).
async fn count_events(mut connection: Connection, count: Rc<Cell<usize>>) {
    const MARK: &[u8] = b"\"text\":";
    let mut buffer = Vec::with_capacity(256 * 1024);
    loop {
        match connection.stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut at = 0;
        while let Some(found) = find(&buffer[at..], MARK) {
            at += found + MARK.len();
            count.set(count.get() + 1);
        }
        // A mark may lie across two reads.
        let keep = buffer.len().saturating_sub(MARK.len() - 1).max(at);
        buffer.drain(..keep);
    }
}

/// Writes at a steady pace; how many, and how long it took.
async fn write(target: &Target, path: &str, per_s: u32, time: Duration) -> Result<(usize, Duration)> {
    let total = (time.as_secs_f64() * f64::from(per_s)) as usize;
    let began = Instant::now();
    let next = Rc::new(Cell::new(0_usize));
    let mut tasks = Vec::new();
    for _ in 0..WRITERS {
        let mut connection = target.connect().await?;
        let (next, path) = (next.clone(), path.to_owned());
        tasks.push(tokio::task::spawn_local(async move {
            loop {
                let index = next.get();
                if index >= total {
                    return Ok(());
                }
                next.set(index + 1);
                let due = Duration::from_secs_f64(index as f64 / f64::from(per_s));
                tokio::time::sleep_until((began + due).into()).await;
                let body = load::config_map(&format!("w-{index}"), DATA_BYTES);
                let code = connection.send("POST", &path, &body).await?;
                ensure!(code == 201, "a write gave {code}");
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok((total, began.elapsed()))
}
