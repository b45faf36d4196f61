//! `Core`: what the parts of a running edge share, and the loop that brings plans to those who carry them out.
//!
//! ```text
//!   session ──► book ──┐                        ┌──► prober (targets), ruler (places)
//!   own cluster ───────┼──► follow (targets,  ──┤
//!   prober ────────────┘      failover; pure)   └──► voice (answers), carrier (requests), vips (addresses)
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use landfall_api::landfall::{Address, TrafficPlanSpec};
use landfall_health::distance::Ruler;
use landfall_health::{Prober, Source};
use landfall_runtime::clock;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use serde_json::Value;

use super::book::{Book, Key, Plans};
use super::bridge::Bridge;
use super::carrier::{Carriage, Carrier};
use super::doors::Doors;
use super::failover::{self, Sight};
use super::own::{Access, Own};
use super::reach::{Place, Reach};
use super::status::{self, Report};
use super::targets::{self, Me};
use super::trust::Trust;
use super::usage::Usage;
use super::vips::{Keeping, Vips};
use super::voice::Voice;

/// Between two looks at everything, at the least; and as long as the last one took, so that half of the time is left for others.
const LOOK_GAP: Duration = Duration::from_millis(2);
/// How often is looked whether time alone has changed something.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So long clients are not let in because the own member's endpoints were not read yet. Without these they are led by what plans say.
const OWN_WAIT_MS: i64 = 5_000;

/// What an edge is given.
#[derive(Clone)]
pub(crate) struct Config {
    /// Its name.
    pub(crate) name: String,
    /// The member it stands in.
    pub(crate) cluster: String,
    /// Which hub.
    pub(crate) trust: Trust,
    /// With what it comes in.
    pub(crate) token: Option<String>,
    /// Its key, its certificate and its plans.
    pub(crate) data_dir: PathBuf,
    /// Where it answers names.
    pub(crate) dns: Vec<SocketAddr>,
    /// Where it answers names for clients inside its member alone.
    pub(crate) dns_inside: Vec<SocketAddr>,
    /// UDP threads for each of these addresses; as many as there are cores when 0.
    pub(crate) dns_threads: usize,
    /// Prefixes of clients that are inside its member.
    pub(crate) inside: Vec<String>,
    /// A database of the world's addresses.
    pub(crate) geo_database: Option<PathBuf>,
    /// Keys that may transfer zones.
    pub(crate) transfer_keys: Vec<landfall_dns::Key>,
    /// Who transfers them, and is told of changes.
    pub(crate) secondaries: Vec<landfall_dns::Secondary>,
    /// Where it tells about itself.
    pub(crate) admin: Option<SocketAddr>,
    /// Where clients reach it.
    pub(crate) addresses: Vec<Address>,
    /// Where other edges reach it; the host of the first address and the port of its names when it is not given.
    pub(crate) peer_address: Option<String>,
    /// Its node.
    pub(crate) node: Option<String>,
    /// Its zone.
    pub(crate) zone: Option<String>,
    /// The group it belongs to.
    pub(crate) group: Option<String>,
    /// Addresses of its node on the link where its group's virtual IPs are.
    pub(crate) link_addresses: Vec<IpAddr>,
    /// Who holds these for it.
    pub(crate) keeping: Keeping,
    /// How its own cluster's API is reached.
    pub(crate) access: Option<Access>,
    /// The Service of its own namespace by which it is reached.
    pub(crate) service: Option<String>,
    /// The Secret of its own namespace that keeps its data directory.
    pub(crate) keep_in: Option<String>,
    /// Where its probes come from.
    pub(crate) source: Source,
    /// What it carries, and where.
    pub(crate) carriage: Carriage,
    /// How long it goes on as before when it is told to stop, and only says that it is not ready.
    pub(crate) shutdown_delay: Duration,
}

/// What the parts of a running edge share.
pub(crate) struct Core {
    /// What it was given.
    pub(crate) config: Config,
    /// The plans.
    pub(crate) book: Book,
    /// What it sees.
    pub(crate) prober: Prober,
    /// What it answers.
    pub(crate) voice: Voice,
    /// What it carries.
    pub(crate) carrier: Carrier,
    /// Where it is reached.
    pub(crate) reach: Reach,
    /// Which ports of Services it has open.
    doors: Doors,
    /// What it holds.
    pub(crate) vips: Vips,
    /// What it counts.
    pub(crate) registry: Arc<Registry>,
    ruler: Ruler,
    usage: Usage,
    pub(super) own: Own,
    began_ms: i64,
    /// When the hub was last heard of.
    heard_ms: AtomicI64,
    /// It was told to stop.
    leaving: AtomicBool,
}

impl Core {
    /// Opens what is on disk, and begins to answer.
    pub(crate) fn new(
        config: Config,
        voice: Voice,
        carrier: Carrier,
        registry: Arc<Registry>,
        tasks: &Tasks,
    ) -> Self {
        let seed =
            config.name.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let bridge = Bridge::new(carrier.lookout(), tasks.clone());
        let guard = carrier.guard();
        let source = Source { guard: Some(Arc::new(move |at| guard.admits(at))), ..config.source.clone() };
        let ruler = Ruler::new(source.clone(), tasks);
        let source = Source { bridge: Some(Arc::new(bridge)), ..source };
        let prober = landfall_health::Config { source, seed };
        let began_ms = now_ms();
        Self {
            book: Book::open(&config.data_dir),
            prober: Prober::new(prober, &registry, tasks),
            ruler,
            usage: Usage::new(),
            own: Own::default(),
            reach: Reach::new(Place {
                addresses: config.addresses.clone(),
                peer_port: carrier
                    .peer()
                    .as_ref()
                    .or_else(|| voice.addresses().first())
                    .map(SocketAddr::port),
            }),
            doors: Doors::default(),
            vips: Vips::start(&config, carrier.http(), &registry, tasks),
            voice,
            carrier,
            registry,
            began_ms,
            // Silence is counted from the start: an edge that has just begun has not seen enough to decide.
            heard_ms: AtomicI64::new(began_ms),
            leaving: AtomicBool::new(false),
            config,
        }
    }

