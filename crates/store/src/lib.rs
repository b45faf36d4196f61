//! Keeps bytes under keys with revisions and replays changes. Knows no kinds.
//!
//! One trait, [`Store`], with etcd's semantics and one global revision. Two backends: [`embedded`] (redb, one process)
//! and [`etcd`] (several hubs share one quorum). Both feed the same [`Snapshot`]s and history, from which reads and
//! watches are served without a lock and without a network round trip per key:
//!
//! ```text
//!   write ──► backend (redb commit + fsync │ etcd txn) ──► changes in order ──► mirror ──► Snapshot (reads)
//!                                                                               └──► history ──► Watch
//! ```
//!
//! A read that must see every acknowledged write calls [`Store::barrier`] first.
//!
//! In reading order: `entry` (what is kept), `snapshot` (a state), `watch` (a stream of changes), `mirror` (where both
//! come from), `seal` (what nobody reads on disk), `embedded` and `etcd` (who fills it), `error`. Deliberately absent: kinds, encodings, selectors, and any
//! consensus of our own.

pub mod embedded;
mod entry;
mod error;
pub mod etcd;
mod mirror;
mod seal;
mod snapshot;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

pub use embedded::{open_embedded, open_memory};
pub use entry::{Change, Entry, Memo};
pub use error::{Error, OpenError};
pub use etcd::connect_etcd;
pub use mirror::HistoryLimits;
pub use seal::{Keyring, KeyringError, Seals};
pub use snapshot::Snapshot;
pub use watch::{Event, Watch};

/// A point in the history of the whole store. Every change has its own, and they only rise. (Keys that expire
/// together on etcd may share one; then no batch of a [`Watch`] ends between them.)
pub type Revision = u64;

/// A store of keys.
pub trait Store: Send + Sync + 'static {
    /// Creates a key that must not exist. With `ttl` it removes itself after that time.
    fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<Arc<Entry>, Error>>;
    /// Replaces the value of a key whose revision must be `expected`. Without `ttl` it no longer expires.
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
    /// Every change after `after` to keys beginning with `prefix` (which ends in `/`, is a whole key, or is empty).
    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error>;
    /// Forgets history before `revision`.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>>;
    /// Whether the backend answers; for health checks.
    fn check(&self) -> BoxFuture<'_, Result<(), Error>>;
    /// The revision after which nobody but this process can have written; none where others may write too.
    fn alone_since(&self) -> Option<Revision>;
    /// Stops background work; later calls give [`Error::Closed`]. Acknowledged writes are safe already.
    fn close(&self) -> BoxFuture<'_, ()>;
}
