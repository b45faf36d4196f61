//! What containers write: the last lines of each, kept in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use landfall_apiserver::read::logs::LogOptions;
use landfall_runtime::clock;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::echo::Journal;

/// How much of a container's log is kept.
const LOG_BYTES_MAX: usize = 32 * 1024;

/// The longest line.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// The log of one run of a container.
#[derive(Debug)]
pub(super) struct Log {
    lines: Mutex<Lines>,
    /// How many lines there have been, and whether no more will come.
    written: watch::Sender<(u64, bool)>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<Line>,
    bytes: usize,
    /// How many lines came before those kept.
    dropped: u64,
}

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// When it was written, since 1970.
    pub(super) at: Duration,
    /// Without its end.
    pub(super) text: Arc<str>,
}

impl Default for Log {
    fn default() -> Self {
        Self { lines: Mutex::default(), written: watch::Sender::new((0, false)) }
    }
}

impl Journal for Log {
    fn line(&self, line: &str) {
        let cut = (0..=LINE_BYTES_MAX.min(line.len())).rev().find(|at| line.is_char_boundary(*at));
        let text: Arc<str> = line.get(..cut.unwrap_or(0)).unwrap_or("").into();
        let mut lines = self.lines.lock();
        lines.bytes += text.len();
        lines.kept.push_back(Line { at: clock::since_epoch(), text });
        while lines.bytes > LOG_BYTES_MAX {
            let Some(first) = lines.kept.pop_front() else { break };
            lines.bytes = lines.bytes.saturating_sub(first.text.len());
            lines.dropped += 1;
        }
        let count = lines.dropped + lines.kept.len() as u64;
        drop(lines);
        self.written.send_modify(|written| written.0 = written.0.max(count));
    }
}

impl Log {
    /// Nothing more will be written.
    pub(super) fn close(&self) {
        self.written.send_modify(|written| written.1 = true);
    }

    /// Lines from number `from` on that are still there, and the number of the one after the last.
    pub(super) fn since(&self, from: u64) -> (Vec<Line>, u64) {
        let lines = self.lines.lock();
        let skip = usize::try_from(from.saturating_sub(lines.dropped)).unwrap_or(usize::MAX);
        let next = lines.dropped + lines.kept.len() as u64;
        (lines.kept.iter().skip(skip).cloned().collect(), next)
    }

    /// Waits until there are more than `count` lines; false when there never will be.
    pub(super) async fn beyond(&self, count: u64) -> bool {
        let mut written = self.written.subscribe();
        let Ok(now) = written.wait_for(|(lines, closed)| *lines > count || *closed).await else {
            return false;
        };
        now.0 > count
    }
}

/// The lines asked for, as they come.
pub(super) fn lines(log: Arc<Log>, options: &LogOptions) -> BoxStream<'static, Bytes> {
    let (all, end) = log.since(0);
    let since = Duration::from_secs(options.since_s.and_then(|s| s.try_into().ok()).unwrap_or(0));
    let recent: Vec<Line> = all.into_iter().filter(|line| line.at >= since).collect();
    let tail = options.tail_lines.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let skip = recent.len().saturating_sub(tail);
    let timestamps = options.timestamps;
    let first = stream::iter(recent.into_iter().skip(skip));
    let follow = options.follow;
    let later = stream::unfold((log, end), move |(log, end)| async move {
        if !follow || !log.beyond(end).await {
            return None;
        }
        let (lines, next) = log.since(end);
        Some((stream::iter(lines), (log, next)))
    });
    let text = first.chain(later.flatten()).map(move |line| line.written(timestamps));
    let left = options.limit_bytes.unwrap_or(u64::MAX);
    text.scan(left, |left, text| {
        let take = usize::try_from(*left).unwrap_or(usize::MAX).min(text.len());
        *left -= take as u64;
        std::future::ready((take > 0).then(|| text.slice(..take)))
    })
    .boxed()
}

impl Line {
    fn written(&self, timestamp: bool) -> Bytes {
        let text = &self.text;
        if !timestamp {
            return format!("{text}\n").into();
        }
        let nanos = i128::try_from(self.at.as_nanos()).unwrap_or(0);
        let at = jiff::Timestamp::from_nanosecond(nanos).unwrap_or_default();
        format!("{at:.9} {text}\n").into()
    }
}
