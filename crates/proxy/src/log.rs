//! What is written down of requests: those that failed, one of many, or none; one line of JSON each, to a file or to standard
//! output, or else to the program's log.
//!
//! A thread of its own writes. Where it cannot keep up, lines are left out and counted: no request waits for its line.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use http::StatusCode;
use landfall_runtime::clock;
use landfall_runtime::metrics::{Counter, Registry};
use serde_json::json;

use crate::config::{AccessLog, Config, LogTo, StartError};
use crate::upstream::Endpoint;

/// Lines that wait to be written.
const WAITING_MAX: usize = 8192;

/// What is written down.
pub(crate) struct Log {
    which: AccessLog,
    edge: String,
    count: AtomicU32,
    /// Where lines go, if not to the program's log.
    lines: Option<SyncSender<String>>,
    dropped: Arc<Counter>,
}

/// A request that is over.
pub(crate) struct Entry<'a> {
    pub(crate) client: SocketAddr,
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) route: &'a str,
    pub(crate) service: &'a str,
    /// Where it went, if it went anywhere.
    pub(crate) cluster: &'a str,
    pub(crate) endpoint: Option<&'a Endpoint>,
    /// Why its cluster was chosen.
    pub(crate) why: &'a str,
    pub(crate) status: StatusCode,
    pub(crate) took: Duration,
    pub(crate) retries: u32,
    /// The clusters that were asked before, one after the other.
    pub(crate) tried: &'a [Arc<str>],
    /// What went wrong, if something did.
    pub(crate) fault: Option<&'a str>,
    /// Its answer broke off.
    pub(crate) broke_off: bool,
    /// The trace it belongs to.
    pub(crate) trace: Option<&'a str>,
}

impl Log {
    pub(crate) fn new(config: &Config, registry: &Registry) -> Result<Self, StartError> {
        let dropped = registry.counter(
            "landfall_proxy_access_log_dropped_total",
            "Lines of the access log that were left out because they could not be written in time.",
            "",
        );
        let lines = match &config.access_log_to {
            LogTo::Program => None,
            LogTo::Stdout => Some(write_to(std::io::stdout())?),
            LogTo::File(path) => Some(write_to(open(path)?)?),
        };
        let (which, edge) = (config.access_log, config.edge.clone());
        Ok(Self { which, edge, count: AtomicU32::new(0), lines, dropped })
    }

    /// Whether nothing is ever written down.
    pub(crate) fn is_off(&self) -> bool {
        self.which == AccessLog::Off
    }

    /// Whether a request that ended so might be one of those that are written down.
    pub(crate) fn may_take(&self, status: StatusCode, broke_off: bool, retries: u32) -> bool {
        let failed = status.is_server_error() || broke_off;
        match self.which {
            AccessLog::Off => false,
            AccessLog::Errors => failed,
            AccessLog::Retried => failed || retries > 0,
            AccessLog::Sampled(_) => true,
        }
    }

    /// Whether a request that ended so is one of those that are written down.
    fn takes(&self, entry: &Entry<'_>) -> bool {
        let failed = entry.is_failed();
        match self.which {
            AccessLog::Off => false,
            AccessLog::Errors => failed,
            AccessLog::Retried => failed || entry.retries > 0,
            AccessLog::Sampled(every) => {
                let one_of_many = self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(every.max(1));
                one_of_many || failed
            }
        }
    }

    /// Writes a request down, if it is one of those.
    pub(crate) fn write(&self, entry: &Entry<'_>) {
        if !self.takes(entry) {
            return;
        }
        let Some(lines) = &self.lines else { return tell(entry) };
        if lines.try_send(line(entry, &self.edge)).is_err() {
            self.dropped.inc();
        }
    }
}

impl Entry<'_> {
    /// Whether its client did not get what it should have: an answer that breaks off began well.
    fn is_failed(&self) -> bool {
        self.status.is_server_error() || self.broke_off
    }
}

