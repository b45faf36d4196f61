//! The status of groups and ranges.

use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use landfall_api::landfall::{
    EdgeVip, GroupVip, IngressReplicaSetStatus, IngressVIPRangeStatus, VipAllocation, VipHolder,
};
use landfall_plan::claims::CLAIM_ANNOTATION;
use landfall_plan::vips::{self, Allocation};
use serde_json::{Value, json};

use super::gather::{Group, Scene, note};
use super::write::Write;
use crate::events::Happening;
use crate::federation::{now_ms, rfc3339};
use crate::kinds::{GROUPS, KindId, RANGES};
use crate::shelf::Key;
use crate::traffic::Grouped;

/// So many addresses of a range are told of.
const ALLOCATIONS_MAX: usize = 1000;

/// The key of something without a namespace.
pub(super) fn key(kind: KindId, name: &str) -> Key {
    Key { kind, namespace: "".into(), name: name.into() }
}

/// The present, to the second, as objects have it.
pub(super) fn now() -> Time {
    let text = Value::from(rfc3339(now_ms()));
    serde_json::from_value(text).unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH))
}

/// A condition; it keeps its time while its status stays.
pub(super) fn condition(
    before: &[Condition],
    (kind, holds): (&str, bool),
    reason: &landfall_plan::Reason,
    generation: Option<i64>,
) -> Condition {
    let status = if holds { "True" } else { "False" };
    let known = before.iter().find(|known| known.type_ == kind && known.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.code.to_owned(),
        message: reason.message.to_string(),
        last_transition_time: known.map_or_else(now, |known| known.last_transition_time.clone()),
        observed_generation: generation,
    }
}

/// What is written so that no group can go before its addresses are free.
pub(super) fn guards(scene: &Scene) -> Vec<Write> {
    let open = scene.groups.iter().filter(|(_, group)| !group.deleting && !group.guarded());
    open.map(|(name, group)| finalizers(name, group, true)).collect()
}

/// Lets groups go that are being deleted, and none of whose addresses is in any edge's hands.
pub(super) fn farewells(scene: &Scene, made: &BTreeMap<String, Allocation>) -> Vec<Write> {
    let free = |(name, group): &(&String, &Group)| {
        let left = made.get(*name).is_some_and(|made| !made.releasing.is_empty());
        group.deleting && group.guarded() && !left
    };
    scene.groups.iter().filter(free).map(|(name, group)| finalizers(name, group, false)).collect()
}

/// Sets or takes our finalizer, if nobody has changed the group.
fn finalizers(name: &str, group: &Group, ours: bool) -> Write {
    let metadata = &group.object.metadata;
    let mut all = metadata.finalizers.clone().unwrap_or_default();
    all.retain(|one| one != vips::FINALIZER);
    if ours {
        all.push(vips::FINALIZER.to_owned());
    }
    let version = &metadata.resource_version;
    Write::patch(&key(GROUPS, name), json!({"metadata": {"finalizers": all, "resourceVersion": version}}))
}

/// What is written of groups.
pub(super) fn of_groups(scene: &Scene, made: &BTreeMap<String, Allocation>) -> Vec<Write> {
    let one = |(name, group): (&String, &Group)| {
        let allocation = made.get(name).cloned().unwrap_or_default();
        let before = group.object.status.clone().unwrap_or_default();
        let (status, happenings) = of_group(group, &before, allocation);
        if status == before {
            return None;
        }
        let metadata = &group.object.metadata;
        let value = serde_json::to_value(&status).unwrap_or_default();
        let write = Write::status(&key(GROUPS, name), value, metadata.resource_version.as_ref());
        Some(write.telling(metadata.uid.as_deref().unwrap_or(""), happenings))
    };
    scene.groups.iter().filter_map(one).collect()
}

