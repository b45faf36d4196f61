//! Keeps bytes under keys with revisions and replays changes. Knows no kinds.
//!
//! One trait, [`Store`], with etcd's semantics and one global revision. Two backends: `embedded` (redb, one process)
//! and `etcd` (several hubs share one quorum). Both feed the same [`Snapshot`]s and history, from which reads and
//! watches are served without a lock and without a network round trip per key:
//!
//! ```text
//!   write ──► backend (redb commit + fsync │ etcd txn) ──► changes in order ──► mirror ──► Snapshot (reads)
//!                                                                               └──► history ──► Watch
//! ```
//!
//! A read that must see every acknowledged write calls [`Store::barrier`] first.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

/// A point in the history of the whole store. Every change has its own, and they only rise.
pub type Revision = u64;

/// One key with its value.
#[derive(Debug)]
pub struct Entry {
    /// The key.
    pub key: Box<str>,
    /// The value.
    pub value: Bytes,
    /// The revision that created it.
    pub created: Revision,
    /// The revision that last changed it.
    pub revision: Revision,
    /// What a reader derived from the value, kept with it.
    pub memo: Memo,
}

/// One change.
#[derive(Debug)]
pub struct Change {
    /// The entry after the change; for a removal, the last entry with `revision` set to the removal's own.
    pub entry: Arc<Entry>,
    /// The entry before the change; none for a creation.
    pub previous: Option<Arc<Entry>>,
    /// Whether the key is gone.
    pub removed: bool,
    /// What a reader derived from the change (such as an encoded event), made once for all watchers.
    pub memo: Memo,
}

/// A slot that is filled once with something derived.
#[derive(Default)]
pub struct Memo(OnceLock<Box<dyn Any + Send + Sync>>);

impl Memo {
    /// The derived value, made by `make` the first time. All callers must use one type.
    pub fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let any = self.0.get_or_init(|| Box::new(make()));
        any.downcast_ref().expect("one memo holds one type")
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Memo(filled)" } else { "Memo(empty)" })
    }
}

/// Why an operation was not done. Unless said otherwise nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A create met an existing key.
    #[error("the key exists already")]
    Exists(Arc<Entry>),
    /// An update or delete met another revision than it expected, or no entry at all.
    #[error("the entry is at another revision")]
    Conflict(Option<Arc<Entry>>),
    /// The revision asked for is no longer retained.
    #[error("revision {asked} is too old: the oldest retained is {oldest}")]
    TooOld {
        /// What was asked for.
        asked: Revision,
        /// The oldest that can be had.
        oldest: Revision,
    },
    /// The revision asked for has not happened yet.
    #[error("revision {asked} is in the future: the store is at {current}")]
    Future {
        /// What was asked for.
        asked: Revision,
        /// Where the store is.
        current: Revision,
    },
    /// The disk (or etcd's quota) is full.
    #[error("no space left for the store: {0}")]
    Full(String),
    /// The value or key is larger than the limit.
    #[error("{0}")]
    TooLarge(String),
    /// The backend cannot be reached or did not answer in time; for a write, it may or may not have been done.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The store is shut down.
    #[error("the store is closed")]
    Closed,
}

/// A store of keys.
pub trait Store: Send + Sync + 'static {
    /// Creates a key that must not exist. With `ttl` it removes itself after that time.
    fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<Arc<Entry>, Error>>;
    /// Replaces the value of a key whose revision must be `expected`.
    fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<Arc<Entry>, Error>>;
    /// Removes a key whose revision must be `expected`; gives the last entry with the removal's revision.
    fn delete(&self, key: &str, expected: Revision) -> BoxFuture<'_, Result<Arc<Entry>, Error>>;
    /// Returns once [`Store::snapshot`] holds every write acknowledged (by any process) before the call.
    fn barrier(&self) -> BoxFuture<'_, Result<Revision, Error>>;
    /// The newest state known here, at once.
    fn snapshot(&self) -> Snapshot;
    /// The state at an earlier revision, for going on with a chunked list.
    fn snapshot_at(&self, revision: Revision) -> BoxFuture<'_, Result<Snapshot, Error>>;
    /// Every change after `after` to keys beginning with `prefix` (which ends in `/`, or is a whole key).
    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error>;
    /// Forgets history before `revision`.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>>;
    /// Whether the backend answers; for health checks.
    fn check(&self) -> BoxFuture<'_, Result<(), Error>>;
    /// Stops background work; later calls give [`Error::Closed`]. Acknowledged writes are safe already.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// An immutable state of the whole store. Cheap to clone; reading takes no lock.
#[derive(Clone, Debug)]
pub struct Snapshot {
    revision: Revision,
    entries: imbl::OrdMap<Arc<str>, Arc<Entry>>,
}

impl Snapshot {
    /// The revision of this state.
    pub fn revision(&self) -> Revision {
        self.revision
    }
    /// The entry under a key.
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.entries.get(key)
    }
    /// Entries whose keys begin with `prefix` and come after `after` (empty: from the start), in key order.
    pub fn range<'a>(&'a self, prefix: &'a str, after: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        use std::ops::Bound;
        let from: Bound<&str> = if after > prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        self.entries
            .range::<(Bound<&str>, Bound<&str>), str>((from, Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| entry.key.starts_with(prefix))
    }
}

/// What a watch yields.
#[derive(Clone, Debug)]
pub enum Event {
    /// The next change, in order, none missing, none twice.
    Change(Arc<Change>),
    /// Everything up to this revision has been yielded.
    Progress(Revision),
}

/// A stream of changes. See the backend's mirror for how it is fed.
#[derive(Debug)]
pub struct Watch {
    _private: (),
}

impl Watch {
    /// Waits for the next events and appends all that are ready (at most `max`) to `into`. [`Error::TooOld`] when
    /// this watch fell out of the retained history, [`Error::Closed`] at shutdown.
    pub async fn next_batch(&mut self, _into: &mut Vec<Event>, _max: usize) -> Result<(), Error> {
        Err(Error::Closed)
    }
    /// Asks that a [`Event::Progress`] be yielded even when nothing changes; every `every`.
    #[must_use]
    pub fn with_progress(self, _every: Duration) -> Self {
        self
    }
}
