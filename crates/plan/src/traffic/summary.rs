//! A plan in few words: what `kubectl get trafficplans` shows, and a condition to wait for.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use landfall_api::landfall::{PlanCluster, TrafficPlanSpec, TrafficPlanStatus};

use crate::quorum::time;
use crate::records::answers::well;

/// So many members are named; of more, how many there are.
const NAMED_MAX: usize = 20;

/// The words for a plan; `before` are those for the plan before.
pub fn summary(spec: &TrafficPlanSpec, before: &TrafficPlanStatus, now_ms: i64) -> TrafficPlanStatus {
    let all = spec.clusters.len();
    let up = spec.clusters.iter().filter(|cluster| well(cluster)).count();
    let mut clusters: Vec<String> = spec.clusters.iter().take(NAMED_MAX).map(named).collect();
    if all > NAMED_MAX {
        clusters.push(format!("and {} more", all - NAMED_MAX));
    }
    let (status, reason, message) = match (up, all) {
        (_, 0) => ("False", "Nowhere", "no member serves it".to_owned()),
        (0, _) => ("False", "NoneUp", "no member is up, takes clients and has ready endpoints".to_owned()),
        (up, all) if up == all => ("True", "AllUp", "all members serve it".to_owned()),
        (up, all) => ("True", "SomeUp", format!("{up} of {all} members serve it")),
    };
    let old = before.conditions.iter().find(|old| old.type_ == "Serving" && old.status == status);
    let serving = Condition {
        type_: "Serving".into(),
        status: status.into(),
        reason: reason.into(),
        message,
        last_transition_time: old.map_or_else(|| time(now_ms), |old| old.last_transition_time.clone()),
        observed_generation: None,
    };
    TrafficPlanStatus { up: format!("{up}/{all}"), clusters: clusters.join(","), conditions: vec![serving] }
}

fn named(cluster: &PlanCluster) -> String {
    let what = match () {
        () if !cluster.verdict.up => "(down)",
        () if cluster.cordoned => "(cordoned)",
        () if cluster.endpoints <= 0 => "(empty)",
        () => "",
    };
    format!("{}{what}", cluster.name)
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::Verdict;

    use super::*;

    fn plan(clusters: &[(bool, bool, i32)]) -> TrafficPlanSpec {
        let one = |(at, (up, cordoned, endpoints)): (usize, &(bool, bool, i32))| PlanCluster {
            name: format!("c{at}"),
            verdict: Verdict { up: *up, ..Verdict::default() },
            cordoned: *cordoned,
            endpoints: *endpoints,
            ..PlanCluster::default()
        };
        TrafficPlanSpec {
            clusters: clusters.iter().enumerate().map(one).collect(),
            ..TrafficPlanSpec::default()
        }
    }

    #[test]
    fn a_plan_in_few_words() {
        let check = |clusters: &[(bool, bool, i32)], up: &str, words: &str, reason: &str| {
            let told = summary(&plan(clusters), &TrafficPlanStatus::default(), 5_000);
            assert_eq!((told.up.as_str(), told.clusters.as_str()), (up, words));
            assert_eq!(told.conditions[0].reason, reason);
            // What says the same later says since when.
            let again = summary(&plan(clusters), &told, 9_000);
            assert_eq!(again, told);
        };
        check(&[], "0/0", "", "Nowhere");
        check(&[(true, false, 2)], "1/1", "c0", "AllUp");
        check(&[(true, false, 2), (false, true, 0)], "1/2", "c0,c1(down)", "SomeUp");
        check(&[(true, true, 2), (true, false, 0)], "0/2", "c0(cordoned),c1(empty)", "NoneUp");
        let many: Vec<_> = (0..NAMED_MAX + 2).map(|_| (true, false, 1)).collect();
        assert!(summary(&plan(&many), &TrafficPlanStatus::default(), 0).clusters.ends_with("c19,and 2 more"));
    }
}
