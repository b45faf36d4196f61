//! Traffic: every federated Service has its plan, which edges follow: who is up, and which clients go where.
//!
//! ```text
//!   hub: Services, Ingresses, workloads, TrafficPolicies ─► index ─┐
//!   members: Services, Ingresses, EndpointSlices ─► slices ────────┤
//!   Clusters, ConfigMap regions, round trips ─► geography ─────────┼─► queue ─► look ─► write (one TrafficPlan each)
//!   Edges: heartbeats, votes, loads ─► edges ──────────────────────┘   (plan decides)
//! ```
//!
//! Reads:      Services, Ingresses, workloads, TrafficPolicies, Clusters, Edges, ConfigMap landfall-system/regions;
//!             members' Services, Ingresses, EndpointSlices
//! Decides:    plan::{quorum, proximity, traffic}
//! Writes:     TrafficPlans (one per Service, and landfall-system/federation), conditions of TrafficPolicies, Events
//! Wakes on:   any of the above changing (votes at once, the rest after 50 to 400 ms), edges that lapse, and every 5 min
//! Guarantees: what did not change is not written; what changes for one Service is written to one object; a member that
//!             cannot be seen keeps its place in the plan until a majority of edges says that it is down
//! Limits:     one look at a time; 16 writes at a time

mod decide;
mod edges;
mod gather;
mod geography;
mod index;
mod policies;
mod slices;
mod whole;
mod write;

pub(crate) use edges::Grouped;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_api::landfall::{Edge, FEDERATION_PLAN, SYSTEM_NAMESPACE, TrafficPlan};
use landfall_plan::membership::State;
use landfall_plan::quorum;
use landfall_runtime::clock;
use serde_json::Value;

use crate::federation::Federation;
use crate::kinds::{EDGES, KindId, Kinds, PLANS, POLICIES, Row, SLICES};
use crate::propagation::RESYNC_SPAN;
use crate::queue::Queue;
use crate::routes;
use crate::shelf::{Key, Shelf};
use crate::watch::{self, Change};

/// The ConfigMap, in our own namespace, that tells where clients stand; see [`landfall_plan::proximity::regions`].
pub const REGIONS: &str = "regions";

/// How often edges are looked at for those that have lapsed.
const LAPSE_LOOK: Duration = Duration::from_millis(200);
/// How often measured round trips are taken over.
const TRIPS_EVERY: Duration = Duration::from_secs(5);
/// How often everything is looked at although nothing changed.
const RESYNC: Duration = Duration::from_secs(300);
/// How often it is asked whether something has been read.
const SYNC_LOOK: Duration = Duration::from_millis(5);
/// How soon something is looked at again that is not read yet, or is being written.
const SOON: Duration = Duration::from_millis(20);
/// How long news from members are gathered: a new service arrives in many steps, in all members at about the same time.
const ARRIVALS: Duration = Duration::from_millis(400);
/// How long a new service is waited for to arrive anywhere, before it is told that it is nowhere.
const NOWHERE: Duration = Duration::from_secs(2);
/// How long changes of load and of services are gathered where nobody waits for them.
const GATHER: Duration = Duration::from_millis(500);

/// Kinds whose pods may tell how they are probed.
const WORKLOADS: &[(&str, &str)] = &[
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
];

/// All that this reconciler knows.
#[derive(Debug)]
pub struct Traffic {
    queue: Queue,
    services: KindId,
    ingresses: KindId,
    edge_objects: Shelf,
    policy_objects: Shelf,
    pub(crate) plans: Shelf,
    pub(crate) edges: edges::Edges,
    geography: geography::Geography,
    slices: slices::Slices,
    index: index::Index,
    writer: write::Writer,
    edges_read: AtomicBool,
}

impl Traffic {
    /// Whether all edges that there are have been heard.
    pub(crate) fn edges_read(&self) -> bool {
        self.edges_read.load(Ordering::Acquire)
    }

