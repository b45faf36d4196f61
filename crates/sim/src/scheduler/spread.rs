//! Topology spread: no domain much fuller than another.

use std::collections::BTreeMap;

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::Value;

use super::{Room, affinity, taints};
use crate::controllers::pods;
use crate::controllers::read::{int, items, text};

/// Why a node would break a pod's spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The node has no such label.
    NoLabel,
    /// Its domain would be too full.
    Skew,
}

/// Whether a pod's hard constraints hold with it on a node.
pub(super) fn check(pod: &Value, room: &Room<'_>, rooms: &[Room<'_>]) -> Result<(), Broken> {
    let constraints = items(pod, "/spec/topologySpreadConstraints").iter();
    for constraint in constraints.filter(|c| text(c, "/whenUnsatisfiable") == "DoNotSchedule") {
        let key = text(constraint, "/topologyKey");
        let Some(here) = meta::label(room.node, key) else { return Err(Broken::NoLabel) };
        let counts = counts(pod, constraint, rooms);
        let selector = Selector::from_object(constraint.get("labelSelector"));
        let own = i64::from(selector.is_ok_and(|selector| selector.matches_object(pod)));
        let mut least = counts.values().copied().min().unwrap_or(0);
        let domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
        if domains < int(constraint, "/minDomains") {
            least = 0;
        }
        let skew = counts.get(here).copied().unwrap_or(0) + own - least;
        if skew > int(constraint, "/maxSkew") {
            return Err(Broken::Skew);
        }
    }
    Ok(())
}

/// Pods that a constraint counts, by domain; domains without any included.
pub(super) fn counts<'a>(pod: &Value, constraint: &Value, rooms: &[Room<'a>]) -> BTreeMap<&'a str, i64> {
    let key = text(constraint, "/topologyKey");
    let selector = Selector::from_object(constraint.get("labelSelector")).unwrap_or(Selector::nothing());
    let honour = |field: &str, default: bool| match text(constraint, field) {
        "Honor" => true,
        "Ignore" => false,
        _ => default,
    };
    let (affinity, taint) = (honour("/nodeAffinityPolicy", true), honour("/nodeTaintsPolicy", false));
    let mut counts = BTreeMap::new();
    for room in rooms {
        let Some(domain) = meta::label(room.node, key) else { continue };
        let skipped = (affinity && !affinity::node_matches(pod, room.node))
            || (taint && taints::untolerated(pod, room.node, &["NoSchedule", "NoExecute"]).is_some());
        if skipped {
            continue;
        }
        let same = |other: &&&Value| {
            meta::namespace(other) == meta::namespace(pod)
                && selector.matches_object(other)
                && pods::is_active(other)
        };
        let here = i64::try_from(room.pods.iter().filter(same).count()).unwrap_or(i64::MAX);
        *counts.entry(domain).or_insert(0) += here;
    }
    counts
}
