//! The edge's own cluster: ready endpoints of its services, watched at its API where the edge was given access to it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use imbl::OrdMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event};
use landfall_health::Point;
use landfall_proxy::Endpoints;
use parking_lot::RwLock;
use tokio::sync::watch;

/// The label that says whose endpoints a slice has.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// How long to wait after a watch that failed.
const RETRY: Duration = Duration::from_secs(2);
/// How long a connection may take to come about, and how long a watch may be silent: the API tells every minute that it lives.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// How the own cluster's API is reached.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// By a kubeconfig, and a context other than its current one.
    Kubeconfig(PathBuf, Option<String>),
    /// As a pod of it.
    InCluster,
}

/// Namespace and service.
type Service = (String, String);

/// A port's name, whether it is for datagrams, and where it is.
type Slice = Vec<(String, bool, SocketAddr)>;

/// Slices by service and their own name.
type Slices = HashMap<Service, HashMap<String, Slice>>;

/// What is known of the own cluster.
#[derive(Default)]
pub(crate) struct Own {
    known: RwLock<Known>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Known {
    /// None until everything was read once.
    slices: Option<Slices>,
    /// The same, as those need it who carry traffic.
    services: OrdMap<Service, Arc<Endpoints>>,
}

impl Own {
    /// The ready endpoints of a service's port; none when nothing is known.
    pub(crate) fn endpoints(&self, namespace: &str, service: &str, port: &str) -> Option<Vec<Point>> {
        let known = self.known.read();
        let of_service = known.slices.as_ref()?.get(&(namespace.to_owned(), service.to_owned()))?;
        let wanted = of_service.values().flatten().filter(|(name, datagrams, _)| name == port && !datagrams);
        let mut points: Vec<Point> =
            wanted.map(|(_, _, at)| Point { host: at.ip().to_string(), port: at.port() }).collect();
        points.sort();
        points.dedup();
        Some(points)
    }

    /// Whether all of them were read once.
    pub(crate) fn is_known(&self) -> bool {
        self.known.read().slices.is_some()
    }

    /// The ready endpoints of all services.
    pub(crate) fn services(&self) -> OrdMap<Service, Arc<Endpoints>> {
        self.known.read().services.clone()
    }

