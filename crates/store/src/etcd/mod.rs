//! The store in etcd, shared by several hubs.
//!
//! ```text
//!   create/update/delete ──► one Txn: compare, put or delete, put the tick ──► acknowledged
//!   etcd watch of our root ──► feed ──► Mirror (reads, watches)
//!   barrier ──► linearizable read of the tick's revision ──► wait until the mirror is there
//! ```
//!
//! etcd's revisions are ours. Every write also puts one key, the tick, so that one read of it tells how far the last
//! acknowledged write of any hub is. Objects lie under `<root>o/`. See docs/adr/0002-etcd-over-tonic.md.

mod barrier;
mod client;
mod compactor;
mod feed;
mod keys;
mod lease;
pub mod plain;
mod wire;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::embedded::KEY_BYTES_MAX;
use crate::mirror::{HistoryLimits, Mirror};
use crate::seal::WITNESS;
use crate::{Entry, Error, OpenError, Revision, Seals, Snapshot, Store, Watch};
use barrier::Barrier;
use client::Client;
use keys::Keys;
use lease::Leases;
use write::{Op, Outcome};

/// Settings of the store in etcd.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses of etcd members, such as `https://10.0.0.1:2379`; one in use, the others for when it fails.
    pub endpoints: Vec<String>,
    /// Certificates; needed for `https`.
    pub tls: Option<Tls>,
    /// The prefix of all our keys; two federations may share an etcd under two roots.
    pub root: String,
    /// How much history watches and chunked lists can go back without asking etcd.
    pub history: HistoryLimits,
    /// How many revisions before the newest a starting hub begins, so that watches of other hubs resume here.
    pub backfill: u64,
    /// The largest value. etcd has its own limit, 1.5 MiB unless set otherwise.
    pub value_bytes_max: usize,
    /// Which values are encrypted in etcd. All processes that share it need the same keys.
    pub seals: Seals,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long a read or write may take in all.
    pub request_timeout: Duration,
    /// How often etcd's history is compacted to what it was that long ago; none when somebody else does it.
    pub compact_every: Option<Duration>,
}

/// Certificates for etcd, as PEM.
#[derive(Clone)]
pub struct Tls {
    /// Who signed etcd's certificates.
    pub ca_pem: Vec<u8>,
    /// Our certificate and its key.
    pub client_pem: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in etcd's certificates, when it is not the endpoint's host.
    pub server_name: Option<String>,
}

