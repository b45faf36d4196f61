//! Groups of edges: their addresses, what is bound to them, and the claims that ask for them.
//!
//! ```text
//!   IngressReplicaSets, IngressVIPRanges, Clusters ─► plan::vips ────► status of groups and ranges ─► GroupPlans
//!   IngressClaims ──────────────────────────────────► plan::claims ──► groups made, taken, disposed of
//!   Ingresses, edges' loads ────────────────────────► plan::binding ─► annotations of Ingresses ─► RoutePlans (routes)
//! ```
//!
//! Reads:      IngressReplicaSet, IngressVIPRange, IngressClaim, GroupPlan, Ingress, Edge, Cluster; ConfigMap edge-pods
//! Decides:    plan::{vips, claims, binding}
//! Writes:     status of these, GroupPlans, groups of claims, two annotations of Ingresses, Events; what runs groups in members
//! Wakes on:   any of the above changing, and every 5 s, for load is not told of
//! Guarantees: an address is in the group's status before anybody is told of it; what did not change is not written; a look is
//!             over before the next one begins, and sees what the last one wrote
//! Limits:     one look at a time; 16 writes at a time; 10 Ingresses a minute are moved because of load

mod claims;
mod gather;
mod ingresses;
mod plans;
mod pods;
mod status;
mod workload;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use landfall_api::landfall::{Address, BOUND_ANNOTATION, GroupVip};
use landfall_plan::binding::{self, Ask};
use landfall_plan::{claims as planned, vips};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::Notify;

use crate::federation::{Federation, now_ms};
use crate::kinds::{CLAIMS, GROUP_PLANS, GROUPS, KindId, Kinds, RANGES, Row};
use crate::routes;
use crate::shelf::{Key, Shelf};
use crate::watch::{self, Change};

/// Our kinds that are watched here.
const OURS: [KindId; 4] = [GROUPS, RANGES, CLAIMS, GROUP_PLANS];
/// How long changes are gathered.
const GATHER: Duration = Duration::from_millis(50);
/// How often everything is looked at although nothing changed: loads are not told of.
const AGAIN: Duration = Duration::from_secs(5);
/// How often it is asked whether something has been read.
const SYNC_LOOK: Duration = Duration::from_millis(5);
/// So many Ingresses are moved because of load, in so long.
const MOVES_MAX: usize = 10;
const MOVES_MS: i64 = 60_000;

/// Makes a token with which edges of a group in a member (member, group) come in, good until a time (seconds since 1970): the token, and the Secret by which
/// the hub knows it.
pub type Mint = fn(&str, &str, i64) -> (String, Value);

/// All that this reconciler knows.
#[derive(Debug)]
pub struct Groups {
    shelves: Vec<Shelf>,
    ingresses: KindId,
    maps: KindId,
    wake: Notify,
    /// What Ingresses ask for, as they were last seen.
    asked: Mutex<HashMap<Key, ingresses::Asked>>,
    /// The addresses of every group.
    vips: RwLock<BTreeMap<String, Vec<GroupVip>>>,
    /// The Ingresses, as `namespace/name`, that claims have.
    claimed: RwLock<BTreeSet<String>>,
    /// When tokens were minted, in milliseconds since 1970: the watch may not have told of them yet.
    minted: Mutex<HashMap<Key, i64>>,
    /// When Ingresses were moved because of load.
    moves: Mutex<VecDeque<i64>>,
}

impl Groups {
    /// Nothing is known yet.
    pub fn new(kinds: &Kinds) -> Self {
        let id = |group: &str, kind: &str| kinds.find(group, kind).expect("a built-in kind").id;
        Self {
            shelves: OURS.iter().map(|kind| Shelf::new(kinds.get(*kind))).collect(),
            ingresses: id("networking.k8s.io", "Ingress"),
            maps: id("", "ConfigMap"),
            wake: Notify::new(),
            asked: Mutex::default(),
            vips: RwLock::default(),
            claimed: RwLock::default(),
            minted: Mutex::default(),
            moves: Mutex::default(),
        }
    }

    /// Looks again soon.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// The groups that carry an Ingress: none where it asks for none; nothing while it waits for one.
    pub fn carrying(&self, key: &Key, ingress: &Value) -> Option<Vec<String>> {
        let bound = bound_to(ingress);
        let asks = || !matches!(binding::asks(ingress), Ask::Nothing);
        if bound.is_empty() && (asks() || self.claimed.read().contains(&key.path())) {
            return None;
        }
        Some(bound)
    }

    /// The addresses of some groups, in one member or in all.
    pub fn addresses(&self, groups: &[String], member: Option<&str>) -> Vec<Address> {
        let known = self.vips.read();
        let vips = groups.iter().filter_map(|group| known.get(group)).flatten();
        let here = vips.filter(|vip| member.is_none_or(|member| vip.cluster == member));
        here.map(|vip| Address { ip: Some(vip.address.clone()), hostname: None }).collect()
    }

    /// The objects of one of our kinds.
    fn shelf(&self, kind: KindId) -> &Shelf {
        let at = OURS.iter().position(|own| *own == kind).unwrap_or_default();
        &self.shelves[at]
    }

