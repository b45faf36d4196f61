//! Routes: what edges carry, one RoutePlan for each Ingress, MultiClusterIngress, and Service of type LoadBalancer.
//!
//! ```text
//!   Ingresses, MultiClusterIngresses, Services ─┐
//!   IngressClasses, Edges ──────────────────────┼─► queue ─► source ─► write (a RoutePlan, conditions, Events)
//!   claims of all sources ─► index ─────────────┘      │ (plan::routes decides)
//!   Secrets that sources name ─────────────────► certificates ─► checked copies in landfall-certificates
//!   MultiClusterServices, Clusters' labels ────► derived ─► a federated Service each, carried by propagation and traffic
//! ```
//!
//! Reads:      Ingress, IngressClass, Service, Secret, MultiClusterIngress, MultiClusterService, Edge, Cluster, TrafficPlan
//! Decides:    plan::routes
//! Writes:     RoutePlans and their conditions; Secrets in landfall-certificates; Services that stand for
//!             MultiClusterServices; status of MultiClusterIngress and -Service; Events
//! Wakes on:   any of the above changing, and every 5 min
//! Guarantees: what did not change is not written; of two that want the same, the older has it; a Secret that is wrong, or
//!             gone, leaves the last good copy as it is; copies go when no route names them, and not before all were read
//! Limits:     one look at a time; 16 writes at a time
//!
//! The status of an Ingress is written by propagation, which asks here ([`Routes::addresses`]): where edges have addresses,
//! these are the status of the Ingresses that they carry; else the members' addresses are.

mod certificates;
mod derived;
mod index;
mod source;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_api::landfall::{Address, CERTIFICATES_NAMESPACE, GKE_GROUP, GROUP};
use landfall_plan::routes::Classes;
use parking_lot::Mutex;
use serde_json::Value;

use crate::federation::Federation;
use crate::kinds::{
    CLASSES, GKE_INGRESSES, GKE_SERVICES, INGRESSES, KindId, Kinds, PLANS, ROUTES, Row, SERVICES,
};
use crate::queue::Queue;
use crate::shelf::{Key, Shelf};
use crate::traffic;
use crate::watch::{self, Change};

/// How often everything is looked at although nothing changed.
const RESYNC: Duration = Duration::from_secs(300);
/// How often it is asked whether something has been read.
const SYNC_LOOK: Duration = Duration::from_millis(5);
/// How soon something is looked at again that is being written.
const SOON: Duration = Duration::from_millis(20);
/// How long changes are gathered that only a status tells of.
const GATHER: Duration = Duration::from_millis(500);

/// Our kinds that routes are made of.
const OURS: [KindId; 6] = [CLASSES, ROUTES, INGRESSES, SERVICES, GKE_INGRESSES, GKE_SERVICES];

/// All that this reconciler knows.
#[derive(Debug)]
pub struct Routes {
    queue: Queue,
    ingresses: KindId,
    services: KindId,
    secrets: KindId,
    shelves: Vec<Shelf>,
    classes: Mutex<Classes>,
    index: index::Index,
    checks: certificates::Checks,
    writer: write::Writer,
    /// Every source has been looked at once: what none of them names, none names.
    complete: AtomicBool,
    /// Where edges were reached when that was last looked at.
    edges: Mutex<Vec<Address>>,
}

impl Routes {
    /// Nothing is known yet.
    pub fn new(kinds: &Kinds) -> Self {
        let id = |group: &str, kind: &str| kinds.find(group, kind).expect("a built-in kind").id;
        Self {
            queue: Queue::default(),
            ingresses: id("networking.k8s.io", "Ingress"),
            services: id("", "Service"),
            secrets: id("", "Secret"),
            shelves: OURS.iter().map(|kind| Shelf::new(kinds.get(*kind))).collect(),
            classes: Mutex::default(),
            index: index::Index::default(),
            checks: certificates::Checks::default(),
            writer: write::Writer::default(),
            complete: AtomicBool::new(false),
            edges: Mutex::default(),
        }
    }

    /// Where the edges are reached that carry an object, which may be nowhere. Nothing is known before everything was read.
    pub fn addresses(&self, federation: &Federation, key: &Key) -> Option<Vec<Address>> {
        if !self.complete.load(Ordering::Acquire) {
            return None;
        }
        Some(match self.index.groups(key) {
            None => Vec::new(),
            Some(groups) if groups.is_empty() => federation.traffic.edges.addresses(),
            Some(groups) => federation.groups.addresses(&groups, None),
        })
    }

