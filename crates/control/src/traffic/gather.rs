//! What every member has of a service, gathered for a decision. What cannot be seen now is what it was in the plan before.

use std::sync::Arc;

use landfall_api::landfall::{Address, PlanCluster, TrafficPlanSpec};
use landfall_api::rules::read::{child, list, text};
use serde_json::Value;

use crate::federation::Federation;
use crate::kinds::SLICES;
use crate::member::Member;
use crate::shelf::{Key, Seen};

/// Gathers the members that have a service: where it is reached there, and how many endpoints are ready. Verdicts are those of
/// before; the rest is left to the decision.
pub(super) fn clusters(
    federation: &Arc<Federation>,
    key: &Key,
    ingresses: &[Key],
    previous: Option<&TrafficPlanSpec>,
) -> Vec<PlanCluster> {
    let before = |name: &str| {
        let clusters = previous.into_iter().flat_map(|plan| &plan.clusters);
        clusters.into_iter().find(|cluster| cluster.name == name)
    };
    let one = |member: Arc<Member>| cluster(federation, &member, key, ingresses, before(&member.name));
    federation.all_members().into_iter().filter_map(one).collect()
}

fn cluster(
    federation: &Arc<Federation>,
    member: &Arc<Member>,
    key: &Key,
    ingresses: &[Key],
    before: Option<&PlanCluster>,
) -> Option<PlanCluster> {
    let connected = member.session().is_some();
    let shelf = member.shelf(federation, key.kind);
    let slices = member.shelf(federation, SLICES);
    let Some(seen) = shelf.get(key).filter(|seen| ours(federation, seen)) else {
        // What is not read yet, or cannot be read now, is not gone.
        let unread = !(connected && shelf.synced());
        return before.filter(|_| unread).cloned();
    };
    let shard = federation.recent.read(&seen);
    let mut cluster = PlanCluster {
        name: member.name.clone(),
        verdict: before.map(|before| before.verdict.clone()).unwrap_or_default(),
        addresses: addresses(&shard),
        cluster_ips: cluster_ips(&shard),
        load: before.and_then(|before| before.load),
        capacity: before.and_then(|before| before.capacity),
        ..PlanCluster::default()
    };
    let endpoints = federation.traffic.slices.of(&member.name, &key.namespace, &key.name);
    match before {
        Some(before) if !(connected && slices.synced()) => {
            (cluster.endpoints, cluster.pods) = (before.endpoints, before.pods.clone());
        }
        // Where nobody may count them, there may be some.
        _ if slices.unserved() => cluster.endpoints = 1,
        _ => {
            cluster.endpoints = i32::try_from(endpoints.ready).unwrap_or(i32::MAX);
            let headless = text(child(&shard, "spec"), "clusterIP") == "None";
            cluster.pods = if headless { endpoints.pods } else { Vec::new() };
        }
    }
    for ingress in ingresses {
        match federation.routes.carries(federation, ingress) {
            Some(true) => {
                cluster.ingress_addresses.extend(federation.routes.reached(
                    federation,
                    ingress,
                    &member.name,
                ));
                continue;
            }
            // Who carries it is not known yet: as it was.
            None => {
                cluster
                    .ingress_addresses
                    .extend(before.iter().flat_map(|before| &before.ingress_addresses).cloned());
                continue;
            }
            Some(false) => {}
        }
        let shelf = member.shelf(federation, ingress.kind);
        let Some(seen) = shelf.get(ingress).filter(|seen| ours(federation, seen)) else { continue };
        cluster.ingress_addresses.extend(addresses(&seen.value()));
    }
    let mut seen: Vec<Address> = Vec::new();
    cluster.ingress_addresses.retain(|address| {
        let new = !seen.contains(address);
        seen.extend(new.then(|| address.clone()));
        new
    });
    Some(cluster)
}

/// Whether something in a member is a shard of ours.
fn ours(federation: &Federation, seen: &Seen) -> bool {
    seen.mark.as_ref().is_some_and(|mark| mark.federation == federation.config.federation)
}

/// Where an object's load balancer is reached.
fn addresses(object: &Value) -> Vec<Address> {
    let given =
        |one: &Value, key: &str| Some(text(one, key)).filter(|text| !text.is_empty()).map(str::to_owned);
    let one = |one: &Value| {
        let address = Address { ip: given(one, "ip"), hostname: given(one, "hostname") };
        (address != Address::default()).then_some(address)
    };
    list(child(child(object, "status"), "loadBalancer"), "ingress").iter().filter_map(one).collect()
}

fn cluster_ips(shard: &Value) -> Vec<String> {
    let spec = child(shard, "spec");
    let all = list(spec, "clusterIPs").iter().filter_map(Value::as_str);
    let mut ips: Vec<String> = all.filter(|ip| *ip != "None").map(str::to_owned).collect();
    let first = text(spec, "clusterIP");
    if ips.is_empty() && !matches!(first, "" | "None") {
        ips.push(first.to_owned());
    }
    ips
}
