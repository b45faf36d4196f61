//! A hub of which only publishing runs: an API in memory, plans written by hand, and what is told of zones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use landfall_apiserver::pki;
use landfall_apiserver::start::{self, Server};
use landfall_control::client::{self, Ask, Trouble, ask_json};
use landfall_control::federation::Federation;
use landfall_control::metrics::Metrics;
use landfall_control::{Config, publish, sources};
use landfall_runtime::metrics::Registry;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::keys;

const TIMEOUT: Duration = Duration::from_secs(10);
/// How long something may take to come true on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct World {
    pub(super) directory: tempfile::TempDir,
    client: kube::Client,
    server: Server,
    leader: Option<Leader>,
    registry: Arc<Registry>,
}

struct Leader {
    federation: Arc<Federation>,
    work: tokio::task::JoinHandle<()>,
}

impl World {
    /// An API, and a hub that leads.
    pub(super) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let config = start::Config {
            pki: pki::Config {
                data_dir: directory.path().join("hub"),
                names: vec!["127.0.0.1".into()],
                server: url,
                ..pki::Config::default()
            },
            token_file: None,
            anonymous: false,
            audit: None,
            kinds: landfall_api::kinds::federation(),
            definitions: landfall_api::landfall::definitions(),
            identity: "it".into(),
            admission: None,
            beside: None,
            edge_certificate_s: 3600,
        };
        let store =
            landfall_store::open_memory(landfall_store::embedded::Config::new(directory.path())).unwrap();
        let server = start::start(config, store, listener).await.unwrap();
        let kubeconfig = Kubeconfig::read_from(&server.admin_kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let hub = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        let client = client::connect(&hub).unwrap();
        let mut world = Self { directory, client, server, leader: None, registry: Arc::default() };
        for name in ["landfall-system", "shop"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            // Ours may be there already.
            let _ = world.ask(Method::POST, "/api/v1/namespaces", Some(&namespace)).await;
        }
        world.lead().await;
        world
    }

    /// Another hub leads from now on; it knows nothing but what stands at the API and in the zones.
    pub(super) async fn lead(&mut self) {
        self.retire().await;
        let config = Config {
            federation: "fed".into(),
            domain: Some("example.com".into()),
            keys: Some(keys::open),
            ..Config::default()
        };
        let registry = self.registry.clone();
        let federation = Arc::new(Federation::new(config, self.client.clone(), Metrics::new(&registry)));
        sources::follow(&federation).await;
        let own = federation.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the leader")]
        let work = tokio::spawn(async move { publish::run(&own, &registry).await });
        self.leader = Some(Leader { federation, work });
    }

    /// Nobody leads.
    pub(super) async fn retire(&mut self) {
        if let Some(leader) = self.leader.take() {
            leader.work.abort();
            leader.federation.tasks.join().await;
        }
    }

    pub(super) async fn stop(mut self) {
        self.retire().await;
        self.server.stop().await;
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Trouble> {
        let ask = match body {
            Some(body) if method == Method::PATCH => {
                Ask::with(method, path, "application/merge-patch+json", body)
            }
            Some(body) => Ask::with(method, path, "application/json", body),
            None => Ask::new(method, path),
        };
        ask_json(&self.client, ask, TIMEOUT).await
    }

    /// Writes a Secret of ours.
    pub(super) async fn secret(&self, name: &str, entries: &[(&str, &str)]) {
        let data: serde_json::Map<String, Value> =
            entries.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let path = "/api/v1/namespaces/landfall-system/secrets";
        let object = json!({"metadata": {"name": name}, "stringData": data});
        let one = format!("{path}/{name}");
        let there = self.ask(Method::GET, &one, None).await.is_ok();
        let done = match there {
            true => self.ask(Method::PATCH, &one, Some(&json!({"stringData": data}))).await,
            false => self.ask(Method::POST, path, Some(&object)).await,
        };
        done.unwrap();
    }

    /// Writes the plan of a service in `shop`, or the federation's own.
    pub(super) async fn plan(&self, namespace: &str, name: &str, spec: &Value) {
        let path = format!("/apis/landfall.dev/v1alpha1/namespaces/{namespace}/trafficplans");
        let one = format!("{path}/{name}");
        let mut object = json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "TrafficPlan", "metadata": {"name": name}, "spec": spec,
        });
        let written = match self.ask(Method::GET, &one, None).await {
            Ok(there) => {
                object["metadata"] = there["metadata"].clone();
                self.ask(Method::PUT, &one, Some(&object)).await
            }
            Err(_) => self.ask(Method::POST, &path, Some(&object)).await,
        };
        written.unwrap();
    }

    /// Deletes the plan of a service in `shop`.
    pub(super) async fn unplan(&self, name: &str) {
        let path = format!("/apis/landfall.dev/v1alpha1/namespaces/shop/trafficplans/{name}");
        self.ask(Method::DELETE, &path, None).await.unwrap();
    }

    /// Writes a zone.
    pub(super) async fn zone(&self, name: &str, spec: &Value) {
        let path = "/apis/landfall.dev/v1alpha1/dnszones";
        let object = json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "DNSZone", "metadata": {"name": name}, "spec": spec,
        });
        self.ask(Method::POST, path, Some(&object)).await.unwrap();
    }

    /// Deletes a zone.
    pub(super) async fn unzone(&self, name: &str) {
        self.ask(Method::DELETE, &format!("/apis/landfall.dev/v1alpha1/dnszones/{name}"), None)
            .await
            .unwrap();
    }

    /// What is told of a zone: its condition's status and reason; nothing if there is no such zone.
    pub(super) async fn told(&self, name: &str) -> Option<String> {
        let path = format!("/apis/landfall.dev/v1alpha1/dnszones/{name}");
        let object = self.ask(Method::GET, &path, None).await.ok()?;
        let condition = object.pointer("/status/conditions/0");
        let text = |key: &str| condition.and_then(|c| c.get(key)).and_then(Value::as_str).unwrap_or("?");
        Some(format!("{} {}", text("status"), text("reason")))
    }

    /// Waits until a zone tells this.
    pub(super) async fn tells(&self, name: &str, want: &str) {
        until(&format!("zone {name} to be {want}"), async || {
            let told = self.told(name).await.unwrap_or_else(|| "gone".into());
            if told == want { Ok(()) } else { Err(told) }
        })
        .await;
    }

    /// How many names were changed so far, in all zones.
    pub(super) fn changes(&self) -> usize {
        let text = self.registry.render();
        let lines = text.lines().filter(|line| line.starts_with("landfall_publish_changes_total{"));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok()).sum()
    }

    /// The reasons of a zone's Events.
    pub(super) async fn events(&self, name: &str) -> Vec<String> {
        let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
        let list = self.ask(Method::GET, &path, None).await.unwrap();
        let reason = |event: &Value| event["reason"].as_str().unwrap_or_default().to_owned();
        list["items"].as_array().into_iter().flatten().map(reason).collect()
    }
}

/// Asks again and again until it is so; fails with the last word.
pub(super) async fn until(what: &str, mut so: impl AsyncFnMut() -> Result<(), String>) {
    let began = Instant::now();
    loop {
        match so().await {
            Ok(()) => return,
            Err(last) if began.elapsed() > PATIENCE => panic!("waited for {what}, but: {last}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(30)).await,
        }
    }
}
