//! The housekeeper: turns events into work, and does it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use landfall_api::{Kind, Status, meta};
use tokio::time::Instant;

use super::client::{Event, Events, ObjectClient, Place};
use super::graph::{Graph, Uid, Work};
use super::queue::{Outcome, Queue};
use super::{definitions, gc, namespaces, roles};
use crate::crd;

/// How many pieces of work run at once.
const CONCURRENCY: usize = 16;
/// How long one piece of work may take before it is dropped and tried again.
const WORK_MAX: Duration = Duration::from_secs(60);
/// How long to wait before opening a stream of events again.
const REOPEN: Duration = Duration::from_secs(1);

/// What the housekeeper is given.
#[derive(Clone, Default)]
pub struct Config {
    /// The certificate authority that each namespace gets, in PEM; none for no such ConfigMap.
    pub root_ca: Option<Arc<str>>,
    /// The built-in kinds: definitions may not take their names.
    pub builtin: Arc<[Kind]>,
}

/// One piece of work, by what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Garbage collection.
    Collect(Work),
    /// A deleting namespace, by name.
    Terminate(Arc<str>),
    /// A living namespace, by name.
    Furnish(Arc<str>),
    /// A definition, by name.
    Definition(Arc<str>),
    /// All aggregated roles.
    Roles,
}

/// What has been seen, and what is to be done.
#[derive(Default)]
pub struct Housekeeper {
    config: Config,
    graph: Graph,
    queue: Queue<Key>,
    /// Everything that was there at the start has been seen; nothing is decided before.
    synced: bool,
    /// Deleting namespaces.
    leaving: HashSet<Arc<str>>,
    /// Definitions by name, with their group and plural.
    definitions: BTreeMap<Arc<str>, (String, String)>,
    /// Group and plural of deleting definitions, with their names.
    closing: BTreeMap<(String, String), Arc<str>>,
}

impl Housekeeper {
    /// With nothing seen yet.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Takes notice of an event.
    pub fn observe(&mut self, event: &Event) {
        for work in self.graph.observe(event) {
            self.queue.add(Key::Collect(work));
        }
        let (place, object, gone) = match event {
            Event::Put(place, object) => (place, object, false),
            Event::Gone(place, object) => (place, object, true),
            Event::Synced => {
                self.synced = true;
                return;
            }
        };
        match (&*place.group, &*place.plural, &*place.name) {
            ("", "namespaces", _) => self.namespace(place, meta::deleting(object), gone),
            ("", "configmaps", namespaces::ROOT_CA) => self.queue.add(Key::Furnish(place.namespace.clone())),
            ("", "serviceaccounts", "default") if gone => {
                self.queue.add(Key::Furnish(place.namespace.clone()))
            }
            (crd::GROUP, crd::PLURAL, _) => self.definition(place, object, gone),
            (roles::GROUP, roles::PLURAL, _) => self.queue.add(Key::Roles),
            _ => {}
        }
        if gone {
            self.left(place);
        }
    }

    /// The next piece of work, with what it needs of what has been seen. `now` is since any fixed start.
    pub fn take(&mut self, now: Duration) -> Option<(Key, Job)> {
        let key = if self.synced { self.queue.take(now)? } else { return None };
        let job = self.job(&key);
        Some((key, job))
    }

    /// Says what became of a piece of work.
    pub fn done(&mut self, key: Key, outcome: &Outcome, now: Duration) {
        if let Outcome::Failed(why) = outcome {
            tracing::debug!(?key, why, "housekeeping failed; it is tried again");
        }
        self.queue.done(key, outcome, now);
    }

    /// When there is something to do again.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        if self.synced { self.queue.due(now) } else { None }
    }

    /// Whether there is nothing to do until something changes.
    pub fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    fn namespace(&mut self, place: &Place, deleting: bool, gone: bool) {
        let name = place.name.clone();
        if gone {
            self.leaving.remove(&name);
        } else if deleting {
            self.leaving.insert(name.clone());
            self.queue.add(Key::Terminate(name));
        } else {
            self.queue.add(Key::Furnish(name));
        }
    }

    fn definition(&mut self, place: &Place, object: &serde_json::Value, gone: bool) {
        let name = place.name.clone();
        let (group, plural) = crd::names(object);
        let kind = (group.to_owned(), plural.to_owned());
        if gone {
            self.definitions.remove(&name);
            self.closing.remove(&kind);
            // Its names are free now: others of the group may get them.
            let others: BTreeSet<Arc<str>> = self
                .definitions
                .iter()
                .filter(|(_, k)| k.0 == kind.0)
                .map(|(name, _)| name.clone())
                .collect();
            others.into_iter().for_each(|other| self.queue.add(Key::Definition(other)));
            return;
        }
        if meta::deleting(object) {
            self.closing.insert(kind.clone(), name.clone());
        }
        self.definitions.insert(name.clone(), kind);
        self.queue.add(Key::Definition(name));
    }

    /// Something is gone that a deleting namespace or definition may have waited for.
    fn left(&mut self, place: &Place) {
        if self.leaving.contains(&place.namespace) {
            self.queue.add(Key::Terminate(place.namespace.clone()));
        }
        let kind = (place.group.to_string(), place.plural.to_string());
        if let Some(name) = self.closing.get(&kind).cloned() {
            self.queue.add(Key::Definition(name));
        }
    }

    fn job(&self, key: &Key) -> Job {
        match key {
            Key::Collect(Work::Dependent(uid)) => self.graph.place(uid).map_or(Job::Nothing, |place| {
                Job::Dependent { place: place.clone(), uid: uid.clone(), below: gc::below(&self.graph, uid) }
            }),
            Key::Collect(Work::Owner(uid)) => self.graph.place(uid).map_or(Job::Nothing, |place| {
                Job::Owner { place: place.clone(), uid: uid.clone(), around: gc::around(&self.graph, uid) }
            }),
            Key::Terminate(name) => Job::Terminate(name.clone()),
            Key::Furnish(name) => Job::Furnish(name.clone(), self.config.root_ca.clone()),
            Key::Definition(name) => Job::Definition(name.clone(), self.config.builtin.clone()),
            Key::Roles => Job::Roles,
        }
    }
}