    /// Where the edges of one member are reached that carry an object.
    pub fn reached(&self, federation: &Federation, key: &Key, member: &str) -> Vec<Address> {
        match self.index.groups(key) {
            Some(groups) if !groups.is_empty() => federation.groups.addresses(&groups, Some(member)),
            Some(_) | None => federation.traffic.edges.reached(member),
        }
    }

    /// Whether edges carry an object, and clients can reach them.
    pub fn carries(&self, federation: &Federation, key: &Key) -> Option<bool> {
        self.addresses(federation, key).map(|addresses| !addresses.is_empty())
    }

    /// The objects of one of our kinds.
    fn shelf(&self, kind: KindId) -> &Shelf {
        let at = OURS.iter().position(|own| *own == kind).unwrap_or_default();
        &self.shelves[at]
    }

    fn service(&self, namespace: &Arc<str>, name: &str) -> Key {
        Key { kind: self.services, namespace: namespace.clone(), name: name.into() }
    }

    fn secret(&self, namespace: &Arc<str>, name: &str) -> Key {
        Key { kind: self.secrets, namespace: namespace.clone(), name: name.into() }
    }

    /// The key of a MultiClusterService of the same group as a MultiClusterIngress.
    fn multi_cluster_service(&self, ingress: &Key, name: &str) -> Key {
        let kind = if ingress.kind == GKE_INGRESSES { GKE_SERVICES } else { SERVICES };
        Key { kind, namespace: ingress.namespace.clone(), name: name.into() }
    }
}

/// The group of one of our kinds.
fn group(kind: KindId) -> &'static str {
    if [GKE_INGRESSES, GKE_SERVICES].contains(&kind) { GKE_GROUP } else { GROUP }
}

/// Begins to watch, and looks at objects as they come, for ever.
pub async fn run(federation: &Arc<Federation>) {
    let routes = &federation.routes;
    follow(federation).await;
    read_classes(federation);
    // What is owned by whom is known when all were looked at; until then nothing is taken away.
    for key in sources(federation) {
        source::learn(federation, &key);
    }
    routes.complete.store(true, Ordering::Release);
    everything(federation);
    // Whoever could not be told until now asks again.
    traffic::everything(federation);
    let waiting =
        [routes.ingresses, routes.services].into_iter().flat_map(|kind| federation.shelf(kind).keys());
    waiting.for_each(|key| federation.queue.push_soon(&key));
    let looks = async {
        loop {
            let key = routes.queue.next().await;
            look(federation, &key);
            tokio::task::yield_now().await;
        }
    };
    let resyncs = async {
        loop {
            tokio::time::sleep(RESYNC).await;
            everything(federation);
        }
    };
    tokio::join!(looks, resyncs);
}

/// Begins to watch our own kinds; returns when they, the edges, and the plans of traffic have been read once.
async fn follow(federation: &Arc<Federation>) {
    for kind in OURS {
        let own = federation.clone();
        federation.tasks.spawn_until_stop(async move {
            let tell = |change: Change| match change {
                Change::Object(key) => own_changed(&own, &key),
                Change::Synced(keys) | Change::Compared(keys) => {
                    keys.iter().for_each(|key| own_changed(&own, key))
                }
            };
            let shelf = own.routes.shelf(kind);
            watch::follow(own.client.clone(), shelf.row.clone(), "", shelf, tell).await;
        });
    }
    let read = || {
        let own = federation.routes.shelves.iter().all(|shelf| shelf.synced() || shelf.unserved());
        own && federation.traffic.plans.synced() && federation.traffic.edges_read()
    };
    while !read() {
        tokio::time::sleep(SYNC_LOOK).await;
    }
}

/// Looks at one object.
fn look(federation: &Arc<Federation>, key: &Key) {
    let routes = &federation.routes;
    match key.kind {
        SERVICES | GKE_SERVICES => derived::look(federation, key),
        kind if kind == routes.secrets => certificates::look(federation, key),
        _ => source::look(federation, key),
    }
}

/// Everything that routes may be made of.
fn sources(federation: &Federation) -> Vec<Key> {
    let routes = &federation.routes;
    let mut keys = federation.shelf(routes.ingresses).keys();
    keys.extend(federation.shelf(routes.services).keys());
    keys.extend([INGRESSES, GKE_INGRESSES].into_iter().flat_map(|kind| routes.shelf(kind).keys()));
    // What plans were made of that is gone.
    keys.extend(routes.shelf(ROUTES).keys().iter().filter_map(|key| source::of_plan(federation, key)));
    keys
}