    /// Nothing is known yet.
    pub fn new(kinds: &Kinds) -> Self {
        let id = |group: &str, kind: &str| kinds.find(group, kind).expect("a built-in kind").id;
        Self {
            queue: Queue::default(),
            services: id("", "Service"),
            ingresses: id("networking.k8s.io", "Ingress"),
            edge_objects: Shelf::new(kinds.get(EDGES)),
            policy_objects: Shelf::new(kinds.get(POLICIES)),
            plans: Shelf::new(kinds.get(PLANS)),
            edges: edges::Edges::default(),
            geography: geography::Geography::default(),
            slices: slices::Slices::default(),
            index: index::Index::default(),
            writer: write::Writer::default(),
            edges_read: AtomicBool::new(false),
        }
    }

    fn service(&self, namespace: &str, name: &str) -> Key {
        Key { kind: self.services, namespace: namespace.into(), name: name.into() }
    }

    /// The key of a service given as `namespace/name`.
    fn service_at(&self, path: &str) -> Option<Key> {
        path.split_once('/').map(|(namespace, name)| self.service(namespace, name))
    }
}

/// The key of the plan about the federation itself.
fn federation_plan() -> Key {
    Key { kind: PLANS, namespace: SYSTEM_NAMESPACE.into(), name: FEDERATION_PLAN.into() }
}

/// The key that stands for all policies of a namespace.
fn policies_of(namespace: &Arc<str>) -> Key {
    Key { kind: POLICIES, namespace: namespace.clone(), name: "".into() }
}

/// Begins to watch our own kinds, and looks at services as they come, for ever.
pub async fn run(federation: &Arc<Federation>) {
    follow(federation).await;
    clusters_changed(federation);
    federation.traffic.queue.push(federation_plan());
    everything(federation);
    let traffic = &federation.traffic;
    let looks = async {
        loop {
            let key = traffic.queue.next().await;
            let began = clock::instant();
            look(federation, &key);
            federation.metrics.traffic_s.observe(began.elapsed());
            tokio::task::yield_now().await;
        }
    };
    let lapses = async {
        loop {
            tokio::time::sleep(LAPSE_LOOK).await;
            let answers = |cluster: &str| {
                let member = federation.members.read().get(cluster).cloned();
                member.is_some_and(|member| member.health.lock().state == State::Ready)
            };
            if traffic.edges.lapse(clock::instant(), answers) {
                roster_changed(federation);
            }
            if traffic.edges.hush(clock::instant()) {
                federation.groups.wake();
            }
        }
    };
    let trips = async {
        loop {
            tokio::time::sleep(TRIPS_EVERY).await;
            if traffic.geography.set_trips(traffic.edges.trips()) {
                everything(federation);
            }
        }
    };
    let resyncs = async {
        loop {
            tokio::time::sleep(RESYNC).await;
            traffic.queue.push_over(&federation.shelf(traffic.services).keys(), RESYNC_SPAN);
        }
    };
    tokio::join!(looks, lapses, trips, resyncs);
}

fn look(federation: &Arc<Federation>, key: &Key) {
    let traffic = &federation.traffic;
    if !(traffic.plans.synced() && traffic.policy_objects.synced() && traffic.edge_objects.synced()) {
        // What is not read yet is not gone.
        traffic.queue.push_after(key, SOON);
        return;
    }
    match key.kind {
        PLANS => whole::look(federation),
        POLICIES => policies::look(federation, &key.namespace),
        _ => decide::look(federation, key),
    }
}

