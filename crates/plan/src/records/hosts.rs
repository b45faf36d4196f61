//! Hosts: names that services answer to besides their own, because an Ingress says so.
//!
//! A host is answered with where requests for it are taken: the edges, or the members' own controllers, not with the addresses
//! of the service behind it.

use std::collections::BTreeSet;

use landfall_api::landfall::TrafficPlanSpec;

/// The plan by which hosts are answered: members are reached where their Ingresses are. None where no Ingress has an address.
pub fn front(plan: &TrafficPlanSpec) -> Option<TrafficPlanSpec> {
    if plan.hosts.is_empty() || plan.clusters.iter().all(|cluster| cluster.ingress_addresses.is_empty()) {
        return None;
    }
    let mut front = plan.clone();
    for cluster in &mut front.clusters {
        cluster.addresses = std::mem::take(&mut cluster.ingress_addresses);
        cluster.cluster_ips.clear();
        cluster.pods.clear();
    }
    Some(front)
}

/// A plan and its namespace.
pub type Owned<'a> = (&'a str, &'a TrafficPlanSpec);

/// The service that has a name, as its host or by a wildcard above it; as the servers of names decide it. `domain` is the
/// federation's own.
pub fn owner<'a>(
    plans: &(impl Iterator<Item = Owned<'a>> + Clone),
    domain: Option<&str>,
    name: &str,
) -> Option<Owned<'a>> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let claims = |plan: &TrafficPlanSpec, wanted: &str| plan.hosts.iter().any(|host| same(host, wanted));
    let having = |wanted: &str| {
        let claiming = plans.clone().filter(|(_, plan)| claims(plan, wanted));
        claiming.min_by_key(|(namespace, plan)| rank(namespace, &plan.target_ref.name))
    };
    if let Some(found) = having(&name) {
        return Some(found);
    }
    let known = known(plans.clone(), domain);
    let mut above = name.as_str();
    while let Some((_, rest)) = above.split_once('.') {
        above = rest;
        if let Some(found) = having(&format!("*.{above}")) {
            return Some(found);
        }
        // What exists hides wildcards further up, and what is above the federation's domain is not ours.
        if known.contains(above) || domain.is_some_and(|domain| same(domain, above)) {
            return None;
        }
    }
    None
}

/// All names that exist because of hosts: they themselves, what a wildcard stands below, and what stands between a host and the
/// federation's domain.
fn known<'a>(plans: impl Iterator<Item = Owned<'a>>, domain: Option<&str>) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for host in plans.flat_map(|(_, plan)| &plan.hosts) {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let domain = domain.map(str::to_ascii_lowercase);
        let stem = domain.as_deref().and_then(|domain| host.strip_suffix(domain)?.strip_suffix('.'));
        match (stem, host.strip_prefix("*.")) {
            (Some(stem), _) => {
                let between = stem.match_indices('.').filter_map(|(at, _)| host.get(at + 1..));
                known.extend(between.map(str::to_owned));
            }
            (None, Some(parent)) => {
                known.insert(parent.to_owned());
            }
            (None, None) => {}
        }
        known.insert(host);
    }
    known
}

fn same(a: &str, b: &str) -> bool {
    a.trim_end_matches('.').eq_ignore_ascii_case(b)
}

/// Who comes first of those that claim the same host: by name, then by namespace, each by its length first, as they stand in
/// packets.
fn rank<'a>(namespace: &'a str, name: &'a str) -> (usize, &'a str, usize, &'a str) {
    (name.len(), name, namespace.len(), namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_service_has_a_host_as_where_names_are_served() {
        let plan = |name: &str, host: &str| {
            let mut plan = TrafficPlanSpec { hosts: vec![host.into()], ..TrafficPlanSpec::default() };
            plan.target_ref.name = name.into();
            plan
        };
        let plans = [
            plan("bb", "shop.example.net"),
            plan("c", "shop.example.net"),
            plan("w", "*.apps.example.net"),
            plan("x", "x.y.example.com"),
            plan("v", "*.example.com"),
            plan("d", "deep.shop.example.net"),
        ];
        let check = |name: &str, want: &str| {
            let all = plans.iter().map(|plan| ("ns", plan));
            let found = owner(&all, Some("example.com"), name);
            assert_eq!(found.map_or("", |(_, plan)| plan.target_ref.name.as_str()), want, "{name}");
        };
        check("shop.example.net", "c");
        check("SHOP.example.net.", "c");
        check("one.apps.example.net", "w");
        check("two.one.apps.example.net", "w");
        check("apps.example.net", "");
        check("deep.shop.example.net", "d");
        check("no.shop.example.net", "");
        check("x.y.example.com", "x");
        check("z.y.example.com", "");
        check("z.example.com", "v");
        check("example.org", "");
    }
}
