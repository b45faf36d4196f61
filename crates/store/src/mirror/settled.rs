//! How far the mirror is, and who waits for it to get further.
//!
//! Many writes wait at once, each for its own revision; a step wakes only those it satisfies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Revision;

/// See the module.
#[derive(Debug)]
pub(super) struct Settled {
    revision: AtomicU64,
    /// By the revision they wait for. Those who gave up stay until it is reached.
    waiting: Mutex<BTreeMap<Revision, Vec<oneshot::Sender<()>>>>,
}

impl Settled {
    pub(super) fn new(revision: Revision) -> Self {
        Self { revision: AtomicU64::new(revision), waiting: Mutex::default() }
    }

    pub(super) fn get(&self) -> Revision {
        self.revision.load(Ordering::Acquire)
    }

    /// Moves to a revision and wakes who waits for it or an earlier one. When it moves back, wakes everybody.
    pub(super) fn set(&self, revision: Revision) {
        let before = self.revision.swap(revision, Ordering::AcqRel);
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return;
        }
        let later = if revision < before { BTreeMap::new() } else { waiting.split_off(&(revision + 1)) };
        let reached = std::mem::replace(&mut *waiting, later);
        drop(waiting);
        for one in reached.into_values().flatten() {
            let _gave_up = one.send(());
        }
    }

    /// Waits until the revision is reached; false when that takes too long or it went back.
    pub(super) async fn reach(&self, revision: Revision, within: Duration) -> bool {
        if self.get() >= revision {
            return true;
        }
        let woken = {
            let mut waiting = self.waiting.lock();
            // Again under the lock: a step between the first look and here woke nobody.
            if self.get() >= revision {
                return true;
            }
            let (sender, receiver) = oneshot::channel();
            waiting.entry(revision).or_default().push(sender);
            receiver
        };
        let _woken_or_late = tokio::time::timeout(within, woken).await;
        self.get() >= revision
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn everybody_is_woken_in_time() {
        let settled = Arc::new(Settled::new(1));
        let waiters: tokio::task::JoinSet<bool> = (1..500)
            .map(|revision| {
                let settled = Arc::clone(&settled);
                async move { settled.reach(revision, Duration::from_secs(20)).await }
            })
            .collect();
        for revision in (2..500).step_by(7).chain([500]) {
            settled.set(revision);
            tokio::task::yield_now().await;
        }
        assert!(waiters.join_all().await.into_iter().all(|reached| reached));
        assert!(settled.waiting.lock().is_empty());
        assert!(!settled.reach(501, Duration::from_millis(1)).await);
    }

    #[tokio::test]
    async fn going_back_wakes_everybody() {
        let settled = Arc::new(Settled::new(5));
        let mut waiter = tokio::task::JoinSet::new();
        let clone = Arc::clone(&settled);
        waiter.spawn(async move { clone.reach(7, Duration::from_secs(20)).await });
        while settled.waiting.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        settled.set(2);
        assert_eq!(waiter.join_all().await, [false]);
    }
}
