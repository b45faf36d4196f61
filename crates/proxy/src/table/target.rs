//! A target: a service's port, and where its requests may go. Its plan and its endpoints change far more often than the routes
//! that lead to it, so they are swapped inside it; threads see by its version that something is new.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use landfall_api::landfall::{
    Balance, BalanceMode, HashOn, PlanCluster, PlanFederation, RouteService, TrafficPlanSpec,
};
use landfall_plan::choose::Chooser;
use parking_lot::Mutex;

use super::bucket::Outside;
use crate::guard::Guard;
use crate::world::Endpoints;

/// A service's port.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its number: never used twice.
    pub(crate) id: u64,
    /// Which service and port.
    pub(crate) service: Arc<RouteService>,
    /// `namespace/name`.
    pub(crate) name: Arc<str>,
    /// Where it is, if it is none of the federation's.
    pub(crate) outside: Option<Outside>,
    /// Other edges have named it: it is kept while the federation has its port, whether routes lead here or not.
    by_peers: AtomicBool,
    version: AtomicU64,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    service: Arc<Service>,
}

/// Where requests of a target may go, and how they are treated.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// The clusters in order.
    pub(crate) chooser: Chooser,
    /// How each of its choices is reached, in the same order.
    pub(crate) places: Vec<Place>,
    /// How long things may take.
    pub(crate) times: Times,
    /// How often a request is tried again at most.
    pub(crate) retries: u32,
    /// At most so many percent of the requests are tried again.
    pub(crate) retry_percent: u32,
    /// When an endpoint is left out.
    pub(crate) outlier: Outlier,
    /// Requests in flight at one endpoint.
    pub(crate) concurrency: Option<u32>,
    /// Requests of this edge in flight at one cluster.
    pub(crate) cluster_concurrency: Option<u32>,
    /// What of a request leads to its endpoint, where not the less busy of two takes it.
    pub(crate) hash: Option<Hash>,
}

/// What of a request leads to its endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    /// The client's address.
    Client,
    /// A header.
    Header(http::HeaderName),
    /// A cookie.
    Cookie(String),
    /// The path.
    Path,
}

/// One cluster.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Its name.
    pub(crate) cluster: Arc<str>,
    /// Whether it is the edge's own.
    pub(crate) own: bool,
}

/// How the service is reached in one cluster.
#[derive(Debug)]
pub(crate) struct Place {
    /// The cluster.
    pub(crate) choice: Choice,
    /// Ways to it that are as good as each other, with what is known of each.
    pub(crate) ways: Vec<(Reach, Arc<Vitals>)>,
    /// Requests of this edge in flight there, where there is a limit.
    pub(crate) active: Arc<AtomicU32>,
}

/// A way to a service: the transport that carries its requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    /// An endpoint, or a load balancer of another cluster, by its address.
    Direct(SocketAddr),
    /// Another edge, which takes it to an endpoint of its own cluster: HTTP/2 over mutual TLS.
    Peer {
        /// The edge's name, which its certificate must show.
        edge: Arc<str>,
        /// Where it listens for other edges.
        address: Arc<str>,
    },
}

impl std::fmt::Display for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Direct(address) => address.fmt(f),
            Self::Peer { edge, .. } => f.write_str(edge),
        }
    }
}

/// What all threads together know of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    /// Failures in a row.
    pub(crate) failures: AtomicU32,
    /// It is left out until then, in milliseconds of the proxy's clock.
    pub(crate) out_until_ms: AtomicU64,
    /// How often it was left out.
    pub(crate) times_out: AtomicU32,
    /// When it came; 0 when it was there from the beginning.
    pub(crate) since_ms: AtomicU64,
    /// Requests in flight, where there is a limit.
    pub(crate) active: AtomicU32,
    /// Connections and clients of ports that are carried there.
    pub(crate) carried: AtomicU32,
    /// Requests in flight, by the threads that know of it: each writes its own number.
    pub(crate) threads: Mutex<Vec<Weak<AtomicU32>>>,
    /// How long answers took to begin lately, in microseconds, and how many have since it was last judged by that; only where
    /// slow ones are left out.
    pub(crate) latency_us: AtomicU64,
    pub(crate) timed: AtomicU32,
}

