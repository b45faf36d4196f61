//! Keeps a [`Policy`] current from the store.
//!
//! Reading it takes no lock. A writer of roles or bindings waits for [`Rbac::caught_up`] before it acknowledges the
//! write, so that what is granted or taken away holds for every request after that, and requests pay nothing for it.
//! Other hubs follow within the time a watch takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use landfall_runtime::tasks::Tasks;
use landfall_store::{Entry, Error, Event, Revision, Snapshot, Store};
use serde_json::Value;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;

use super::policy::Item;
use super::{GROUP, Policy};
use crate::keys;

/// How many changes are taken at once before the policy is compiled.
const BATCH_MAX: usize = 1024;
/// How long to wait after the store could not be watched.
const RETRY: Duration = Duration::from_millis(100);
/// How long a writer waits at most: a store that stops telling its changes must not stop writes.
const CAUGHT_UP: Duration = Duration::from_secs(5);

/// Between two questions to the store for the sake of refused requests it has rest: this many times as long as it
/// took to answer, but not longer than that.
const CATCH_UP_REST: (u32, Duration) = (9, Duration::from_millis(100));
/// How long a refused request waits at most for what other hubs wrote.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);
/// How long the follower may take to say where it is before it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The policy of now.
pub struct Rbac {
    policy: ArcSwap<Policy>,
    applied: watch::Sender<Revision>,
    /// Asks the follower to say where it is.
    asked: Notify,
    /// The last round of [`Rbac::catch_up`]; locked during one.
    round: Mutex<Option<Round>>,
}

#[derive(Clone, Copy)]
struct Round {
    began: Instant,
    ended: Instant,
}

impl Rbac {
    /// A policy that never changes, for tests and for servers whose rights are fixed.
    pub fn fixed(policy: Policy) -> Arc<Self> {
        Arc::new(Self::new(policy, Revision::MAX))
    }

    /// Compiles what the store holds and follows it until the tasks stop.
    pub fn start(store: Arc<dyn Store>, tasks: &Tasks) -> Arc<Self> {
        let (items, revision) = read(&store.snapshot());
        let rbac = Arc::new(Self::new(Policy::compile(items.values()), revision));
        tasks.spawn_until_stop(follow(store, Arc::clone(&rbac), items, revision));
        rbac
    }

    fn new(policy: Policy, revision: Revision) -> Self {
        Self {
            policy: ArcSwap::from_pointee(policy),
            applied: watch::channel(revision).0,
            asked: Notify::new(),
            round: Mutex::default(),
        }
    }

    /// The policy of now. Hold it for one request, not longer.
    pub fn policy(&self) -> Guard<Arc<Policy>> {
        self.policy.load()
    }

    /// Waits until the policy holds everything up to a revision; call it with the revision of a written role or
    /// binding before acknowledging the write.
    pub async fn caught_up(&self, revision: Revision) {
        let mut applied = self.applied.subscribe();
        let waited = tokio::time::timeout(CAUGHT_UP, applied.wait_for(|at| *at >= revision)).await;
        if waited.is_err() {
            tracing::warn!(revision, "the RBAC policy is behind the store");
        }
    }

    /// Waits until the policy holds what any hub acknowledged before the call, if that can be had soon. Callers at
    /// the same time share one question to the store.
    pub async fn catch_up(&self, store: &dyn Store) {
        let arrived = Instant::now();
        let mut round = self.round.lock().await;
        if let Some(last) = *round {
            if last.began >= arrived {
                return;
            }
            let (times, longest) = CATCH_UP_REST;
            let rest = (last.ended - last.began).saturating_mul(times).min(longest);
            tokio::time::sleep_until(last.ended + rest).await;
        }
        let began = Instant::now();
        let _late = tokio::time::timeout(CATCH_UP_MAX, async {
            let Ok(revision) = store.barrier().await else { return };
            let mut applied = self.applied.subscribe();
            loop {
                self.asked.notify_one();
                if tokio::time::timeout(ASK_AGAIN, applied.wait_for(|at| *at >= revision)).await.is_ok() {
                    return;
                }
            }
        })
        .await;
        *round = Some(Round { began, ended: Instant::now() });
    }

    /// Tells of every new policy, by the revision it holds; for what follows from roles, such as aggregation.
    pub fn changes(&self) -> watch::Receiver<Revision> {
        self.applied.subscribe()
    }

    fn apply(&self, items: &Items, revision: Revision) {
        self.policy.store(Arc::new(Policy::compile(items.values())));
        self.applied.send_replace(revision);
    }
}

/// Whether a write to this resource must wait for [`Rbac::caught_up`].
pub fn concerns(group: &str) -> bool {
    group == GROUP
}

type Items = BTreeMap<Arc<str>, Item>;

