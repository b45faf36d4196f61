//! Why a cluster has the replicas it has, in words.

use super::step::Way;
use super::{Observation, OnLoss, Request, Row, Slot, Standing, autoscaled, rolling};
use crate::reason::Reason;

/// All that is known about one cluster when its reason is told.
pub(super) struct Case<'a> {
    pub(super) row: &'a Row<'a>,
    pub(super) slot: &'a Slot,
    pub(super) way: &'a Way,
    pub(super) wanted: u32,
    pub(super) weights: u64,
}

/// The one reason that matters most.
pub(super) fn reason(request: &Request<'_>, case: &Case<'_>) -> Reason {
    match case.row.is {
        Standing::Held { .. } | Standing::Lost => offline(request, case),
        Standing::Live if autoscaled(request, case.row.seen) => {
            Reason::new("Autoscaled", "the cluster's own autoscaler rules the number")
        }
        Standing::Live => live(case),
        Standing::Refusing => {
            let (has, share) = (case.way.now, case.way.goal);
            let here = format!("{has} of the {share} that it should have are here");
            Reason::new("RefusedHeld", format!("{here}, other clusters run the rest"))
        }
    }
}

fn offline(request: &Request<'_>, case: &Case<'_>) -> Reason {
    let has = case.row.seen.goal.or(case.row.seen.spec).unwrap_or(0);
    let note = "that its API does not answer is no proof that its pods are dead";
    match (case.row.is, request.policy.on_loss) {
        (Standing::Held { until_ms: Some(_) }, _) => {
            Reason::new("OfflineHeld", format!("its {has} still count for a while; {note}"))
        }
        (_, OnLoss::Overprovision { percent }) => Reason::new(
            "OfflineOverprovisioned",
            format!("its {has} are spare, {percent} % of what is asked for was placed"),
        ),
        (_, OnLoss::Autoscale) => {
            Reason::new("OfflineAutoscaled", format!("the other clusters' autoscalers make up for its {has}"))
        }
        (_, OnLoss::Migrate { .. }) => {
            Reason::new("OfflineMigrated", format!("other clusters stand in for its {has}; {note}"))
        }
    }
}

fn live(case: &Case<'_>) -> Reason {
    let Case { row, slot, way, wanted, weights } = case;
    let seen = row.seen;
    let (code, why) = if seen.draining {
        ("Draining", String::from("its replicas move to other clusters"))
    } else if row.wished.is_none() {
        ("NotPreferred", String::from("the preferences name neither it nor \"*\""))
    } else if slot.capacity.is_some_and(|room| slot.planned >= room)
        && (slot.overflow > 0 || row.stuck > 0 || row.showed.is_some())
    {
        ("NoRoom", no_room(seen, slot))
    } else if seen.cordoned {
        ("Cordoned", String::from("it is given no more"))
    } else if slot.max.is_some_and(|max| slot.planned >= max) {
        ("AtMaximum", String::from("its maxReplicas"))
    } else if slot.min > 0 && slot.planned <= slot.min {
        ("AtMinimum", String::from("its minReplicas"))
    } else if seen.spec.is_none() {
        ("New", format!("a new cluster's share by weight {} of {weights}", slot.weight))
    } else if rolling(seen) {
        ("RollingOut", String::from("a rollout is under way, nothing moves"))
    } else {
        ("Spread", format!("weight {} of {weights}", slot.weight))
    };
    let moving = if way.next == way.goal {
        String::new()
    } else {
        format!("; {} for now, {} in the end", way.next, way.goal)
    };
    Reason::new(code, format!("{} of {wanted}: {why}{moving}", slot.planned))
}

fn no_room(seen: &Observation, slot: &Slot) -> String {
    let mut parts = Vec::new();
    if !seen.unschedulable_since_ms.is_empty() {
        parts.push(format!("{} unschedulable", seen.unschedulable_since_ms.len()));
    }
    if seen.crash_looping > 0 {
        parts.push(format!("{} crash-looping", seen.crash_looping));
    }
    if slot.overflow > 0 {
        parts.push(format!("{} wait here for room", slot.overflow));
    }
    if parts.is_empty() {
        String::from("no room for more")
    } else {
        format!("no room for more, {}", parts.join(", "))
    }
}