/// How long a new endpoint is spared, and how much of a share it has at first, in percent.
const SLOW_START_MS: u64 = 10_000;
const SLOW_START_PERCENT: u64 = 10;

impl Vitals {
    /// Where a thread counts its requests in flight.
    pub(crate) fn thread(&self) -> Arc<AtomicU32> {
        let own = Arc::new(AtomicU32::new(0));
        let mut threads = self.threads.lock();
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(Arc::downgrade(&own));
        own
    }

    /// Requests in flight, and what is carried of ports, over all threads.
    pub(crate) fn in_flight(&self) -> u32 {
        let threads = self.threads.lock();
        let requests = threads.iter().filter_map(Weak::upgrade).map(|thread| thread.load(Ordering::Relaxed));
        requests.sum::<u32>() + self.carried.load(Ordering::Relaxed)
    }

    /// How busy it is with so many; a new one seems busier than it is.
    pub(crate) fn burden(&self, active: u32, now_ms: u64) -> u64 {
        let active = u64::from(active) + 1;
        active * 10_000 / self.warmth_percent(now_ms)
    }

    /// How much of its share it has: a new one has little at first.
    pub(crate) fn warmth_percent(&self, now_ms: u64) -> u64 {
        let since_ms = self.since_ms.load(Ordering::Relaxed);
        let age_ms = now_ms.saturating_sub(since_ms);
        if since_ms == 0 || age_ms >= SLOW_START_MS {
            return 100;
        }
        (age_ms * 100 / SLOW_START_MS).max(SLOW_START_PERCENT)
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// To connect.
    pub(crate) connect: Duration,
    /// Until an answer begins.
    pub(crate) first_byte: Duration,
    /// The whole request.
    pub(crate) whole: Option<Duration>,
    /// Without a byte.
    pub(crate) idle: Duration,
    /// Without a byte, once both have agreed to speak something else than HTTP.
    pub(crate) upgraded_idle: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            first_byte: Duration::from_secs(60),
            whole: None,
            idle: Duration::from_secs(300),
            upgraded_idle: Duration::from_secs(3600),
        }
    }
}

/// When an endpoint is left out because of what it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlier {
    /// Failures in a row.
    pub(crate) failures: u32,
    /// For how long at first.
    pub(crate) out: Duration,
    /// At most so many percent of the endpoints.
    pub(crate) percent: u32,
    /// So many times slower than the others.
    pub(crate) slower: Option<f64>,
}

impl Default for Outlier {
    fn default() -> Self {
        Self { failures: 5, out: Duration::from_secs(30), percent: 50, slower: None }
    }
}

/// What a target is made of.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) cluster: &'a str,
    pub(super) edge: &'a str,
    pub(super) plan: Option<&'a TrafficPlanSpec>,
    pub(super) endpoints: Option<&'a Endpoints>,
    pub(super) federation: Option<&'a PlanFederation>,
    pub(super) guard: &'a Guard,
    pub(super) now_ms: u64,
}

impl Target {
    pub(super) fn new(id: u64, service: Arc<RouteService>) -> Self {
        let name = format!("{}/{}", service.namespace, service.name).into();
        Self {
            id,
            service,
            name,
            outside: None,
            by_peers: AtomicBool::new(false),
            version: AtomicU64::new(0),
            now: Mutex::default(),
        }
    }

    /// Whether other edges have named it.
    pub(super) fn is_named_by_peers(&self) -> bool {
        self.by_peers.load(Ordering::Relaxed)
    }

    /// Other edges have named it, or do no longer.
    pub(super) fn name_by_peers(&self, named: bool) {
        // Written only when it changes: the line is shared by all threads.
        if self.is_named_by_peers() != named {
            self.by_peers.store(named, Ordering::Relaxed);
        }
    }

