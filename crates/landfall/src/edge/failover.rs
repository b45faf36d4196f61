//! What an edge may decide alone: while the hub is silent, it leaves out what it sees to be down itself.
//!
//! - Only while the hub has been silent for [`SILENT_MS`]: what the hub says is what a majority says, and comes first.
//! - What it does not vote on it looks at only then. It may never have reached it, although others do: that counts only if it has seen it up
//!   before, or sees nothing up in the whole cluster.
//! - Only what the hub last said to be up and this edge has since come to see down. What a majority has declared down stays
//!   down, whatever this edge sees.
//! - Only while this edge sees more than half of the clusters that it probes, its own among them. An edge that sees fewer is the one
//!   that is cut off, and changes nothing: it would be outvoted.
//! - Only where this edge itself sees another cluster of the same choices up: no answer becomes empty by it.

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::landfall::{PlanVantage, TrafficPlanSpec};
use landfall_health::Opinion;
use landfall_plan::quorum::{probed_port, target, target_cluster};

/// The hub must be silent for so long before an edge decides anything.
pub(crate) const SILENT_MS: i64 = 10_000;

/// What an edge sees.
#[derive(Clone, Debug)]
pub(crate) struct Sight<'a> {
    /// When the hub was last heard of, in milliseconds since 1970.
    pub(crate) heard_ms: i64,
    /// Now.
    pub(crate) now_ms: i64,
    /// What this edge thinks of its targets.
    pub(crate) opinions: &'a BTreeMap<String, Opinion>,
    /// Clusters in which it sees something up.
    seen: BTreeSet<&'a str>,
    /// These are most of the clusters that it probes.
    most: bool,
}

impl<'a> Sight<'a> {
    /// What an edge sees that last heard of the hub then.
    pub(crate) fn new(heard_ms: i64, now_ms: i64, opinions: &'a BTreeMap<String, Opinion>) -> Self {
        let mut clusters: BTreeMap<&str, bool> = BTreeMap::new();
        for (name, opinion) in opinions {
            let Some((cluster, up)) = target_cluster(name).zip(opinion.up) else { continue };
            *clusters.entry(cluster).or_default() |= up;
        }
        let seen: BTreeSet<&str> = clusters.iter().filter(|(_, up)| **up).map(|(name, _)| *name).collect();
        let most = seen.len() * 2 > clusters.len();
        Self { heard_ms, now_ms, opinions, seen, most }
    }

    /// Whether the hub has been silent for long.
    pub(crate) const fn silent(&self) -> bool {
        self.now_ms.saturating_sub(self.heard_ms) >= SILENT_MS
    }

    /// Whether the edge may decide anything at all.
    pub(crate) const fn may_decide(&self) -> bool {
        self.most && self.silent()
    }
}

/// The plan as this edge follows it; none when it follows it to the letter.
pub(crate) fn adjust(
    namespace: &str,
    name: &str,
    plan: &TrafficPlanSpec,
    sight: &Sight<'_>,
) -> Option<TrafficPlanSpec> {
    if !sight.may_decide() {
        return None;
    }
    let port = probed_port(plan.health_check.as_ref(), &plan.ports)?;
    let opinion = |cluster: &str| {
        sight.opinions.get(&target(cluster, namespace, name, port)).and_then(|seen| Some((seen.up?, seen)))
    };
    let up: BTreeSet<&str> = {
        let seen = plan.clusters.iter().filter(|cluster| cluster.verdict.up && !cluster.cordoned);
        seen.map(|cluster| cluster.name.as_str())
            .filter(|name| opinion(name).is_some_and(|(up, _)| up))
            .collect()
    };
    let lost = |cluster: &str, seen: &Opinion| {
        seen.since_ms > sight.heard_ms && (seen.seen_up || !sight.seen.contains(cluster))
    };
    let down = |cluster: &str| opinion(cluster).is_some_and(|(up, seen)| !up && lost(cluster, seen));
    let mut adjusted = plan.clone();
    let mut changed = false;
    for vantage in &mut adjusted.vantages {
        changed |= leave_out(vantage, &up, &down);
    }
    if !changed {
        return None;
    }
    for cluster in adjusted.clusters.iter_mut().filter(|cluster| cluster.verdict.up && down(&cluster.name)) {
        cluster.verdict.up = false;
        cluster.verdict.reason = "this edge sees it down, and the hub is silent".into();
    }
    Some(adjusted)
}