    /// Why clients should not come here, if so.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        if self.leaving.load(Ordering::Relaxed) {
            return Some("the edge stops\n");
        }
        (!self.carrier.is_open()).then_some("no plans are followed yet\n")
    }

    /// Clients should go elsewhere from now on.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Whether there is all that clients need to be let in.
    fn may_open(&self, plans: &Plans) -> bool {
        let waits = self.config.access.is_some() && !self.own.is_known();
        plans.are_whole() && !(waits && now_ms().saturating_sub(self.began_ms) < OWN_WAIT_MS)
    }

    /// The hub has answered.
    pub(crate) fn heard(&self) {
        self.heard_ms.store(now_ms(), Ordering::Relaxed);
    }

    /// How long the hub has been silent.
    pub(crate) fn silent_for(&self) -> Duration {
        let ms = now_ms().saturating_sub(self.heard_ms.load(Ordering::Relaxed));
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        now_ms()
    }

    /// Where other edges reach this one.
    pub(crate) fn peer_address(&self) -> Option<String> {
        self.config.peer_address.clone().or_else(|| self.reach.now().peer())
    }

    /// All that is told of this edge.
    pub(crate) fn report(&self) -> Value {
        let report = Report {
            opinions: &self.prober.opinions(),
            round_trips: &self.ruler.medians(),
            began_ms: self.began_ms,
            follows: self.book.now().federation.is_some(),
            problems: &self.carrier.problems(),
            vips: self.vips.told(),
        };
        status::using(
            status::everything(&report, now_ms()),
            &self.usage.load(self.carrier.connections()),
            &Usage::capacity(),
        )
    }

    /// Follows its own cluster, if it was given access to it.
    pub(crate) async fn follow_own(&self) {
        if let Some(access) = &self.config.access {
            self.own.follow(access).await;
        }
    }

    /// Follows the Service by which it is reached, if there is one.
    pub(crate) async fn follow_reach(&self) {
        if let (Some(access), Some(service)) = (&self.config.access, &self.config.service) {
            self.reach.follow(access, service).await;
        }
    }

    /// Tells that Service which ports of others are open here, if there is one.
    pub(crate) async fn follow_doors(&self) {
        let config = &self.config;
        if let (Some(access), Some(service), false) =
            (&config.access, &config.service, config.carriage.ports_on.is_empty())
        {
            self.doors.follow(access, service, &config.name).await;
        }
    }

    /// Brings plans to those who carry them out, for ever.
    pub(crate) async fn follow_plans(&self) {
        let me = Me { name: &self.config.name, cluster: &self.config.cluster };
        let (mut plans, mut own) = (self.book.changes(), self.own.changes());
        let mut opinions = self.prober.changes();
        let mut adjusted = Adjusted::default();
        loop {
            let began = clock::instant();
            let now = plans.borrow_and_update().clone();
            own.mark_unchanged();
            opinions.mark_unchanged();
            let seen = self.prober.opinions();
            let sight = Sight::new(self.heard_ms.load(Ordering::Relaxed), now_ms(), &seen);
            // Answers first: what is probed can wait for a moment.
            let followed = adjusted.follow(&now, &sight);
            self.voice.publish(&followed);
            if self.carrier.is_open() || self.may_open(&now) {
                self.carrier.follow(&followed, &self.own);
                if followed.federation.is_some() {
                    self.doors.set(self.carrier.ports());
                }
            }
            self.vips.follow(&followed);
            let endpoints =
                |namespace: &str, name: &str, port: &str| self.own.endpoints(namespace, name, port);
            self.prober.set(targets::targets(&now, me, sight.silent(), &endpoints));
            self.ruler.set(&targets::places(&now, me));
            tokio::time::sleep(began.elapsed().max(LOOK_GAP)).await;
            tokio::select! {
                changed = plans.changed() => if changed.is_err() { return },
                _ = own.changed() => {}
                _ = opinions.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}

fn now_ms() -> i64 {
    i64::try_from(clock::since_epoch().as_millis()).unwrap_or(i64::MAX)
}

/// Plans as this edge follows them: what is adjusted in the same way again is the same value.
#[derive(Default)]
struct Adjusted {
    before: BTreeMap<Key, Arc<TrafficPlanSpec>>,
}

impl Adjusted {
    fn follow(&mut self, plans: &Plans, sight: &Sight<'_>) -> Plans {
        if !sight.may_decide() {
            self.before.clear();
            return plans.clone();
        }
        let (mut followed, mut now) = (plans.clone(), BTreeMap::new());
        for (key, plan) in &plans.services {
            let Some(adjusted) = failover::adjust(&key.0, &key.1, plan, sight) else { continue };
            let same = self.before.get(key).filter(|before| ***before == adjusted).cloned();
            let adjusted = same.unwrap_or_else(|| {
                tracing::warn!(
                    namespace = key.0,
                    name = key.1,
                    "the hub is silent; following what this edge sees"
                );
                Arc::new(adjusted)
            });
            followed.services.insert(key.clone(), adjusted.clone());
            now.insert(key.clone(), adjusted);
        }
        self.before = now;
        followed
    }
}