/// A piece of work with all it needs.
pub enum Job {
    /// What it was about is gone.
    Nothing,
    /// An object with owners.
    Dependent {
        /// Where it is.
        place: Place,
        /// Which one.
        uid: Uid,
        /// Its own dependents.
        below: super::plan::Below,
    },
    /// An object whose deletion waits.
    Owner {
        /// Where it is.
        place: Place,
        /// Which one.
        uid: Uid,
        /// What it waits for.
        around: gc::Around,
    },
    /// A deleting namespace.
    Terminate(Arc<str>),
    /// A living namespace.
    Furnish(Arc<str>, Option<Arc<str>>),
    /// A definition.
    Definition(Arc<str>, Arc<[Kind]>),
    /// All aggregated roles.
    Roles,
}

impl Job {
    /// Does it. `now` is the time in RFC 3339.
    pub async fn run(self, client: &dyn ObjectClient, now: &str) -> Outcome {
        match self {
            Self::Nothing => Outcome::Done,
            Self::Dependent { place, uid, below } => gc::dependent(client, place, uid, below).await,
            Self::Owner { place, uid, around } => gc::owner(client, place, uid, around).await,
            Self::Terminate(name) => namespaces::terminate(client, &name, now).await,
            Self::Furnish(name, root_ca) => namespaces::furnish(client, &name, root_ca).await,
            Self::Definition(name, builtin) => definitions::reconcile(client, &name, &builtin, now).await,
            Self::Roles => roles::aggregate(client).await,
        }
    }
}

/// Keeps house until it is dropped.
pub async fn run(client: Arc<dyn ObjectClient>, config: Config) {
    loop {
        match client.watch() {
            Ok(events) => {
                // What was seen before may have changed unseen: begin with nothing.
                let keeper = Housekeeper::new(config.clone());
                if let Err(status) = keep(&client, keeper, events).await {
                    tracing::info!(why = status.message, "housekeeping begins anew");
                }
            }
            Err(status) => tracing::warn!(why = status.message, "housekeeping cannot watch"),
        }
        tokio::time::sleep(REOPEN).await;
    }
}

/// Events and work side by side, until the stream ends.
async fn keep(
    client: &Arc<dyn ObjectClient>,
    mut keeper: Housekeeper,
    mut events: Box<dyn Events>,
) -> Result<(), Status> {
    let start = Instant::now();
    let mut running: FuturesUnordered<BoxFuture<'static, (Key, Outcome)>> = FuturesUnordered::new();
    loop {
        while running.len() < CONCURRENCY {
            let Some((key, job)) = keeper.take(start.elapsed()) else { break };
            running.push(begin(client.clone(), key, job));
        }
        let due = keeper.due(start.elapsed()).filter(|_| running.len() < CONCURRENCY);
        let wait = async {
            match due {
                Some(due) => tokio::time::sleep_until(start + due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            batch = events.next() => batch?.iter().for_each(|event| keeper.observe(event)),
            Some((key, outcome)) = running.next() => keeper.done(key, &outcome, start.elapsed()),
            () = wait => {}
        }
    }
}

fn begin(client: Arc<dyn ObjectClient>, key: Key, job: Job) -> BoxFuture<'static, (Key, Outcome)> {
    Box::pin(async move {
        let now = now_rfc3339();
        let outcome = tokio::time::timeout(WORK_MAX, job.run(&*client, &now)).await;
        let outcome = outcome.unwrap_or_else(|_| Outcome::Failed("it took too long".into()));
        (key, outcome)
    })
}

/// The time as Kubernetes writes it, in whole seconds.
fn now_rfc3339() -> String {
    jiff::Timestamp::from_second(landfall_runtime::clock::epoch_s())
        .map_or_else(|_| String::new(), |now| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
