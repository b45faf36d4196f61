//! Which objects are to be looked at: each once, however often it changed; some later, at their time.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use landfall_runtime::clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::shelf::Key;

/// How long news from members are gathered.
const SOON: Duration = Duration::from_millis(50);

/// Keys that wait to be looked at. What it holds is bounded by the number of objects there are.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Key>,
    waiting: HashSet<Key>,
    due: HashMap<Key, Instant>,
    times: BTreeSet<(Instant, Key)>,
}

impl Queue {
    /// Looks at an object soon.
    pub fn push(&self, key: Key) {
        let mut state = self.state.lock();
        if state.waiting.insert(key.clone()) {
            state.ready.push_back(key);
            self.wake.notify_one();
        }
    }

    /// Looks at many objects soon.
    pub fn push_all(&self, keys: impl IntoIterator<Item = Key>) {
        keys.into_iter().for_each(|key| self.push(key));
    }

    /// Looks at many objects one after another, over a while: nobody waits for them, and they shall be in nobody's way.
    pub fn push_over(&self, keys: &[Key], span: Duration) {
        let count = u32::try_from(keys.len()).unwrap_or(u32::MAX).max(1);
        for (at, key) in (0..).zip(keys) {
            self.push_after(key, span * at / count);
        }
    }

    /// Looks at an object in a moment: what many members do at about the same time is looked at once.
    pub fn push_soon(&self, key: &Key) {
        self.push_after(key, SOON);
    }

    /// Looks at an object after a while; the earliest of several times counts.
    pub fn push_after(&self, key: &Key, wait: Duration) {
        let at = clock::instant() + wait;
        let mut state = self.state.lock();
        let before = state.due.get(key).copied();
        if before.is_some_and(|before| before <= at) {
            return;
        }
        if let Some(before) = before {
            state.times.remove(&(before, key.clone()));
        }
        state.due.insert(key.clone(), at);
        state.times.insert((at, key.clone()));
        self.wake.notify_one();
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.state.lock().ready.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next object to look at.
    pub async fn next(&self) -> Key {
        loop {
            let until = {
                let mut state = self.state.lock();
                state.ripen(clock::instant());
                if let Some(key) = state.ready.pop_front() {
                    state.waiting.remove(&key);
                    return key;
                }
                state.times.first().map(|(at, _)| *at)
            };
            match until {
                None => self.wake.notified().await,
                Some(at) => {
                    // Whichever comes first; either way there is something to see.
                    let _ = tokio::time::timeout_at(at.into(), self.wake.notified()).await;
                }
            }
        }
    }
}

impl State {
    /// Moves what is due to what is ready.
    fn ripen(&mut self, now: Instant) {
        while let Some((at, _)) = self.times.first()
            && *at <= now
        {
            let Some((_, key)) = self.times.pop_first() else { return };
            self.due.remove(&key);
            if self.waiting.insert(key.clone()) {
                self.ready.push_back(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::NAMESPACES;

    fn key(name: &str) -> Key {
        Key { kind: NAMESPACES, namespace: "".into(), name: name.into() }
    }

    #[tokio::test]
    async fn each_once_and_the_late_ones_late() {
        let queue = Queue::default();
        queue.push_after(&key("late"), Duration::from_millis(30));
        queue.push_after(&key("late"), Duration::from_secs(3600));
        for name in ["a", "b", "a"] {
            queue.push(key(name));
        }
        let mut order = String::new();
        for _ in 0..3 {
            order.push_str(&queue.next().await.name);
        }
        assert_eq!(order, "ablate");
        queue.push_over(&[key("c"), key("d")], Duration::from_millis(20));
        order.push_str(&queue.next().await.name);
        assert!(queue.is_empty(), "its time has not come");
        order.push_str(&queue.next().await.name);
        assert_eq!(order, "ablatecd");
        assert!(queue.is_empty());
    }
}
