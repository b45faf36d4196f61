//! EndpointSlice: which pods stand behind each Service.
//!
//! Reads:      Services, Pods, Nodes (their zones), EndpointSlices
//! Decides:    here: the endpoints of each Service, by the ports they have
//! Writes:     EndpointSlices that it made
//! Guarantees: a Service without selector is left alone; slices of others are left alone; a Service with a selector
//!             has at least one slice
//! Limits:     100 endpoints per slice

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::{Map, Value, json};

use super::action::{Action, Deed, Plan};
use super::read::{controller_reference, is_true, items, text};
use super::{Context, Controller, pods};
use crate::view::{Known, View};

/// Its row.
pub const CONTROLLER: Controller = Controller {
    name: "endpoint-slice-controller",
    reads: &[Known::Service, Known::Pod, Known::Node, Known::EndpointSlice],
    decide,
};

pub(super) const SERVICE: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Endpoints in one slice.
const ENDPOINTS_MAX: usize = 100;

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for service in
        context.subjects(Known::Service).into_iter().filter(|s| has_selector(s) && !meta::deleting(s))
    {
        reconcile(context, service, &mut plan);
    }
    plan
}

/// Whether a Service finds its pods by itself.
pub(super) fn has_selector(service: &Value) -> bool {
    let selector = service.pointer("/spec/selector").and_then(Value::as_object);
    text(service, "/spec/type") != "ExternalName" && selector.is_some_and(|s| !s.is_empty())
}

/// The pods that a Service's endpoints are made from: with an address, and not ended.
pub(super) fn pods_behind<'a>(
    view: &'a View,
    service: &'a Value,
) -> impl Iterator<Item = &'a Arc<Value>> + use<'a> {
    let selector = Selector::from_map(service.pointer("/spec/selector"));
    view.within(Known::Pod, meta::namespace(service)).filter(move |pod| {
        selector.matches_object(pod) && !text(pod, "/status/podIP").is_empty() && !pods::is_finished(pod)
    })
}

/// A Service's ports on a pod; names are looked up among the pod's containers.
pub(super) fn ports_on(service: &Value, pod: &Value) -> Vec<Value> {
    let mut ports = Vec::new();
    for port in items(service, "/spec/ports") {
        let Some(number) = target(port, pod) else { continue };
        let mut one = json!({
            "name": text(port, "/name"), "port": number, "protocol": text(port, "/protocol"),
        });
        if let Some(app) = port.get("appProtocol").filter(|app| !app.is_null()) {
            one["appProtocol"] = app.clone();
        }
        ports.push(one);
    }
    ports
}

/// The number of a Service's port on a pod.
pub fn target(port: &Value, pod: &Value) -> Option<i64> {
    match port.get("targetPort") {
        Some(Value::String(name)) => {
            let containers = items(pod, "/spec/containers").iter().chain(sidecars(pod));
            let mut declared = containers.flat_map(|c| items(c, "/ports"));
            let protocol = text(port, "/protocol");
            let same = |p: &&Value| text(p, "/name") == name && text(p, "/protocol") == protocol;
            declared.find(same).and_then(|p| p.get("containerPort")).and_then(Value::as_i64)
        }
        Some(Value::Number(number)) if number.as_i64() != Some(0) => number.as_i64(),
        _ => port.get("port").and_then(Value::as_i64),
    }
}

fn sidecars(pod: &Value) -> impl Iterator<Item = &Value> {
    items(pod, "/spec/initContainers").iter().filter(|c| text(c, "/restartPolicy") == "Always")
}

fn reconcile(context: &Context<'_>, service: &Value, plan: &mut Plan) {
    // By the text of their ports: one slice has one set of ports.
    let mut groups: BTreeMap<String, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for pod in pods_behind(context.view, service) {
        let ports = ports_on(service, pod);
        let group = groups.entry(json!(ports).to_string()).or_insert_with(|| (ports, Vec::new()));
        group.1.push(endpoint(context.view, service, pod));
    }
    if groups.is_empty() {
        // Whoever watches slices sees that the Service has been looked at.
        groups.insert(String::new(), (Vec::new(), Vec::new()));
    }
    let mut existing: Vec<&Arc<Value>> = context
        .view
        .owned_by(Known::EndpointSlice, meta::uid(service))
        .into_iter()
        .filter(|slice| meta::label(slice, MANAGED_BY) == Some(MANAGER) && !meta::deleting(slice))
        .collect();
    for (ports, endpoints) in groups.into_values() {
        let chunks: Vec<&[Value]> =
            if endpoints.is_empty() { vec![&[]] } else { endpoints.chunks(ENDPOINTS_MAX).collect() };
        for chunk in chunks {
            let at = existing.iter().position(|slice| same_ports(slice, &ports));
            match at.map(|at| existing.remove(at)) {
                Some(slice) => update(service, slice, &ports, chunk, plan),
                None => create(context, service, &ports, chunk, plan),
            }
        }
    }
    for slice in existing {
        plan.act(Action::on(Known::EndpointSlice, slice, Deed::Delete(None), "nothing stands behind it"));
    }
}

