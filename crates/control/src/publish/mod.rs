//! Publishing: names of the federation, written to zones of other DNS servers as plans change.
//!
//! ```text
//!   TrafficPlans ─► index (record sets of all services) ─┐
//!   DNSZones, their Secrets ─────────────────────────────┼─► one worker per zone ─► publisher ─► the server
//!   the zone itself, as its server has it ───────────────┘    (plan::publish decides)     rfc2136 │ skydns
//! ```
//!
//! Reads:      TrafficPlan, DNSZone, the Secrets they name; the zones
//! Decides:    plan::records, plan::publish
//! Writes:     records of the zones; status and finalizer of DNSZone, Events
//! Wakes on:   a plan or a DNSZone changing, and every 10 min (every minute while there are conflicts); after a fault when its time has come, or its Secret changed
//! Guarantees: only names that bear our mark, or have nothing, are changed; nothing is removed before all plans were read; a
//!             zone that fails delays no other; what was published is read from the zone, so that a new leader knows it
//! Limits:     one pass at a time per zone; retries after 1 s to 1 min; a deleted DNSZone waits for its server 2 min at most
//!
//! Reading order: [`publisher`] (the boundary), `index`, `zone`, `tell`; [`rfc2136`], [`skydns`].

mod index;
mod open;
pub mod publisher;
pub mod rfc2136;
pub mod skydns;
mod tell;
mod zone;

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_runtime::metrics::{Counter, Gauge, Registry, label};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::federation::Federation;
use crate::kinds::{PLANS, ZONES};
use crate::shelf::{Key, Shelf};
use crate::watch;
use index::Index;

/// What the workers share.
struct Publish {
    zones: Shelf,
    index: Index,
    changed: Notify,
    /// Whom to wake, by zone.
    workers: Mutex<BTreeMap<Key, Arc<Notify>>>,
}

/// What is counted for one zone.
struct Metrics {
    changes: Arc<Counter>,
    failures: Arc<Counter>,
    names: Arc<Gauge>,
}

impl Metrics {
    fn new(registry: &Registry, zone: &str) -> Self {
        let zone = label("zone", zone);
        Self {
            changes: registry.counter(
                "landfall_publish_changes_total",
                "Names changed in zones of other DNS servers.",
                &zone,
            ),
            failures: registry.counter(
                "landfall_publish_failures_total",
                "Passes over zones of other DNS servers that failed.",
                &zone,
            ),
            names: registry.gauge("landfall_published_names", "Names published to a zone.", &zone),
        }
    }
}

/// Publishes to all zones, for ever.
pub async fn run(federation: &Arc<Federation>, registry: &Registry) {
    let publish = Arc::new(Publish {
        zones: Shelf::new(federation.kinds.get(ZONES)),
        index: Index::new(Shelf::new(federation.kinds.get(PLANS))),
        changed: Notify::new(),
        workers: Mutex::default(),
    });
    let zones = &publish.zones;
    let tell = |_: watch::Change| publish.changed.notify_one();
    let follow = watch::follow(federation.client.clone(), zones.row.clone(), "", zones, tell);
    let manage = async {
        let mut reading = false;
        loop {
            publish.changed.notified().await;
            if !reading && !publish.zones.is_empty() {
                // Whoever publishes nothing need not read plans.
                reading = true;
                read_plans(federation, &publish);
            }
            wake(federation, &publish, registry);
        }
    };
    tokio::join!(follow, manage);
}

fn read_plans(federation: &Arc<Federation>, publish: &Arc<Publish>) {
    let (client, publish) = (federation.client.clone(), publish.clone());
    federation.tasks.spawn_until_stop(async move {
        let plans = &publish.index.plans;
        let tell = |change| publish.index.tell(change);
        let follow = watch::follow(client, plans.row.clone(), "", plans, tell);
        tokio::join!(follow, publish.index.run());
    });
}

/// Wakes the workers of all zones; those that have none get one.
fn wake(federation: &Arc<Federation>, publish: &Arc<Publish>, registry: &Registry) {
    let keys = publish.zones.keys();
    let mut workers = publish.workers.lock();
    for (key, worker) in workers.iter() {
        if !keys.contains(key) {
            worker.notify_one();
        }
    }
    for key in keys {
        if let Some(worker) = workers.get(&key) {
            worker.notify_one();
            continue;
        }
        let worker = Arc::new(Notify::new());
        workers.insert(key.clone(), worker.clone());
        let metrics = Metrics::new(registry, &key.name);
        let zone = zone::Zone::new(federation, publish, key, worker, metrics);
        federation.tasks.spawn_until_stop(zone.run());
    }
}
