//! Which doors there should be, and where each leads: a pure function from Services, EndpointSlices and nodes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_api::meta;
use serde_json::Value;

/// The label of a slice that names its Service.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// How long a client stays with its endpoint unless the Service says otherwise.
const AFFINITY_S: u64 = 10_800;

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// Where clients of a Service come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Door {
    /// The address.
    pub(super) at: SocketAddr,
    /// What is spoken there.
    pub(super) protocol: Protocol,
}

/// Where a door leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The Service, as `namespace/name`.
    pub(super) service: String,
    /// Ready endpoints; none means that nobody is at home.
    pub(super) endpoints: Vec<SocketAddr>,
    /// How long a client stays with its endpoint; none when it need not.
    pub(super) affinity: Option<Duration>,
    /// The door's address is of a load balancer, which can be lost.
    pub(super) balancer: bool,
}

/// An endpoint as a slice has it.
#[derive(Clone, Debug)]
struct Endpoint {
    at: SocketAddr,
    node: String,
    /// Takes new connections.
    ready: bool,
    /// On its way out, but still answers: better than nobody.
    serving: bool,
}

/// Endpoints by Service, port name and protocol.
type Endpoints = BTreeMap<(String, String, Protocol), Vec<Endpoint>>;

/// All doors. Two Services that want the same one: the first by name gets it.
pub(super) fn plan<'a>(
    services: impl IntoIterator<Item = &'a Arc<Value>>,
    slices: impl IntoIterator<Item = &'a Arc<Value>>,
    nodes: &[(String, Ipv4Addr)],
) -> BTreeMap<Door, Target> {
    let mut endpoints = Endpoints::new();
    slices.into_iter().for_each(|slice| collect(slice, &mut endpoints));
    let mut doors = BTreeMap::new();
    for service in services {
        for port in service["spec"]["ports"].as_array().into_iter().flatten() {
            for (door, target) in doors_of(service, port, &endpoints, nodes) {
                doors.entry(door).or_insert(target);
            }
        }
    }
    doors
}

fn collect(slice: &Value, into: &mut Endpoints) {
    let Some(service) = meta::label(slice, SERVICE_NAME) else { return };
    let service = format!("{}/{service}", meta::namespace(slice));
    for port in slice["ports"].as_array().into_iter().flatten() {
        let (Some(protocol), Some(number)) = (protocol(port), number(&port["port"])) else { continue };
        let name = port["name"].as_str().unwrap_or("").to_owned();
        let list = into.entry((service.clone(), name, protocol)).or_default();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let address = endpoint["addresses"][0].as_str().and_then(|a| a.parse::<IpAddr>().ok());
            let Some(address) = address else { continue };
            let condition = |name: &str| endpoint["conditions"][name].as_bool();
            let ready = condition("ready").unwrap_or(true);
            let serving = condition("serving").unwrap_or(ready) && condition("terminating") == Some(true);
            let node = endpoint["nodeName"].as_str().unwrap_or("").to_owned();
            list.push(Endpoint { at: SocketAddr::new(address, number), node, ready, serving });
        }
    }
}