    /// Rises with every change.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Where its requests may go now.
    pub(crate) fn service(&self) -> Arc<Service> {
        self.now.lock().service.clone()
    }

    /// Follows its plan, its endpoints and the federation.
    pub(super) fn follow(&self, sources: &Sources<'_>) {
        self.change(sources.now_ms, |vital| service(sources, &self.service, vital));
    }

    /// Changes where its requests may go; what is known of a way is kept.
    pub(super) fn change(
        &self,
        now_ms: u64,
        service: impl FnOnce(&mut dyn FnMut(&Reach) -> Arc<Vitals>) -> Service,
    ) {
        let mut now = self.now.lock();
        // Those that are there from the beginning are warm, as far as anybody knows.
        let ways = now.service.places.iter().flat_map(|place| &place.ways);
        let mut known: HashMap<Reach, Arc<Vitals>> = ways.cloned().collect();
        let since_ms = if known.is_empty() { 0 } else { now_ms };
        let mut vital = |reach: &Reach| -> Arc<Vitals> {
            let new = || Arc::new(Vitals { since_ms: AtomicU64::new(since_ms), ..Vitals::default() });
            known.entry(reach.clone()).or_insert_with(new).clone()
        };
        let mut made = service(&mut vital);
        for place in &mut made.places {
            let before = now.service.places.iter().find(|one| one.choice.cluster == place.choice.cluster);
            place.active = before.map(|before| before.active.clone()).unwrap_or_default();
        }
        now.service = Arc::new(made);
        self.version.fetch_add(1, Ordering::Release);
    }
}

fn service(
    sources: &Sources<'_>,
    wanted: &RouteService,
    vital: &mut dyn FnMut(&Reach) -> Arc<Vitals>,
) -> Service {
    let Some(plan) = sources.plan else { return Service::default() };
    let members = sources.federation.map(|federation| federation.members.as_slice()).unwrap_or_default();
    let own = members.iter().find(|member| member.name == sources.cluster);
    let chooser = Chooser::new(plan, sources.cluster, own.and_then(|own| own.region.as_deref()));
    let mut place = |choice: &landfall_plan::choose::Choice| {
        let own = choice.cluster == sources.cluster;
        let ways = plan.clusters.get(choice.place).map(|cluster| {
            if own { own_ways(sources, cluster, wanted) } else { far_ways(sources, cluster, wanted) }
        });
        let ways = ways.unwrap_or_default().into_iter().map(|way| (way.clone(), vital(&way))).collect();
        Place {
            choice: Choice { cluster: choice.cluster.as_str().into(), own },
            ways,
            active: Arc::default(),
        }
    };
    let places = chooser.choices().iter().map(&mut place).collect();
    let retries = plan.retries.as_ref();
    let capacity = plan.endpoint_capacity.as_ref();
    Service {
        chooser,
        places,
        times: times(plan),
        retries: number(retries.and_then(|retries| retries.attempts)).unwrap_or(2).min(RETRIES_MAX),
        retry_percent: number(retries.and_then(|retries| retries.budget_percent)).unwrap_or(20),
        outlier: outlier(plan),
        concurrency: number(capacity.and_then(|capacity| capacity.concurrency)).filter(|limit| *limit > 0),
        cluster_concurrency: number(plan.limits.as_ref().and_then(|limits| limits.cluster_concurrency))
            .filter(|limit| *limit > 0),
        hash: plan.balance.as_ref().and_then(hash),
    }
}

/// No policy makes a request be tried more often.
const RETRIES_MAX: u32 = 10;

