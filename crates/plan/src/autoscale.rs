//! Autoscale: one autoscaler at the federation becomes one in each cluster, its bounds divided among them.
//!
//! Every cluster has room for what it needs now before anything else is divided; one that has reached its bound is given
//! room by those that have some to spare. Kubernetes wants at least one replica from an autoscaler, so there may be
//! more minimums together than were asked for, but never more maximums.

use crate::reason::Reason;
use crate::replicas::{Slot, divide, order};

/// How long after it scaled a cluster gives nothing away, by default.
pub const WINDOW_MS: i64 = 120_000;

/// What is wanted, and what is seen.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `namespace/name` of the federated autoscaler: ties are broken by it.
    pub key: &'a str,
    /// Its `minReplicas`.
    pub min: u32,
    /// Its `maxReplicas`.
    pub max: u32,
    /// The clusters that placement chose.
    pub clusters: &'a [Observation],
    /// How long a cluster must have been offline before the others get its part.
    pub hold_down_ms: i64,
    /// How long after it scaled a cluster gives nothing away.
    pub window_ms: i64,
    /// The present.
    pub now_ms: i64,
}

/// What is seen of one cluster's autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The cluster's name.
    pub cluster: String,
    /// Its part, relative to the others.
    pub weight: u32,
    /// The bounds of its autoscaler; none when it has none yet.
    pub bounds: Option<Bounds>,
    /// How many replicas it has.
    pub current: u32,
    /// How many its autoscaler wants.
    pub desired: u32,
    /// When it last scaled.
    pub last_scale_ms: Option<i64>,
    /// Since when its API does not answer.
    pub offline_since_ms: Option<i64>,
    /// It is being left.
    pub draining: bool,
}

/// The bounds of one autoscaler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// `minReplicas`, at least one.
    pub min: u32,
    /// `maxReplicas`.
    pub max: u32,
}

/// One cluster's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The cluster's name.
    pub cluster: String,
    /// What to do with its autoscaler.
    pub step: Step,
    /// Why.
    pub reason: Reason,
}

/// What to do with one cluster's autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It shall have these bounds.
    Set(Bounds),
    /// There shall be none.
    None,
    /// It cannot be reached: leave it.
    Leave,
}

/// All parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One per cluster, in the order they were given.
    pub parts: Vec<Part>,
    /// When a decision may change although nothing else does.
    pub look_again_ms: Option<i64>,
}

/// Divides the bounds of a federated autoscaler.
pub fn split(request: &Request<'_>) -> Plan {
    let live = live(request);
    let seen: Vec<&Observation> = live.iter().filter_map(|at| request.clusters.get(*at)).collect();
    let held = held(request);
    let maximums = maximums(request, &seen, request.max.saturating_sub(held.max));
    let minimums = minimums(&seen, &maximums, request.min.saturating_sub(held.min));
    let mut parts: Vec<Part> = request.clusters.iter().map(|seen| idle(request, seen)).collect();
    for ((at, max), min) in live.iter().zip(&maximums).zip(&minimums) {
        let (Some(part), Some(seen)) = (parts.get_mut(*at), request.clusters.get(*at)) else { continue };
        let bounds = Bounds { min: *min, max: *max };
        part.step = Step::Set(bounds);
        part.reason = reason(request, seen, bounds);
    }
    let held = request
        .clusters
        .iter()
        .filter_map(|seen| Some(seen.offline_since_ms?.saturating_add(request.hold_down_ms)));
    let busy = seen.iter().filter_map(|seen| Some(seen.last_scale_ms?.saturating_add(request.window_ms)));
    Plan { parts, look_again_ms: held.chain(busy).filter(|time| *time > request.now_ms).min() }
}

/// Those that get a part, in the order they are served; no more than there are replicas.
fn live(request: &Request<'_>) -> Vec<usize> {
    let reachable = |seen: &Observation| seen.offline_since_ms.is_none() && !seen.draining;
    let weight = |seen: &Observation| if seen.bounds.is_some() { seen.weight.max(1) } else { 0 };
    let mut live =
        order(request.key, request.clusters.iter().map(|seen| (seen.cluster.as_str(), weight(seen))));
    live.retain(|at| request.clusters.get(*at).is_some_and(reachable));
    live.truncate(usize::try_from(request.max.saturating_sub(held(request).max)).unwrap_or(usize::MAX));
    live
}