/// Begins to watch plans, policies and edges; returns when they have been read once. Plans come first: they tell which edges
/// were alive when another hub led.
async fn follow(federation: &Arc<Federation>) {
    let own = federation.clone();
    federation.tasks.spawn_until_stop(async move {
        let tell = |change: Change| keys(change).iter().for_each(|key| plan_changed(&own, key));
        let shelf = &own.traffic.plans;
        watch::follow(own.client.clone(), shelf.row.clone(), "", shelf, tell).await;
    });
    let own = federation.clone();
    federation.tasks.spawn_until_stop(async move {
        let tell = |change: Change| keys(change).iter().for_each(|key| policy_changed(&own, key));
        let shelf = &own.traffic.policy_objects;
        watch::follow(own.client.clone(), shelf.row.clone(), "", shelf, tell).await;
    });
    while !(federation.traffic.plans.synced() && federation.traffic.policy_objects.synced()) {
        tokio::time::sleep(SYNC_LOOK).await;
    }
    // Whoever is heard before the members are known would not count.
    clusters_changed(federation);
    let own = federation.clone();
    federation.tasks.spawn_until_stop(async move {
        let tell = |change: Change| {
            let old = matches!(change, Change::Synced(_) | Change::Compared(_));
            keys(change).iter().for_each(|key| edge_changed(&own, key, old));
            own.traffic.edges_read.fetch_or(old, Ordering::AcqRel);
        };
        let shelf = &own.traffic.edge_objects;
        watch::follow(own.client.clone(), shelf.row.clone(), "", shelf, tell).await;
    });
    while !federation.traffic.edge_objects.synced() {
        tokio::time::sleep(SYNC_LOOK).await;
    }
}

fn keys(change: Change) -> Vec<Key> {
    match change {
        Change::Object(key) => vec![key],
        Change::Synced(keys) | Change::Compared(keys) => keys,
    }
}

/// Somebody else may have changed a plan, or taken it away.
fn plan_changed(federation: &Federation, key: &Key) {
    let traffic = &federation.traffic;
    routes::plan_changed(federation, key);
    if *key == federation_plan() {
        traffic.queue.push_soon(key);
    } else {
        traffic.queue.push_soon(&traffic.service(&key.namespace, &key.name));
    }
}

fn policy_changed(federation: &Federation, key: &Key) {
    let traffic = &federation.traffic;
    let seen = traffic.policy_objects.get(key);
    traffic.index.policy(key, seen.and_then(|seen| serde_json::from_value(seen.value()).ok()));
    let services = federation.shelf(traffic.services).keys().into_iter();
    services
        .filter(|service| service.namespace == key.namespace)
        .for_each(|key| traffic.queue.push_soon(&key));
    traffic.queue.push_after(&policies_of(&key.namespace), GATHER);
}

/// An edge spoke, came, or went. `old` says that it was found, not heard: it may have lapsed long ago.
fn edge_changed(federation: &Federation, key: &Key, old: bool) {
    let traffic = &federation.traffic;
    let seen = traffic.edge_objects.get(key);
    let edge: Option<Edge> = seen.and_then(|seen| serde_json::from_value(seen.value()).ok());
    let was_alive = old.then(|| was_alive(federation, &key.name));
    let news = traffic.edges.hear(&key.name, edge.as_ref(), was_alive, clock::instant());
    let services = news.targets.iter().filter_map(|target| quorum::target_service(target));
    // Somebody waits for these.
    traffic.queue.push_all(services.filter_map(|path| traffic.service_at(path)));
    for key in news.services.iter().filter_map(|path| traffic.service_at(path)) {
        traffic.queue.push_after(&key, GATHER);
    }
    if news.roster {
        roster_changed(federation);
    }
    if news.groups {
        federation.groups.wake();
    }
}

/// Whether an edge was alive when the federation's plan was last written.
fn was_alive(federation: &Federation, edge: &str) -> bool {
    let plan: Option<TrafficPlan> = federation
        .traffic
        .plans
        .get(&federation_plan())
        .and_then(|seen| serde_json::from_value(seen.value()).ok());
    let edges = plan.and_then(|plan| plan.spec.federation).map(|told| told.edges).unwrap_or_default();
    edges.iter().any(|known| known.name == edge && known.alive)
}

/// Other edges vote now.
fn roster_changed(federation: &Federation) {
    let alive = federation.traffic.edges.alive();
    federation.metrics.edges.set(i64::try_from(alive).unwrap_or(i64::MAX));
    federation.traffic.queue.push(federation_plan());
    everything(federation);
    routes::edges_changed(federation);
    federation.groups.wake();
}

/// Looks at every service in a moment.
pub(crate) fn everything(federation: &Federation) {
    federation
        .shelf(federation.traffic.services)
        .keys()
        .iter()
        .for_each(|key| federation.traffic.queue.push_soon(key));
}

