//! A queue of keys: each waits once, is worked on once at a time, and comes back later when its work failed.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

/// The first wait after a failure.
const WAIT_MIN: Duration = Duration::from_millis(50);
/// The longest wait after failures.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What became of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes.
    Done,
    /// It should be looked at again after this time, though nothing failed.
    Again(Duration),
    /// It failed, for this reason; it is tried again after a growing wait.
    Failed(String),
}

/// The queue. Its size is bounded by the number of different keys. Time is given, as time since any fixed start.
#[derive(Debug)]
pub struct Queue<K> {
    ready: VecDeque<K>,
    waiting: HashSet<K>,
    busy: HashMap<K, bool>,
    later: BTreeSet<(Duration, K)>,
    failures: HashMap<K, u32>,
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: HashSet::new(),
            busy: HashMap::new(),
            later: BTreeSet::new(),
            failures: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Asks for work on a key, now. A key that is being worked on comes again after that.
    pub fn add(&mut self, key: K) {
        if let Some(again) = self.busy.get_mut(&key) {
            *again = true;
        } else if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// The next key to work on; [`Queue::done`] must follow.
    pub fn take(&mut self, now: Duration) -> Option<K> {
        while let Some((_, key)) = self.later.first().filter(|(due, _)| *due <= now).cloned() {
            self.later.pop_first();
            self.add(key);
        }
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.busy.insert(key.clone(), false);
        Some(key)
    }

    /// Says what became of a key's work.
    pub fn done(&mut self, key: K, outcome: &Outcome, now: Duration) {
        let again = self.busy.remove(&key).unwrap_or(false);
        match outcome {
            Outcome::Done => {
                self.failures.remove(&key);
            }
            Outcome::Again(wait) => {
                self.failures.remove(&key);
                self.later.insert((now + *wait, key.clone()));
            }
            Outcome::Failed(_) => {
                let failures = self.failures.entry(key.clone()).or_default();
                let wait = WAIT_MIN.saturating_mul(1 << (*failures).min(16)).min(WAIT_MAX);
                *failures += 1;
                self.later.insert((now + wait, key.clone()));
            }
        }
        if again {
            self.add(key);
        }
    }

    /// When the next waiting key is due; now, when one is ready.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        if self.ready.is_empty() { self.later.first().map(|(due, _)| *due) } else { Some(now) }
    }

    /// Whether nothing waits and nothing is worked on.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.busy.is_empty() && self.later.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::ZERO;

    #[test]
    fn a_key_waits_once_and_is_worked_on_once_at_a_time() {
        let mut queue = Queue::default();
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.take(T0), Some("a"));
        assert_eq!(queue.take(T0), None);
        queue.add("a");
        assert_eq!(queue.take(T0), None, "busy");
        queue.done("a", &Outcome::Done, T0);
        assert_eq!(queue.take(T0), Some("a"), "asked for while busy");
        queue.done("a", &Outcome::Done, T0);
        assert!(queue.is_idle());
    }

    #[test]
    fn failures_wait_longer_and_longer() {
        let mut queue = Queue::default();
        let mut now = T0;
        queue.add("a");
        let mut waits = Vec::new();
        for _ in 0..14 {
            assert_eq!(queue.take(now), Some("a"));
            queue.done("a", &Outcome::Failed("x".into()), now);
            assert_eq!(queue.take(now), None);
            let due = queue.due(now).unwrap();
            waits.push(due - now);
            now = due;
        }
        assert!(waits.is_sorted());
        assert_eq!((waits[0], waits[13]), (WAIT_MIN, WAIT_MAX));
    }
}
