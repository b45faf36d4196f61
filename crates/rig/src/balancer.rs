//! The load balancer of a cluster: gives Services of type LoadBalancer an address, and brings its packets to a node.
//!
//! Reads:      Services, EndpointSlices; whether each node's kube-proxy answers its health check
//! Decides:    [`decide`]
//! Writes:     status.loadBalancer of Services; routes on the backbone
//! Wakes on:   every half second
//! Guarantees: an address belongs to one Service at a time; safe to start again at any moment
//!
//! kube-proxy does the rest: packets for an address in status.loadBalancer that reach a node go to the endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Api;
use crate::plan::ClusterPlan;
use crate::program::output;
use crate::world::World;

/// How often the state is looked at.
const PERIOD: Duration = Duration::from_millis(500);
/// How long a node may take to accept the connection of a health check.
const CHECK: Duration = Duration::from_millis(300);
/// Where kube-proxy says that it is well.
const PROXY_HEALTH_PORT: u16 = 10256;

/// Where packets for each address go.
type Routes = BTreeMap<Ipv4Addr, Ipv4Addr>;

/// A running load balancer; stops when dropped.
pub(crate) struct Balancer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Balancer {
    /// Starts the load balancer of one cluster.
    pub(crate) fn start(cluster: ClusterPlan, api: Api, world: Arc<World>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut routes, mut known) = (Routes::new(), Known::default());
            while !stopped.load(Ordering::Relaxed) {
                // While the API does not answer, the Services last seen are served on: away from dead nodes, too.
                known = look(&api).unwrap_or(known);
                let alive =
                    if known.services.iter().any(wants) { answering(&cluster) } else { BTreeMap::new() };
                let decision = decide(&cluster, &known, &alive, &routes);
                act(&decision, &mut routes, &api, &world);
                std::thread::sleep(PERIOD);
            }
        });
        Self { stop, thread: Some(thread) }
    }

    /// Asks it to stop, without waiting.
    pub(crate) fn release(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.release();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The nodes that answer, by name.
type Alive = BTreeMap<String, Ipv4Addr>;

/// What the API says.
#[derive(Default)]
struct Known {
    services: Vec<Value>,
    /// Only gathered if a Service wants its packets on the nodes of its endpoints.
    slices: Vec<Value>,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decision {
    /// Services (namespace, name) whose address must be written, or taken away.
    statuses: Vec<(String, String, Option<Ipv4Addr>)>,
    /// All routes that there should be.
    routes: Routes,
}

/// Decides addresses and routes. An address once given stays; the lowest free one is given next.
fn decide(cluster: &ClusterPlan, known: &Known, alive: &Alive, routes: &Routes) -> Decision {
    let mut decision = Decision::default();
    let mut taken: BTreeSet<Ipv4Addr> = known
        .services
        .iter()
        .filter(|service| wants(service))
        .filter_map(|service| address(cluster, service))
        .collect();
    for service in &known.services {
        let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        if !wants(service) {
            if address(cluster, service).is_some() {
                decision.statuses.push((namespace, name, None));
            }
            continue;
        }
        let asked = || service["spec"]["loadBalancerIP"].as_str().and_then(|text| text.parse().ok());
        let given = address(cluster, service);
        let free = |candidate: &Ipv4Addr| cluster.balancers.holds(*candidate) && !taken.contains(candidate);
        let chosen = given
            .or_else(|| asked().filter(free))
            .or_else(|| cluster.balancer_addresses().find(|candidate| !taken.contains(candidate)));
        let Some(chosen) = chosen else { continue };
        taken.insert(chosen);
        if given.is_none() {
            decision.statuses.push((namespace.clone(), name.clone(), Some(chosen)));
        }
        let nodes = candidates(known, alive, service, &namespace, &name);
        // A node that does it well goes on; else the addresses spread over the nodes.
        let current = routes.get(&chosen).filter(|via| nodes.contains(via)).copied();
        let spread =
            usize::from(chosen.octets()[3]).checked_rem(nodes.len()).and_then(|at| nodes.get(at).copied());
        if let Some(via) = current.or(spread) {
            decision.routes.insert(chosen, via);
        }
    }
    decision
}

/// Whether a Service is ours to serve.
fn wants(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer"
        && service["spec"]["loadBalancerClass"].is_null()
        && service["metadata"]["deletionTimestamp"].is_null()
}

/// The address of ours that a Service has.
fn address(cluster: &ClusterPlan, service: &Value) -> Option<Ipv4Addr> {
    let list = service["status"]["loadBalancer"]["ingress"].as_array()?;
    let mut addresses = list.iter().filter_map(|entry| entry["ip"].as_str()?.parse().ok());
    addresses.find(|address| cluster.balancers.holds(*address))
}

/// The nodes that can take a Service's packets: all that live, or those with an endpoint if the Service wants so.
fn candidates(known: &Known, alive: &Alive, service: &Value, namespace: &str, name: &str) -> Vec<Ipv4Addr> {
    if service["spec"]["externalTrafficPolicy"] != "Local" {
        return alive.values().copied().collect();
    }
    let own = known.slices.iter().filter(|slice| {
        slice["metadata"]["namespace"] == namespace
            && slice["metadata"]["labels"]["kubernetes.io/service-name"] == name
    });
    let endpoints = own.filter_map(|slice| slice["endpoints"].as_array()).flatten();
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] != false);
    let names: BTreeSet<&str> = ready.filter_map(|endpoint| endpoint["nodeName"].as_str()).collect();
    alive.iter().filter(|(node, _)| names.contains(node.as_str())).map(|(_, address)| *address).collect()
}