    /// Tells of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Follows the cluster's API for ever.
    pub(crate) async fn follow(&self, access: &Access) {
        loop {
            match connect(access).await {
                Ok(client) => self.watch(client).await,
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        error,
                        "cannot use the own cluster's API; its endpoints are probed through its Services"
                    );
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn watch(&self, client: kube::Client) {
        let api: kube::Api<EndpointSlice> = kube::Api::all(client);
        let config = watcher::Config::default().labels(SERVICE_LABEL);
        let mut events = watcher::watcher(api, config).boxed();
        let mut listed = Vec::new();
        loop {
            match events.try_next().await {
                Ok(Some(event)) => self.take(event, &mut listed),
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "a watch of the own cluster failed and is begun again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn take(&self, event: Event<EndpointSlice>, listed: &mut Vec<EndpointSlice>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(slice) => return listed.push(slice),
            Event::InitDone => {
                let mut all = Slices::new();
                for slice in listed.drain(..) {
                    if let Some((service, name)) = place(&slice) {
                        all.entry(service).or_default().insert(name, ready(&slice));
                    }
                }
                self.known.write().replace(all);
            }
            Event::Apply(slice) => {
                let Some((service, name)) = place(&slice) else { return };
                self.known.write().change(service, |slices| _ = slices.insert(name, ready(&slice)));
            }
            Event::Delete(slice) => {
                let Some((service, name)) = place(&slice) else { return };
                self.known.write().change(service, |slices| _ = slices.remove(&name));
            }
        }
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Known {
    /// These are all slices.
    fn replace(&mut self, all: Slices) {
        let before = std::mem::take(&mut self.services);
        for (service, slices) in &all {
            let now = endpoints(slices);
            // What has not changed stays the same value, so that nobody works on it again.
            let same = before.get(service).filter(|old| ***old == now).cloned();
            self.services.insert(service.clone(), same.unwrap_or_else(|| Arc::new(now)));
        }
        self.slices = Some(all);
    }

    /// The slices of one service change.
    fn change(&mut self, service: Service, change: impl FnOnce(&mut HashMap<String, Slice>)) {
        let Some(all) = &mut self.slices else { return };
        let slices = all.entry(service.clone()).or_default();
        change(slices);
        if slices.is_empty() {
            all.remove(&service);
            self.services.remove(&service);
            return;
        }
        let now = endpoints(slices);
        if self.services.get(&service).is_none_or(|old| **old != now) {
            self.services.insert(service, Arc::new(now));
        }
    }
}

fn endpoints(slices: &HashMap<String, Slice>) -> Endpoints {
    let mut found = Endpoints::new();
    for (port, _, at) in slices.values().flatten() {
        found.entry(port.clone()).or_default().push(*at);
    }
    for all in found.values_mut() {
        all.sort_unstable();
        all.dedup();
    }
    found
}

fn place(slice: &EndpointSlice) -> Option<(Service, String)> {
    let metadata = &slice.metadata;
    let service = metadata.labels.as_ref()?.get(SERVICE_LABEL)?.clone();
    Some(((metadata.namespace.clone()?, service), metadata.name.clone()?))
}

fn ready(slice: &EndpointSlice) -> Slice {
    let is_ready = |c: &k8s_openapi::api::discovery::v1::EndpointConditions| c.ready != Some(false);
    let endpoints = slice.endpoints.iter().flatten().filter(|e| e.conditions.as_ref().is_none_or(is_ready));
    let hosts: Vec<IpAddr> =
        endpoints.flat_map(|endpoint| &endpoint.addresses).filter_map(|host| host.parse().ok()).collect();
    let mut found = Slice::new();
    for port in slice.ports.iter().flatten() {
        let Some(number) = port.port.and_then(|number| u16::try_from(number).ok()) else { continue };
        let datagrams = match port.protocol.as_deref() {
            None | Some("TCP") => false,
            Some("UDP") => true,
            Some(_) => continue,
        };
        let name = port.name.clone().unwrap_or_default();
        found.extend(hosts.iter().map(|host| (name.clone(), datagrams, SocketAddr::new(*host, number))));
    }
    found
}

/// A client of the own cluster's API. One of kube's own: it knows every way of saying who we are, and reads a pod's token again
/// when it is renewed.
pub(crate) async fn connect(access: &Access) -> Result<kube::Client> {
    let mut config = match access {
        Access::Kubeconfig(file, context) => of_file(file, context.clone()).await?,
        Access::InCluster => kube::Config::incluster().context("this is no pod with a service account")?,
    };
    config.connect_timeout = Some(CONNECT_MAX);
    config.read_timeout = Some(SILENCE_MAX);
    kube::Client::try_from(config).context("cannot make a client")
}

async fn of_file(file: &Path, context: Option<String>) -> Result<kube::Config> {
    let kubeconfig = Kubeconfig::read_from(file)
        .with_context(|| format!("cannot use the kubeconfig {}", file.display()))?;
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    config.with_context(|| format!("cannot use the kubeconfig {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(name: &str, ready: &[(&str, Option<bool>)]) -> EndpointSlice {
        let endpoints: Vec<_> = ready
            .iter()
            .map(|(address, ready)| json!({"addresses": [address], "conditions": {"ready": ready}}))
            .collect();
        let object = json!({
            "metadata": {"name": name, "namespace": "default", "labels": {SERVICE_LABEL: "web"}},
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}],
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn ready_endpoints_of_all_slices() {
        let own = Own::default();
        let hosts = |port: &str| {
            let points = own.endpoints("default", "web", port)?;
            Some(points.into_iter().map(|point| format!("{}:{}", point.host, point.port)).collect::<Vec<_>>())
        };
        assert_eq!(hosts("http"), None, "nothing was read yet");
        let mut listed = Vec::new();
        for event in [
            Event::Init,
            Event::InitApply(slice("one", &[("10.0.0.2", Some(true)), ("10.0.0.3", Some(false))])),
            Event::InitDone,
        ] {
            own.take(event, &mut listed);
        }
        assert_eq!(hosts("http"), Some(vec!["10.0.0.2:8080".into()]));
        own.take(Event::Apply(slice("two", &[("10.0.0.1", None)])), &mut listed);
        assert_eq!(hosts("http"), Some(vec!["10.0.0.1:8080".into(), "10.0.0.2:8080".into()]));
        assert_eq!(hosts("dns"), Some(Vec::new()));
        own.take(Event::Apply(slice("two", &[])), &mut listed);
        own.take(Event::Delete(slice("one", &[])), &mut listed);
        assert_eq!(hosts("http"), Some(Vec::new()), "a service without endpoints is known to have none");
        own.take(Event::Delete(slice("two", &[])), &mut listed);
        assert_eq!(hosts("http"), None);
    }
}