fn protocol(port: &Value) -> Option<Protocol> {
    match port["protocol"].as_str() {
        None | Some("TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some(_) => None,
    }
}

fn number(port: &Value) -> Option<u16> {
    port.as_u64().and_then(|port| port.try_into().ok()).filter(|port| *port > 0)
}

fn doors_of(
    service: &Value,
    port: &Value,
    endpoints: &Endpoints,
    nodes: &[(String, Ipv4Addr)],
) -> Vec<(Door, Target)> {
    let spec = &service["spec"];
    let (Some(protocol), Some(number)) = (protocol(port), number(&port["port"])) else { return Vec::new() };
    let name = format!("{}/{}", meta::namespace(service), meta::name(service));
    let port_name = port["name"].as_str().unwrap_or("").to_owned();
    let found = endpoints.get(&(name.clone(), port_name, protocol)).map_or(&[][..], Vec::as_slice);
    let target = |balancer: bool, node: Option<&str>| Target {
        service: name.clone(),
        endpoints: usable(found, node),
        affinity: affinity(spec),
        balancer,
    };
    let door = |address: IpAddr, number: u16| Door { at: SocketAddr::new(address, number), protocol };
    let mut doors = Vec::new();
    for address in addresses(&spec["clusterIPs"], &spec["clusterIP"]) {
        doors.push((door(address, number), target(false, None)));
    }
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    for address in ingress.filter_map(|ingress| ingress["ip"].as_str()?.parse().ok()) {
        doors.push((door(address, number), target(true, None)));
    }
    if let Some(node_port) = self::number(&port["nodePort"]) {
        let local = spec["externalTrafficPolicy"] == "Local";
        for (node, address) in nodes {
            let node = local.then_some(node.as_str());
            doors.push((door((*address).into(), node_port), target(false, node)));
        }
    }
    doors
}

/// The clusterIPs of a Service; headless ones have none.
fn addresses(list: &Value, single: &Value) -> Vec<IpAddr> {
    let listed = list.as_array().into_iter().flatten();
    let texts: Vec<&str> = listed.filter_map(Value::as_str).collect();
    let texts = if texts.is_empty() { single.as_str().into_iter().collect() } else { texts };
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}

/// Endpoints that are ready, else those that still answer on their way out.
fn usable(found: &[Endpoint], node: Option<&str>) -> Vec<SocketAddr> {
    let here = || found.iter().filter(|endpoint| node.is_none_or(|node| endpoint.node == node));
    let mut list: Vec<SocketAddr> = here().filter(|e| e.ready).map(|e| e.at).collect();
    if list.is_empty() {
        list = here().filter(|e| e.serving).map(|e| e.at).collect();
    }
    list.sort_unstable();
    list.dedup();
    list
}

fn affinity(spec: &Value) -> Option<Duration> {
    let seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].as_u64();
    (spec["sessionAffinity"] == "ClientIP").then(|| Duration::from_secs(seconds.unwrap_or(AFFINITY_S)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(spec: &Value, ingress: &Value) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"namespace": "a", "name": "web"}, "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress}},
        }))
    }

    fn slice(endpoints: &Value) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"namespace": "a", "name": "web-1", "labels": {SERVICE_NAME: "web"}},
            "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints,
        }))
    }

    fn check(service: &Arc<Value>, slice: &Arc<Value>, want: &[(&str, &[&str])]) {
        let nodes =
            [("n1".to_owned(), Ipv4Addr::new(127, 1, 17, 1)), ("n2".into(), Ipv4Addr::new(127, 1, 17, 2))];
        let doors = plan([service], [slice], &nodes);
        let found: Vec<(String, Vec<String>)> = doors
            .iter()
            .map(|(door, target)| {
                (door.at.to_string(), target.endpoints.iter().map(ToString::to_string).collect())
            })
            .collect();
        let want: Vec<(String, Vec<String>)> =
            want.iter().map(|(at, to)| ((*at).into(), to.iter().map(|t| (*t).into()).collect())).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn doors_of_services() {
        let ports = json!([{"name": "http", "port": 80}]);
        let with_node = json!([{"name": "http", "port": 80, "nodePort": 30000}]);
        let ready = json!([
            {"addresses": ["127.1.24.1"], "nodeName": "n1"},
            {"addresses": ["127.1.24.2"], "nodeName": "n2", "conditions": {"ready": false}},
        ]);
        let leaving = json!([
            {"addresses": ["127.1.24.1"], "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["127.1.24.2"], "conditions": {"ready": false, "serving": false, "terminating": true}},
        ]);
        let cluster = service(&json!({"clusterIP": "127.1.20.5", "ports": ports}), &json!([]));
        check(&cluster, &slice(&ready), &[("127.1.20.5:80", &["127.1.24.1:8080"])]);
        check(&cluster, &slice(&leaving), &[("127.1.20.5:80", &["127.1.24.1:8080"])]);
        check(&cluster, &slice(&json!([])), &[("127.1.20.5:80", &[])]);
        let headless =
            service(&json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": ports}), &json!([]));
        check(&headless, &slice(&ready), &[]);
        let balanced =
            service(&json!({"clusterIP": "127.1.20.5", "ports": ports}), &json!([{"ip": "127.1.18.1"}]));
        let both: &[(&str, &[&str])] =
            &[("127.1.18.1:80", &["127.1.24.1:8080"]), ("127.1.20.5:80", &["127.1.24.1:8080"])];
        check(&balanced, &slice(&ready), both);
        let local = json!({"externalTrafficPolicy": "Local", "ports": with_node});
        let nodes: &[(&str, &[&str])] =
            &[("127.1.17.1:30000", &["127.1.24.1:8080"]), ("127.1.17.2:30000", &[])];
        check(&service(&local, &json!([])), &slice(&ready), nodes);
    }
}
