//! One member: how it is, what it has, and what waits to be done there.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use landfall_api::landfall::Cluster;
use landfall_plan::membership::{Health, State};
use landfall_plan::propagation::Memory;
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::brake::Brake;
use crate::federation::Federation;
use crate::kinds::KindId;
use crate::lane::{Lane, Offered};
use crate::shards::{self, Job};
use crate::shelf::{Key, Seen, Shelf};
use crate::traffic;
use crate::warnings::{self, Warning};
use crate::watch::{self, Change};

/// How many shards are written to one member at a time.
const WORKERS_MAX: usize = 8;
/// How long the first list of a kind may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long after it was listed everything of a kind is listed anew, whatever the watches say: at least, and at most. Members that
/// came together must not all be read at once.
const COMPARE_AFTER_S: (u32, u32) = (300, 900);

/// A member of the federation.
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its `Cluster`, as it was last seen.
    pub cluster: RwLock<Arc<Cluster>>,
    /// How it is.
    pub health: Mutex<Health>,
    /// Wakes whoever probes it: its address, its credentials or its probe changed.
    pub changed: Notify,
    silent: Mutex<Option<i64>>,
    session: RwLock<Option<Arc<Session>>>,
    shelves: RwLock<HashMap<KindId, Arc<Shelf>>>,
    /// In boxes: there are as many as shards, and a map has room for more than it holds.
    notes: Mutex<HashMap<Key, Box<Note>>>,
}

/// Being connected to a member. Dropping it ends its watches and drops what was under way.
pub struct Session {
    /// Its API.
    pub client: kube::Client,
    lane: Lane<Job>,
    brake: Mutex<Brake>,
    tasks: Tasks,
}

/// What a worker does next.
enum Turn {
    /// Some work.
    Go(Box<(kube::Client, Key, Job)>),
    /// Nothing for a while: the API is too busy.
    Wait(Duration),
    /// There is no more work.
    Done,
}

