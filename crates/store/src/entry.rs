//! What is kept under a key, and one change of it.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::Revision;

/// One key with its value.
#[derive(Debug)]
pub struct Entry {
    /// The key; shared with the index, so that it is in memory once.
    pub key: Arc<str>,
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

// === impl Entry ===

impl Entry {
    /// An entry as a write makes it.
    pub(crate) fn new(key: Arc<str>, value: Bytes, created: Revision, revision: Revision) -> Arc<Self> {
        Arc::new(Self { key, value, created, revision, memo: Memo::default() })
    }
}

// === impl Change ===

impl Change {
    /// A key was written: created when there is no `previous`.
    pub(crate) fn written(entry: Arc<Entry>, previous: Option<Arc<Entry>>) -> Arc<Self> {
        Arc::new(Self { entry, previous, removed: false, memo: Memo::default() })
    }

    /// `last` was removed at `revision`.
    pub(crate) fn removed(last: Arc<Entry>, revision: Revision) -> Arc<Self> {
        let entry = Entry::new(Arc::clone(&last.key), last.value.clone(), last.created, revision);
        Arc::new(Self { entry, previous: Some(last), removed: true, memo: Memo::default() })
    }

    /// The change's own revision.
    pub fn revision(&self) -> Revision {
        self.entry.revision
    }
}

// === impl Memo ===

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