fn of_group(
    group: &Group,
    before: &IngressReplicaSetStatus,
    made: Allocation,
) -> (IngressReplicaSetStatus, Vec<Happening>) {
    let mut happenings = Vec::new();
    let mut holds = Vec::new();
    let mut vips = made.vips;
    for vip in &mut vips {
        let known = before.vips.iter().find(|known| known.address == vip.address);
        (vip.holder, vip.transitions) =
            known.map(|known| (known.holder.clone(), known.transitions)).unwrap_or_default();
        holds.push((hold(group, vip, &mut happenings), vip.address.clone()));
    }
    let generation = group.object.metadata.generation;
    let one = |kind: &str, holds: bool, code: &'static str, words: String| {
        condition(&before.conditions, (kind, holds), &landfall_plan::Reason::new(code, words), generation)
    };
    let addresses: Vec<&str> = vips.iter().map(|vip| vip.address.as_str()).collect();
    let wrong = group.problem.clone().map(|why| landfall_plan::Reason::new("InvalidSelector", why));
    let wrong = wrong.or_else(|| made.troubles.first().cloned());
    let nowhere = || landfall_plan::Reason::new("NoClusters", "it selects no member");
    let wrong = wrong.or_else(|| vips.is_empty().then(nowhere));
    let allocated = match wrong {
        Some(reason) => condition(&before.conditions, ("VIPAllocated", false), &reason, generation),
        None => one("VIPAllocated", true, "Allocated", format!("it has {}", addresses.join(", "))),
    };
    let (ready, there) = (group.ready(), group.edges.len());
    let is_ready = match (ready, there) {
        (0, 0) => one("Ready", false, "NoEdges", "no edge belongs to it".into()),
        (0, _) => one("Ready", false, "NoReadyEdges", format!("none of its {there} edges is ready")),
        (..) => one("Ready", true, "EdgesReady", format!("{ready} of {there} edges are ready")),
    };
    let mut conditions = vec![allocated, is_ready];
    let of = |(hold, _): &(vips::Hold, String)| hold.held.clone();
    let missing = holds.iter().map(of).find(|(held, _)| !held);
    if let Some((held, reason)) = missing.or_else(|| holds.first().map(of)) {
        conditions.push(condition(&before.conditions, ("VIPHeld", held), &reason, generation));
    }
    let several = holds.iter().filter(|(hold, _)| !hold.several.is_empty());
    let several = several.map(|(hold, at)| format!("{} say that they hold {at}", hold.several.join(" and ")));
    let several: Vec<String> = several.collect();
    if !several.is_empty() {
        conditions.push(one("SingleHolder", false, "SeveralHolders", several.join("; ")));
    }
    let moved: i64 = vips.iter().filter_map(|vip| vip.transitions).sum();
    let count = |number: usize| Some(i32::try_from(number).unwrap_or(i32::MAX));
    let claim = note(&group.object.metadata, CLAIM_ANNOTATION);
    let status = IngressReplicaSetStatus {
        vip: vips.first().map(|vip| vip.address.clone()),
        holder: vips.first().and_then(|vip| vip.holder.clone()),
        transitions: vips.iter().any(|vip| vip.transitions.is_some()).then_some(moved),
        replicas: count(there),
        ready_replicas: count(ready),
        selector: Some(format!("landfall.dev/group={}", group.object.metadata.name.as_deref().unwrap_or(""))),
        bound_ingresses: Some(group.bound),
        load: Some(group.load.0.clone()).filter(|_| ready > 0),
        claim: Some(claim.to_owned()).filter(|claim| !claim.is_empty()),
        conditions,
        vips,
        releasing: made.releasing,
    };
    happenings.extend(news(&before.conditions, &status.conditions));
    (status, happenings)
}

/// Finds out who holds an address.
fn hold(group: &Group, vip: &mut GroupVip, happenings: &mut Vec<Happening>) -> vips::Hold {
    let here: Vec<&Grouped> = group.edges.iter().filter(|edge| edge.spec.cluster == vip.cluster).collect();
    let parts: Vec<_> = here.iter().map(|edge| part(edge, &vip.address)).collect();
    let hold = vips::holding(&vip.address, &parts);
    let shown = hold.holder.as_ref().and_then(|holder| here.iter().find(|edge| edge.name == *holder));
    let now = shown.map(|edge| VipHolder {
        edge: edge.name.clone(),
        node: edge.spec.node.clone(),
        since: own(edge, &vip.address).and_then(|own| own.since.clone()),
    });
    let before = vip.holder.take();
    let same = now.as_ref().map(|now| &now.edge) == before.as_ref().map(|before| &before.edge);
    if let Some(now) = now.as_ref().filter(|_| !same) {
        vip.transitions = Some(vip.transitions.map_or(0, |count| count.saturating_add(1)));
        let from = before.as_ref().map(|before| format!(", {} before", before.edge)).unwrap_or_default();
        let message = format!("{} is held by {}{from}", vip.address, now.edge);
        happenings.push(Happening { warning: false, reason: "VIPMoved", message });
    }
    vip.holder = now;
    hold
}

