//! The last changes in order, bounded by count and by bytes.
//!
//! Every change has a position, counted from the start of this process, because revisions may repeat (keys that
//! expire together on etcd) and positions may not.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{Change, Revision};

/// How much history is kept. What does not fit is forgotten, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// The most changes kept.
    pub changes_max: usize,
    /// The most bytes kept: superseded values, and the changes' own as watchers see them.
    pub bytes_max: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { changes_max: 64 * 1024, bytes_max: 32 << 20 }
    }
}

/// A change's place in the order of this process.
pub(crate) type Position = u64;

/// The retained changes.
#[derive(Debug)]
pub(crate) struct History {
    changes: VecDeque<Arc<Change>>,
    /// The position of the first retained change.
    first: Position,
    /// The sum of [`weight`] over `changes`.
    bytes: usize,
    /// Every change after this revision is retained.
    oldest: Revision,
    limits: HistoryLimits,
}

/// What a change keeps in memory: what it replaced, and its own value once more, since watchers keep an encoded copy.
pub(crate) fn weight(change: &Change) -> usize {
    /// The structs themselves, roughly.
    const OVERHEAD: usize = 160;
    let replaced = change.previous.as_ref().map_or(0, |previous| previous.value.len());
    OVERHEAD + change.entry.key.len() + change.entry.value.len() + replaced
}

impl History {
    pub(crate) fn new(oldest: Revision, limits: HistoryLimits) -> Self {
        Self { changes: VecDeque::new(), first: 0, bytes: 0, oldest, limits }
    }

    /// Every change after this revision is retained.
    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    /// The position of the first retained change.
    pub(crate) fn first(&self) -> Position {
        self.first
    }

    /// The position that the next change will have.
    pub(crate) fn end(&self) -> Position {
        self.first + self.changes.len() as u64
    }

    /// The position of the first change after `revision`.
    pub(crate) fn position_after(&self, revision: Revision) -> Position {
        self.first + self.changes.partition_point(|change| change.revision() <= revision) as u64
    }

    /// The changes from a position on. Empty when it is past the end; from the first when it is before that.
    pub(crate) fn from(&self, position: Position) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        let skip = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.changes.range(skip.min(self.changes.len())..)
    }

    pub(crate) fn push(&mut self, change: Arc<Change>) {
        self.bytes += weight(&change);
        self.changes.push_back(change);
    }

    /// Forgets what does not fit, and everything up to `floor`; gives the forgotten.
    pub(crate) fn trim(&mut self, floor: Revision) -> Vec<Arc<Change>> {
        let mut forgotten = Vec::new();
        while let Some(front) = self.changes.front() {
            let fits = self.changes.len() <= self.limits.changes_max && self.bytes <= self.limits.bytes_max;
            if fits && front.revision() > floor {
                break;
            }
            let Some(change) = self.changes.pop_front() else { break };
            self.first += 1;
            self.bytes = self.bytes.saturating_sub(weight(&change));
            self.oldest = self.oldest.max(change.revision());
            forgotten.push(change);
        }
        self.oldest = self.oldest.max(floor);
        forgotten
    }

    /// Forgets everything: the state was replaced as a whole at `revision`.
    pub(crate) fn clear(&mut self, revision: Revision) {
        self.first = self.end();
        self.changes.clear();
        self.bytes = 0;
        self.oldest = revision;
    }
}