fn same_ports(slice: &Value, ports: &[Value]) -> bool {
    items(slice, "/ports") == ports
}

fn endpoint(view: &View, service: &Value, pod: &Value) -> Value {
    let (serving, terminating) = (pods::is_ready(pod), meta::deleting(pod));
    let ready = is_true(service, "/spec/publishNotReadyAddresses") || (serving && !terminating);
    let node = text(pod, "/spec/nodeName");
    let mut endpoint = json!({
        "addresses": [text(pod, "/status/podIP")],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {
            "kind": "Pod", "namespace": meta::namespace(pod), "name": meta::name(pod), "uid": meta::uid(pod),
        },
    });
    if !node.is_empty() {
        endpoint["nodeName"] = json!(node);
        let zone = view.get(Known::Node, "", node).and_then(|node| meta::label(node, ZONE));
        if let Some(zone) = zone {
            endpoint["zone"] = json!(zone);
        }
    }
    if let Some(hostname) = hostname(service, pod) {
        endpoint["hostname"] = json!(hostname);
    }
    endpoint
}

/// The name a pod has within a headless Service.
pub(super) fn hostname<'a>(service: &Value, pod: &'a Value) -> Option<&'a str> {
    let (host, domain) = (text(pod, "/spec/hostname"), text(pod, "/spec/subdomain"));
    (!host.is_empty() && domain == meta::name(service)).then_some(host)
}

/// Whether a Service has no address of its own.
pub(super) fn is_headless(service: &Value) -> bool {
    text(service, "/spec/clusterIP") == "None"
}

fn labels(service: &Value) -> Map<String, Value> {
    let mut labels =
        service.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.into(), json!(""));
    }
    labels.insert(SERVICE.into(), json!(meta::name(service)));
    labels.insert(MANAGED_BY.into(), json!(MANAGER));
    labels
}

fn create(context: &Context<'_>, service: &Value, ports: &[Value], endpoints: &[Value], plan: &mut Plan) {
    let prefix = format!("{}-", meta::name(service));
    let which = json!(ports).to_string();
    let name = context.settings.luck.name_of(meta::namespace(service), &prefix, &which);
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "generateName": prefix,
            "namespace": meta::namespace(service), "labels": labels(service),
            "ownerReferences": [controller_reference(service)],
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    });
    plan.act(Action::create(Known::EndpointSlice, slice, format!("{} endpoints", endpoints.len())));
}

