//! The table of built-in kinds: one row per kind, one file per group, in the order discovery shows them.
//!
//! A row says only what differs from the usual: all verbs, no subresources, strategic patches, stored as served.

mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod coordination;
mod core;
mod discovery;
mod events;
mod extensions;
mod networking;
mod policy;
mod rbac;
mod row;
mod scheduling;

use crate::kind::Kind;
use crate::rules;

/// Who serves a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The hub.
    Federation,
    /// A simulated member cluster.
    Member,
}

/// The groups, in the order Kubernetes' discovery lists them.
const GROUPS: [fn(Role) -> Vec<Kind>; 15] = [
    core::kinds,
    apps::kinds,
    events::kinds,
    authentication::kinds,
    authorization::kinds,
    autoscaling::kinds,
    batch::kinds,
    certificates::kinds,
    networking::kinds,
    policy::kinds,
    rbac::kinds,
    extensions::kinds,
    scheduling::kinds,
    coordination::kinds,
    discovery::kinds,
];

/// Every built-in kind the federation serves, in discovery order.
pub fn federation() -> Vec<Kind> {
    of(Role::Federation)
}

/// Every built-in kind a simulated member serves: the federation's, with pods to write to and what runs them.
pub fn member() -> Vec<Kind> {
    let mut kinds = of(Role::Member);
    for kind in &mut kinds {
        kind.rules = rules::member_rules(&kind.group, &kind.kind);
    }
    kinds
}

fn of(role: Role) -> Vec<Kind> {
    GROUPS.iter().flat_map(|kinds| kinds(role)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kind::Scope;

    #[test]
    fn no_kind_is_served_twice() {
        for kinds in [federation(), member()] {
            let mut seen = BTreeSet::new();
            for kind in kinds {
                let row = format!("{}/{}/{}", kind.group, kind.version, kind.plural);
                assert!(seen.insert(row.clone()), "{row} stands twice");
            }
        }
    }

    #[test]
    fn verbs_are_sorted_and_reviews_have_none() {
        for kind in member() {
            assert!(kind.verbs.is_sorted(), "{}", kind.plural);
            assert_eq!(kind.verbs.is_empty(), kind.plural.ends_with("reviews"), "{}", kind.plural);
        }
    }

    #[test]
    fn plurals_are_sorted_within_a_version() {
        let kinds = member();
        for pair in kinds.windows(2) {
            if pair[0].group == pair[1].group && pair[0].version == pair[1].version {
                assert!(pair[0].plural < pair[1].plural, "{} before {}", pair[0].plural, pair[1].plural);
            }
        }
    }

    #[test]
    fn a_member_serves_all_the_federation_serves_and_its_pods_are_writable() {
        let member = member();
        for kind in federation() {
            let same = member
                .iter()
                .find(|k| (&k.group, &k.version, &k.kind) == (&kind.group, &kind.version, &kind.kind));
            let same = same.unwrap_or_else(|| panic!("a member lacks {}", kind.kind));
            assert_eq!(
                same.verbs.contains(&"create"),
                kind.verbs.contains(&"create") || kind.plural == "pods"
            );
        }
        assert!(member.iter().any(|k| k.plural == "nodes" && k.scope == Scope::Cluster));
    }

    #[test]
    fn two_shapes_of_one_object_share_a_store() {
        let stored = |group: &str, version: &str, plural: &str| {
            let kinds = federation();
            let kind = kinds.iter().find(|k| k.group == group && k.version == version && k.plural == plural);
            let kind = kind.expect("served");
            (kind.stored_as.clone(), kind.storage_version.clone())
        };
        assert_eq!(stored("", "v1", "events"), stored("events.k8s.io", "v1", "events"));
        let hpa = "horizontalpodautoscalers";
        assert_eq!(stored("autoscaling", "v1", hpa), stored("autoscaling", "v2", hpa));
        assert_eq!(stored("autoscaling", "v1", hpa).1, "v2");
    }
}
