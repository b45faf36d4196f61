//! Endpoints: the same as EndpointSlices, in the older shape.
//!
//! Reads:      Services, Pods, Endpoints
//! Writes:     Endpoints named after Services with a selector
//! Guarantees: Endpoints that it did not make are left alone when their Service goes
//! Limits:     1,000 addresses of one Service

use std::collections::BTreeMap;

use landfall_api::meta;
use serde_json::{Map, Value, json};

use super::action::{Action, Deed, Plan};
use super::endpointslice::{has_selector, hostname, is_headless, pods_behind, ports_on};
use super::read::{is_true, text};
use super::{Context, Controller, pods};
use crate::view::Known;

/// Its row.
pub(super) const CONTROLLER: Controller = Controller {
    name: "endpoint-controller",
    reads: &[Known::Service, Known::Pod, Known::Endpoints],
    decide,
};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const HEADLESS: &str = "service.kubernetes.io/headless";

/// Addresses of one Service, as in Kubernetes.
const ADDRESSES_MAX: usize = 1000;

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for service in
        context.subjects(Known::Service).into_iter().filter(|s| has_selector(s) && !meta::deleting(s))
    {
        reconcile(context, service, &mut plan);
    }
    let endpoints = context.subjects(Known::Endpoints).into_iter();
    for endpoints in endpoints.filter(|endpoints| meta::label(endpoints, MANAGED_BY) == Some(MANAGER)) {
        let service = context.view.get(Known::Service, meta::namespace(endpoints), meta::name(endpoints));
        if service.is_none() {
            plan.act(Action::on(Known::Endpoints, endpoints, Deed::Delete(None), "its Service is gone"));
        }
    }
    plan
}

fn reconcile(context: &Context<'_>, service: &Value, plan: &mut Plan) {
    let (subsets, labels) = (subsets(context, service), Value::Object(labels(service)));
    let (namespace, name) = (meta::namespace(service), meta::name(service));
    let Some(existing) = context.view.get(Known::Endpoints, namespace, name) else {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
        });
        if !subsets.is_empty() {
            object["subsets"] = json!(subsets);
        }
        plan.act(Action::create(Known::Endpoints, object, "a Service with a selector"));
        return;
    };
    let mut values = Vec::new();
    if super::read::items(existing, "/subsets") != subsets.as_slice() {
        values.push(("/subsets".to_owned(), (!subsets.is_empty()).then(|| json!(subsets))));
    }
    if existing.pointer("/metadata/labels") != Some(&labels) {
        values.push(("/metadata/labels".to_owned(), Some(labels)));
    }
    if !values.is_empty() {
        plan.act(Action::on(Known::Endpoints, existing, Deed::Set(values), "its pods changed"));
    }
}

fn labels(service: &Value) -> Map<String, Value> {
    let mut labels =
        service.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.into(), json!(""));
    }
    labels.insert(MANAGED_BY.into(), json!(MANAGER));
    labels
}

/// One subset for each set of ports, with the addresses that are ready and those that are not.
fn subsets(context: &Context<'_>, service: &Value) -> Vec<Value> {
    let all_ready = is_true(service, "/spec/publishNotReadyAddresses");
    let mut groups: BTreeMap<String, [Vec<Value>; 2]> = BTreeMap::new();
    let mut count = 0;
    for pod in pods_behind(context.view, service).filter(|pod| all_ready || !meta::deleting(pod)) {
        let ports: Vec<Value> = ports_on(service, pod).into_iter().map(named).collect();
        if ports.is_empty() && !is_headless(service) {
            continue;
        }
        let ready = all_ready || pods::is_ready(pod);
        let group = groups.entry(json!(ports).to_string()).or_default();
        group[usize::from(!ready)].push(address(service, pod));
        count += 1;
        if count == ADDRESSES_MAX {
            break;
        }
    }
    groups.into_iter().map(|(ports, addresses)| subset(&ports, addresses)).collect()
}

/// Endpoints leave an empty name out.
fn named(mut port: Value) -> Value {
    if text(&port, "/name").is_empty()
        && let Some(port) = port.as_object_mut()
    {
        port.remove("name");
    }
    port
}

fn subset(ports: &str, addresses: [Vec<Value>; 2]) -> Value {
    let ports: Value = serde_json::from_str(ports).unwrap_or_default();
    let mut subset = json!({});
    for (field, mut list) in ["addresses", "notReadyAddresses"].into_iter().zip(addresses) {
        list.sort_by_key(|address| text(address, "/ip").parse::<std::net::IpAddr>().ok());
        if !list.is_empty() {
            subset[field] = json!(list);
        }
    }
    if ports.as_array().is_some_and(|ports| !ports.is_empty()) {
        subset["ports"] = ports;
    }
    subset
}

fn address(service: &Value, pod: &Value) -> Value {
    let mut address = json!({
        "ip": text(pod, "/status/podIP"),
        "targetRef": {
            "kind": "Pod", "namespace": meta::namespace(pod), "name": meta::name(pod), "uid": meta::uid(pod),
        },
    });
    let node = text(pod, "/spec/nodeName");
    if !node.is_empty() {
        address["nodeName"] = json!(node);
    }
    if let Some(hostname) = hostname(service, pod) {
        address["hostname"] = json!(hostname);
    }
    address
}