fn update(service: &Value, slice: &Value, ports: &[Value], endpoints: &[Value], plan: &mut Plan) {
    let mut values = Vec::new();
    if items(slice, "/endpoints") != endpoints {
        values.push(("/endpoints".to_owned(), Some(json!(endpoints))));
    }
    if items(slice, "/ports") != ports {
        values.push(("/ports".to_owned(), Some(json!(ports))));
    }
    let labels = Value::Object(labels(service));
    if slice.pointer("/metadata/labels") != Some(&labels) {
        values.push(("/metadata/labels".to_owned(), Some(labels)));
    }
    if !values.is_empty() {
        let why = format!("{} endpoints", endpoints.len());
        plan.act(Action::on(Known::EndpointSlice, slice, Deed::Set(values), why));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::endpoints;
    use super::super::testing::Bench;
    use super::*;

    fn service(spec: &Value) -> Value {
        let mut object = json!({"metadata": {"name": "s", "namespace": "a", "uid": "s"}, "spec": {
            "type": "ClusterIP", "clusterIP": "127.1.4.2", "selector": {"app": "x"},
            "ports": [{"name": "", "port": 80, "targetPort": 8080, "protocol": "TCP"}]}});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        object
    }

    fn pod(name: &str, ip: &str, state: &str) -> Value {
        let mut pod = json!({"metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": "x"}},
            "spec": {"nodeName": "n", "containers": [{"ports": [
                {"name": "http", "containerPort": 3000, "protocol": "TCP"}]}]},
            "status": {"phase": if state == "ended" { "Failed" } else { "Running" }, "podIP": ip, "conditions": [
                {"type": "Ready", "status": if state == "unready" { "False" } else { "True" }}]}});
        if state == "ending" {
            pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T00:00:00Z");
        }
        pod
    }

    fn settle(bench: &mut Bench) {
        bench.settle(&CONTROLLER);
        bench.settle(&endpoints::CONTROLLER);
    }

    /// `address:port ready serving terminating` of all slices, sorted.
    fn shown(bench: &Bench) -> Vec<String> {
        let mut lines = Vec::new();
        for slice in bench.view.all(Known::EndpointSlice) {
            let ports: Vec<String> = items(slice, "/ports").iter().map(|p| p["port"].to_string()).collect();
            for endpoint in items(slice, "/endpoints") {
                let is = |c: &'static str| if endpoint["conditions"][c] == true { c } else { "-" };
                let [ready, serving, ending] = [is("ready"), is("serving"), is("terminating")];
                let address = text(endpoint, "/addresses/0");
                lines.push(format!("{address}:{} {ready} {serving} {ending}", ports.join(",")));
            }
        }
        lines.sort();
        lines
    }

    #[track_caller]
    fn check(spec: &Value, expected: &[&str], ready: usize, not_ready: usize) {
        let mut bench = Bench::default();
        bench.put(Known::Service, service(spec));
        for (name, ip, state) in [
            ("p1", "127.1.8.1", "ready"),
            ("p2", "127.1.8.2", "unready"),
            ("p3", "127.1.8.3", "ending"),
            ("p4", "127.1.8.4", "ended"),
            ("p5", "", "ready"),
        ] {
            bench.put(Known::Pod, pod(name, ip, state));
        }
        settle(&mut bench);
        assert_eq!(shown(&bench), expected, "{spec}");
        let endpoints = bench.view.get(Known::Endpoints, "a", "s");
        let count = |field: &str| {
            let subsets = endpoints.map_or(&[][..], |e| items(e, "/subsets"));
            subsets.iter().map(|s| items(s, field).len()).sum::<usize>()
        };
        assert_eq!((count("/addresses"), count("/notReadyAddresses")), (ready, not_ready), "{spec}");
    }

    #[test]
    fn slices_say_who_is_ready() {
        let usual = [
            "127.1.8.1:8080 ready serving -",
            "127.1.8.2:8080 - - -",
            "127.1.8.3:8080 - serving terminating",
        ];
        check(&json!({}), &usual, 1, 1);
        check(&json!({"clusterIP": "None"}), &usual, 1, 1);
        let named = json!({"ports": [{"name": "w", "port": 80, "targetPort": "http", "protocol": "TCP"}]});
        check(&named, &usual.map(|line| line.replace("8080", "3000")).each_ref().map(String::as_str), 1, 1);
        let all = [
            "127.1.8.1:8080 ready serving -",
            "127.1.8.2:8080 ready - -",
            "127.1.8.3:8080 ready serving terminating",
        ];
        check(&json!({"publishNotReadyAddresses": true}), &all, 3, 0);
        check(&json!({"selector": null}), &[], 0, 0);
        check(&json!({"type": "ExternalName"}), &[], 0, 0);
    }

    #[test]
    fn a_service_without_pods_has_an_empty_slice_and_many_pods_several() {
        let mut bench = Bench::default();
        bench.put(Known::Service, service(&json!({})));
        settle(&mut bench);
        assert_eq!(bench.view.all(Known::EndpointSlice).count(), 1);
        for at in 0..150 {
            bench.put(Known::Pod, pod(&format!("p{at}"), &format!("127.1.9.{at}"), "ready"));
        }
        settle(&mut bench);
        let mut sizes: Vec<usize> =
            bench.view.all(Known::EndpointSlice).map(|s| items(s, "/endpoints").len()).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [50, 100]);
        bench.remove(Known::Service, "a", "s");
        settle(&mut bench);
        assert_eq!(bench.view.all(Known::Endpoints).count(), 0, "deleted with the Service");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        /// Whatever happened before, the ready endpoints are the ready pods.
        #[test]
        fn slices_equal_ready_pods(rounds in prop::collection::vec(
            prop::collection::vec((0_u8..20, 0_usize..6), 0..12), 1..6)) {
            let mut bench = Bench::default();
            bench.put(Known::Service, service(&json!({})));
            for round in rounds {
                for (number, state) in round {
                    let name = format!("p{number}");
                    let state = ["ready", "unready", "ending", "ended", "gone", "ready"][state];
                    match state {
                        "gone" => bench.remove(Known::Pod, "a", &name),
                        state => bench.put(Known::Pod, pod(&name, &format!("127.1.8.{number}"), state)),
                    }
                }
                settle(&mut bench);
                let wanted: BTreeSet<String> = bench.view.all(Known::Pod)
                    .filter(|p| pods::is_ready(p) && pods::is_active(p))
                    .map(|p| text(p, "/status/podIP").to_owned()).collect();
                let found: Vec<String> = bench.view.all(Known::EndpointSlice)
                    .flat_map(|s| items(s, "/endpoints"))
                    .filter(|e| e["conditions"]["ready"] == true)
                    .map(|e| text(e, "/addresses/0").to_owned()).collect();
                prop_assert_eq!(found.len(), wanted.len());
                prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), wanted);
            }
        }
    }
}