/// `Cluster` objects changed, or what is known of their members.
pub fn clusters_changed(federation: &Federation) {
    let traffic = &federation.traffic;
    let facts = federation.all_members().iter().map(|member| geography::Facts::of(member)).collect();
    if !traffic.geography.set_members(facts) {
        return;
    }
    let names = traffic.geography.names();
    traffic.slices.keep(&names);
    if traffic.edges.set_members(names) {
        roster_changed(federation);
    }
    traffic.queue.push(federation_plan());
    everything(federation);
    routes::clusters_changed(federation);
}

/// Something changed at the hub.
pub fn changed(federation: &Arc<Federation>, row: &Row, key: &Key) {
    let traffic = &federation.traffic;
    let object = || federation.shelf(row.id).get(key).map(|seen| seen.value());
    match (row.group.as_str(), row.kind.as_str()) {
        ("", "Service") => {
            traffic.queue.push_soon(key);
            traffic.queue.push_after(&policies_of(&key.namespace), GATHER);
        }
        ("networking.k8s.io", "Ingress") => {
            let names = traffic.index.ingress(key, object().as_ref());
            names.iter().for_each(|name| traffic.queue.push_soon(&traffic.service(&key.namespace, name)));
        }
        ("", "ConfigMap") if (&*key.namespace, &*key.name) == (SYSTEM_NAMESPACE, REGIONS) => {
            whole::regions(federation, key, object().as_ref());
        }
        (group, kind)
            if WORKLOADS.contains(&(group, kind)) && traffic.index.workload(key, object().as_ref()) =>
        {
            let services = federation.shelf(traffic.services).keys().into_iter();
            let near = services.filter(|service| service.namespace == key.namespace);
            near.for_each(|service| traffic.queue.push_soon(&service));
        }
        _ => {}
    }
}

/// Something changed in a member; whether that is for others than us.
pub fn heard(federation: &Federation, member: &str, shelf: &Shelf, changed: &[Key]) -> bool {
    let traffic = &federation.traffic;
    match shelf.row.id {
        SLICES => {
            for key in changed {
                let seen = shelf.get(key);
                let slice: Option<Value> = seen.as_ref().map(|seen| seen.value());
                let services = traffic.slices.hear(member, key, slice.as_ref());
                // What it says is known now, and there are as many as shards.
                if let Some(seen) = seen {
                    shelf.empty(key, &seen);
                }
                services.iter().for_each(|(namespace, name)| {
                    traffic.queue.push_after(&traffic.service(namespace, name), ARRIVALS)
                });
            }
        }
        id if id == traffic.services => {
            changed.iter().for_each(|key| traffic.queue.push_after(key, ARRIVALS))
        }
        id if id == traffic.ingresses => {
            for key in changed {
                let names = traffic.index.services(key);
                names.iter().for_each(|name| {
                    traffic.queue.push_after(&traffic.service(&key.namespace, name), ARRIVALS)
                });
            }
        }
        _ => {}
    }
    shelf.row.id != SLICES
}

/// A member's shelf has been read from the beginning.
pub fn read(federation: &Federation, shelf: &Shelf) {
    if [SLICES, federation.traffic.services, federation.traffic.ingresses].contains(&shelf.row.id) {
        everything(federation);
    }
}

/// Hears which Services somebody other than an Ingress leads to, and by which hosts; or that it is gone.
pub(crate) fn led(federation: &Federation, key: &Key, ingress: Option<&Value>) {
    let traffic = &federation.traffic;
    let names = traffic.index.ingress(key, ingress);
    names.iter().for_each(|name| traffic.queue.push_soon(&traffic.service(&key.namespace, name)));
}

/// Looks again at the Services that an Ingress leads to: it is carried otherwise now.
pub(crate) fn carried_otherwise(federation: &Federation, key: &Key) {
    let traffic = &federation.traffic;
    let names = traffic.index.services(key);
    names.iter().for_each(|name| traffic.queue.push_soon(&traffic.service(&key.namespace, name)));
}