/// Asks the API; none while it does not answer.
fn look(api: &Api) -> Option<Known> {
    // Version 0: whatever the API server has in memory is fresh enough.
    let list = |path: &str| Some(api.get(path).ok()?["items"].as_array()?.clone());
    let services = list("/api/v1/services?resourceVersion=0")?;
    let local = services.iter().any(|service| service["spec"]["externalTrafficPolicy"] == "Local");
    let slices =
        if local { list("/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0")? } else { Vec::new() };
    Some(Known { services, slices })
}

fn answering(cluster: &ClusterPlan) -> Alive {
    let answers = |address: Ipv4Addr| {
        let target = SocketAddr::from((address, PROXY_HEALTH_PORT));
        TcpStream::connect_timeout(&target, CHECK).is_ok()
    };
    let nodes = cluster.nodes.iter().filter(|node| answers(node.address));
    nodes.map(|node| (node.name.clone(), node.address)).collect()
}

fn act(decision: &Decision, routes: &mut Routes, api: &Api, world: &World) {
    // What fails here is tried again in half a second: the routes we remember are those that were made.
    for (address, via) in &decision.routes {
        if routes.get(address) != Some(via) {
            let (address_text, via_text) = (address.to_string(), via.to_string());
            let mut command = world.backbone("ip");
            command.args(["route", "replace", &address_text, "via", &via_text]);
            if output(&mut command).is_ok() {
                routes.insert(*address, *via);
            }
        }
    }
    let gone: Vec<Ipv4Addr> =
        routes.keys().filter(|known| !decision.routes.contains_key(known)).copied().collect();
    for address in gone {
        let _ = output(world.backbone("ip").args(["route", "delete", &address.to_string()]));
        routes.remove(&address);
    }
    for (namespace, name, address) in &decision.statuses {
        let ingress: Vec<Value> =
            address.iter().map(|address| json!({"ip": address, "ipMode": "VIP"})).collect();
        let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        let _ = api.merge(&format!("/api/v1/namespaces/{namespace}/services/{name}/status"), &status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> ClusterPlan {
        crate::plan::plan("t", 200, 1, 2).unwrap().clusters.remove(0)
    }

    fn service(name: &str, spec: &Value, address: Option<&str>) -> Value {
        let ingress: Vec<Value> = address.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "metadata": {"namespace": "default", "name": name}, "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress}},
        })
    }

    fn all_alive() -> Alive {
        cluster().nodes.iter().map(|node| (node.name.clone(), node.address)).collect()
    }

    fn known(services: Vec<Value>) -> Known {
        Known { services, slices: Vec::new() }
    }

    fn given(decision: &Decision) -> Vec<(String, Option<String>)> {
        let show = |(_, name, address): &(String, String, Option<Ipv4Addr>)| {
            (name.clone(), address.map(|a| a.to_string()))
        };
        decision.statuses.iter().map(show).collect()
    }

    #[test]
    fn addresses_are_given_once_and_kept() {
        let balanced = json!({"type": "LoadBalancer"});
        let known = known(vec![
            service("new", &balanced, None),
            service("old", &balanced, Some("10.200.101.1")),
            service("asks", &json!({"type": "LoadBalancer", "loadBalancerIP": "10.200.101.77"}), None),
            service("greedy", &json!({"type": "LoadBalancer", "loadBalancerIP": "10.200.101.1"}), None),
            service("foreign", &json!({"type": "LoadBalancer", "loadBalancerClass": "other"}), None),
            service("was", &json!({"type": "ClusterIP"}), Some("10.200.101.9")),
            service("plain", &json!({"type": "ClusterIP"}), None),
        ]);
        let decision = decide(&cluster(), &known, &all_alive(), &Routes::new());
        let some = |text: &str| Some(text.to_owned());
        let want = [
            ("new", some("10.200.101.2")),
            ("asks", some("10.200.101.77")),
            ("greedy", some("10.200.101.3")),
            ("was", None),
        ];
        assert_eq!(given(&decision), want.map(|(name, address)| (name.to_owned(), address)));
        assert_eq!(decision.routes.len(), 4, "{:?}", decision.routes);
    }

    #[test]
    fn packets_leave_a_dead_node_and_stay_on_a_living_one() {
        let balanced = json!({"type": "LoadBalancer"});
        let known = known(vec![service("a", &balanced, Some("10.200.101.1"))]);
        let address: Ipv4Addr = "10.200.101.1".parse().unwrap();
        let [first, second] = [11, 12].map(|last| Ipv4Addr::new(10, 200, 1, last));
        let (mut alive, routes) = (all_alive(), Routes::from([(address, first)]));
        assert_eq!(
            decide(&cluster(), &known, &alive, &routes).routes[&address],
            first,
            "no change without need"
        );
        alive.remove("us-east-1");
        assert_eq!(decide(&cluster(), &known, &alive, &routes).routes[&address], second);
        alive.clear();
        assert_eq!(decide(&cluster(), &known, &alive, &routes).routes.len(), 0);
    }

    #[test]
    fn a_local_service_goes_to_nodes_with_ready_endpoints() {
        let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
        let mut known = known(vec![service("a", &local, Some("10.200.101.1"))]);
        let endpoint = |node: &str, ready: bool| json!({"nodeName": node, "conditions": {"ready": ready}});
        known.slices = vec![json!({
            "metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "a"}},
            "endpoints": [endpoint("us-east-1", false), endpoint("us-east-2", true)],
        })];
        let routes = decide(&cluster(), &known, &all_alive(), &Routes::new()).routes;
        assert_eq!(routes.values().map(Ipv4Addr::to_string).collect::<Vec<_>>(), ["10.200.1.12"]);
    }
}