/// One line of JSON.
fn line(entry: &Entry<'_>, edge: &str) -> String {
    let now = clock::since_epoch();
    let endpoint = entry.endpoint.map(|endpoint| endpoint.reach.to_string());
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let line = json!({
        "time": rfc3339(now),
        "edge": edge,
        "client": entry.client.ip().to_canonical().to_string(),
        "method": entry.method,
        "host": entry.host,
        "path": entry.path,
        "status": entry.status.as_u16(),
        "tookMs": (entry.took.as_secs_f64() * 1e6).round() / 1e3,
        "route": known(entry.route),
        "service": known(entry.service),
        "cluster": known(entry.cluster),
        "endpoint": endpoint,
        "why": known(entry.why),
        "retries": entry.retries,
        "tried": (!entry.tried.is_empty()).then(|| entry.tried.iter().map(|cluster| &**cluster).collect::<Vec<_>>()),
        "fault": entry.fault,
        "trace": entry.trace,
    });
    // What is not known is not there.
    let told = line.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let mut text =
        serde_json::Value::from_iter(told.map(|(name, value)| (name.clone(), value.clone()))).to_string();
    text.push('\n');
    text
}

/// The same, to the program's log.
fn tell(entry: &Entry<'_>) {
    let Entry { client, method, host, path, route, service, cluster, why, retries, fault, .. } = entry;
    let endpoint = entry.endpoint.map(|endpoint| endpoint.reach.to_string()).unwrap_or_default();
    let (status, took_us) = (entry.status.as_u16(), entry.took.as_micros());
    let fault = fault.unwrap_or_default();
    if entry.is_failed() {
        tracing::warn!(
            %client, method, host, path, status, took_us, route, service, cluster, endpoint, why, retries, fault,
            "a request failed"
        );
    } else {
        tracing::info!(
            %client, method, host, path, status, took_us, route, service, cluster, endpoint, why, retries, fault, "request"
        );
    }
}

fn rfc3339(since_epoch: Duration) -> String {
    let (s, ms) = (since_epoch.as_secs(), since_epoch.subsec_millis());
    let date = std::time::UNIX_EPOCH + Duration::from_secs(s);
    // "Sun, 06 Nov 1994 08:49:37 GMT", by the crate that writes Date headers.
    let text = httpdate::fmt_http_date(date);
    let mut words = text.split([' ', ',']).filter(|word| !word.is_empty()).skip(1);
    let (day, month, year, time) = (words.next(), words.next(), words.next(), words.next());
    let month = month.and_then(|month| MONTHS.iter().position(|name| *name == month)).map_or(1, |at| at + 1);
    let (day, year, time) = (day.unwrap_or("01"), year.unwrap_or("1970"), time.unwrap_or("00:00:00"));
    format!("{year}-{month:02}-{day}T{time}.{ms:03}Z")
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn open(path: &PathBuf) -> Result<std::fs::File, StartError> {
    // Whoever turns the file over may cut it off: what is appended is at its end, wherever that is.
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|source| StartError::Log { path: path.clone(), source })
}

/// Begins to write lines, until nobody has any more.
fn write_to(to: impl Write + Send + 'static) -> Result<SyncSender<String>, StartError> {
    let (lines, waiting) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("access-log".to_owned());
    thread.spawn(move || write_all(&waiting, BufWriter::new(to))).map_err(StartError::Thread)?;
    Ok(lines)
}

fn write_all(waiting: &Receiver<String>, mut to: BufWriter<impl Write>) {
    let mut troubled = false;
    while let Ok(first) = waiting.recv() {
        let mut written = to.write_all(first.as_bytes());
        while let (Ok(()), Ok(next)) = (&written, waiting.try_recv()) {
            written = to.write_all(next.as_bytes());
        }
        // Nobody waits any more: what there is can be read.
        let written = written.and_then(|()| to.flush());
        if let (Err(error), false) = (&written, troubled) {
            tracing::error!(%error, "the access log cannot be written");
        }
        troubled = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_everybody_reads_them() {
        for (ms, want) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_042, "2000-02-29T00:00:00.042Z"),
            (1_793_491_199_999, "2026-10-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_millis(ms)), want);
        }
    }
}