impl Config {
    /// The usual settings for some endpoints.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            root: "/landfall/".into(),
            history: HistoryLimits::default(),
            backfill: 1000,
            value_bytes_max: 8 << 20,
            seals: Seals::default(),
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
            compact_every: Some(Duration::from_mins(5)),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key stays out of logs.
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Connects to etcd and reads the whole state. Fails when etcd does not answer within the request timeout.
pub async fn connect_etcd(config: Config) -> Result<Arc<dyn Store>, OpenError> {
    let client = Arc::new(Client::new(&config)?);
    let keys = Keys::new(&config.root, config.seals.clone());
    let unreachable = |error: Error| match error {
        Error::Sealed(why) => OpenError::Sealed(why),
        error => OpenError::Unreachable(format!("{error} (endpoints {:?})", config.endpoints)),
    };
    let state = first_state(&client, &keys, config.backfill).await.map_err(unreachable)?;
    let oldest = state.revision();
    let mirror = Mirror::new(state, oldest, [], config.history);
    let (barrier, arrivals) = Barrier::new();

    let mut tasks = JoinSet::new();
    let went_back = Arc::new(Notify::new());
    tasks.spawn(feed::run(Arc::clone(&client), keys.clone(), Arc::clone(&mirror), Arc::clone(&went_back)));
    for _ in 0..barrier::READS_MAX {
        tasks.spawn(barrier::run(
            Arc::clone(&client),
            keys.clone(),
            Arc::clone(&mirror),
            Arc::clone(&arrivals),
            Arc::clone(&went_back),
        ));
    }
    if let Some(every) = config.compact_every {
        tasks.spawn(compactor::run(Arc::clone(&client), keys.clone(), Arc::clone(&mirror), every));
    }
    let store = Etcd {
        client,
        keys,
        mirror,
        barrier,
        leases: Leases::default(),
        tasks: Mutex::new(tasks),
        fetching: tokio::sync::Mutex::default(),
        value_bytes_max: config.value_bytes_max,
        timeout: config.request_timeout,
    };
    // Said at once, and not after a while as something that lags.
    store.read(WITNESS).await.map_err(unreachable)?;
    store.catch_up().await.map_err(unreachable)?;
    Ok(Arc::new(store))
}

/// The state to begin with: somewhat before the newest, so that the watch brings some history.
async fn first_state(client: &Client, keys: &Keys, backfill: u64) -> Result<Snapshot, Error> {
    let newest = feed::newest(client, keys).await?;
    let mut earlier = newest.saturating_sub(backfill).max(1);
    // The second attempt is at the oldest revision that etcd has.
    for _ in 0..2 {
        match feed::list(client, keys, earlier).await {
            Err(Error::TooOld { .. }) => {}
            // Sealed with a key that is gone since; what is there now may be sealed with another.
            Err(Error::Sealed(_)) => break,
            other => return other,
        }
        match feed::oldest(client, keys, earlier).await? {
            Some(oldest) => earlier = oldest,
            None => break,
        }
    }
    feed::list(client, keys, 0).await
}

/// See [`connect_etcd`].
struct Etcd {
    client: Arc<Client>,
    keys: Keys,
    mirror: Arc<Mirror>,
    barrier: Barrier,
    leases: Leases,
    tasks: Mutex<JoinSet<()>>,
    /// Held while a state that the mirror has forgotten is listed.
    fetching: tokio::sync::Mutex<()>,
    value_bytes_max: usize,
    timeout: Duration,
}

impl Etcd {
    /// Waits until the mirror holds every write acknowledged before the call.
    async fn catch_up(&self) -> Result<Revision, Error> {
        self.mirror.ensure_open()?;
        let revision = self.barrier.revision().await?;
        if self.mirror.reach(revision, self.timeout).await {
            Ok(self.mirror.settled())
        } else {
            self.mirror.ensure_open()?;
            // Perhaps because somebody writes what this process cannot open.
            self.read(WITNESS).await?;
            Err(Error::Unavailable("the watch on etcd lags behind".into()))
        }
    }

    /// The entry that a write made: the one in the mirror if it is there, so that what is derived from it is shared.
    fn written(&self, key: &str, value: Bytes, created: Revision, revision: Revision) -> Arc<Entry> {
        match self.mirror.snapshot().get(key) {
            Some(entry) if entry.revision == revision => Arc::clone(entry),
            _ => Entry::new(key.into(), value, created, revision),
        }
    }

