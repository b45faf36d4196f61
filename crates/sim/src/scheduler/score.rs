//! Which of the nodes that can take a pod is best.
//!
//! The same considerations as Kubernetes has, with its weights: room left, what the pod prefers, soft taints, spread.
//! Among equals the first by name is taken, so that the same state always gives the same node.

use std::cmp::Reverse;

use landfall_api::meta;
use serde_json::Value;

use super::{Room, affinity, resources, spread, taints};
use crate::controllers::read::{items, text};
use crate::view::controller_uid;

/// What a container that asks for nothing is taken to need.
const CPU_MILLI_DEFAULT: i64 = 100;
const MEMORY_DEFAULT: i64 = 200 << 20;

/// The best of the fitting nodes; none when none fits.
pub(super) fn best(pod: &Value, fitting: &[usize], rooms: &[Room<'_>]) -> Option<usize> {
    if let [only] = fitting {
        return Some(*only);
    }
    let rank = |score: fn(&Value, &Room<'_>, &[Room<'_>]) -> i64, reverse: bool| -> Vec<i64> {
        let raw: Vec<i64> = fitting.iter().map(|at| score(pod, &rooms[*at], rooms)).collect();
        normal(&raw, reverse)
    };
    let parts = [
        (2, rank(node_preference, false)),
        (2, rank(affinity::pod_preference, false)),
        (3, rank(soft_taints, true)),
        (2, rank(crowd, true)),
    ];
    let total = |index: usize| -> i64 {
        let room = &rooms[fitting[index]];
        least_allocated(pod, room) + parts.iter().map(|(weight, scores)| weight * scores[index]).sum::<i64>()
    };
    let order = |index: &usize| (total(*index), Reverse(rooms[fitting[*index]].name()));
    (0..fitting.len()).max_by_key(order).map(|index| fitting[index])
}

/// Spread over 0 to 100.
fn normal(raw: &[i64], reverse: bool) -> Vec<i64> {
    let (least, most) = (raw.iter().copied().min().unwrap_or(0), raw.iter().copied().max().unwrap_or(0));
    let span = most.saturating_sub(least);
    let scale =
        |value: &i64| if span == 0 { 0 } else { value.saturating_sub(least).saturating_mul(100) / span };
    raw.iter().map(|value| if reverse { 100 - scale(value) } else { scale(value) }).collect()
}

fn node_preference(pod: &Value, room: &Room<'_>, _: &[Room<'_>]) -> i64 {
    affinity::node_preference(pod, room.node)
}

fn soft_taints(pod: &Value, room: &Room<'_>, _: &[Room<'_>]) -> i64 {
    let soft = items(room.node, "/spec/taints").iter().filter(|t| text(t, "/effect") == "PreferNoSchedule");
    i64::try_from(soft.filter(|t| !taints::tolerates(pod, t)).count()).unwrap_or(0)
}

/// How much of its CPU and memory a node would have left, in percent.
fn least_allocated(pod: &Value, room: &Room<'_>) -> i64 {
    let (has, asks) = (resources::allocatable(room.node), resources::requests(pod));
    let count = i64::try_from(room.pods.len()).unwrap_or(0) + 1;
    let part = |name: &str, default: i64| {
        let total = has.get(name);
        let used =
            room.used.get(name).saturating_add(asks.get(name)).max(count.saturating_mul(default).min(total));
        if total == 0 { 0 } else { total.saturating_sub(used).max(0).saturating_mul(100) / total }
    };
    (part("cpu", CPU_MILLI_DEFAULT) + part("memory", MEMORY_DEFAULT)) / 2
}

/// How many pods of the same kind stand near: by the pod's own soft constraints, else siblings on the node and in
/// its zone.
fn crowd(pod: &Value, room: &Room<'_>, rooms: &[Room<'_>]) -> i64 {
    let soft: Vec<Value> = items(pod, "/spec/topologySpreadConstraints")
        .iter()
        .filter(|c| text(c, "/whenUnsatisfiable") == "ScheduleAnyway")
        .cloned()
        .collect();
    let near = |constraint: &Value| {
        let here = meta::label(room.node, text(constraint, "/topologyKey"));
        let counts = spread::counts(pod, constraint, rooms);
        here.and_then(|here| counts.get(here).copied()).unwrap_or(0)
    };
    if !soft.is_empty() || !items(pod, "/spec/topologySpreadConstraints").is_empty() {
        return soft.iter().map(near).sum();
    }
    let Some(owner) = controller_uid(pod) else { return 0 };
    let siblings = |room: &Room<'_>| {
        let count = room.pods.iter().filter(|other| controller_uid(other) == Some(owner)).count();
        i64::try_from(count).unwrap_or(0)
    };
    let zone = |node| meta::label(node, "topology.kubernetes.io/zone");
    let in_zone: i64 = match zone(room.node) {
        Some(here) => rooms.iter().filter(|r| zone(r.node) == Some(here)).map(siblings).sum(),
        None => 0,
    };
    siblings(room) * 2 + in_zone
}
