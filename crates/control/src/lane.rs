//! A lane: what waits to be done at one place, object by object, by a few workers at a time. A place that is slow or dead
//! holds up its own lane and no other.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::Mutex;

use crate::shelf::Key;

/// Work by object: at most one piece waits per object, the latest, and at most one runs.
#[derive(Debug)]
pub struct Lane<W> {
    workers_max: usize,
    state: Mutex<State<W>>,
}

#[derive(Debug)]
struct State<W> {
    waiting: HashMap<Key, W>,
    order: VecDeque<Key>,
    running: HashSet<Key>,
    workers: usize,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// A worker is there and will come to it.
    Taken,
    /// It is taken, and one more worker may be started for it.
    StartWorker,
    /// The object is being worked on; look again when that is done.
    Busy,
}

impl<W> Lane<W> {
    /// A lane with at most so many workers.
    pub fn new(workers_max: usize) -> Self {
        let state =
            State { waiting: HashMap::new(), order: VecDeque::new(), running: HashSet::new(), workers: 0 };
        Self { workers_max, state: Mutex::new(state) }
    }

    /// Offers work for an object; it takes the place of what waited for the same object.
    pub fn offer(&self, key: &Key, work: W) -> Offered {
        let mut state = self.state.lock();
        if state.running.contains(key) {
            return Offered::Busy;
        }
        if state.waiting.insert(key.clone(), work).is_none() {
            state.order.push_back(key.clone());
        }
        if state.workers < self.workers_max {
            state.workers += 1;
            return Offered::StartWorker;
        }
        Offered::Taken
    }

    /// Whether something waits or runs for an object.
    pub fn busy(&self, key: &Key) -> bool {
        let state = self.state.lock();
        state.running.contains(key) || state.waiting.contains_key(key)
    }

    /// The next piece of work; none ends the worker that asked.
    pub fn next(&self) -> Option<(Key, W)> {
        let mut state = self.state.lock();
        let Some(key) = state.order.pop_front() else {
            state.workers -= 1;
            return None;
        };
        let work = state.waiting.remove(&key).expect("what stands in the order waits");
        state.running.insert(key.clone());
        Some((key, work))
    }

    /// Says that the work on an object is done.
    pub fn done(&self, key: &Key) {
        self.state.lock().running.remove(key);
    }

    /// How many wait or run.
    pub fn len(&self) -> usize {
        let state = self.state.lock();
        state.order.len() + state.running.len()
    }

    /// Whether nothing waits or runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::NAMESPACES;

    #[test]
    fn the_latest_work_waits_and_one_piece_runs() {
        let key = |name: &str| Key { kind: NAMESPACES, namespace: "".into(), name: name.into() };
        let lane = Lane::new(1);
        assert_eq!(lane.offer(&key("a"), 1), Offered::StartWorker);
        assert_eq!(lane.offer(&key("a"), 2), Offered::Taken);
        assert_eq!(lane.offer(&key("b"), 3), Offered::Taken);
        assert_eq!(lane.next(), Some((key("a"), 2)));
        assert_eq!(lane.offer(&key("a"), 4), Offered::Busy);
        assert!(lane.busy(&key("b")));
        lane.done(&key("a"));
        assert_eq!((lane.next(), lane.len()), (Some((key("b"), 3)), 1));
        lane.done(&key("b"));
        assert_eq!((lane.next(), lane.is_empty()), (None, true));
        assert_eq!(lane.offer(&key("a"), 5), Offered::StartWorker);
    }
}
