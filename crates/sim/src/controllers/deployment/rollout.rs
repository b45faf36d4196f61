//! How many pods each ReplicaSet of a Deployment should have, step by step.

use std::cmp::Reverse;

use landfall_api::meta;
use serde_json::Value;

use super::replicasets::{desired, max_before, sized_for_another};
use super::{Sets, available, is_recreate, max_surge, max_unavailable, scale_set};
use crate::controllers::action::Plan;
use crate::controllers::read::{count, created, replicas};

/// Whether the number of replicas changed since the ReplicaSets were sized.
pub(super) fn is_scaling(sets: &Sets<'_>) -> bool {
    sets.active().any(|set| sized_for_another(sets.deployment, set))
}

/// How many pods the new ReplicaSet, which has `has`, may have now.
pub(super) fn new_size(sets: &Sets<'_>, has: i64) -> i64 {
    let wanted = replicas(sets.deployment);
    if is_recreate(sets.deployment) {
        return wanted;
    }
    let most = wanted + max_surge(sets.deployment);
    let all: i64 = sets.all().map(replicas).sum();
    if all >= most { has } else { has + (most - all).min(wanted - has) }
}

/// One step of a rolling update: the new ReplicaSet up, or else the old ones down.
pub(super) fn roll(sets: &Sets<'_>, plan: &mut Plan) {
    let Some(new) = sets.new else { return };
    let (wanted, has) = (replicas(sets.deployment), replicas(new));
    let size = if has > wanted { wanted } else { new_size(sets, has) };
    if size != has {
        return scale_set(sets, new, size, plan);
    }
    shrink(sets, new, plan);
}

/// Takes pods from old ReplicaSets, first those that are not available, as far as enough stay available.
fn shrink(sets: &Sets<'_>, new: &Value, plan: &mut Plan) {
    let old: Vec<&Value> = sets.old.iter().copied().filter(|set| replicas(set) > 0).collect();
    if old.is_empty() {
        return;
    }
    let all: i64 = sets.all().map(replicas).sum();
    let least = replicas(sets.deployment) - max_unavailable(sets.deployment);
    let unavailable = replicas(new) - available(new);
    let room = all - least - unavailable;
    if room <= 0 {
        return;
    }
    let mut sizes: Vec<i64> = old.iter().map(|set| replicas(set)).collect();
    let mut cleaned = 0;
    for (set, size) in old.iter().zip(&mut sizes) {
        // What a ReplicaSet says may be older than what it was told: then nothing is known to be unavailable.
        let count = (*size - available(set)).max(0).min(room - cleaned);
        *size -= count;
        cleaned += count;
    }
    // Pods that are available now, counting of each old ReplicaSet no more than it keeps.
    let alive: i64 = old.iter().zip(&sizes).map(|(set, size)| available(set).min(*size)).sum();
    let mut left = (alive + available(new).min(replicas(new)) - least).max(0);
    for size in &mut sizes {
        let count = left.min(*size);
        *size -= count;
        left -= count;
    }
    for (set, size) in old.iter().zip(sizes) {
        if size != replicas(set) {
            scale_set(sets, set, size, plan);
        }
    }
}

/// The first part of a recreation: the old ones down to nothing. Whether any of their pods are left.
pub(super) fn end_old(sets: &Sets<'_>, pods_left: &dyn Fn(&Value) -> bool, plan: &mut Plan) -> bool {
    for set in sets.old.iter().filter(|set| replicas(set) > 0) {
        scale_set(sets, set, 0, plan);
    }
    sets.old.iter().any(|set| replicas(set) > 0 || pods_left(set))
}

/// Follows a changed number of replicas, or a paused Deployment's: all ReplicaSets in proportion.
pub(super) fn scale(sets: &Sets<'_>, plan: &mut Plan) {
    let wanted = replicas(sets.deployment);
    let mut active: Vec<&Value> = sets.active().collect();
    if active.len() < 2 {
        let latest = sets.new.or_else(|| sets.old.last().copied());
        if let Some(set) = active.first().copied().or(latest) {
            scale_set(sets, set, wanted, plan);
        }
        return;
    }
    let saturated =
        |new: &Value| replicas(new) == wanted && desired(new) == Some(wanted) && available(new) == wanted;
    if sets.new.is_some_and(saturated) {
        sets.old.iter().filter(|set| replicas(set) > 0).for_each(|set| scale_set(sets, set, 0, plan));
        return;
    }
    if is_recreate(sets.deployment) {
        return;
    }
    let most = if wanted > 0 { wanted + max_surge(sets.deployment) } else { 0 };
    let to_add = most - active.iter().map(|set| replicas(set)).sum::<i64>();
    if to_add > 0 {
        active.sort_by_key(|set| Reverse((replicas(set), created(set), meta::name(set))));
    } else {
        active.sort_by_key(|set| (Reverse(replicas(set)), created(set), meta::name(set)));
    }
    let mut added = 0;
    let mut sizes = Vec::with_capacity(active.len());
    for set in &active {
        let share = proportion(sets.deployment, set, to_add, added);
        added += share;
        sizes.push(replicas(set) + share);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    for (set, size) in active.into_iter().zip(sizes) {
        scale_set(sets, set, size, plan);
    }
}

/// How many of the pods to add (or, below zero, to take) fall to a ReplicaSet.
fn proportion(deployment: &Value, set: &Value, to_add: i64, added: i64) -> i64 {
    if to_add == 0 || to_add == added {
        return 0;
    }
    let (has, wanted, allowed) = (replicas(set), replicas(deployment), to_add - added);
    let fraction = if wanted == 0 {
        -has
    } else {
        let most = wanted + max_surge(deployment);
        match max_before(set).unwrap_or_else(|| count(deployment, "/status/replicas")) {
            before if before <= 0 => 0,
            // Rounded to the nearest, halves away from zero.
            before => {
                let [has, most, before] = [has, most, before].map(i128::from);
                let size = (2 * has * most + before).div_euclid(2 * before);
                i64::try_from(size - has).unwrap_or(allowed)
            }
        }
    };
    if to_add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
}