async fn follow(store: Arc<dyn Store>, rbac: Arc<Rbac>, mut items: Items, mut revision: Revision) {
    let prefix = format!("{GROUP}/");
    loop {
        match follow_from(&*store, &rbac, &prefix, &mut items, &mut revision).await {
            Error::Closed => return,
            // History that we needed is gone: take everything anew.
            Error::TooOld { .. } => {
                (items, revision) = read(&store.snapshot());
                rbac.apply(&items, revision);
            }
            why => {
                tracing::warn!(%why, "cannot watch roles and bindings; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn follow_from(
    store: &dyn Store,
    rbac: &Rbac,
    prefix: &str,
    items: &mut Items,
    revision: &mut Revision,
) -> Error {
    let mut watch = match store.watch(prefix, *revision) {
        Ok(watch) => watch,
        Err(why) => return why,
    };
    let mut events = Vec::new();
    loop {
        events.clear();
        tokio::select! {
            next = watch.next_batch(&mut events, BATCH_MAX) => {
                if let Err(why) = next {
                    return why;
                }
            }
            () = rbac.asked.notified() => {}
        }
        let mut changed = false;
        for event in &events {
            match event {
                Event::Change(change) => {
                    *revision = change.revision();
                    changed |= apply(items, &change.entry, change.removed);
                }
                Event::Progress(at) => *revision = *at,
            }
        }
        *revision = watch.yielded().max(*revision);
        if changed {
            rbac.apply(items, *revision);
        } else {
            rbac.applied.send_if_modified(|at| std::mem::replace(at, *revision) != *revision);
        }
    }
}

/// Takes one entry in or out; says whether anything that matters changed.
fn apply(items: &mut Items, entry: &Entry, removed: bool) -> bool {
    if removed {
        return items.remove(&entry.key).is_some();
    }
    let Some(item) = parse(entry) else { return false };
    items.insert(entry.key.clone(), item.clone()).is_none_or(|old| old != item)
}

fn read(snapshot: &Snapshot) -> (Items, Revision) {
    let prefix = format!("{GROUP}/");
    let items = snapshot.range(&prefix, "").filter_map(|e| Some((e.key.clone(), parse(e)?))).collect();
    (items, snapshot.revision())
}

fn parse(entry: &Entry) -> Option<Item> {
    let plural = entry.key.split('/').nth(1)?;
    let object: Value = serde_json::from_slice(&entry.value).ok()?;
    Item::parse(plural, &object)
}

/// All ClusterRoles of a state.
pub fn cluster_roles(snapshot: &Snapshot) -> Vec<Value> {
    let prefix = keys::collection(GROUP, "clusterroles");
    snapshot.range(&prefix, "").filter_map(|entry| serde_json::from_slice(&entry.value).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::User;
    use crate::authz::Attributes;
    use serde_json::json;

    fn allowed(rbac: &Rbac) -> bool {
        let user = User { name: "alice".into(), ..User::default() };
        rbac.policy().authorize(&Attributes::resource(&user, "get", "", "services", "dev", "x")).allowed()
    }

    #[tokio::test]
    async fn an_acknowledged_binding_is_in_force() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = landfall_store::open_embedded(landfall_store::embedded::Config::new(dir.path()))
            .expect("a store");
        let tasks = Tasks::default();
        let role = json!({"metadata": {"name": "reader"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["services"]}]});
        let binding = json!({"metadata": {"name": "b", "namespace": "dev"},
            "roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": [{"kind": "User", "name": "alice"}]});
        let role_key = keys::object(GROUP, "clusterroles", "", "reader");
        store.create(&role_key, role.to_string().into(), None).await.expect("a role");

        let rbac = Rbac::start(Arc::clone(&store), &tasks);
        assert!(!allowed(&rbac));
        let key = keys::object(GROUP, "rolebindings", "dev", "b");
        let entry = store.create(&key, binding.to_string().into(), None).await.expect("a binding");
        rbac.caught_up(entry.revision).await;
        assert!(allowed(&rbac));

        // Other keys, and values that are no objects, change nothing.
        store.create("core/services/dev/x", "{}".into(), None).await.expect("a service");
        let bad = keys::object(GROUP, "roles", "dev", "bad");
        let bad = store.create(&bad, "no JSON".into(), None).await.expect("a value");
        rbac.caught_up(bad.revision).await;
        assert!(allowed(&rbac));

        // What is written elsewhere is caught up with, also when nothing concerns the policy.
        store.create("core/services/dev/y", "{}".into(), None).await.expect("a service");
        let begin = Instant::now();
        tokio::join!(rbac.catch_up(&*store), rbac.catch_up(&*store), rbac.catch_up(&*store));
        assert!(*rbac.applied.borrow() >= store.snapshot().revision());
        assert!(begin.elapsed() < CATCH_UP_MAX, "{:?}", begin.elapsed());

        let gone = store.delete(&key, entry.revision).await.expect("removed");
        rbac.caught_up(gone.revision).await;
        assert!(!allowed(&rbac));
        tasks.join().await;
        store.close().await;
    }
}
