//! The store in one file on this machine's disk, for one process.
//!
//! ```text
//!   create/update/delete ──► Queue ──► committer thread: check ─► redb commit + fsync ─► Mirror ─► acknowledge
//!                                       └── expired keys                 └── state, undo log, revision
//! ```
//!
//! All writes that wait while one commit is being synced go into the next one. Acknowledged means synced to disk and
//! visible to readers. The file holds the current state and the last changes, so that watches resume over a restart.

mod committer;
mod expiry;
mod file;
mod queue;
mod record;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::mirror::{HistoryLimits, Mirror};
use crate::{Entry, Error, OpenError, Revision, Seals, Snapshot, Store, Watch};
use committer::Committer;
use file::{Directory, Medium};
use queue::{Action, Queue};

/// Settings of the embedded store.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory that holds the data file and its lock; made when missing.
    pub directory: PathBuf,
    /// How much history watches and chunked lists can go back.
    pub history: HistoryLimits,
    /// The largest value.
    pub value_bytes_max: usize,
    /// The most writes that wait for a commit; more wait at the door.
    pub queue_max: usize,
    /// The most bytes of values in one commit.
    pub batch_bytes_max: usize,
    /// Memory for pages of the data file. All reads are served from elsewhere, so little is enough.
    pub cache_bytes: usize,
    /// Which values are encrypted in the file.
    pub seals: Seals,
    /// Tells the wall-clock time, which keys expire by.
    pub now: fn() -> SystemTime,
}

impl Config {
    /// The usual settings for a directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            history: HistoryLimits::default(),
            value_bytes_max: 4 << 20,
            queue_max: 4096,
            batch_bytes_max: 8 << 20,
            cache_bytes: 1 << 20,
            seals: Seals::default(),
            now: wall_clock,
        }
    }
}

/// The longest key, as etcd's users know it from file names and URLs: far more than any object's.
pub(crate) const KEY_BYTES_MAX: usize = 4096;

/// Opens the store in a directory, or makes a new one there. Reads the whole state, so it takes a moment.
pub fn open_embedded(config: Config) -> Result<Arc<dyn Store>, OpenError> {
    let directory = Directory::lock(&config.directory)?;
    let medium = Medium::File { path: directory.data_file(), cache_bytes: config.cache_bytes };
    let store: Arc<dyn Store> = Arc::new(Embedded::open(config, medium, Some(directory))?);
    Ok(store)
}

/// Opens an empty store that is kept in memory alone and gone with the process; the directory is not looked at.
pub fn open_memory(config: Config) -> Result<Arc<dyn Store>, OpenError> {
    let store: Arc<dyn Store> = Arc::new(Embedded::open(config, Medium::Nowhere, None)?);
    Ok(store)
}

/// See [`open_embedded`].
struct Embedded {
    mirror: Arc<Mirror>,
    queue: Arc<Queue>,
    committer: Mutex<Option<std::thread::JoinHandle<()>>>,
    value_bytes_max: usize,
    opened_at: Revision,
}

impl Embedded {
    fn open(config: Config, medium: Medium, directory: Option<Directory>) -> Result<Self, OpenError> {
        let value_bytes_max = config.value_bytes_max;
        let queue = Arc::new(Queue::new(config.queue_max));
        let committer = Committer::open(config, medium, directory, Arc::clone(&queue))?;
        let mirror = committer.mirror();
        let opened_at = mirror.snapshot().revision();
        let thread = std::thread::Builder::new()
            .name("store-commit".into())
            .spawn(move || committer.run())
            .map_err(|source| OpenError::Io { path: "thread store-commit".into(), source })?;
        Ok(Self { mirror, queue, committer: Mutex::new(Some(thread)), value_bytes_max, opened_at })
    }

    fn submit(&self, key: &str, action: Action) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        if let Err(error) = self.check_sizes(key, &action) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let key = Arc::from(key);
        Box::pin(self.queue.submit(key, action))
    }

    fn check_sizes(&self, key: &str, action: &Action) -> Result<(), Error> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Error::TooLarge(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len())));
        }
        let size = action.value().map_or(0, Bytes::len);
        if size > self.value_bytes_max {
            let limit = self.value_bytes_max;
            return Err(Error::TooLarge(format!("the value has {size} bytes, and the limit is {limit}")));
        }
        Ok(())
    }
}

impl Store for Embedded {
    /// Since it was opened: the file is locked.
    fn alone_since(&self) -> Option<Revision> {
        Some(self.opened_at)
    }

    fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        self.submit(key, Action::Create { value, ttl })
    }

    fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        self.submit(key, Action::Update { value, expected, ttl })
    }

    fn delete(&self, key: &str, expected: Revision) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        self.submit(key, Action::Delete { expected })
    }

    fn barrier(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        // A write is acknowledged only after it is visible.
        let reached = self.mirror.ensure_open().map(|()| self.mirror.snapshot().revision());
        Box::pin(std::future::ready(reached))
    }

    fn snapshot(&self) -> Snapshot {
        self.mirror.snapshot()
    }

    fn snapshot_at(&self, revision: Revision) -> BoxFuture<'_, Result<Snapshot, Error>> {
        let state = self.mirror.ensure_open().and_then(|()| self.mirror.rewind(revision));
        Box::pin(std::future::ready(state))
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        let current = self.mirror.snapshot().revision();
        if after > current {
            return Err(Error::Future { asked: after, current });
        }
        self.mirror.watch(prefix, after)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>> {
        let current = self.mirror.snapshot().revision();
        let done = self.mirror.ensure_open().and_then(|()| {
            if revision > current {
                return Err(Error::Future { asked: revision, current });
            }
            self.mirror.compact(revision);
            Ok(())
        });
        Box::pin(std::future::ready(done))
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(self.queue.health()))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.queue.close();
            let thread = self.committer.lock().take();
            if let Some(thread) = thread {
                // The thread ends after the commit in hand; a panic in it has been logged by the panic hook.
                let _joined = tokio::task::spawn_blocking(move || thread.join()).await;
            }
            self.mirror.close();
        })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.queue.close();
        // Joined, so that the directory can be opened again at once; it is a commit long at most.
        if let Some(thread) = self.committer.get_mut().take() {
            let _panicked = thread.join();
        }
        self.mirror.close();
    }
}

#[expect(clippy::disallowed_methods, reason = "the default of a setting; whoever needs other time sets it")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}