/// What clusters that are offline for a moment keep.
fn held(request: &Request<'_>) -> Bounds {
    let keeps = |seen: &&Observation| {
        let since_ms = seen.offline_since_ms.map(|since_ms| since_ms.saturating_add(request.hold_down_ms));
        since_ms.is_some_and(|until_ms| request.now_ms < until_ms)
    };
    let bounds = request.clusters.iter().filter(keeps).filter_map(|seen| seen.bounds);
    bounds.fold(Bounds::default(), |sum, bounds| Bounds {
        min: sum.min.saturating_add(bounds.min),
        max: sum.max.saturating_add(bounds.max),
    })
}

fn maximums(request: &Request<'_>, seen: &[&Observation], total: u32) -> Vec<u32> {
    let needs = |seen: &Observation| seen.desired.max(1);
    let all: u64 = seen.iter().map(|seen| u64::from(needs(seen))).sum();
    // Needs are served first only where equal parts do not serve them, and where they fit together: else the first would
    // be served at the expense of the last.
    let equal = u64::from(total) / (seen.len().max(1) as u64);
    let first = all <= u64::from(total) && seen.iter().any(|seen| u64::from(needs(seen)) > equal);
    let slot = |seen: &&Observation| Slot {
        weight: seen.weight.max(1),
        min: if first { needs(seen) } else { 1 },
        current: seen.bounds.map(|bounds| bounds.max),
        ..Slot::default()
    };
    let mut slots: Vec<Slot> = seen.iter().map(slot).collect();
    divide(total, false, &mut slots);
    let mut maximums: Vec<u32> = slots.iter().map(|slot| slot.planned).collect();
    lend(request, seen, &mut maximums);
    maximums
}

/// Those who have reached their bound are given half of what others have to spare.
fn lend(request: &Request<'_>, seen: &[&Observation], maximums: &mut [u32]) {
    let pinned = |seen: &Observation, max: u32| seen.bounds.is_some() && seen.desired >= max;
    let needy = seen.iter().zip(maximums.iter()).filter(|(seen, max)| pinned(seen, **max)).count();
    let Ok(needy) = u32::try_from(needy) else { return };
    if needy == 0 {
        return;
    }
    let before = maximums.to_vec();
    let mut pot = 0_u32;
    for (seen, max) in seen.iter().zip(maximums.iter_mut()) {
        let busy = seen.last_scale_ms.is_some_and(|at| at.saturating_add(request.window_ms) > request.now_ms);
        // Half, rounded down: who lends is not at its bound afterwards, and does not ask for it back.
        let spare = max.saturating_sub(seen.desired.max(seen.current).max(1)) / 2;
        if !busy && seen.bounds.is_some() && !pinned(seen, *max) {
            *max -= spare;
            pot += spare;
        }
    }
    let each = pot.div_ceil(needy);
    for ((seen, max), before) in seen.iter().zip(maximums.iter_mut()).zip(before) {
        if pinned(seen, before) {
            let given = each.min(pot);
            *max += given;
            pot -= given;
        }
    }
}

fn minimums(seen: &[&Observation], maximums: &[u32], total: u32) -> Vec<u32> {
    let slot = |(seen, max): (&&Observation, &u32)| Slot {
        weight: seen.weight.max(1),
        min: 1.min(*max),
        max: Some(*max),
        current: seen.bounds.map(|bounds| bounds.min),
        ..Slot::default()
    };
    let mut slots: Vec<Slot> = seen.iter().zip(maximums).map(slot).collect();
    let least = u32::try_from(seen.len()).unwrap_or(u32::MAX);
    divide(total.max(least), false, &mut slots);
    slots.iter().map(|slot| slot.planned).collect()
}

