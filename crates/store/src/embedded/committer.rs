//! The one thread that writes: it checks what waits, commits it together, makes it visible, and answers.
//!
//! When the disk fails, the file is opened again to learn whether the last commit is there. Until that works all
//! writes fail at once with the cause; reads go on from memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Config;
use super::expiry::{self, Expiries, Expiry, NEVER};
use super::file::{self, Batch, Directory, File, Loaded, Medium};
use super::queue::{Action, Op, Queue};
use crate::mirror::Mirror;
use crate::{Change, Entry, Error, OpenError, Revision, Snapshot};

/// How long to wait before a failed data file is tried again; opening it reads all of it.
const REOPEN_EVERY: Duration = Duration::from_millis(250);
/// The most expired keys removed in one commit.
const EXPIRED_MAX: usize = 1024;
/// The longest time without a look at the clock, which may be set forward.
const CLOCK_CHECK: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Committer {
    config: Config,
    medium: Medium,
    _directory: Option<Directory>,
    queue: Arc<Queue>,
    mirror: Arc<Mirror>,
    expiries: Expiries,
    disk: Disk,
    /// Why and until when writes are refused although the file is open: the last commit failed just now.
    hold: Option<(Error, Instant)>,
}

/// How the data file is.
enum Disk {
    Working(File),
    /// A commit failed, and the file could not be opened again since.
    Failed {
        why: Error,
        /// What may or may not be in the file.
        doubtful: Pending,
        retry: Instant,
    },
}

/// Checked writes that are not yet committed.
struct Pending {
    changes: Vec<(Arc<Change>, Expiry)>,
    /// The state they lead to.
    next: Snapshot,
}

impl Committer {
    /// Opens the data file and reads it.
    pub(super) fn open(
        config: Config,
        medium: Medium,
        directory: Option<Directory>,
        queue: Arc<Queue>,
    ) -> Result<Self, OpenError> {
        let Loaded { file, state, expiries, past, oldest } = medium.open(&config.seals)?;
        let mirror = Mirror::new(state, oldest, past, config.history);
        let disk = Disk::Working(file);
        Ok(Self { config, medium, _directory: directory, queue, mirror, expiries, disk, hold: None })
    }

    /// The mirror that it fills.
    pub(super) fn mirror(&self) -> Arc<Mirror> {
        Arc::clone(&self.mirror)
    }

    /// Works until the queue is closed and empty.
    pub(super) fn run(mut self) {
        while let Some(mut ops) = self.queue.take(self.wake_at(), self.config.batch_bytes_max) {
            self.recover();
            if let Some(why) = self.trouble() {
                ops.into_iter().for_each(|op| op.answer(Err(why.clone())));
                continue;
            }
            self.add_expired(&mut ops);
            if !ops.is_empty() {
                self.commit(ops);
            }
        }
    }

    /// Why writes are refused at present.
    fn trouble(&mut self) -> Option<Error> {
        if let Disk::Failed { why, .. } = &self.disk {
            return Some(why.clone());
        }
        self.hold.take_if(|(_, until)| *until <= Instant::now());
        let why = self.hold.as_ref().map(|(why, _)| why.clone());
        self.queue.set_trouble(why.clone());
        why
    }

    /// When there is something to do even if nothing is written.
    fn wake_at(&self) -> Option<Instant> {
        if let Disk::Failed { retry, .. } = &self.disk {
            return Some(*retry);
        }
        if let Some((_, until)) = &self.hold {
            return Some(*until);
        }
        let next = self.expiries.next()?;
        let wait = Duration::from_millis(next.saturating_sub(self.now()));
        Some(Instant::now() + wait.min(CLOCK_CHECK))
    }

    fn now(&self) -> Expiry {
        expiry::millis((self.config.now)())
    }

    fn add_expired(&self, ops: &mut Vec<Op>) {
        let state = self.mirror.snapshot();
        let expired = self.expiries.due(self.now()).take(EXPIRED_MAX).filter_map(|key| state.get(key));
        ops.extend(expired.map(|entry| Op::expire(Arc::clone(&entry.key), entry.revision)));
    }

