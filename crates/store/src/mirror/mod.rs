//! The state in memory and the last changes: where every read and every watch is served from.
//!
//! One writer (the backend) publishes changes in order; any number of readers take snapshots without a lock. For a
//! batch of changes the order is: the snapshot holds them, then watchers are told, then [`Mirror::settled`] says so.
//! So whoever sees an event can read it, and a progress mark never runs ahead of the events.

mod history;
mod settled;
#[cfg(test)]
mod tests;
mod topics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::RwLock;

use crate::{Change, Error, Revision, Snapshot, Watch};
use history::History;
pub use history::HistoryLimits;
pub(crate) use history::{Position, weight};
use settled::Settled;
pub(crate) use topics::Ring;
use topics::Topics;

/// How many rewound states are kept for chunked lists that go on.
const REWOUND_MAX: usize = 8;
/// The same for states from before the history, which share less with the newest.
const FETCHED_MAX: usize = 2;
/// How many changes of the history are looked at under one lock.
const REPLAY_CHUNK: u64 = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Mirror {
    state: ArcSwap<Snapshot>,
    /// Everything up to this revision is in the snapshot and has been handed to the topics.
    settled: Settled,
    core: RwLock<Core>,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Core {
    history: History,
    topics: Topics,
    /// States at earlier revisions that somebody asked for.
    rewound: Vec<Snapshot>,
    /// The same, from before the history: given by whoever still had them.
    fetched: Vec<Snapshot>,
}

/// What a look into the history found.
pub(crate) enum Replay {
    /// The changes before this position were looked at.
    Upto(Position),
    /// Changes in between were forgotten.
    Lost,
}

impl Mirror {
    /// A mirror that begins with a state and the changes that led to it, all after revision `oldest`.
    pub(crate) fn new(
        state: Snapshot,
        oldest: Revision,
        past: impl IntoIterator<Item = Arc<Change>>,
        limits: HistoryLimits,
    ) -> Arc<Self> {
        let mut history = History::new(oldest, limits);
        past.into_iter().for_each(|change| history.push(change));
        history.trim(oldest);
        Arc::new(Self {
            settled: Settled::new(state.revision()),
            state: ArcSwap::from_pointee(state),
            core: RwLock::new(Core {
                history,
                topics: Topics::default(),
                rewound: Vec::new(),
                fetched: Vec::new(),
            }),
            closed: AtomicBool::new(false),
        })
    }

    /// The newest state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::clone(&self.state.load())
    }

    /// Every change up to this revision can be read and has been handed to the watches it concerns.
    pub(crate) fn settled(&self) -> Revision {
        self.settled.get()
    }

    /// Waits until everything up to a revision is settled; false when that takes longer than `within`.
    pub(crate) async fn reach(&self, revision: Revision, within: Duration) -> bool {
        self.settled.reach(revision, within).await
    }

    /// The revision after which every change is retained.
    pub(crate) fn oldest(&self) -> Revision {
        self.core.read().history.oldest()
    }

    /// Makes changes visible; `next` is the state that they lead to.
    pub(crate) fn publish(&self, changes: &[Arc<Change>], next: Snapshot) {
        let revision = next.revision();
        let mut core = self.core.write();
        let core = &mut *core;
        let first = core.history.end();
        changes.iter().for_each(|change| core.history.push(Arc::clone(change)));
        self.state.store(Arc::new(next));
        core.topics.publish(first, changes);
        core.trim(0);
        self.settled.set(revision);
    }

    /// Replaces the whole state: history is forgotten and every watch ends with "too old".
    pub(crate) fn reset(&self, state: Snapshot) {
        let revision = state.revision();
        let mut core = self.core.write();
        core.history.clear(revision);
        core.rewound.clear();
        core.fetched.clear();
        self.state.store(Arc::new(state));
        core.topics.break_all();
        self.settled.set(revision);
    }

    /// Forgets history up to `revision`.
    pub(crate) fn compact(&self, revision: Revision) {
        let mut core = self.core.write();
        core.trim(revision);
        core.fetched.retain(|state| state.revision() >= revision);
    }

    /// A kept state from before the history.
    pub(crate) fn fetched(&self, revision: Revision) -> Option<Snapshot> {
        self.core.read().fetched.iter().find(|state| state.revision() == revision).cloned()
    }

    /// Keeps a state from before the history for those who ask next; entries that are current are shared.
    pub(crate) fn keep_fetched(&self, mut state: Snapshot) -> Snapshot {
        state.share(&self.snapshot());
        let mut core = self.core.write();
        if core.fetched.len() >= FETCHED_MAX {
            core.fetched.remove(0);
        }
        core.fetched.push(state.clone());
        state
    }

    /// Forgets kept states before a revision.
    pub(crate) fn forget_fetched(&self, before: Revision) {
        self.core.write().fetched.retain(|state| state.revision() >= before);
    }

    /// Ends all watches; later ones are refused.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.core.write().topics.close();
    }

    /// Gives [`Error::Closed`] after [`Mirror::close`].
    pub(crate) fn ensure_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// The state at a retained revision.
    pub(crate) fn rewind(&self, revision: Revision) -> Result<Snapshot, Error> {
        let (mut state, later) = {
            let core = self.core.read();
            let state = self.snapshot();
            let current = state.revision();
            if revision > current {
                return Err(Error::Future { asked: revision, current });
            }
            if revision < core.history.oldest() {
                return Err(Error::TooOld { asked: revision, oldest: core.history.oldest() });
            }
            if let Some(known) = core.rewound.iter().find(|known| known.revision() == revision) {
                return Ok(known.clone());
            }
            let from = core.history.position_after(revision);
            let later: Vec<_> = core.history.from(from).cloned().collect();
            (state, later)
        };
        later.iter().rev().for_each(|change| state.undo(change));
        state.set_revision(revision);
        if !later.is_empty() {
            self.core.write().keep_rewound(&state);
        }
        Ok(state)
    }

    /// Watches a prefix after a revision, which may be one that has not happened yet.
    pub(crate) fn watch(self: &Arc<Self>, prefix: &str, after: Revision) -> Result<Watch, Error> {
        let mut core = self.core.write();
        self.ensure_open()?;
        let oldest = core.history.oldest();
        if after < oldest {
            return Err(Error::TooOld { asked: after, oldest });
        }
        let next = core.history.position_after(after);
        let end = core.history.end();
        let ring = core.topics.join(prefix, end);
        let current = self.state.load().revision();
        Ok(Watch::new(Arc::clone(self), prefix, after, current, next, ring))
    }

    /// Called when a watch goes.
    pub(crate) fn leave(&self, prefix: &str) {
        self.core.write().topics.leave(prefix);
    }

    /// Shows `each` the retained changes from `next` up to `until`, a chunk under each lock, until it says stop.
    pub(crate) fn replay(
        &self,
        mut next: Position,
        until: Position,
        mut each: impl FnMut(&Arc<Change>) -> bool,
    ) -> Replay {
        while next < until {
            let core = self.core.read();
            if next < core.history.first() {
                return Replay::Lost;
            }
            let chunk = until.min(next + REPLAY_CHUNK);
            for (position, change) in (next..chunk).zip(core.history.from(next)) {
                if !each(change) {
                    return Replay::Upto(position);
                }
            }
            next = chunk;
        }
        Replay::Upto(next)
    }
}

impl Core {
    fn trim(&mut self, floor: Revision) {
        let forgotten = self.history.trim(floor);
        if !forgotten.is_empty() {
            self.topics.forget(self.history.first(), &forgotten);
            let oldest = self.history.oldest();
            self.rewound.retain(|state| state.revision() >= oldest);
        }
    }

    fn keep_rewound(&mut self, state: &Snapshot) {
        if state.revision() < self.history.oldest() {
            return;
        }
        if self.rewound.len() >= REWOUND_MAX {
            self.rewound.remove(0);
        }
        self.rewound.push(state.clone());
    }
}
