//! The responder: all of a server but its sockets. Plans go in, packets go through.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use landfall_api::landfall::{PlanFederation, TrafficPlanSpec};
use landfall_plan::records::{Place, Resolved, explain};
use landfall_runtime::clock;
use landfall_runtime::metrics::Registry;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::answer::Manner;
use crate::config::{Config, StartError, prefixes};
use crate::cookie::Jar;
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::serve::tcp::{self, Connections};
use crate::serve::udp::Worker;
use crate::signed;
use crate::state::Shared;
use crate::world::World;
use crate::zone::catalog::{Catalog, Change};

/// Answers packets from the plans it was given last. All its methods may be called at any time, from any thread.
pub struct Responder {
    pub(crate) shared: Arc<Shared>,
    catalog: Mutex<Catalog>,
}

impl Responder {
    /// A responder without plans; nothing is bound, whatever [`Config::listen`] says.
    pub fn new(config: &Config, registry: &Registry) -> Result<Self, StartError> {
        let open = |path: &std::path::PathBuf| {
            let fail = |source| StartError::World { path: path.clone(), source };
            World::open(path).map(Arc::new).map_err(fail)
        };
        let world = config.world.as_ref().map(open).transpose()?;
        let catalog = Catalog::new(config.cluster.clone(), world);
        let shared = Arc::new(shared(config, &catalog, registry)?);
        Ok(Self { shared, catalog: Mutex::new(catalog) })
    }

    /// Answers one UDP packet; gives the reply's length. Transfers need a connection: see [`Server`](crate::Server).
    pub fn respond_udp(&self, client: IpAddr, packet: &[u8], out: &mut [u8], seed: u64) -> Option<usize> {
        let mut worker = Worker::new(&self.shared, seed);
        let length = worker.answer(&self.shared.snapshot.load(), client, clock::since_epoch(), packet, out);
        worker.tally.flush(&self.shared.metrics);
        length
    }

    /// Answers one message that came by TCP, with the length before the reply; none if the connection is to be closed, or a zone
    /// to be transferred.
    pub fn respond_tcp(&self, client: IpAddr, packet: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let reply = matches!(tcp::answer(&self.shared, client, false, packet, &mut out), tcp::Next::Reply);
        reply.then_some(out)
    }

    /// Everything anew: the federation, all plans with their namespaces, and what load balancers' host names resolve to.
    pub fn publish<'a>(
        &self,
        federation: &PlanFederation,
        plans: impl IntoIterator<Item = (&'a str, &'a TrafficPlanSpec)>,
        resolved: Resolved,
    ) {
        let mut catalog = self.catalog.lock();
        let serial = self.serial();
        catalog.resolve(resolved);
        catalog.forget();
        catalog.federation(federation, serial);
        catalog.change(
            plans.into_iter().map(|(space, plan)| (space, plan.target_ref.name.as_str(), Some(plan))),
            serial,
        );
        self.swap(&catalog);
    }

    /// The federation's own plan changed. False if its names or members are others: then [`Server::publish`] must be called, and
    /// until then all is answered as before.
    pub fn federation(&self, federation: &PlanFederation) -> bool {
        let mut catalog = self.catalog.lock();
        if catalog.is_new(federation) {
            return false;
        }
        catalog.federation(federation, self.serial());
        self.swap(&catalog);
        true
    }

    /// Plans that changed or are gone: namespace, name of the service, plan. Only these are compiled.
    pub fn change<'a>(&self, changes: impl IntoIterator<Item = Change<'a>>) {
        let mut catalog = self.catalog.lock();
        catalog.change(changes, self.serial());
        self.swap(&catalog);
    }

    /// What load balancers' host names resolve to from now on; plans that have such names are to be given again.
    pub fn resolve(&self, resolved: Resolved) {
        self.catalog.lock().resolve(resolved);
    }

    /// Where a client stands, for [`landfall_plan::records::explain`].
    pub fn stands(&self, client: IpAddr) -> explain::From {
        let snapshot = self.shared.snapshot.load();
        if self.shared.manner.is_inside(client) {
            let own = snapshot.stage.scene.places.own;
            return explain::From { place: own.map_or(Place::Unknown, Place::Member), inside: true };
        }
        explain::From { place: snapshot.stage.place(client).0, inside: false }
    }

    /// How many services have names.
    pub fn services(&self) -> usize {
        self.shared.snapshot.load().services.len()
    }

    /// The next serial: it rises with every change, and goes on after a restart because it follows the clock.
    fn serial(&self) -> u32 {
        let now = u32::try_from(clock::epoch_s()).unwrap_or(0);
        let next = self.shared.snapshot.load().serial.wrapping_add(1);
        next.max(now)
    }

    fn swap(&self, catalog: &Catalog) {
        let snapshot = catalog.snapshot();
        self.shared.metrics.services.set(i64::try_from(snapshot.services.len()).unwrap_or(0));
        self.shared.metrics.serial.set(i64::from(snapshot.serial));
        let serial = snapshot.serial;
        self.shared.snapshot.store(Arc::new(snapshot.clone()));
        self.shared.serial.send_replace(serial);
    }
}

fn shared(config: &Config, catalog: &Catalog, registry: &Registry) -> Result<Shared, StartError> {
    let secrets = match config.cookie_secrets.as_slice() {
        [] => vec![random()?],
        given => given.to_vec(),
    };
    let nsid = config.nsid.as_ref().map(|text| text.as_bytes().iter().copied().take(64).collect());
    let manner = Manner { jar: Jar::new(&secrets), nsid, inside: prefixes(&config.inside)? };
    let key = u64::from_ne_bytes(random()?);
    let limiter = config.rate.map(|rate| Limiter::new(rate.per_second, rate.slip, key));
    Ok(Shared {
        snapshot: ArcSwap::from_pointee(catalog.snapshot().clone()),
        manner,
        limiter,
        keys: signed::keys(&config.keys)?,
        connections: Connections::default(),
        tcp_idle: config.tcp_idle,
        metrics: Metrics::new(registry),
        stopping: AtomicBool::new(false),
        serial: watch::Sender::new(0),
    })
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], StartError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| StartError::Random)?;
    Ok(bytes)
}