    /// Checks, commits, publishes and answers.
    fn commit(&mut self, ops: Vec<Op>) {
        let Disk::Working(file) = &mut self.disk else { return };
        let now = expiry::millis((self.config.now)());
        let mut pending = Pending { changes: Vec::with_capacity(ops.len()), next: self.mirror.snapshot() };
        let mut done = Vec::with_capacity(ops.len());
        for mut op in ops {
            match pending.add(&op.key, &mut op.action, now) {
                Ok(entry) => done.push((op, entry)),
                Err(error) => op.answer(Err(error)),
            }
        }
        if done.is_empty() {
            return;
        }
        let forget = self.mirror.oldest();
        let limits = self.config.history;
        let batch = Batch { changes: &pending.changes, forget, limits, seals: &self.config.seals };
        let result = match file.commit(&batch) {
            Ok(()) => {
                self.publish(pending);
                Ok(())
            }
            Err(error) => self.fail(file::explain(&error), pending),
        };
        for (op, entry) in done {
            op.answer(result.clone().map(|()| entry));
        }
    }

    fn publish(&mut self, pending: Pending) {
        let mut changes = Vec::with_capacity(pending.changes.len());
        for (change, expiry) in pending.changes {
            self.expiries.set(&change.entry.key, expiry);
            changes.push(change);
        }
        self.mirror.publish(&changes, pending.next);
    }

    /// After a failed commit: finds out whether it is in the file, and if that cannot be found out, waits.
    fn fail(&mut self, why: Error, doubtful: Pending) -> Result<(), Error> {
        tracing::error!(error = %why, "a commit failed; opening the data file again");
        let last = doubtful.next.revision();
        self.disk = Disk::Failed { why: why.clone(), doubtful, retry: Instant::now() };
        self.recover();
        if self.mirror.snapshot().revision() >= last {
            return Ok(());
        }
        self.hold = Some((why.clone(), Instant::now() + REOPEN_EVERY));
        self.queue.set_trouble(Some(why.clone()));
        Err(why)
    }

    /// Tries to open a failed data file again when it is time.
    fn recover(&mut self) {
        let Disk::Failed { why, doubtful, retry } = &mut self.disk else { return };
        if Instant::now() < *retry {
            return;
        }
        let revision = self.mirror.snapshot().revision();
        let opened = self.medium.open(&self.config.seals);
        let outcome = opened.map_err(|error| file::explain_open(&error)).and_then(|loaded| {
            let found = loaded.state.revision();
            if found == revision || found == doubtful.next.revision() {
                return Ok(loaded);
            }
            Err(Error::Unavailable(format!(
                "the data file went from revision {revision} to {found}: stop, and restore it from a backup"
            )))
        });
        match outcome {
            Err(error) => {
                *why = error;
                *retry = Instant::now() + REOPEN_EVERY;
                self.queue.set_trouble(Some(why.clone()));
            }
            Ok(loaded) => {
                let landed = loaded.state.revision() > revision;
                let before = std::mem::replace(&mut self.disk, Disk::Working(loaded.file));
                if let (Disk::Failed { doubtful, .. }, true) = (before, landed) {
                    self.publish(doubtful);
                }
                self.queue.set_trouble(None);
                tracing::info!(landed, "the data file is open again");
            }
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        // Also when the thread panics: nobody must wait for ever.
        self.queue.abandon();
    }
}

impl Pending {
    /// Checks a write against the state with everything before it done, and adds it.
    fn add(&mut self, key: &Arc<str>, action: &mut Action, now: Expiry) -> Result<Arc<Entry>, Error> {
        let current = self.next.get(key).cloned();
        let revision = self.next.revision() + 1;
        let (change, expiry) = match action {
            Action::Create { value, ttl } => {
                if let Some(current) = current {
                    return Err(Error::Exists(current));
                }
                let entry = Entry::new(Arc::clone(key), std::mem::take(value), revision, revision);
                (Change::written(entry, None), expiry::after(now, *ttl))
            }
            Action::Update { value, expected, ttl } => {
                let current = expect(current, *expected)?;
                let key = Arc::clone(&current.key);
                let entry = Entry::new(key, std::mem::take(value), current.created, revision);
                (Change::written(entry, Some(current)), expiry::after(now, *ttl))
            }
            Action::Delete { expected } => (Change::removed(expect(current, *expected)?, revision), NEVER),
        };
        self.next.apply(&change);
        let entry = Arc::clone(&change.entry);
        self.changes.push((change, expiry));
        Ok(entry)
    }
}

/// The entry, which must be at the expected revision.
fn expect(current: Option<Arc<Entry>>, expected: Revision) -> Result<Arc<Entry>, Error> {
    match current {
        Some(current) if current.revision == expected => Ok(current),
        other => Err(Error::Conflict(other)),
    }
}