impl Session {
    fn turn(&self) -> Turn {
        let mut brake = self.brake.lock();
        if let Err(left) = brake.admit(clock::instant()) {
            return Turn::Wait(left);
        }
        match self.lane.next() {
            Some((key, job)) => Turn::Go(Box::new((self.client.clone(), key, job))),
            None => {
                brake.withdraw();
                Turn::Done
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// What is remembered of one shard between two looks. Losing it costs a look, never a shard.
#[derive(Clone, Debug, Default)]
pub struct Note {
    /// What `plan` asks to be remembered.
    pub memory: Memory,
    /// How many attempts in a row failed.
    pub failures: u32,
    /// Nothing with this hash is tried before this time.
    pub pause: Option<(u64, Instant)>,
    /// What went wrong last.
    pub trouble: Option<String>,
    /// Since when fewer replicas are ready than asked for.
    pub unready_since_ms: Option<i64>,
    /// Its pods, when they were last looked at.
    pub pods: Option<Box<Pods>>,
    /// How many it showed to have room for, and when.
    pub showed: Option<(u32, i64)>,
    /// What differed the last time it was compared: the version of what was there, the hash of what was meant, the drift.
    pub compared: Option<(Box<str>, u64, Vec<String>)>,
    /// What in a namespace is not ours.
    pub shelters: Option<Option<String>>,
    /// What was put right there, until it is told.
    pub healed: Option<String>,
    /// What the member warns of, until it is told.
    pub warnings: Vec<Warning>,
    /// The reasons that were told of lately, and when.
    pub warned: Vec<(String, i64)>,
}

/// What is wrong with the pods of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// When they were looked at.
    pub at_ms: i64,
    /// Since when each that has no node waits.
    pub unschedulable_since_ms: Vec<i64>,
    /// How many crash again and again.
    pub crash_looping: u32,
}

impl Note {
    /// Its pods, unless they were looked at before the replicas of now were missing: those pods may be gone.
    pub fn fresh_pods(&self) -> Option<&Pods> {
        let since_ms = self.unready_since_ms?;
        self.pods.as_deref().filter(|pods| pods.at_ms >= since_ms)
    }
}

impl Member {
    /// A member of which only its `Cluster` is known.
    pub fn new(cluster: Cluster, health: Health) -> Self {
        Self {
            name: cluster.metadata.name.clone().unwrap_or_default(),
            cluster: RwLock::new(Arc::new(cluster)),
            silent: Mutex::new(health.offline_since_ms()),
            health: Mutex::new(health),
            changed: Notify::new(),
            session: RwLock::new(None),
            shelves: RwLock::default(),
            notes: Mutex::default(),
        }
    }

    /// Since when nothing can be told about it: it is offline, or was not asked often enough yet.
    pub fn silent_since_ms(&self) -> Option<i64> {
        match self.health.lock().state {
            State::Offline => *self.silent.lock(),
            // It answers, but lets nobody in, or is not to be trusted yet.
            State::NotReady if self.session().is_none() => *self.silent.lock(),
            State::Unknown | State::Ready | State::NotReady => None,
        }
    }

    /// Remembers since when it is not ready: a member that answers again, but not well, has not come back.
    pub fn hear(&self, state: State, now_ms: i64) {
        let mut silent = self.silent.lock();
        *silent = match state {
            State::Ready => None,
            State::Offline | State::NotReady => silent.or(Some(now_ms)),
            State::Unknown => *silent,
        };
    }

    /// Begins to watch and to write, with nothing from before held for true.
    pub fn connect(self: &Arc<Self>, federation: &Arc<Federation>, client: kube::Client) {
        let session = Session {
            client,
            lane: Lane::new(WORKERS_MAX),
            brake: Mutex::default(),
            tasks: Tasks::default(),
        };
        let session = Arc::new(session);
        for shelf in self.shelves.read().values() {
            shelf.doubt();
        }
        for note in self.notes.lock().values_mut() {
            // What went wrong before it was lost says nothing about now.
            (note.memory.refused, note.pause, note.failures) = (None, None, 0);
        }
        *self.session.write() = Some(session.clone());
        let shelves: Vec<_> = self.shelves.read().values().cloned().collect();
        for shelf in shelves {
            self.follow(federation, &session, shelf);
        }
        let (client, federation, own) = (session.client.clone(), federation.clone(), Arc::downgrade(self));
        session.tasks.spawn_until_stop(async move { warnings::follow(&federation, &own, client).await });
    }

    /// Stops watching and writing.
    pub fn disconnect(&self) {
        *self.session.write() = None;
    }

    /// The session, while there is one.
    pub fn session(&self) -> Option<Arc<Session>> {
        self.session.read().clone()
    }

    /// Its objects of a kind; they are watched from the first time they are asked for.
    pub fn shelf(self: &Arc<Self>, federation: &Arc<Federation>, kind: KindId) -> Arc<Shelf> {
        if let Some(shelf) = self.shelves.read().get(&kind) {
            return shelf.clone();
        }
        let mut shelves = self.shelves.write();
        if let Some(shelf) = shelves.get(&kind) {
            return shelf.clone();
        }
        let shelf = Arc::new(Shelf::new(federation.kinds.get(kind)));
        shelves.insert(kind, shelf.clone());
        drop(shelves);
        if let Some(session) = self.session() {
            self.follow(federation, &session, shelf.clone());
        }
        shelf
    }

    /// The keys of what bears our mark, of a kind.
    pub fn shards(self: &Arc<Self>, federation: &Arc<Federation>, kind: KindId) -> Vec<Key> {
        let shelf = self.shelf(federation, kind);
        let own = &federation.config.federation;
        let marked = |seen: &Seen| seen.mark.as_ref().is_some_and(|mark| mark.federation == *own);
        shelf.keys().into_iter().filter(|key| shelf.get(key).is_some_and(|seen| marked(&seen))).collect()
    }

    /// What is wrong with its API, when writes have to wait for it.
    pub fn strained(&self) -> Option<String> {
        self.session()?.brake.lock().trouble().map(str::to_owned)
    }

    /// What is remembered of a shard.
    pub fn note(&self, key: &Key) -> Note {
        self.notes.lock().get(key).map(|note| Note::clone(note)).unwrap_or_default()
    }

    /// Whether fewer replicas of a shard are ready than asked for.
    pub fn unready(&self, key: &Key) -> bool {
        self.notes.lock().get(key).is_some_and(|note| note.unready_since_ms.is_some())
    }

    /// Changes what is remembered of a shard.
    pub fn noting<T>(&self, key: &Key, change: impl FnOnce(&mut Note) -> T) -> T {
        change(self.notes.lock().entry(key.clone()).or_default())
    }

    /// Forgets a shard whose object is gone.
    pub fn forget(&self, key: &Key) {
        self.notes.lock().remove(key);
    }

    /// Whether something waits or runs for a shard.
    pub fn busy(&self, key: &Key) -> bool {
        self.session().is_some_and(|session| session.lane.busy(key))
    }

    /// Has something done to a shard, unless the same failed a moment ago.
    pub fn submit(self: &Arc<Self>, federation: &Arc<Federation>, key: &Key, job: Job) {
        let Some(session) = self.session() else { return };
        let pause = self.notes.lock().get(key).and_then(|note| note.pause);
        if let Some((hash, until)) = pause
            && hash == job.hash()
            && let Some(left) = until.checked_duration_since(clock::instant())
        {
            federation.queue.push_after(key, left);
            return;
        }
        if session.lane.offer(key, job) == Offered::StartWorker {
            // A session must not be kept alive by its own workers.
            let (member, federation, own) = (self.clone(), federation.clone(), Arc::downgrade(&session));
            session.tasks.spawn_until_stop(async move { member.work(&federation, &own).await });
        }
    }

    async fn work(self: &Arc<Self>, federation: &Arc<Federation>, session: &Weak<Session>) {
        loop {
            let turn = match session.upgrade() {
                Some(session) => session.turn(),
                None => return,
            };
            match turn {
                Turn::Wait(left) => tokio::time::sleep(left).await,
                Turn::Done => return,
                Turn::Go(work) => {
                    let (client, key, job) = *work;
                    let answered = shards::run(federation, self, &client, &key, job).await;
                    if let Some(session) = session.upgrade() {
                        session.brake.lock().done(clock::instant(), answered);
                        session.lane.done(&key);
                    }
                    federation.queue.push_soon(&key);
                }
            }
        }
    }

    fn follow(self: &Arc<Self>, federation: &Arc<Federation>, session: &Arc<Session>, shelf: Arc<Shelf>) {
        let labels = federation.config.shard_labels();
        let (client, federation, member) = (session.client.clone(), federation.clone(), Arc::downgrade(self));
        let name = self.name.clone();
        session.tasks.spawn_until_stop(async move {
            let heard = |keys: &[Key]| traffic::heard(&federation, &name, &shelf, keys);
            let tell = |change: Change| match change {
                Change::Object(key) if !heard(std::slice::from_ref(&key)) => {}
                Change::Object(key) => federation.queue.push_soon(&key),
                // Whatever else there is was looked at before, and what is owed is looked at all the time.
                Change::Compared(changed) => {
                    if heard(&changed) {
                        changed.iter().for_each(|key| federation.queue.push_soon(key));
                    }
                }
                Change::Synced(changed) if !heard(&changed) => traffic::read(&federation, &shelf),
                Change::Synced(changed) => {
                    traffic::read(&federation, &shelf);
                    // What is different, whoever waited for this list, and what it does not have.
                    let waiting = federation.shelf(shelf.row.id).keys();
                    let all = changed.into_iter().chain(waiting).chain(federation.debts.keys());
                    all.for_each(|key| federation.queue.push_soon(&key));
                    if let Some(member) = member.upgrade() {
                        member.changed.notify_one();
                    }
                }
            };
            loop {
                let following = watch::follow(client.clone(), shelf.row.clone(), &labels, &shelf, &tell);
                // A slow full comparison: whatever a watch may have missed is found by the next list. One that does not
                // come to its end is begun again.
                let enough = async {
                    tokio::time::sleep(LIST_TIMEOUT).await;
                    if shelf.synced() {
                        let wait_s = watch::between(COMPARE_AFTER_S);
                        tokio::time::sleep(Duration::from_secs(wait_s.into())).await;
                    }
                };
                tokio::select! { () = following => {}, () = enough => {} }
            }
        });
    }
}