fn reason(request: &Request<'_>, seen: &Observation, bounds: Bounds) -> Reason {
    let asked = format!("{} to {} of {} to {}", bounds.min, bounds.max, request.min, request.max);
    match seen.bounds {
        None => Reason::new("New", format!("{asked}: a new cluster's share")),
        Some(before) if bounds.max > before.max => {
            Reason::new("Given", format!("{asked}: it had reached {}", before.max))
        }
        Some(before) if bounds.max < before.max => Reason::new(
            "Lent",
            format!(
                "{asked}: it needs {} and had {} to spare",
                seen.desired,
                before.max.saturating_sub(seen.desired)
            ),
        ),
        Some(_) => Reason::new("Divided", asked),
    }
}

/// What becomes of a cluster that gets no part.
fn idle(request: &Request<'_>, seen: &Observation) -> Part {
    let (step, reason) = match seen.offline_since_ms {
        Some(since_ms) => {
            let lent = request.now_ms.saturating_sub(since_ms) >= request.hold_down_ms;
            let what = if lent { "the others have its part until it returns" } else { "it keeps its part" };
            (Step::Leave, Reason::new("Offline", format!("offline: {what}")))
        }
        None if seen.draining => (Step::None, Reason::new("Draining", "its replicas move to other clusters")),
        None => {
            let why = format!("maxReplicas {} is less than the number of clusters", request.max);
            (Step::None, Reason::new("TooFew", why))
        }
    };
    Part { cluster: seen.cluster.clone(), step, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clusters as `min-max:desired`, `new`, or with `!` behind when offline for long.
    #[track_caller]
    fn check(min: u32, max: u32, clusters: &str, expected: &str) {
        let read = |(at, text): (usize, &str)| {
            let mut seen = Observation { cluster: format!("c{at}"), weight: 1, ..Observation::default() };
            seen.offline_since_ms = text.ends_with('!').then_some(0);
            if let Some((bounds, desired)) = text.trim_end_matches('!').split_once(':') {
                let (min, max) = bounds.split_once('-').expect("min-max");
                let number = |text: &str| text.parse().expect("a number");
                seen.bounds = Some(Bounds { min: number(min), max: number(max) });
                (seen.current, seen.desired) = (number(desired), number(desired));
            }
            seen
        };
        let clusters: Vec<Observation> = clusters.split(' ').enumerate().map(read).collect();
        let (hold_down_ms, window_ms) = (60_000, WINDOW_MS);
        let request =
            Request { key: "", min, max, clusters: &clusters, hold_down_ms, window_ms, now_ms: 1_000_000 };
        let show = |part: &Part| match part.step {
            Step::Set(bounds) => format!("{}-{}", bounds.min, bounds.max),
            Step::None => "none".to_owned(),
            Step::Leave => "leave".to_owned(),
        };
        let parts = split(&request).parts;
        assert_eq!(parts.iter().map(show).collect::<Vec<_>>().join(" "), expected);
        let sum: u32 = parts.iter().map(|p| if let Step::Set(b) = p.step { b.max } else { 0 }).sum();
        assert!(sum <= max, "{sum} of {max}");
    }

    #[test]
    fn bounds_are_divided_and_lent() {
        check(3, 12, "new new new", "1-4 1-4 1-4");
        check(1, 12, "new new new", "1-4 1-4 1-4");
        // They are made one after the other.
        check(3, 12, "1-4:0 new new", "1-4 1-4 1-4");
        check(3, 12, "1-4:2 1-4:2 new", "1-4 1-4 1-4");
        check(3, 12, "1-4:2 1-4:2 1-4:2", "1-4 1-4 1-4");
        // One has reached its bound: half of what the others can spare.
        check(2, 20, "1-10:10 1-10:2", "1-14 1-6");
        check(2, 20, "1-14:10 1-6:2", "1-14 1-6");
        // Less is allowed: what runs has room first.
        check(2, 12, "1-10:9 1-10:2", "1-10 1-2");
        // A lost cluster's part is lent, and given back when it returns.
        check(3, 12, "1-4:4 1-4:4 1-4:4!", "2-6 1-6 leave");
        check(3, 12, "2-6:4 1-6:4 1-4:4", "1-4 1-4 1-4");
        // Fewer replicas than clusters.
        check(1, 2, "new 1-1:1 1-1:1", "none 1-1 1-1");
        check(0, 0, "new", "none");
    }
}
