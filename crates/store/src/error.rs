//! Why an operation was not done, and why a store could not be opened.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{Entry, Revision};

/// Why an operation was not done. Unless said otherwise nothing was changed.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// The backend does not know us, or does not let us.
    #[error("the store does not let us: {0}")]
    Denied(String),
    /// A value that is kept encrypted cannot be opened.
    #[error("{0}")]
    Sealed(String),
    /// The store is shut down.
    #[error("the store is closed")]
    Closed,
}

/// Why a store could not be opened. Nothing was changed on disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by another process: two hubs cannot share one data directory; stop the other one, or give \
             this one a --data-dir of its own", path.display())]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// The file does not hold what a store left there.
    #[error("the data file {} is damaged: {what}. Restore it from a backup, or move it away to start with an empty \
             store", path.display())]
    Damaged {
        /// The data file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file was written by a newer version.
    #[error("the data file {} has format {found}, and this version reads format {known}: use the version that \
             wrote it", path.display())]
    Format {
        /// The data file.
        path: PathBuf,
        /// The format in the file.
        found: u64,
        /// The format of this version.
        known: u64,
    },
    /// The directory or file cannot be read or written.
    #[error("cannot open {}", path.display())]
    Io {
        /// What was being opened.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A value that is kept encrypted cannot be opened.
    #[error("{0}")]
    Sealed(String),
    /// A setting makes no sense.
    #[error("store settings: {0}")]
    Config(String),
    /// The backend cannot be reached.
    #[error("cannot reach the store: {0}")]
    Unreachable(String),
}
