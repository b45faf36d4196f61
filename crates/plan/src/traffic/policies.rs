//! Which policy a service follows: the most particular one; of several that are alike, the oldest.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use landfall_api::landfall::{ClusterSelection, TrafficPolicy, TrafficPolicySpec};
use landfall_api::selector::Selector;

use crate::membership::Truth;
use crate::reason::Reason;
use crate::routes::DERIVED_LABEL;

/// So many services are named in a condition.
const NAMED_MAX: usize = 5;

/// A service, as policies look at it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// One condition of a policy: its type, whether it holds, why.
pub type Standing = (&'static str, Truth, Reason);

/// How particularly a policy means a service; less is more so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Means {
    ByName,
    ByLabel,
    Everything,
}

/// The policy that a service follows, of all in its namespace.
pub fn pick<'a>(policies: &'a [TrafficPolicy], service: &Subject<'_>) -> Option<&'a TrafficPolicy> {
    rank(policies, service).first().map(|(_, policy)| *policy)
}

/// What becomes of each policy of a namespace, given all services there: the conditions Accepted and Conflicted.
pub fn standings(policies: &[TrafficPolicy], services: &[Subject<'_>]) -> Vec<[Standing; 2]> {
    let mut followed = vec![false; policies.len()];
    let mut lost: Vec<Vec<String>> = vec![Vec::new(); policies.len()];
    for service in services {
        let ranked = rank(policies, service);
        let Some((best, winner)) = ranked.first() else { continue };
        for (means, policy) in &ranked {
            let Some(at) = policies.iter().position(|one| std::ptr::eq(one, *policy)) else { continue };
            if std::ptr::eq(*policy, *winner) {
                followed[at] = true;
            } else if means == best {
                lost[at].push(format!("{} follows {}", service.name, name(winner)));
            }
        }
    }
    policies
        .iter()
        .zip(followed.iter().zip(lost))
        .map(|(policy, (followed, lost))| standing(policy, *followed, &lost))
        .collect()
}

fn standing(policy: &TrafficPolicy, followed: bool, lost: &[String]) -> [Standing; 2] {
    let accepted = match problem(&policy.spec) {
        Some(problem) => (Truth::False, Reason::new("Invalid", problem)),
        None if followed => (Truth::True, Reason::new("Accepted", "services follow it")),
        None if !lost.is_empty() => {
            (Truth::False, Reason::new("Conflicted", "every service that it means follows an older one"))
        }
        None => (Truth::False, Reason::new("TargetNotFound", "no service follows it")),
    };
    let conflicted = match lost {
        [] => (Truth::False, Reason::new("NoConflict", "no other policy stands in its way")),
        lost => {
            let more = match lost.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named = lost.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
            (Truth::True, Reason::new("OlderPolicy", format!("{named}{more}: the older one counts")))
        }
    };
    [("Accepted", accepted.0, accepted.1), ("Conflicted", conflicted.0, conflicted.1)]
}

/// The policies that mean a service: the most particular first, then the oldest.
fn rank<'a>(policies: &'a [TrafficPolicy], service: &Subject<'_>) -> Vec<(Means, &'a TrafficPolicy)> {
    let mut all: Vec<(Means, &TrafficPolicy)> =
        policies.iter().filter_map(|policy| Some((means(&policy.spec, service)?, policy))).collect();
    let age = |policy: &TrafficPolicy| policy.metadata.creation_timestamp.as_ref().map(|time| time.0);
    all.sort_by(|(a_means, a), (b_means, b)| {
        a_means.cmp(b_means).then(age(a).cmp(&age(b))).then(name(a).cmp(name(b)))
    });
    all
}

fn means(spec: &TrafficPolicySpec, service: &Subject<'_>) -> Option<Means> {
    let named = |of: &landfall_api::landfall::ObjectReference| {
        match of.kind.as_str() {
            "Service" => of.group.is_empty() && of.name == service.name,
            // It stands for one that nobody knows by name.
            "MultiClusterService" => service.labels.get(DERIVED_LABEL) == Some(&of.name),
            _ => false,
        }
    };
    if spec.target_refs.iter().any(named) {
        return Some(Means::ByName);
    }
    match &spec.selector {
        Some(labels) => {
            let selector = read(labels).ok()?;
            selector.matches_with(|key| service.labels.get(key).map(String::as_str)).then_some(Means::ByLabel)
        }
        None if spec.target_refs.is_empty() => Some(Means::Everything),
        None => None,
    }
}

