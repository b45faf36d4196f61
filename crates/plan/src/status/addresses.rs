//! Services and Ingresses: where they are reached.

use landfall_api::addresses::{parse_ip, validate_ip};
use landfall_api::field::{ErrorList, Path};
use landfall_api::landfall::Address;
use landfall_api::names::dns1123_subdomain;
use landfall_api::rules::read::{child, list, text};
use serde_json::{Map, Value, json};

use super::conditions::Conditions;
use super::{MEMBERS_REACHABLE, Picture};
use crate::routes::CONTROLLER;

/// The status of a Service: the federation's host name, then the members' addresses; or the edges', if it asks for them.
pub(super) fn service(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    let spec = child(picture.federated.object, "spec");
    let balanced = text(spec, "type") == "LoadBalancer";
    let hostname =
        picture.federated.hostname.filter(|name| is_host(name)).map(|name| json!({ "hostname": name }));
    let asked = text(spec, "loadBalancerClass") == CONTROLLER;
    let found: Vec<Value> = if asked { edges(picture) } else { members(picture).collect() };
    let addresses = hostname.into_iter().chain(found.into_iter().map(with_mode));
    let addresses = if balanced { unique(addresses) } else { Vec::new() };
    write(status, &addresses);
    let mut conditions = Conditions::of(picture);
    if balanced {
        conditions.reachable("its addresses are left out");
    } else {
        conditions.put(MEMBERS_REACHABLE, None);
    }
    conditions.write(status);
}

/// The status of an Ingress: the addresses of the edges that carry it, or else the members'. It has no conditions.
pub(super) fn ingress(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    let edges = edges(picture);
    let addresses = if edges.is_empty() { unique(members(picture)) } else { unique(edges.into_iter()) };
    write(status, &addresses);
}

/// Where edges are reached; what is no address is left out.
fn edges(picture: &Picture<'_>) -> Vec<Value> {
    let one = |address: &Address| match (&address.ip, &address.hostname) {
        (Some(ip), _) if is_ip(ip) => Some(json!({ "ip": ip })),
        (None, Some(host)) if is_host(host) => Some(json!({ "hostname": host })),
        (Some(_), _) | (None, _) => None,
    };
    picture.federated.edges.iter().filter_map(one).collect()
}

fn write(status: &mut Map<String, Value>, addresses: &[Value]) {
    let balancer = if addresses.is_empty() { json!({}) } else { json!({ "ingress": addresses }) };
    status.insert("loadBalancer".into(), balancer);
}

/// Addresses in members that answer; what is no address is left out.
fn members(picture: &Picture<'_>) -> impl Iterator<Item = Value> {
    let of = |shard: &super::Seen<'_>| list(child(shard.status, "loadBalancer"), "ingress").to_vec();
    let right = |one: &Value| {
        let (ip, host) = (text(one, "ip"), text(one, "hostname"));
        let known = !ip.is_empty() || !host.is_empty();
        known && (ip.is_empty() || is_ip(ip)) && (host.is_empty() || is_host(host))
    };
    picture.live().flat_map(of).filter(right)
}

/// Each address once, at its first place; ports of later mentions are added to the first.
fn unique(addresses: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for one in addresses {
        let same = |other: &&mut Value| ["ip", "hostname"].iter().all(|f| text(other, f) == text(&one, f));
        match all.iter_mut().find(same) {
            Some(first) => add_ports(first, list(&one, "ports")),
            None => all.push(one),
        }
    }
    all
}

fn add_ports(address: &mut Value, more: &[Value]) {
    let Some(ports) = address.get_mut("ports").and_then(Value::as_array_mut) else { return };
    let key = |port: &Value| (child(port, "port").clone(), child(port, "protocol").clone());
    for port in more {
        if !ports.iter().any(|there| key(there) == key(port)) {
            ports.push(port.clone());
        }
    }
}

/// An address says how it is to be reached, as Kubernetes fills it in.
fn with_mode(mut address: Value) -> Value {
    let has_ip = !text(&address, "ip").is_empty();
    if let Some(fields) = address.as_object_mut() {
        match fields.get("ipMode").and_then(Value::as_str) {
            Some("VIP" | "Proxy") if has_ip => {}
            _ if has_ip => _ = fields.insert("ipMode".into(), "VIP".into()),
            _ => _ = fields.remove("ipMode"),
        }
    }
    address
}

fn is_ip(text: &str) -> bool {
    let mut errors = ErrorList::new();
    validate_ip(text, &Path::new("ip"), &mut errors)
}

fn is_host(name: &str) -> bool {
    dns1123_subdomain(name).is_empty() && parse_ip(name).is_none()
}