/// Looks at everything in a moment.
fn everything(federation: &Federation) {
    let routes = &federation.routes;
    let services = [SERVICES, GKE_SERVICES].into_iter().flat_map(|kind| routes.shelf(kind).keys());
    let secrets =
        routes.index.secrets().into_iter().map(|(namespace, name)| routes.secret(&namespace, &name));
    let copies = federation.shelf(routes.secrets).keys().into_iter();
    let copies = copies.filter(|key| &*key.namespace == CERTIFICATES_NAMESPACE);
    let copied = copies.filter_map(|key| certificates::copied(federation, &key));
    let all = sources(federation).into_iter().chain(services).chain(secrets).chain(copied);
    all.for_each(|key| routes.queue.push_soon(&key));
}

fn read_classes(federation: &Federation) {
    let shelf = federation.routes.shelf(CLASSES);
    let all: Vec<Value> = shelf.keys().iter().filter_map(|key| Some(shelf.get(key)?.value())).collect();
    let classes = Classes::new(all.iter());
    let mut known = federation.routes.classes.lock();
    if *known != classes {
        *known = classes;
        federation
            .shelf(federation.routes.ingresses)
            .keys()
            .iter()
            .for_each(|key| federation.routes.queue.push_soon(key));
    }
}

/// One of our own kinds changed.
fn own_changed(federation: &Arc<Federation>, key: &Key) {
    let routes = &federation.routes;
    match key.kind {
        CLASSES => read_classes(federation),
        // Somebody else may have changed a plan, or taken it away.
        ROUTES => source::of_plan(federation, key).iter().for_each(|key| routes.queue.push_soon(key)),
        SERVICES | GKE_SERVICES => {
            routes.queue.push(key.clone());
            routes.index.naming_service(key).iter().for_each(|key| routes.queue.push_soon(key));
        }
        _ => routes.queue.push(key.clone()),
    }
}

/// Something of a federated kind changed at the hub.
pub fn changed(federation: &Federation, row: &Row, key: &Key) {
    let routes = &federation.routes;
    match row.id {
        kind if kind == routes.ingresses => routes.queue.push(key.clone()),
        kind if kind == routes.services => {
            routes.queue.push_soon(key);
            routes.index.naming_service(key).iter().for_each(|key| routes.queue.push_soon(key));
            routes.index.derived_from(key).iter().for_each(|key| routes.queue.push_soon(key));
        }
        kind if kind == routes.secrets && &*key.namespace == CERTIFICATES_NAMESPACE => {
            certificates::copied(federation, key).iter().for_each(|key| routes.queue.push_soon(key));
        }
        kind if kind == routes.secrets => {
            let naming = routes.index.naming_secret(key);
            if !naming.is_empty() {
                routes.queue.push(key.clone());
                naming.iter().for_each(|key| routes.queue.push_soon(key));
            }
        }
        _ => {}
    }
}

/// The traffic of a Service was planned anew: what tells how it stands may be old.
pub fn plan_changed(federation: &Federation, plan: &Key) {
    debug_assert_eq!(plan.kind, PLANS);
    let routes = &federation.routes;
    let service = routes.service(&plan.namespace, &plan.name);
    if let Some(derived) = routes.index.derived_from(&service) {
        routes.queue.push_after(&derived, GATHER);
        routes.index.naming_service(&derived).iter().for_each(|key| routes.queue.push_after(key, GATHER));
    }
}

/// `Cluster` objects changed: other members may be selected.
pub fn clusters_changed(federation: &Federation) {
    let routes = &federation.routes;
    let keys = [SERVICES, GKE_SERVICES].into_iter().flat_map(|kind| routes.shelf(kind).keys());
    keys.for_each(|key| routes.queue.push(key));
}

/// Groups have other addresses: what they carry is reached elsewhere.
pub fn groups_changed(federation: &Federation, changed: &std::collections::BTreeSet<String>) {
    for (key, groups) in federation.routes.index.grouped() {
        if groups.iter().any(|group| changed.contains(group)) {
            federation.queue.push_soon(&key);
            traffic::carried_otherwise(federation, &key);
        }
    }
}

/// Looks again at an Ingress that a claim has now, or has no longer.
pub fn claimed_otherwise(federation: &Federation, key: &Key) {
    federation.routes.queue.push_soon(key);
}

/// Edges came or went: they may be reached elsewhere.
pub fn edges_changed(federation: &Federation) {
    let routes = &federation.routes;
    // They may need ports themselves that Services want.
    federation.shelf(routes.services).keys().iter().for_each(|key| routes.queue.push_soon(key));
    let now = federation.traffic.edges.addresses();
    if std::mem::replace(&mut *routes.edges.lock(), now.clone()) == now {
        return;
    }
    // Whoever writes the status of these looks at them; ours are looked at here.
    for key in routes.index.all() {
        match key.kind {
            INGRESSES | GKE_INGRESSES => routes.queue.push_soon(&key),
            _ => federation.queue.push_soon(&key),
        }
    }
}