    fn check_sizes(&self, key: &str, value: Option<&Bytes>) -> Result<(), Error> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Error::TooLarge(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len())));
        }
        let size = value.map_or(0, Bytes::len);
        let limit = self.value_bytes_max;
        if size > limit {
            return Err(Error::TooLarge(format!("the value has {size} bytes, and the limit is {limit}")));
        }
        Ok(())
    }

    async fn update_inner(
        &self,
        key: String,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<Arc<Entry>, Error> {
        // To compare with 0 would mean "must not exist".
        if expected == 0 {
            return Err(Error::Conflict(self.read(&key).await?));
        }
        match self.write(&key, expected, Op::Put { value: value.clone(), ttl }).await? {
            Outcome::Done(revision) => {
                // Rarely needed: only if the mirror lags.
                let before = self.mirror.snapshot().get(&key).map_or(expected, |entry| entry.created);
                Ok(self.written(&key, value, before, revision))
            }
            Outcome::Refused(found) => Err(Error::Conflict(found)),
        }
    }

    async fn delete_inner(&self, key: String, expected: Revision) -> Result<Arc<Entry>, Error> {
        // The last entry is needed for the answer, and at this revision it never changes.
        let last = match self.mirror.snapshot().get(&key) {
            Some(entry) if entry.revision == expected => Some(Arc::clone(entry)),
            _ => self.read(&key).await?,
        };
        let Some(last) = last.filter(|last| last.revision == expected) else {
            return Err(Error::Conflict(self.read(&key).await?));
        };
        match self.write(&key, expected, Op::Delete).await? {
            Outcome::Done(revision) => {
                Ok(Entry::new(Arc::clone(&last.key), last.value.clone(), last.created, revision))
            }
            Outcome::Refused(found) => Err(Error::Conflict(found)),
        }
    }

    /// One key as etcd has it now.
    async fn read(&self, key: &str) -> Result<Option<Arc<Entry>>, Error> {
        self.mirror.ensure_open()?;
        let request = wire::RangeRequest { key: self.keys.object(key), ..wire::RangeRequest::default() };
        let found = self.client.range(request).await?;
        found.kvs.first().map(|kv| feed::entry(&self.keys.seals, key.into(), kv)).transpose()
    }

    async fn earlier(&self, revision: Revision) -> Result<Snapshot, Error> {
        self.mirror.ensure_open()?;
        if revision > self.mirror.settled() {
            self.catch_up().await?;
        }
        let (asked, oldest) = match self.mirror.rewind(revision) {
            Err(Error::TooOld { asked, oldest }) => (asked, oldest),
            other => return other,
        };
        // One list of everything at a time: whoever asks for the same state meanwhile finds it then.
        let _one = self.fetching.lock().await;
        if let Some(state) = self.mirror.fetched(revision) {
            return Ok(state);
        }
        let listed = feed::list(&self.client, &self.keys, revision).await;
        let state = listed.map_err(|error| match error {
            // A state that nobody can open any more is as good as gone.
            Error::TooOld { .. } | Error::Sealed(_) => Error::TooOld { asked, oldest },
            other => other,
        })?;
        Ok(self.mirror.keep_fetched(state))
    }

    async fn forget(&self, revision: Revision) -> Result<(), Error> {
        self.mirror.ensure_open()?;
        match self.client.compact(revision).await {
            Ok(()) | Err(Error::TooOld { .. }) => {
                self.mirror.compact(revision);
                Ok(())
            }
            Err(Error::Future { .. }) => {
                Err(Error::Future { asked: revision, current: self.mirror.settled() })
            }
            Err(error) => Err(error),
        }
    }
}

impl Store for Etcd {
    fn alone_since(&self) -> Option<Revision> {
        None
    }

    fn create(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        let key = key.to_owned();
        async move {
            match self.write(&key, 0, Op::Put { value: value.clone(), ttl }).await? {
                Outcome::Done(revision) => Ok(self.written(&key, value, revision, revision)),
                Outcome::Refused(Some(found)) => Err(Error::Exists(found)),
                Outcome::Refused(None) => {
                    Err(Error::Unavailable("etcd refused to create a key that is not there".into()))
                }
            }
        }
        .boxed()
    }

    fn update(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        self.update_inner(key.to_owned(), value, expected, ttl).boxed()
    }

    fn delete(&self, key: &str, expected: Revision) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        self.delete_inner(key.to_owned(), expected).boxed()
    }

    fn barrier(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.catch_up().boxed()
    }

    fn snapshot(&self) -> Snapshot {
        self.mirror.snapshot()
    }

    fn snapshot_at(&self, revision: Revision) -> BoxFuture<'_, Result<Snapshot, Error>> {
        self.earlier(revision).boxed()
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        // A revision that another hub has seen and this one has not yet is not an error: what follows it will come.
        self.mirror.watch(prefix, after)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.forget(revision).boxed()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let begin = Instant::now();
            self.catch_up().await?;
            tracing::trace!(took = ?begin.elapsed(), "etcd answers");
            Ok(())
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            let mut tasks = std::mem::take(&mut *self.tasks.lock());
            tasks.shutdown().await;
            self.mirror.close();
        }
        .boxed()
    }
}
