//! `Reach`: where clients and other edges reach this edge: what was typed, or what its Service's load balancer has.
//!
//! The addresses of pods mean nothing outside their cluster, and something else in another one.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::runtime::watcher::{self, Event};
use landfall_api::landfall::Address;
use tokio::sync::watch;

use super::own::{self, Access};

/// The Service's port where other edges come in, by its name; the best first.
const PEER_PORTS: [&str; 2] = ["peer", "dns-tcp"];
/// How long to wait after a watch that failed.
const RETRY: Duration = Duration::from_secs(2);

/// Where an edge is reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    /// By clients.
    pub(crate) addresses: Vec<Address>,
    /// By other edges: the port at the first of these addresses.
    pub(crate) peer_port: Option<u16>,
}

/// Where this edge is reached now.
pub(crate) struct Reach(watch::Sender<Place>);

impl Place {
    /// Where other edges reach it, as `host:port`.
    pub(crate) fn peer(&self) -> Option<String> {
        let (first, port) = (self.addresses.first()?, self.peer_port?);
        let host = first.ip.as_ref().or(first.hostname.as_ref())?;
        Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }
}

impl Reach {
    /// At these addresses, until something else is found.
    pub(crate) fn new(place: Place) -> Self {
        Self(watch::Sender::new(place))
    }

    /// Where it is reached now.
    pub(crate) fn now(&self) -> Place {
        self.0.borrow().clone()
    }

    /// Tells of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Place> {
        self.0.subscribe()
    }

    /// Follows a Service of the pod's own namespace, for ever.
    pub(crate) async fn follow(&self, access: &Access, service: &str) {
        loop {
            match own::connect(access).await {
                Ok(client) => self.watch(Api::default_namespaced(client), service).await,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "cannot see where clients reach this edge");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn watch(&self, api: Api<Service>, service: &str) {
        let config = watcher::Config::default().fields(&format!("metadata.name={service}"));
        let mut events = watcher::watcher(api, config).boxed();
        loop {
            match events.try_next().await {
                Ok(Some(Event::Apply(service) | Event::InitApply(service))) => self.tell(&place(&service)),
                // A Service that is away for a moment, or cannot be seen, changes nothing: its address may be the same again.
                Ok(Some(Event::Init | Event::InitDone | Event::Delete(_))) => {}
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "the watch of this edge's Service failed and is begun again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn tell(&self, place: &Place) {
        self.0.send_if_modified(|before| std::mem::replace(before, place.clone()) != *place);
    }
}

/// Where a Service is reached from outside its cluster.
fn place(service: &Service) -> Place {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
    let address = |ip: Option<&String>, hostname: Option<&String>| Address {
        ip: ip.filter(|ip| !ip.is_empty()).cloned(),
        hostname: hostname.filter(|name| !name.is_empty()).cloned(),
    };
    let given = ingress.into_iter().flatten().map(|one| address(one.ip.as_ref(), one.hostname.as_ref()));
    let spec = service.spec.as_ref();
    let external = spec.and_then(|spec| spec.external_ips.as_ref());
    let external = external.into_iter().flatten().map(|ip| address(Some(ip), None));
    let ports = spec.and_then(|spec| spec.ports.as_ref());
    let named = |name: &str| ports.into_iter().flatten().find(|port| port.name.as_deref() == Some(name));
    let port = PEER_PORTS.into_iter().find_map(named);
    Place {
        addresses: given.chain(external).filter(|one| one.ip.is_some() || one.hostname.is_some()).collect(),
        peer_port: port.and_then(|port| u16::try_from(port.port).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_edge_is_where_its_load_balancer_is() {
        let check = |status: serde_json::Value, expected: Option<&str>| {
            let object = json!({"spec": {"ports": [{"name": "dns", "port": 53}, {"name": "dns-tcp", "port": 53}]},
                "status": {"loadBalancer": status}});
            let place = place(&serde_json::from_value(object).unwrap());
            assert_eq!(place.peer().as_deref(), expected);
        };
        check(json!({}), None);
        check(json!({"ingress": [{"ip": ""}]}), None);
        check(json!({"ingress": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}]}), Some("192.0.2.1:53"));
        check(json!({"ingress": [{"ip": "2001:db8::1"}]}), Some("[2001:db8::1]:53"));
        check(json!({"ingress": [{"hostname": "lb.example.com"}]}), Some("lb.example.com:53"));
    }
}
