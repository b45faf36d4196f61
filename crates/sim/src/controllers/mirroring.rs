//! EndpointSlice mirroring: Endpoints that somebody made by hand for a Service without selector, as EndpointSlices.
//!
//! Reads:      Endpoints, Services, EndpointSlices
//! Writes:     EndpointSlices that it made
//! Guarantees: nothing is mirrored that is labelled skip-mirror, records a leader, or belongs to a Service with a
//!             selector or to none; slices of others are left alone
//! Limits:     1,000 addresses of one set of ports. Absent: the events about addresses that are left out

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_api::meta;
use serde_json::{Map, Value, json};

use super::action::{Action, Deed, Plan};
use super::endpointslice::{MANAGED_BY, SERVICE, has_selector};
use super::read::{controller_reference, items, text};
use super::{Context, Controller};
use crate::view::Known;

/// Its row.
pub(super) const CONTROLLER: Controller = Controller {
    name: "endpoint-slice-mirroring-controller",
    reads: &[Known::Endpoints, Known::Service, Known::EndpointSlice],
    decide,
};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations that slices do not get.
const NOT_COPIED: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];

/// Addresses of one set of ports, as in Kubernetes.
const ADDRESSES_MAX: usize = 1000;

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    // What was made, by the place of the Endpoints it was made from.
    let mut made: BTreeMap<(&str, &str), BTreeMap<&str, &Value>> = BTreeMap::new();
    let endpoints = context.subjects(Known::Endpoints);
    let theirs = endpoints.iter().flat_map(|of| context.view.owned_by(Known::EndpointSlice, meta::uid(of)));
    for slice in context.subjects(Known::EndpointSlice).into_iter().chain(theirs) {
        if meta::label(slice, MANAGED_BY) == Some(MANAGER) && !meta::deleting(slice) {
            let of = (meta::namespace(slice), meta::label(slice, SERVICE).unwrap_or(""));
            made.entry(of).or_default().insert(meta::name(slice), slice);
        }
    }
    for endpoints in endpoints.iter().filter(|endpoints| is_mirrored(context, endpoints)) {
        let existing = made.remove(&(meta::namespace(endpoints), meta::name(endpoints))).unwrap_or_default();
        reconcile(context, endpoints, existing.into_values().collect(), &mut plan);
    }
    for ((namespace, name), slices) in made {
        // A slice that changed does not bring its Endpoints along.
        let whose = context.view.get(Known::Endpoints, namespace, name);
        if whose.is_none_or(|endpoints| !is_mirrored(context, endpoints)) {
            slices.into_values().for_each(|slice| delete(slice, &mut plan));
        }
    }
    plan
}

fn is_mirrored(context: &Context<'_>, endpoints: &Value) -> bool {
    let service = context.view.get(Known::Service, meta::namespace(endpoints), meta::name(endpoints));
    meta::label(endpoints, SKIP) != Some("true")
        && meta::annotation(endpoints, LEADER).is_none()
        && !meta::deleting(endpoints)
        && service.is_some_and(|service| !has_selector(service))
}

fn delete(slice: &Value, plan: &mut Plan) {
    plan.act(Action::on(Known::EndpointSlice, slice, Deed::Delete(None), "nothing to mirror"));
}

fn reconcile(context: &Context<'_>, endpoints: &Value, mut existing: Vec<&Value>, plan: &mut Plan) {
    for ((family, _), (ports, addresses)) in groups(endpoints) {
        let same = |slice: &&Value| text(slice, "/addressType") == family && items(slice, "/ports") == ports;
        match existing.iter().position(same).map(|at| existing.remove(at)) {
            Some(slice) => update(endpoints, slice, &addresses, plan),
            None => create(context, endpoints, family, &ports, &addresses, plan),
        }
    }
    existing.into_iter().for_each(|slice| delete(slice, plan));
}

/// Ports and the endpoints that have them.
type Group = (Vec<Value>, Vec<Value>);

/// The endpoints by family and the text of their ports: one slice has one of each.
fn groups(endpoints: &Value) -> BTreeMap<(&'static str, String), Group> {
    let mut groups: BTreeMap<(&'static str, String), Group> = BTreeMap::new();
    for subset in items(endpoints, "/subsets") {
        let ports: Vec<Value> = items(subset, "/ports").iter().map(port).collect();
        for (field, ready) in [("/addresses", true), ("/notReadyAddresses", false)] {
            for address in items(subset, field) {
                let Ok(ip) = text(address, "/ip").parse::<IpAddr>() else { continue };
                let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
                let key = (family, json!(ports).to_string());
                let group = groups.entry(key).or_insert_with(|| (ports.clone(), Vec::new()));
                if group.1.len() < ADDRESSES_MAX {
                    group.1.push(endpoint(address, ip, ready));
                }
            }
        }
    }
    groups
}

fn port(port: &Value) -> Value {
    let protocol = if text(port, "/protocol").is_empty() { "TCP" } else { text(port, "/protocol") };
    let mut one = json!({"name": text(port, "/name"), "port": port["port"], "protocol": protocol});
    if let Some(app) = port.get("appProtocol").filter(|app| !app.is_null()) {
        one["appProtocol"] = app.clone();
    }
    one
}

fn endpoint(address: &Value, ip: IpAddr, ready: bool) -> Value {
    let mut endpoint = json!({"addresses": [ip.to_string()], "conditions": {"ready": ready}});
    for field in ["targetRef", "nodeName", "hostname"] {
        if let Some(value) = address.get(field).filter(|value| !value.is_null() && *value != "") {
            endpoint[field] = value.clone();
        }
    }
    endpoint
}

fn labels(endpoints: &Value) -> Map<String, Value> {
    let mut labels = map(endpoints, "/metadata/labels");
    labels.insert(SERVICE.into(), json!(meta::name(endpoints)));
    labels.insert(MANAGED_BY.into(), json!(MANAGER));
    labels
}

fn annotations(endpoints: &Value) -> Map<String, Value> {
    let mut annotations = map(endpoints, "/metadata/annotations");
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    annotations
}

fn map(object: &Value, pointer: &str) -> Map<String, Value> {
    object.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn create(
    context: &Context<'_>,
    endpoints: &Value,
    family: &str,
    ports: &[Value],
    addresses: &[Value],
    plan: &mut Plan,
) {
    let prefix = format!("{}-", meta::name(endpoints));
    let which = json!([family, ports]).to_string();
    let name = context.settings.luck.name_of(meta::namespace(endpoints), &prefix, &which);
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "generateName": prefix,
            "namespace": meta::namespace(endpoints), "labels": labels(endpoints),
            "ownerReferences": [controller_reference(endpoints)],
        },
        "addressType": family, "endpoints": addresses, "ports": ports,
    });
    let annotations = annotations(endpoints);
    if !annotations.is_empty() {
        slice["metadata"]["annotations"] = Value::Object(annotations);
    }
    plan.act(Action::create(Known::EndpointSlice, slice, format!("{} endpoints", addresses.len())));
}

