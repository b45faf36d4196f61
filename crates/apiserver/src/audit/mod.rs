//! The audit log: who did what, as audit.k8s.io/v1 Events, one JSON line each.
//!
//! ```text
//!   a finished request ──policy──► Record ──bounded queue──► writer (encodes, writes, rotates)
//!                        └ not of interest              └ full: counted, dropped, never waited for
//! ```
//!
//! Bodies are never recorded, so no secret can be. What is recorded is a table in [`policy`].

mod file;
pub mod policy;
mod record;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use landfall_api::Status;
use landfall_runtime::metrics::Counter;
use landfall_runtime::tasks::Tasks;
use tokio::sync::mpsc;

use crate::authn::User;
use crate::authz::{Attributes, Verdict};
use file::File;
use record::Record;

/// How many records are encoded and written at once.
const BATCH_MAX: usize = 256;

/// Where the log is and how much of it is kept.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file being written; older ones are `<path>.1` (the youngest), `<path>.2`, …
    pub path: PathBuf,
    /// The size at which a file is put aside.
    pub bytes_max: u64,
    /// How many files are kept besides the one being written.
    pub files_max: usize,
    /// How many records may wait to be written.
    pub queue_max: usize,
    /// Whether reads (get, list, watch) are recorded too.
    pub reads: bool,
}

impl Config {
    /// 100 MiB a file, four older files, 8192 waiting records, no reads.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), bytes_max: 100 << 20, files_max: 4, queue_max: 8192, reads: false }
    }
}

/// What is learnt about a request while it is served.
#[derive(Clone, Debug, Default)]
pub struct Note {
    /// Whose credentials it has; none when they were refused.
    pub user: Option<Arc<User>>,
    /// Whom it acts as.
    pub impersonated: Option<Arc<User>>,
    /// The verb that let it act so, as [`crate::authn::impersonate::Impersonated::constraint`] says it.
    pub constraint: &'static str,
    /// What it was refused with.
    pub message: String,
    verdict: Option<Verdict>,
}

impl Note {
    /// Remembers what authorization said.
    pub fn decision(&mut self, verdict: &Verdict) {
        self.verdict = Some(verdict.clone());
    }
}

/// A request that has been answered.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// What was learnt on the way.
    pub note: &'a Note,
    /// What was asked of authorization.
    pub asked: &'a Attributes<'a>,
    /// Path and query.
    pub uri: &'a str,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// Where it came from.
    pub peer: Option<IpAddr>,
    /// The HTTP status code of the answer.
    pub code: u16,
    /// The refusal, if it was one.
    pub refusal: Option<&'a Status>,
    /// When it came, since 1970.
    pub began: Duration,
    /// When it was answered, since 1970.
    pub ended: Duration,
}

/// The log. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    queue: mpsc::Sender<Record>,
    reads: bool,
    dropped: Arc<Counter>,
}

impl Audit {
    /// Opens the file and starts the writer, which ends with the tasks after writing what waits. `dropped` counts
    /// the records that found the queue full or could not be written.
    pub fn open(config: &Config, tasks: &Tasks, dropped: Arc<Counter>) -> std::io::Result<Self> {
        let file = File::open(config)?;
        let (queue, records) = mpsc::channel(config.queue_max.max(1));
        tasks.spawn(write(file, records, tasks.stopping(), Arc::clone(&dropped)));
        Ok(Self { queue, reads: config.reads, dropped })
    }

    /// Records a request if the policy says so. Never waits.
    pub fn record(&self, finished: &Finished<'_>) {
        if !policy::records(finished.asked, finished.code, self.reads) {
            return;
        }
        if self.queue.try_send(Record::new(finished)).is_err() {
            self.dropped.inc();
        }
    }
}

async fn write(
    mut file: File,
    mut records: mpsc::Receiver<Record>,
    stopping: impl Future<Output = ()>,
    dropped: Arc<Counter>,
) {
    let mut batch = Vec::new();
    tokio::pin!(stopping);
    let mut stopped = false;
    loop {
        tokio::select! {
            biased;
            () = &mut stopping, if !stopped => {
                // What waits is still written; what comes later is dropped and counted.
                stopped = true;
                records.close();
            }
            count = records.recv_many(&mut batch, BATCH_MAX) => {
                if count == 0 {
                    return;
                }
                let full = std::mem::take(&mut batch);
                let done = tokio::task::spawn_blocking(move || {
                    let lost = file.append(&full);
                    (file, lost)
                });
                // The writing thread is never cancelled and does not panic; if it is gone all the same, so is the file.
                let Ok((returned, lost)) = done.await else { return };
                file = returned;
                dropped.add(lost);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
