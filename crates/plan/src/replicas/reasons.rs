//! Why a cluster has the replicas it has, in words.

use std::fmt::Write as _;

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

/// As long as most reasons are.
const MESSAGE_USUAL: usize = 64;

/// Why a cluster that is written to has what it has.
enum Why {
    Words(&'static str),
    /// Its weight, after these words.
    Weight(&'static str),
    NoRoom,
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
        ("Draining", Why::Words("its replicas move to other clusters"))
    } else if row.wished.is_none() {
        ("NotPreferred", Why::Words("the preferences name neither it nor \"*\""))
    } else if slot.capacity.is_some_and(|room| slot.planned >= room)
        && (slot.overflow > 0 || row.stuck > 0 || row.showed.is_some())
    {
        ("NoRoom", Why::NoRoom)
    } else if seen.cordoned {
        ("Cordoned", Why::Words("it is given no more"))
    } else if slot.max.is_some_and(|max| slot.planned >= max) {
        ("AtMaximum", Why::Words("its maxReplicas"))
    } else if slot.min > 0 && slot.planned <= slot.min {
        ("AtMinimum", Why::Words("its minReplicas"))
    } else if seen.spec.is_none() {
        ("New", Why::Weight("a new cluster's share by "))
    } else if rolling(seen) {
        ("RollingOut", Why::Words("a rollout is under way, nothing moves"))
    } else {
        ("Spread", Why::Weight(""))
    };
    // All in one piece: there is one for every cluster of every object, and most of a plan's time goes into them.
    let mut message = String::with_capacity(MESSAGE_USUAL);
    // A String takes whatever is written to it.
    let _ = write!(message, "{} of {wanted}: ", slot.planned);
    match why {
        Why::Words(words) => message.push_str(words),
        Why::Weight(words) => {
            let _ = write!(message, "{words}weight {} of {weights}", slot.weight);
        }
        Why::NoRoom => no_room(seen, slot, &mut message),
    }
    if way.next != way.goal {
        let _ = write!(message, "; {} for now, {} in the end", way.next, way.goal);
    }
    Reason::new(code, message)
}

fn no_room(seen: &Observation, slot: &Slot, message: &mut String) {
    message.push_str("no room for more");
    let unschedulable = u32::try_from(seen.unschedulable_since_ms.len()).unwrap_or(u32::MAX);
    let parts = [
        (unschedulable, "unschedulable"),
        (seen.crash_looping, "crash-looping"),
        (slot.overflow, "wait here for room"),
    ];
    for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(message, ", {count} {what}");
    }
}
