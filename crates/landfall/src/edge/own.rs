//! The edge's own cluster: ready endpoints of its services, watched at its API where the edge was given access to it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event};
use landfall_control::client;
use landfall_health::Point;
use parking_lot::RwLock;
use tokio::sync::watch;

/// The label that says whose endpoints a slice has.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// How long to wait after a watch that failed.
const RETRY: Duration = Duration::from_secs(2);

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

/// The ready endpoints of a slice: by the port's name.
type Slice = HashMap<String, Vec<Point>>;

/// Slices by service and their own name.
type Slices = HashMap<Service, HashMap<String, Arc<Slice>>>;

/// What is known of the own cluster.
#[derive(Default)]
pub(crate) struct Own {
    /// None until everything was read once.
    slices: RwLock<Option<Slices>>,
    changes: watch::Sender<u64>,
}

impl Own {
    /// The ready endpoints of a service's port; none when nothing is known.
    pub(crate) fn endpoints(&self, namespace: &str, service: &str, port: &str) -> Option<Vec<Point>> {
        let slices = self.slices.read();
        let of_service = slices.as_ref()?.get(&(namespace.to_owned(), service.to_owned()))?;
        let points = of_service.values().filter_map(|slice| slice.get(port)).flatten().cloned();
        let mut points: Vec<Point> = points.collect();
        points.sort();
        points.dedup();
        Some(points)
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
                        all.entry(service).or_default().insert(name, Arc::new(ready(&slice)));
                    }
                }
                *self.slices.write() = Some(all);
            }
            Event::Apply(slice) => {
                let (Some((service, name)), Some(all)) = (place(&slice), &mut *self.slices.write()) else {
                    return;
                };
                all.entry(service).or_default().insert(name, Arc::new(ready(&slice)));
            }
            Event::Delete(slice) => {
                let (Some((service, name)), Some(all)) = (place(&slice), &mut *self.slices.write()) else {
                    return;
                };
                if let Some(of_service) = all.get_mut(&service) {
                    of_service.remove(&name);
                    if of_service.is_empty() {
                        all.remove(&service);
                    }
                }
            }
        }
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

fn place(slice: &EndpointSlice) -> Option<(Service, String)> {
    let metadata = &slice.metadata;
    let service = metadata.labels.as_ref()?.get(SERVICE_LABEL)?.clone();
    Some(((metadata.namespace.clone()?, service), metadata.name.clone()?))
}

fn ready(slice: &EndpointSlice) -> Slice {
    let is_ready = |c: &k8s_openapi::api::discovery::v1::EndpointConditions| c.ready != Some(false);
    let endpoints = slice.endpoints.iter().flatten().filter(|e| e.conditions.as_ref().is_none_or(is_ready));
    let hosts: Vec<&String> = endpoints.flat_map(|endpoint| &endpoint.addresses).collect();
    let mut found = Slice::new();
    for port in
        slice.ports.iter().flatten().filter(|port| matches!(port.protocol.as_deref(), None | Some("TCP")))
    {
        let Some(number) = port.port.and_then(|number| u16::try_from(number).ok()) else { continue };
        let points = hosts.iter().map(|host| Point { host: (*host).clone(), port: number });
        found.entry(port.name.clone().unwrap_or_default()).or_default().extend(points);
    }
    found
}

async fn connect(access: &Access) -> Result<kube::Client> {
    let config = match access {
        Access::Kubeconfig(file, context) => of_file(file, context.clone()).await?,
        Access::InCluster => kube::Config::incluster().context("this is no pod with a service account")?,
    };
    Ok(client::connect(&config)?)
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
