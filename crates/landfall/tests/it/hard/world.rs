//! A hub in this process and members that can be hard to work with.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use landfall_apiserver::api::Api;
use landfall_apiserver::local::Local;
use landfall_apiserver::pki;
use landfall_apiserver::start::{self, Server};
use landfall_control::client::{self, Ask, Trouble, ask_json};
use landfall_runtime::metrics::Registry;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::member::Member;

const TIMEOUT: Duration = Duration::from_secs(10);
/// How long something may take to come true on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// See the module.
pub(super) struct World {
    pub(super) members: Vec<Member>,
    client: kube::Client,
    server: Server,
    hub: kube::Config,
    work: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl World {
    /// A hub and members of these names, all well.
    pub(super) async fn new(names: &[&'static str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = start::Config {
            pki: pki::Config {
                data_dir: directory.path().join("hub"),
                names: vec!["127.0.0.1".into()],
                server: format!("https://{}", listener.local_addr().unwrap()),
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
        let hub =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = client::connect(&hub).unwrap();
        let work = lead(hub.clone());
        let mut world = Self { members: Vec::new(), client, server, hub, work, _directory: directory };
        for name in names {
            world.join(Member::start(name).await).await;
        }
        for name in names {
            world
                .becomes("ready", &json!("True"), async |world| {
                    world.condition(name, "Ready").await["status"].clone()
                })
                .await;
        }
        world
    }

    pub(super) async fn join(&mut self, member: Member) {
        self.join_with(member, &json!({})).await;
    }

    /// A member joins of which the spec says more.
    pub(super) async fn join_with(&mut self, member: Member, more: &Value) {
        let mut cluster = json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": member.name},
            "spec": {
                "endpoints": [{"server": format!("https://{}", member.at)}], "caBundle": member.ca_bundle,
                "probe": {"periodSeconds": 1, "timeoutSeconds": 5},
            },
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            cluster["spec"][key] = value.clone();
        }
        self.post("/apis/landfall.dev/v1alpha1/clusters", &cluster).await;
        self.members.push(member);
    }

    /// Whoever leads is gone from one moment to the next, and somebody leads who knows what stands at the API and no more.
    pub(super) async fn another_leads(&mut self) {
        self.work.abort();
        // It ends, one way or the other.
        let _ = (&mut self.work).await;
        self.work = lead(self.hub.clone());
    }

    pub(super) async fn stop(self) {
        self.work.abort();
        for member in self.members {
            member.stop().await;
        }
        self.server.stop().await;
    }

    pub(super) fn member(&self, name: &str) -> &Member {
        self.members.iter().find(|member| member.name == name).unwrap()
    }

    pub(super) fn member_mut(&mut self, name: &str) -> &mut Member {
        self.members.iter_mut().find(|member| member.name == name).unwrap()
    }

    /// Waits until something is so; the last that was seen is told when it never is.
    pub(super) async fn becomes<T: PartialEq + Debug>(
        &self,
        what: &str,
        expected: &T,
        look: impl AsyncFn(&Self) -> T,
    ) {
        let began = Instant::now();
        loop {
            let seen = look(self).await;
            if seen == *expected {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {seen:?}, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    // === at the hub ===

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

    pub(super) async fn post(&self, path: &str, object: &Value) {
        self.ask(Method::POST, path, Some(object)).await.unwrap();
    }

    pub(super) async fn merge(&self, path: &str, change: &Value) {
        self.ask(Method::PATCH, path, Some(change)).await.unwrap();
    }

    pub(super) async fn delete(&self, path: &str) {
        self.ask(Method::DELETE, path, None).await.unwrap();
    }

    /// An object at the hub; null when it is not there.
    pub(super) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, None).await.unwrap_or_default()
    }

    /// A condition of a `Cluster`.
    pub(super) async fn condition(&self, cluster: &str, kind: &str) -> Value {
        condition(&self.get(&format!("/apis/landfall.dev/v1alpha1/clusters/{cluster}")).await, kind)
    }

    /// The condition `Propagated` of an object, as `status reason`.
    pub(super) async fn propagated(&self, path: &str) -> String {
        let own = condition(&self.get(path).await, "Propagated");
        let text = |key: &str| own[key].as_str().unwrap_or("-").to_owned();
        format!("{} {}", text("status"), text("reason"))
    }

    /// What is told of an object's clusters.
    pub(super) async fn told(&self, path: &str) -> String {
        let object = self.get(path).await;
        object["metadata"]["annotations"]["landfall.dev/clusters"].as_str().unwrap_or("").to_owned()
    }

    /// The messages of the Events with a reason in the default namespace.
    pub(super) async fn events(&self, reason: &str) -> Vec<String> {
        let list = self.get("/api/v1/namespaces/default/events").await;
        let of = |event: &Value| {
            (event["reason"] == reason).then(|| event["message"].as_str().unwrap_or("").to_owned())
        };
        list["items"].as_array().into_iter().flatten().filter_map(of).collect()
    }

    // === in members, whatever their mood ===

    /// An object in a member; null when it is not there.
    pub(super) fn in_member(&self, member: &str, plural: &str, name: &str) -> Value {
        stored(&self.member(member).api(), plural, name)
    }

    /// How many objects of a kind that begin so are in a member's default namespace.
    pub(super) fn count_in(&self, member: &str, plural: &str, begins: &str) -> usize {
        let api = self.member(member).api();
        let snapshot = api.store.snapshot();
        snapshot.range(&format!("core/{plural}/default/{begins}"), "").count()
    }

    /// Writes to a member as somebody who works there.
    pub(super) fn hand(&self, member: &str, manager: &str) -> Local {
        Local::new(self.member(member).api(), manager)
    }
}

/// The controllers of a hub that leads.
fn lead(hub: kube::Config) -> tokio::task::JoinHandle<()> {
    let config = landfall_control::Config { federation: "fed".into(), ..landfall_control::Config::default() };
    #[expect(clippy::disallowed_methods, reason = "it ends with the world")]
    tokio::spawn(async move { landfall_control::run(config, &hub, &Registry::default()).await })
}

fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind).cloned().unwrap_or_default()
}

fn stored(api: &Api, plural: &str, name: &str) -> Value {
    let key = landfall_apiserver::keys::object(
        if plural == "deployments" { "apps" } else { "" },
        plural,
        "default",
        name,
    );
    api.store
        .snapshot()
        .get(&key)
        .map(|entry| serde_json::from_slice(&entry.value).unwrap())
        .unwrap_or_default()
}
