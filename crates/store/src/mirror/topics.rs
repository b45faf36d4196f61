//! Who is told of a change: one topic for every prefix that somebody watches.
//!
//! A change to `a/b/c` concerns the topics ``, `a/`, `a/b/` and `a/b/c`: one lookup per `/`, whatever the number of
//! watchers. A topic holds pointers to the retained changes of its prefix in a ring that all its watchers read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use super::history::Position;
use crate::Change;

/// The retained changes of one prefix. A subset of the history.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Every change of the prefix at or after this position went into the ring. Earlier ones are in the history only.
    pub(crate) from: Position,
    /// Changes of the prefix before this position were forgotten.
    pub(crate) lost: Position,
    pub(crate) changes: VecDeque<(Position, Arc<Change>)>,
}

#[derive(Debug)]
struct Topic {
    ring: watch::Sender<Ring>,
    /// Changes of the batch being published.
    pending: Vec<(Position, Arc<Change>)>,
}

/// All topics by prefix.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    by_prefix: HashMap<Arc<str>, Topic>,
    /// Topics with pending changes.
    touched: Vec<Arc<str>>,
}

impl Topics {
    /// Joins the topic of a prefix; a new one holds what happens from position `end` on.
    pub(crate) fn join(&mut self, prefix: &str, end: Position) -> watch::Receiver<Ring> {
        if let Some(topic) = self.by_prefix.get(prefix) {
            return topic.ring.subscribe();
        }
        let (ring, receiver) = watch::channel(Ring { from: end, lost: 0, changes: VecDeque::new() });
        self.by_prefix.insert(prefix.into(), Topic { ring, pending: Vec::new() });
        receiver
    }

    /// Drops the topic of a prefix when nobody watches it any more.
    pub(crate) fn leave(&mut self, prefix: &str) {
        if self.by_prefix.get(prefix).is_some_and(|topic| topic.ring.receiver_count() == 0) {
            self.by_prefix.remove(prefix);
        }
    }

    /// Hands changes, of which the first has position `first`, to the topics they concern; wakes each once.
    pub(crate) fn publish(&mut self, first: Position, changes: &[Arc<Change>]) {
        if self.by_prefix.is_empty() {
            return;
        }
        for (position, change) in (first..).zip(changes) {
            for prefix in prefixes(&change.entry.key) {
                let Some((name, _)) = self.by_prefix.get_key_value(prefix) else { continue };
                let name = Arc::clone(name);
                let topic = self.by_prefix.get_mut(prefix).expect("looked up above");
                if topic.pending.is_empty() {
                    self.touched.push(name);
                }
                topic.pending.push((position, Arc::clone(change)));
            }
        }
        for name in self.touched.drain(..) {
            if let Some(topic) = self.by_prefix.get_mut(&*name) {
                let pending = &mut topic.pending;
                topic.ring.send_modify(|ring| ring.changes.extend(pending.drain(..)));
            }
        }
    }

    /// Forgets changes before position `first`, which are `forgotten`. Wakes nobody: who is behind learns it at the
    /// next change or when it looks.
    pub(crate) fn forget(&self, first: Position, forgotten: &[Arc<Change>]) {
        if self.by_prefix.is_empty() {
            return;
        }
        for change in forgotten {
            for prefix in prefixes(&change.entry.key) {
                if let Some(topic) = self.by_prefix.get(prefix) {
                    topic.ring.send_if_modified(|ring| {
                        ring.forget(first);
                        false
                    });
                }
            }
        }
    }

    /// Ends every watch with "too old": the state was replaced as a whole.
    pub(crate) fn break_all(&mut self) {
        for (_, topic) in self.by_prefix.drain() {
            topic.ring.send_modify(|ring| ring.lost = Position::MAX);
        }
    }

    /// How many prefixes are watched.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_prefix.len()
    }

    /// Ends every watch as closed once it has read what is there.
    pub(crate) fn close(&mut self) {
        self.by_prefix.clear();
    }
}

impl Ring {
    fn forget(&mut self, first: Position) {
        while let Some((position, _)) = self.changes.front()
            && *position < first
        {
            self.lost = self.lost.max(position + 1);
            self.changes.pop_front();
        }
    }
}

/// Every prefix of a key that a watch may name: empty, up to each `/`, and the whole key.
fn prefixes(key: &str) -> impl Iterator<Item = &str> {
    let slashes = key.match_indices('/').map(|(at, _)| &key[..=at]);
    let whole = (!key.ends_with('/') && !key.is_empty()).then_some(key);
    std::iter::once("").chain(slashes).chain(whole)
}

#[cfg(test)]
mod tests {
    use super::prefixes;

    #[test]
    fn prefixes_end_at_slashes() {
        let check = |key: &str, expected: &[&str]| assert_eq!(prefixes(key).collect::<Vec<_>>(), expected);
        check("a/b/c", &["", "a/", "a/b/", "a/b/c"]);
        check("a", &["", "a"]);
        check("a/", &["", "a/"]);
        check("", &[""]);
        check("ä/ö", &["", "ä/", "ä/ö"]);
    }
}