fn update(endpoints: &Value, slice: &Value, addresses: &[Value], plan: &mut Plan) {
    let mut values = Vec::new();
    if items(slice, "/endpoints") != addresses {
        values.push(("/endpoints".to_owned(), Some(json!(addresses))));
    }
    for (pointer, wanted) in
        [("/metadata/labels", labels(endpoints)), ("/metadata/annotations", annotations(endpoints))]
    {
        if map(slice, pointer) != wanted {
            values.push((pointer.to_owned(), (!wanted.is_empty()).then_some(Value::Object(wanted))));
        }
    }
    if !values.is_empty() {
        let why = format!("{} endpoints", addresses.len());
        plan.act(Action::on(Known::EndpointSlice, slice, Deed::Set(values), why));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::super::{endpoints, endpointslice};
    use super::*;

    fn bench(selector: &Value, labels: &Value) -> Bench {
        let mut bench = Bench::default();
        bench.put(
            Known::Service,
            json!({"metadata": {"name": "db", "namespace": "a"}, "spec": {"selector": selector, "ports": [
                {"name": "sql", "port": 5432, "protocol": "TCP"}]}}),
        );
        bench.put(
            Known::Endpoints,
            json!({"metadata": {"name": "db", "namespace": "a", "labels": labels, "annotations": {"k": "v",
                "kubectl.kubernetes.io/last-applied-configuration": "{}"}}, "subsets": [
                {"addresses": [{"ip": "10.9.0.1", "hostname": "h"}, {"ip": "fd00::1"}, {"ip": "rubbish"}],
                 "notReadyAddresses": [{"ip": "10.9.0.2"}],
                 "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}]}),
        );
        settle(&mut bench);
        bench
    }

    fn settle(bench: &mut Bench) {
        for controller in [&endpointslice::CONTROLLER, &endpoints::CONTROLLER, &CONTROLLER] {
            bench.settle(controller);
        }
    }

    /// `family: address ready …` of the slices that are mirrors.
    fn mirrors(bench: &Bench) -> Vec<String> {
        let all =
            bench.view.all(Known::EndpointSlice).filter(|s| meta::label(s, MANAGED_BY) == Some(MANAGER));
        let mut lines: Vec<String> = all
            .map(|slice| {
                let shown = items(slice, "/endpoints").iter().map(|endpoint| {
                    format!(" {} {}", text(endpoint, "/addresses/0"), endpoint["conditions"]["ready"])
                });
                format!("{}:{}", text(slice, "/addressType"), shown.collect::<String>())
            })
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn endpoints_made_by_hand_are_mirrored() {
        let mut bench = bench(&Value::Null, &json!({"team": "x"}));
        assert_eq!(mirrors(&bench), ["IPv4: 10.9.0.1 true 10.9.0.2 false", "IPv6: fd00::1 true"]);
        let slice = bench.view.all(Known::EndpointSlice).find(|s| s["addressType"] == "IPv4").unwrap();
        let labels = json!({"team": "x", SERVICE: "db", MANAGED_BY: MANAGER});
        assert_eq!(slice["metadata"]["labels"], labels);
        assert_eq!(slice["metadata"]["annotations"], json!({"k": "v"}));
        assert_eq!(slice["ports"], json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]));
        assert_eq!(slice["endpoints"][0]["hostname"], json!("h"));

        let mut changed = (**bench.view.get(Known::Endpoints, "a", "db").unwrap()).clone();
        changed["subsets"][0]["addresses"] = json!([{"ip": "10.9.0.3"}]);
        bench.put(Known::Endpoints, changed);
        settle(&mut bench);
        assert_eq!(mirrors(&bench), ["IPv4: 10.9.0.3 true 10.9.0.2 false"]);
        bench.remove(Known::Endpoints, "a", "db");
        settle(&mut bench);
        assert_eq!(mirrors(&bench), Vec::<String>::new());
    }

    #[test]
    fn what_is_to_be_skipped_or_has_a_selector_is_not() {
        assert_eq!(mirrors(&bench(&Value::Null, &json!({SKIP: "true"}))), Vec::<String>::new());
        assert_eq!(mirrors(&bench(&json!({"app": "x"}), &json!({}))), Vec::<String>::new());
        let mut alone = bench(&Value::Null, &json!({}));
        alone.remove(Known::Service, "a", "db");
        settle(&mut alone);
        assert_eq!(mirrors(&alone), Vec::<String>::new());
    }
}