/// Leaves out of one vantage's choices what is down, if something is left that is up; whether it did.
fn leave_out(vantage: &mut PlanVantage, up: &BTreeSet<&str>, down: &dyn Fn(&str) -> bool) -> bool {
    let safe = vantage.choices.iter().any(|choice| up.contains(choice.cluster.as_str()));
    if !safe || !vantage.choices.iter().any(|choice| down(&choice.cluster)) {
        return false;
    }
    vantage.choices.retain(|choice| !down(&choice.cluster));
    let total: f64 = vantage.choices.iter().map(|choice| choice.fraction).sum();
    let count = u32::try_from(vantage.choices.len()).unwrap_or(u32::MAX).max(1);
    for choice in &mut vantage.choices {
        choice.fraction = if total > 0.0 { choice.fraction / total } else { 1.0 / f64::from(count) };
    }
    true
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::{PlanChoice, PlanCluster, PlanPort, Verdict};
    use landfall_health::{Check, Outcome};
    use proptest::prelude::*;

    use super::*;

    const HEARD_MS: i64 = 100_000;

    /// Clusters as `name:verdict`, `u` or `d`; all of them are choices of one vantage.
    fn plan(clusters: &[(&str, bool)]) -> TrafficPlanSpec {
        let choices = clusters.iter().filter(|(_, up)| *up).map(|(name, _)| PlanChoice {
            cluster: (*name).into(),
            fraction: if *name == "a" { 1.0 } else { 0.0 },
            reason: String::new(),
        });
        TrafficPlanSpec {
            ports: vec![PlanPort { port: 80, ..PlanPort::default() }],
            clusters: clusters
                .iter()
                .map(|(name, up)| PlanCluster {
                    name: (*name).into(),
                    verdict: Verdict { up: *up, ..Verdict::default() },
                    ..PlanCluster::default()
                })
                .collect(),
            vantages: vec![PlanVantage { choices: choices.collect(), ..PlanVantage::default() }],
            ..TrafficPlanSpec::default()
        }
    }

    fn opinion(up: bool, since_ms: i64) -> Opinion {
        let check = Check { down_threshold: 1, up_threshold: 1, ..Check::default() };
        let outcome = if up { Outcome::up(1.0) } else { Outcome::down("no", 1.0) };
        Opinion::default().step(&outcome, &check, since_ms)
    }

    fn follow(plan: &TrafficPlanSpec, seen: &[(&str, bool, i64)], silent_ms: i64) -> Vec<String> {
        follow_beside(plan, seen, &[], silent_ms)
    }

    /// The same where it sees other services up, too, each as cluster and name.
    fn follow_beside(
        plan: &TrafficPlanSpec,
        seen: &[(&str, bool, i64)],
        others: &[(&str, &str)],
        silent_ms: i64,
    ) -> Vec<String> {
        let opinions = seen
            .iter()
            .map(|(name, up, since)| (target(name, "ns", "web", 80), opinion(*up, *since)))
            .chain(others.iter().map(|(name, other)| (target(name, "ns", other, 80), opinion(true, 1))))
            .collect();
        let sight = Sight::new(HEARD_MS, HEARD_MS + silent_ms, &opinions);
        let adjusted = adjust("ns", "web", plan, &sight);
        let choices = &adjusted.as_ref().unwrap_or(plan).vantages[0].choices;
        choices.iter().map(|choice| format!("{} {}", choice.cluster, choice.fraction)).collect()
    }

    #[test]
    fn an_edge_decides_little() {
        let both = plan(&[("a", true), ("b", true), ("c", true)]);
        let later = HEARD_MS + 5_000;
        let check = |seen: &[(&str, bool, i64)], silent_ms: i64, expected: &[&str]| {
            assert_eq!(follow(&both, seen, silent_ms), expected, "{seen:?} {silent_ms}");
        };
        let lost = [("a", false, later), ("b", true, 1), ("c", true, 1)];
        let all = ["a 1", "b 0", "c 0"];
        check(&lost, 20_000, &["b 0.5", "c 0.5"]);
        check(&lost, 9_000, &all);
        // It saw it down while the hub, who knew, said up.
        check(&[("a", false, HEARD_MS - 1), ("b", true, 1), ("c", true, 1)], 20_000, &all);
        // It sees nothing else up, or knows nothing of it.
        check(&[("a", false, later), ("b", false, later), ("c", false, later)], 20_000, &all);
        check(&[("a", false, later)], 20_000, &all);
        // It never reached this service, but others of the same cluster: the majority knows better.
        let other = [("a", "other")];
        assert_eq!(follow_beside(&both, &lost, &other, 20_000), all);
        // It sees less than most: it is the one that is cut off.
        check(&[("a", true, 1), ("b", false, later), ("c", false, later)], 20_000, &all);
        check(&[("a", false, later), ("b", true, 1)], 20_000, &all);
        // What the majority has declared down does not come back.
        let one = plan(&[("a", false), ("b", true)]);
        assert_eq!(follow(&one, &[("a", true, later), ("b", true, 1)], 20_000), ["b 0"]);
        assert_eq!(follow(&one, &[("a", true, later), ("b", false, later)], 20_000), ["b 0"]);
    }

    proptest! {
        /// Whatever an edge sees, it adds nothing, empties nothing, and drops only what it sees down itself.
        #[test]
        fn it_never_contradicts(verdicts in proptest::collection::vec(any::<bool>(), 4),
                seen in proptest::collection::vec(proptest::option::of((any::<bool>(), 0_i64..200_000)), 4), silent in 0_i64..40_000) {
            let names = ["a", "b", "c", "d"];
            let clusters: Vec<(&str, bool)> = names.iter().copied().zip(verdicts).collect();
            let plan = plan(&clusters);
            let seen: Vec<(&str, bool, i64)> = names.iter().zip(&seen)
                .filter_map(|(name, seen)| seen.map(|(up, since)| (*name, up, since))).collect();
            let before = plan.vantages[0].choices.len();
            let after = follow(&plan, &seen, silent);
            prop_assert_eq!(before == 0, after.is_empty());
            for choice in &after {
                prop_assert!(clusters.iter().any(|(name, up)| *up && choice.starts_with(name)));
            }
            let kept = |name: &str| after.iter().any(|choice| choice.starts_with(name));
            for (name, up) in clusters.iter().filter(|(_, up)| *up) {
                prop_assert!(kept(name) || seen.iter().any(|(n, up, _)| n == name && !up), "{name} {up}");
            }
            let up = seen.iter().filter(|(_, up, _)| *up).count();
            prop_assert!((silent >= SILENT_MS && up * 2 > seen.len()) || after.len() == before);
        }
    }
}