/// The endpoints; where the edge cannot see them, the address that the service has inside the cluster, then the outer one.
fn own_ways(sources: &Sources<'_>, cluster: &PlanCluster, wanted: &RouteService) -> Vec<Reach> {
    if let Some(endpoints) = sources.endpoints {
        let ports = endpoints.get(&wanted.port_name);
        let ports = ports.into_iter().flatten().filter(|at| sources.guard.may_admit(**at));
        return ports.map(|at| Reach::Direct(*at)).collect();
    }
    let inner = cluster.cluster_ips.iter().filter(|ip| *ip != "None");
    let inner: Vec<Reach> = inner.filter_map(|ip| direct(sources, ip, wanted)).collect();
    if inner.is_empty() { outer(sources, cluster, wanted) } else { inner }
}

/// An edge of that cluster that is alive; where there is none, its load balancer.
fn far_ways(sources: &Sources<'_>, cluster: &PlanCluster, wanted: &RouteService) -> Vec<Reach> {
    let edges = sources.federation.map(|federation| federation.edges.as_slice()).unwrap_or_default();
    let edges = edges.iter().filter(|edge| {
        edge.alive && edge.linked && edge.cluster == cluster.name && edge.name != sources.edge
    });
    let peers = edges.filter_map(|edge| {
        let address = edge.peer_address.as_deref()?;
        Some(Reach::Peer { edge: edge.name.as_str().into(), address: address.into() })
    });
    let peers: Vec<Reach> = peers.collect();
    if peers.is_empty() { outer(sources, cluster, wanted) } else { peers }
}

fn outer(sources: &Sources<'_>, cluster: &PlanCluster, wanted: &RouteService) -> Vec<Reach> {
    let ips = cluster.addresses.iter().filter_map(|address| address.ip.as_deref());
    ips.filter_map(|ip| direct(sources, ip, wanted)).collect()
}

/// An address that a member tells of: never one that is nobody's business.
fn direct(sources: &Sources<'_>, ip: &str, wanted: &RouteService) -> Option<Reach> {
    let ip: IpAddr = ip.parse().ok()?;
    let port = u16::try_from(wanted.port).ok()?;
    Some(SocketAddr::new(ip, port)).filter(|at| sources.guard.may_admit(*at)).map(Reach::Direct)
}

fn times(plan: &TrafficPlanSpec) -> Times {
    let mut times = Times::default();
    let Some(given) = &plan.timeouts else { return times };
    let ms = |ms: Option<i32>| number(ms).filter(|ms| *ms > 0).map(|ms| Duration::from_millis(ms.into()));
    times.connect = ms(given.connect_ms).unwrap_or(times.connect);
    times.whole = ms(given.request_ms);
    if let Some(idle) = ms(given.idle_ms) {
        (times.idle, times.first_byte, times.upgraded_idle) = (idle, idle, idle);
    }
    times
}

fn outlier(plan: &TrafficPlanSpec) -> Outlier {
    let mut outlier = Outlier::default();
    let Some(given) = &plan.outlier else { return outlier };
    outlier.failures = number(given.consecutive_errors).unwrap_or(outlier.failures).max(1);
    let out = number(given.ejection_seconds).map(|s| Duration::from_secs(s.into()));
    outlier.out = out.unwrap_or(outlier.out);
    outlier.slower = given.latency_factor.filter(|factor| factor.is_finite() && *factor >= 1.0);
    outlier.percent = number(given.max_ejected_percent).unwrap_or(outlier.percent).min(100);
    outlier
}

/// None where the policy names nothing that can be hashed: then the less busy of two takes a request.
fn hash(balance: &Balance) -> Option<Hash> {
    if balance.mode == BalanceMode::LeastRequests {
        return None;
    }
    let name = balance.name.as_deref();
    match balance.hash_on {
        HashOn::ClientIp => Some(Hash::Client),
        HashOn::Header => http::HeaderName::try_from(name?).ok().map(Hash::Header),
        HashOn::Cookie => Some(Hash::Cookie(name?.to_owned())),
        HashOn::Path => Some(Hash::Path),
    }
}

fn number(given: Option<i32>) -> Option<u32> {
    given.and_then(|given| u32::try_from(given).ok())
}