/// What an edge says of an address.
fn own<'a>(edge: &'a Grouped, address: &str) -> Option<&'a EdgeVip> {
    edge.status.vips.iter().find(|own| own.address == address)
}

/// How an edge stands to an address.
fn part(edge: &Grouped, address: &str) -> vips::Part<Instant> {
    let own = own(edge, address);
    let condition = edge.status.conditions.iter().find(|one| one.type_ == "VirtualIP");
    let reason = match (own, condition) {
        (Some(own), _) => own.reason.clone(),
        (None, Some(_)) => String::new(),
        (None, None) => "it was started without a keeper of addresses".to_owned(),
    };
    vips::Part {
        edge: edge.name.clone(),
        alive: edge.alive,
        state: own.map(|own| own.state),
        since: own.and_then(|own| own.since.as_ref()).map(|since| since.0.to_string()).unwrap_or_default(),
        reason,
        said: edge.said,
        heard: edge.heard,
    }
}

/// What happened between two sets of conditions.
fn news(before: &[Condition], now: &[Condition]) -> Vec<Happening> {
    let words = [
        "VIPsExhausted",
        "VIPConflict",
        "VIPOutsideRanges",
        "VIPAmbiguous",
        "InvalidVIP",
        "NoVIPRange",
        "RouterIDsExhausted",
        "NoClusters",
        "InvalidSelector",
        "SeveralHolders",
        "NoHolder",
        "HolderSilent",
        "NoReadyEdges",
        "Allocated",
    ];
    let one = |condition: &Condition| {
        let known = before.iter().find(|known| known.type_ == condition.type_);
        let same =
            known.is_some_and(|known| known.status == condition.status && known.reason == condition.reason);
        let reason = words.into_iter().find(|word| *word == condition.reason).filter(|_| !same)?;
        Some(Happening { warning: condition.status != "True", reason, message: condition.message.clone() })
    };
    now.iter().filter_map(one).collect()
}

/// What is written of ranges.
pub(super) fn of_ranges(scene: &Scene, made: &BTreeMap<String, Allocation>) -> Vec<Write> {
    let given = vips::given(&scene.ranges, made);
    let mut all = Vec::new();
    for range in &scene.ranges {
        let Some((object, given)) = scene.range_objects.get(&range.name).zip(given.get(&range.name)) else {
            continue;
        };
        let before = object.status.clone().unwrap_or_default();
        let generation = object.metadata.generation;
        let one = |kind: &str, holds: bool, code: &'static str, words: String| {
            condition(&before.conditions, (kind, holds), &landfall_plan::Reason::new(code, words), generation)
        };
        let valid = match (range.problems.as_slice(), given.overlaps.as_slice()) {
            ([], []) => one("Valid", true, "Valid", "its addresses can be given out".into()),
            ([], others) => one(
                "Valid",
                false,
                "Overlaps",
                format!("{} has some of the same addresses", others.join(", ")),
            ),
            (problems, _) => one("Valid", false, "Invalid", problems.join("; ")),
        };
        let count = i64::try_from(given.given.len()).unwrap_or(i64::MAX);
        let left = given.total.saturating_sub(count);
        let free = match left {
            ..=0 => {
                one("Available", false, "Exhausted", format!("all {} addresses are given out", given.total))
            }
            left => one("Available", true, "AddressesLeft", format!("{left} addresses are left")),
        };
        let allocation = |(address, group, cluster): &(std::net::IpAddr, String, String)| VipAllocation {
            vip: address.to_string(),
            ingress_replica_set: group.clone(),
            cluster: cluster.clone(),
        };
        let status = IngressVIPRangeStatus {
            total: Some(given.total),
            allocated: Some(count),
            allocations: given.given.iter().take(ALLOCATIONS_MAX).map(allocation).collect(),
            conditions: vec![valid, free],
        };
        if status != before {
            let value = serde_json::to_value(status).unwrap_or_default();
            all.push(Write::status(&key(RANGES, &range.name), value, None));
        }
    }
    all
}
