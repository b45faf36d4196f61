//! LoadBalancer addresses: what a cloud's service controller does.
//!
//! Reads:      Services
//! Writes:     status.loadBalancer of Services of type LoadBalancer; events EnsuredLoadBalancer, SyncLoadBalancerFailed
//! Guarantees: no address is given twice; one is kept as long as its Service wants one, and free when it goes
//! Limits:     as many as the member's block has; a Service that names a class of its own is left alone

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use landfall_api::meta;
use serde_json::{Value, json};

use super::action::{Action, Deed, Note, Plan};
use super::read::{items, set, text};
use super::{Context, Controller};
use crate::view::Known;

/// Its row.
pub(super) const CONTROLLER: Controller =
    Controller { name: "service-controller", reads: &[Known::Service], decide };

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    let waiting: Vec<&Arc<Value>> =
        context.subjects(Known::Service).into_iter().filter(|service| wants(service)).collect();
    if waiting.is_empty() {
        return plan;
    }
    let mut taken: BTreeSet<Ipv4Addr> =
        context.view.all(Known::Service).flat_map(|service| addresses(service)).collect();
    for service in waiting {
        let range = context.settings.block.load_balancers();
        let asked = text(service, "/spec/loadBalancerIP").parse().ok();
        let asked = asked.filter(|ip| range.contains(*ip) && !taken.contains(ip));
        let Some(address) = asked.or_else(|| range.iter().find(|ip| !taken.contains(ip))) else {
            let why = "Error syncing load balancer: failed to ensure load balancer: no address is free";
            let note = Note::warning(service, "SyncLoadBalancerFailed", why);
            plan.act(Action::on(Known::Service, service, Deed::Tell, "no address is free").noting(note));
            continue;
        };
        taken.insert(address);
        let mut status = service.get("status").cloned().unwrap_or_else(|| json!({}));
        let ingress = json!([{"ip": address.to_string(), "ipMode": "VIP"}]);
        set(&mut status, &["loadBalancer", "ingress"], ingress);
        let note = Note::normal(service, "EnsuredLoadBalancer", "Ensured load balancer");
        plan.act(Action::on(Known::Service, service, Deed::Status(status), "a free address").noting(note));
    }
    plan
}

/// Whether a Service waits for an address.
fn wants(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer"
        && text(service, "/spec/loadBalancerClass").is_empty()
        && items(service, "/status/loadBalancer/ingress").is_empty()
        && !meta::deleting(service)
}

/// The addresses that a Service has.
fn addresses(service: &Value) -> impl Iterator<Item = Ipv4Addr> {
    items(service, "/status/loadBalancer/ingress")
        .iter()
        .filter_map(|ingress| text(ingress, "/ip").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, deeds};
    use super::*;

    #[test]
    fn addresses_are_given_once_and_free_again() {
        let service = |name: &str, ty: &str, status: Value| json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"type": ty}, "status": status});
        let mut bench = Bench::default();
        let first = bench.settings.block.load_balancers().get(0).unwrap().to_string();
        let second = bench.settings.block.load_balancers().get(1).unwrap().to_string();
        let has = json!({"loadBalancer": {"ingress": [{"ip": first}]}});
        bench.put(Known::Service, service("has", "LoadBalancer", has));
        bench.put(Known::Service, service("new", "LoadBalancer", json!({})));
        bench.put(Known::Service, service("plain", "ClusterIP", json!({})));
        let plan = bench.decide(&CONTROLLER);
        assert_eq!(deeds(&plan), ["status of Service a/new (a free address)"]);
        assert!(format!("{:?}", plan.actions[0].deed).contains(&second));
        bench.remove(Known::Service, "a", "has");
        let plan = bench.decide(&CONTROLLER);
        assert!(format!("{:?}", plan.actions[0].deed).contains(&first), "released with its Service");
    }
}
