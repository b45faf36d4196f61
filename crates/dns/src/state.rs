//! What all threads and tasks of a server share.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use hickory_proto::rr::TSigner;
use tokio::sync::watch;

use crate::answer::Manner;
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::serve::tcp::Connections;
use crate::zone::Snapshot;

/// What all threads and tasks share. The snapshot is swapped whole; all else stays as it was at the start.
pub(crate) struct Shared {
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) manner: Manner,
    pub(crate) limiter: Option<Limiter>,
    pub(crate) keys: Vec<TSigner>,
    pub(crate) connections: Connections,
    pub(crate) tcp_idle: Duration,
    pub(crate) metrics: Metrics,
    pub(crate) stopping: AtomicBool,
    /// Tells of every new snapshot, by its serial.
    pub(crate) serial: watch::Sender<u32>,
}
