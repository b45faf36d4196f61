//! Services behind routes: which there are, their ports, what is spoken to them; and Services that are routes themselves.

use landfall_api::landfall::{BackendProtocol, PlanPort, RoutePlanSpec, RoutePort, RouteService};
use landfall_api::rules::read::{child, text};
use serde_json::Value;

use super::class::CONTROLLER;
use super::options::of_ports;
use super::{Routes, Trouble, begin};
use crate::traffic::probe;

/// What is spoken, by what ports say of themselves.
const APP_PROTOCOLS: &[(&str, BackendProtocol)] = &[
    ("https", BackendProtocol::Https),
    ("kubernetes.io/wss", BackendProtocol::Https),
    ("kubernetes.io/h2c", BackendProtocol::H2c),
    ("h2c", BackendProtocol::H2c),
    ("http2", BackendProtocol::H2c),
    ("grpc", BackendProtocol::H2c),
];

/// A Service that requests can go to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backing {
    /// Its name, and that of its TrafficPlan.
    pub name: String,
    /// Its ports.
    pub ports: Vec<PlanPort>,
    /// Why nothing can go there.
    pub barred: Option<String>,
}

impl Backing {
    /// A Service of the federation.
    pub fn of_service(service: &Value) -> Self {
        let name = text(child(service, "metadata"), "name").to_owned();
        let external = text(child(service, "spec"), "type") == "ExternalName";
        // What it leads to could be anything, also what clients must not reach.
        let barred = external.then(|| format!("the Service {name} is of type ExternalName"));
        Self { ports: probe::ports(service), barred, name }
    }

    /// One of its ports, by number or name.
    pub(super) fn port(&self, wanted: &Port) -> Option<&PlanPort> {
        let tcp = self.ports.iter().filter(|port| port.protocol == "TCP");
        match wanted {
            Port::Number(number) => tcp.into_iter().find(|port| port.port == *number),
            Port::Name(name) => tcp.into_iter().find(|port| port.name == *name),
        }
    }

    /// A port of it, as routes carry it.
    pub(super) fn route(
        &self,
        namespace: &str,
        port: &PlanPort,
        protocol: Option<BackendProtocol>,
    ) -> RouteService {
        RouteService {
            namespace: namespace.to_owned(),
            name: self.name.clone(),
            port: port.port,
            port_name: port.name.clone(),
            protocol: protocol.unwrap_or_else(|| spoken(&port.app_protocol)),
        }
    }
}

/// A port as backends name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Port {
    Number(i32),
    Name(String),
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

fn spoken(app_protocol: &str) -> BackendProtocol {
    let known = APP_PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(app_protocol));
    known.map(|(_, protocol)| *protocol).unwrap_or_default()
}

/// Whether a Service's ports are ours to carry: it wants a load balancer, and ours or anybody's.
pub fn carried_service(service: &Value) -> bool {
    let spec = child(service, "spec");
    text(spec, "type") == "LoadBalancer" && matches!(text(spec, "loadBalancerClass"), "" | CONTROLLER)
}

/// The routes of a Service of type LoadBalancer: its ports, carried as they are. `reserving` tells which edges need a port, such
/// as `80/TCP`, themselves.
pub fn balancer(service: &Value, reserving: &dyn Fn(&str) -> Vec<String>) -> Routes {
    let namespace = text(child(service, "metadata"), "namespace");
    let backing = Backing::of_service(service);
    let mut routes = Routes { spec: RoutePlanSpec { ..begin(service, "", "Service") }, ..Routes::default() };
    of_ports(service, &mut routes);
    for port in &backing.ports {
        if !matches!(port.protocol.as_str(), "TCP" | "UDP") {
            let message = format!("port {}: {} is not carried", port.port, port.protocol);
            routes.troubles.push(Trouble::object("UnsupportedProtocol", message));
            continue;
        }
        let place = format!("{}/{}", port.port, port.protocol);
        let edges = reserving(&place);
        if !edges.is_empty() {
            let edges = edges.join(", ");
            let message = format!("port {place}: edges that need it themselves do not carry it: {edges}");
            routes.troubles.push(Trouble::object("PortTaken", message));
        }
        let service = backing.route(namespace, port, Some(BackendProtocol::default()));
        routes.spec.ports.push(RoutePort { port: port.port, protocol: port.protocol.clone(), service });
    }
    routes
}