/// What cannot be read in a policy.
fn problem(spec: &TrafficPolicySpec) -> Option<String> {
    let wrong = |field: &str, selector: Option<&LabelSelector>| {
        selector.and_then(|selector| read(selector).err()).map(|problem| format!("{field}: {problem}"))
    };
    let of = |field: &str, selection: Option<&ClusterSelection>| {
        wrong(field, selection.and_then(|selection| selection.selector.as_ref()))
    };
    let weights = || {
        spec.weights.iter().zip(0..).find_map(|(weight, at)| {
            of(&format!("spec.weights[{at}].clusters.selector"), Some(&weight.clusters))
        })
    };
    wrong("spec.selector", spec.selector.as_ref())
        .or_else(|| of("spec.fence.selector", spec.fence.as_ref()))
        .or_else(|| of("spec.canary.clusters.selector", spec.canary.as_ref().map(|canary| &canary.clusters)))
        .or_else(weights)
}

fn read(selector: &LabelSelector) -> Result<Selector, String> {
    let value = serde_json::to_value(selector).map_err(|error| error.to_string())?;
    Selector::from_object(Some(&value))
}

fn name(policy: &TrafficPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, created: &str, spec: &Value) -> TrafficPolicy {
        let object = json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "TrafficPolicy",
            "metadata": {"name": name, "creationTimestamp": created}, "spec": spec,
        });
        serde_json::from_value(object).expect("a policy")
    }

    #[test]
    fn a_multi_cluster_service_is_meant_by_its_own_name() {
        let of = |name: &str| json!({"targetRefs": [{"group": "landfall.dev", "kind": "MultiClusterService", "name": name}]});
        let labels = BTreeMap::from([(DERIVED_LABEL.to_owned(), "shop".to_owned())]);
        let service = Subject { name: "mci-shop-svc-1", labels: &labels };
        for (policy_of, expected) in [("shop", true), ("other", false)] {
            let policies = [policy("p", "2026-01-01T00:00:00Z", &of(policy_of))];
            assert_eq!(pick(&policies, &service).is_some(), expected, "{policy_of}");
        }
    }

    #[test]
    fn the_most_particular_counts_then_the_oldest() {
        let policies = [
            policy("all", "2026-01-01T00:00:00Z", &json!({})),
            policy("all-later", "2026-01-02T00:00:00Z", &json!({})),
            policy("gold", "2026-01-03T00:00:00Z", &json!({"selector": {"matchLabels": {"tier": "gold"}}})),
            policy(
                "web",
                "2026-01-05T00:00:00Z",
                &json!({"targetRefs": [{"kind": "Service", "name": "web"}]}),
            ),
            policy(
                "web-old",
                "2026-01-04T00:00:00Z",
                &json!({"targetRefs": [{"kind": "Service", "name": "web"}]}),
            ),
            policy(
                "wrong",
                "2026-01-01T00:00:00Z",
                &json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
            ),
            policy(
                "idle",
                "2026-01-01T00:00:00Z",
                &json!({"targetRefs": [{"kind": "Service", "name": "gone"}]}),
            ),
        ];
        let (plain, gold) = (BTreeMap::new(), BTreeMap::from([("tier".to_owned(), "gold".to_owned())]));
        let services = [
            Subject { name: "api", labels: &plain },
            Subject { name: "db", labels: &gold },
            Subject { name: "web", labels: &gold },
        ];
        let picked: Vec<&str> =
            services.iter().map(|service| pick(&policies, service).map_or("-", name)).collect();
        assert_eq!(picked, ["all", "gold", "web-old"]);
        assert_eq!(pick(&policies[6..], &services[0]).map(name), None);
        let told: Vec<String> = policies
            .iter()
            .zip(standings(&policies, &services))
            .map(|(policy, [accepted, conflicted])| {
                format!(
                    "{} {:?} {} {:?} {}",
                    name(policy),
                    accepted.1,
                    accepted.2.code,
                    conflicted.1,
                    conflicted.2
                )
            })
            .collect();
        let quiet = "NoConflict: no other policy stands in its way";
        assert_eq!(
            told,
            [
                format!("all True Accepted False {quiet}"),
                "all-later False Conflicted True OlderPolicy: api follows all: the older one counts"
                    .to_owned(),
                format!("gold True Accepted False {quiet}"),
                "web False Conflicted True OlderPolicy: web follows web-old: the older one counts".to_owned(),
                format!("web-old True Accepted False {quiet}"),
                format!("wrong False Invalid False {quiet}"),
                format!("idle False TargetNotFound False {quiet}"),
            ]
        );
    }
}
