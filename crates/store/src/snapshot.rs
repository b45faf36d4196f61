//! A state of the whole store that never changes.

use std::ops::Bound;
use std::sync::Arc;

use crate::{Change, Entry, Revision};

/// An immutable state of the whole store. Cheap to clone; reading takes no lock.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    revision: Revision,
    entries: imbl::OrdMap<Arc<str>, Arc<Entry>>,
}

impl Snapshot {
    /// The revision of this state.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry under a key.
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.entries.get(key)
    }

    /// Entries whose keys begin with `prefix` and come after `after` (empty: from the start), in key order.
    pub fn range<'a>(&'a self, prefix: &'a str, after: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        let from: Bound<&str> = if after > prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        self.entries
            .range::<(Bound<&str>, Bound<&str>), str>((from, Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| entry.key.starts_with(prefix))
    }

    /// An empty state at a revision.
    pub(crate) fn empty(revision: Revision) -> Self {
        Self { revision, ..Self::default() }
    }

    /// Puts an entry in as it is, for filling a state from disk or from etcd.
    pub(crate) fn put(&mut self, entry: Arc<Entry>) {
        self.entries.insert(Arc::clone(&entry.key), entry);
    }

    /// Takes entries that are the same from another state, so that each is in memory once.
    pub(crate) fn share(&mut self, other: &Self) {
        let same = |entry: &Arc<Entry>| {
            other.get(&entry.key).filter(|other| other.revision == entry.revision).cloned()
        };
        let shared: Vec<_> = self.entries.values().filter_map(same).collect();
        shared.into_iter().for_each(|entry| self.put(entry));
    }

    /// Moves the revision; it only rises while changes are applied.
    pub(crate) fn set_revision(&mut self, revision: Revision) {
        self.revision = revision;
    }

    /// Does a change.
    pub(crate) fn apply(&mut self, change: &Change) {
        if change.removed {
            self.entries.remove(&*change.entry.key);
        } else {
            self.put(Arc::clone(&change.entry));
        }
        self.revision = change.revision();
    }

    /// Takes a change back. The caller sets the revision when all are taken back.
    pub(crate) fn undo(&mut self, change: &Change) {
        match &change.previous {
            Some(previous) => self.put(Arc::clone(previous)),
            None => drop(self.entries.remove(&*change.entry.key)),
        }
    }
}