    /// How many Ingresses may be moved now because of load.
    fn budget(&self) -> usize {
        let mut moves = self.moves.lock();
        while moves.front().is_some_and(|at| now_ms().saturating_sub(*at) > MOVES_MS) {
            moves.pop_front();
        }
        MOVES_MAX.saturating_sub(moves.len())
    }
}

/// What an Ingress is bound to.
fn bound_to(ingress: &Value) -> Vec<String> {
    let text = ingress.pointer("/metadata/annotations").and_then(|notes| notes.get(BOUND_ANNOTATION));
    let names = text.and_then(Value::as_str).unwrap_or("").split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Something of a federated kind changed at the hub.
pub fn changed(federation: &Federation, row: &Row) {
    if [federation.groups.ingresses, federation.groups.maps].contains(&row.id) {
        federation.groups.wake();
    }
}

/// Begins to watch, and looks again and again, for ever.
pub async fn run(federation: &Arc<Federation>) {
    let groups = &federation.groups;
    for kind in OURS {
        let own = federation.clone();
        federation.tasks.spawn_until_stop(async move {
            let shelf = own.groups.shelf(kind);
            let tell = |_: Change| own.groups.wake();
            watch::follow(own.client.clone(), shelf.row.clone(), "", shelf, tell).await;
        });
    }
    let read = || {
        let own = groups.shelves.iter().all(|shelf| shelf.synced() || shelf.unserved());
        own && federation.traffic.edges_read()
    };
    while !read() {
        tokio::time::sleep(SYNC_LOOK).await;
    }
    loop {
        if groups.shelves.iter().all(Shelf::synced) {
            look(federation).await;
        }
        // Whatever wakes, or nothing for a while.
        let _ = tokio::time::timeout(AGAIN, groups.wake.notified()).await;
        tokio::time::sleep(GATHER).await;
    }
}

/// One look at everything.
async fn look(federation: &Arc<Federation>) {
    let groups = &federation.groups;
    let mut scene = gather::scene(federation);
    let guards = status::guards(&scene);
    if !guards.is_empty() {
        write::all(federation, guards).await;
        scene = gather::scene(federation);
    }
    if scene.is_empty() && groups.vips.read().is_empty() && groups.claimed.read().is_empty() {
        return;
    }
    let made = vips::allocate(&scene.wanting(), &scene.ranges);
    let claims = scene.claims();
    let (outcomes, served) = planned::decide(&claims, &scene.claimed_groups(&made), &scene.claim_ingresses());
    claim(federation, &served);
    let wants = scene.wants(&served);
    let bound = binding::bind(&scene.bindable(), &wants, groups.budget());
    scene.count(&bound);

    // Addresses first: edges are told of what stands in the status, and of nothing else.
    let refused = write::all(federation, status::of_groups(&scene, &made)).await;
    publish(federation, &made, &refused);
    write::all(federation, plans::plans(&scene, &made, &refused)).await;
    let mut rest = status::of_ranges(&scene, &made);
    rest.extend(status::farewells(&scene, &made));
    rest.extend(claims::writes(&scene, &outcomes));
    rest.extend(ingresses::writes(federation, &scene, &wants, &bound));
    rest.extend(pods::writes(federation, &scene));
    rest.extend(pods::forgotten(&scene));
    if !write::all(federation, rest).await.is_empty() {
        groups.wake();
    }
}

/// Makes addresses known to those who tell clients; of groups whose status could not be written, those from before.
fn publish(federation: &Federation, made: &BTreeMap<String, vips::Allocation>, refused: &BTreeSet<Key>) {
    let before = federation.groups.vips.read().clone();
    let mut now: BTreeMap<String, Vec<GroupVip>> = BTreeMap::new();
    for (group, made) in made {
        let written = !refused.contains(&status::key(GROUPS, group));
        let vips = if written { Some(&made.vips) } else { before.get(group) };
        now.insert(group.clone(), vips.cloned().unwrap_or_default());
    }
    now.clone_into(&mut federation.groups.vips.write());
    let addresses = |vips: Option<&Vec<GroupVip>>| -> Vec<(String, String)> {
        vips.into_iter().flatten().map(|vip| (vip.cluster.clone(), vip.address.clone())).collect()
    };
    let all: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed = all.into_iter().filter(|group| addresses(before.get(*group)) != addresses(now.get(*group)));
    let changed: BTreeSet<String> = changed.cloned().collect();
    if !changed.is_empty() {
        routes::groups_changed(federation, &changed);
    }
}

/// Makes known which Ingresses claims have.
fn claim(federation: &Federation, served: &BTreeMap<String, String>) {
    let now: BTreeSet<String> = served.keys().cloned().collect();
    let before = std::mem::replace(&mut *federation.groups.claimed.write(), now.clone());
    for path in before.symmetric_difference(&now) {
        if let Some((namespace, name)) = path.split_once('/') {
            let kind = federation.groups.ingresses;
            routes::claimed_otherwise(
                federation,
                &Key { kind, namespace: namespace.into(), name: name.into() },
            );
        }
    }
}
