//! Drain: what a cluster still carries, as edges measure it, and whether the others have room for that.

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::landfall::{PlanCluster, ServiceLoad, TrafficPlanSpec};

use crate::reason::Reason;

/// Less than this is noise, in requests per second.
const NOTHING: f64 = 0.5;

/// How far a drain is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// What the cluster still carries, in requests per second.
    pub requests_per_second: f64,
    /// Of so many services.
    pub services: usize,
    /// Why what it carries cannot go elsewhere.
    pub obstacles: Vec<Reason>,
}

impl Standing {
    /// Whether it carries nothing any more.
    pub fn is_quiet(&self) -> bool {
        self.services == 0
    }
}

/// Looks at a cluster that is drained, or shall be: the plans of all services by `namespace/name`, what edges carry, and the clusters
/// whose APIs answer. What serves may go on without one; but nobody moves traffic there on purpose, and where too few edges are left to
/// say that a cluster is dead, this tells.
pub fn standing<'a>(
    cluster: &str,
    plans: impl Iterator<Item = (&'a str, &'a TrafficPlanSpec)>,
    loads: &[ServiceLoad],
    ready: &BTreeSet<String>,
) -> Standing {
    let mut carried: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for load in loads {
        let rate = load.load.requests_per_second.filter(|rate| rate.is_finite() && *rate > 0.0);
        *carried.entry((&load.service, &load.cluster)).or_default() += rate.unwrap_or(0.0);
    }
    let load = |service: &str, cluster: &str| carried.get(&(service, cluster)).copied().unwrap_or(0.0);
    let mut standing = Standing::default();
    for (service, plan) in plans {
        let rate = load(service, cluster);
        if rate < NOTHING {
            continue;
        }
        standing.requests_per_second += rate;
        standing.services += 1;
        let fits = |one: &&PlanCluster| {
            let inside = plan.fence.is_empty() || plan.fence.contains(&one.name);
            one.name != cluster
                && inside
                && one.verdict.up
                && one.endpoints > 0
                && !one.cordoned
                && ready.contains(&one.name)
        };
        let others: Vec<&PlanCluster> = plan.clusters.iter().filter(fits).collect();
        if others.is_empty() {
            let message = format!("{service}: no other cluster can take its {rate:.0} requests/s");
            standing.obstacles.push(Reason::new("NoOther", message));
            continue;
        }
        // One without a limit has room for everything.
        let room: Option<f64> =
            others.iter().map(|one| one.capacity.map(|capacity| capacity - load(service, &one.name))).sum();
        if let Some(room) = room.filter(|room| rate > *room) {
            let room = room.max(0.0);
            let message =
                format!("{service}: it carries {rate:.0} requests/s, the others have room for {room:.0}");
            standing.obstacles.push(Reason::new("NoRoom", message));
        }
    }
    standing
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::{Load, Verdict};

    use super::*;

    /// A cluster in words: `NAME`, `NAME:CAPACITY`, `!` before it when it is down, and `?` when its API does not answer.
    fn plan(clusters: &str, fence: &[&str]) -> TrafficPlanSpec {
        let cluster = |word: &str| {
            let (up, word) =
                word.trim_start_matches('?').strip_prefix('!').map_or((true, word), |word| (false, word));
            let word = word.trim_start_matches('?');
            let (name, capacity) =
                word.split_once(':').map_or((word, None), |(name, rest)| (name, rest.parse().ok()));
            let verdict = Verdict { up, ..Verdict::default() };
            PlanCluster { name: name.to_owned(), verdict, endpoints: 2, capacity, ..PlanCluster::default() }
        };
        TrafficPlanSpec {
            clusters: clusters.split(' ').map(cluster).collect(),
            fence: fence.iter().map(|&name| name.to_owned()).collect(),
            ..TrafficPlanSpec::default()
        }
    }

    #[test]
    fn a_drain_knows_what_is_left_and_what_is_in_its_way() {
        for (clusters, fence, loads, want) in [
            ("x a b", &[][..], &[("x", 100.0), ("a", 50.0)][..], (100.0, "")),
            ("x:100 a:100 b:100", &[], &[("x", 100.0), ("a", 50.0), ("b", 20.0)], (100.0, "")),
            ("x:100 a:100 b:100", &[], &[("x", 100.0), ("a", 90.0), ("b", 80.0)], (100.0, "NoRoom")),
            ("x:100 a:10 b", &[], &[("x", 100.0), ("a", 90.0)], (100.0, "")),
            ("x:100 a:500 !b:500", &["x", "b"], &[("x", 100.0)], (100.0, "NoOther")),
            ("x", &[], &[("x", 3.0)], (3.0, "NoOther")),
            ("x", &[], &[("x", 0.2)], (0.0, "")),
            ("x", &[], &[("x", f64::NAN)], (0.0, "")),
            ("x ?a ?b", &[], &[("x", 100.0)], (100.0, "NoOther")),
            ("x ?a b:90", &[], &[("x", 100.0)], (100.0, "NoRoom")),
            ("?x a", &[], &[("x", 100.0)], (100.0, "")),
        ] {
            let load = |(cluster, rate): &(&str, f64)| ServiceLoad {
                service: "shop/web".to_owned(),
                cluster: (*cluster).to_owned(),
                load: Load { requests_per_second: Some(*rate), ..Load::default() },
            };
            let loads: Vec<ServiceLoad> = loads.iter().map(load).collect();
            let ready = clusters.split(' ').filter(|word| !word.starts_with('?'));
            let ready =
                ready.map(|word| word.trim_start_matches('!').split(':').next().unwrap_or("").to_owned());
            let ready: BTreeSet<String> = ready.collect();
            let plan = plan(clusters, fence);
            let got = standing("x", [("shop/web", &plan)].into_iter(), &loads, &ready);
            let codes: Vec<&str> = got.obstacles.iter().map(|reason| reason.code).collect();
            assert_eq!((got.requests_per_second, codes.join(" ").as_str()), want, "{clusters}");
            assert_eq!(got.is_quiet(), want.0 == 0.0, "{clusters}");
        }
    }
}
