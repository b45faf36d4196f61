//! A started API server with member kinds, for tests of what lives on it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_api::meta;
use landfall_apiserver::api::Api;
use landfall_apiserver::authn::User;
use landfall_apiserver::options::FieldValidation;
use landfall_apiserver::write::delete::{self, DeleteOptions};
use landfall_apiserver::write::update::{self, Part};
use landfall_apiserver::write::{By, Wanted, create};
use landfall_apiserver::{bootstrap, encode, keys};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::address::Claim;
use crate::agent::{self, Pace};
use crate::forward;
use crate::gate::Gate;
use crate::{Member, MemberConfig, NodeSpec, Timings};

/// The longest that anything in a test is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member with agents and a forwarder.
pub(crate) struct World {
    pub(crate) member: Member,
    pub(crate) claim: Claim,
    pub(crate) gate: Gate,
    pub(crate) agent: agent::Agent,
    pub(crate) forwarder: forward::Forwarder,
    /// For files of a test.
    pub(crate) directory: tempfile::TempDir,
    config: agent::Config,
    user: User,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// A member of two nodes that restarts containers fast.
    pub(crate) async fn start_with(change: impl FnOnce(&mut agent::Config)) -> Self {
        let claim = Claim::take(None).unwrap();
        let nodes = vec![NodeSpec::new("n1", "east-a"), NodeSpec::new("n2", "east-b")];
        let config = MemberConfig {
            name: "east".into(),
            region: "us".into(),
            nodes: nodes.clone(),
            listen: SocketAddr::from((claim.block().api(), 0)),
            data: None,
            block: claim.block(),
            timings: Timings::KUBERNETES,
            seed: 1,
        };
        let member = Member::start(config).await.unwrap();
        let gate = Gate::default();
        let mut config = agent::Config::new("east", claim.block(), nodes);
        config.pace = Pace {
            heartbeat: Duration::from_millis(100),
            restart_first: Duration::from_millis(50),
            restart_max: Duration::from_millis(200),
        };
        change(&mut config);
        let addresses = config.node_addresses();
        let agent = agent::start(member.api(), gate.clone(), config.clone());
        let forwarder = forward::start(
            member.api(),
            gate.clone(),
            forward::Config { nodes: addresses, ..forward::Config::default() },
        );
        let (directory, user) = (tempfile::tempdir().unwrap(), bootstrap::server());
        Self { member, claim, gate, agent, forwarder, directory, config, user }
    }

    /// Starts the agents again.
    pub(crate) fn start_agent(&mut self) {
        self.agent = agent::start(self.api(), self.gate.clone(), self.config.clone());
    }

    pub(crate) async fn stop(self) {
        self.forwarder.stop().await;
        self.agent.stop().await;
        self.member.stop().await;
    }

    fn api(&self) -> &Arc<Api> {
        self.member.api()
    }

    fn by(&self) -> By<'_> {
        By {
            user: &self.user,
            manager: "test",
            dry_run: false,
            validation: FieldValidation::Strict,
            served: None,
        }
    }

    fn kind(&self, group: &str, plural: &str) -> Arc<landfall_api::Kind> {
        self.api().catalog.load().find_resource(group, plural).cloned().expect("a kind of members")
    }

    pub(crate) async fn create(&self, group: &str, plural: &str, object: Value) {
        let kind = self.kind(group, plural);
        let namespace = meta::namespace(&object).to_owned();
        let wanted = Wanted::new(object, Vec::new());
        create::create(self.api(), &kind, &namespace, wanted, &self.by()).await.expect("a good object");
    }

    /// Changes an object of namespace default.
    pub(crate) async fn change(
        &self,
        group: &str,
        plural: &str,
        name: &str,
        part: Part,
        change: impl Fn(&mut Value) + Send + Sync,
    ) {
        let kind = self.kind(group, plural);
        let changed = |old: &Value| {
            let mut new = old.clone();
            change(&mut new);
            Ok(Wanted::new(new, Vec::new()))
        };
        update::update(self.api(), &kind, "default", name, part, &self.by(), changed)
            .await
            .expect("a good change");
    }

    /// Deletes an object of namespace default.
    pub(crate) async fn delete(&self, plural: &str, name: &str, grace_s: Option<i64>) {
        let kind = self.kind("", plural);
        let options = DeleteOptions { grace_period_s: grace_s, ..DeleteOptions::BACKGROUND };
        delete::delete(self.api(), &kind, "default", name, &options, &self.by()).await.expect("it is there");
    }

    /// Creates a pod in namespace default on node n1.
    pub(crate) async fn pod(&self, name: &str, spec: Value) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": name}}, "spec": spec,
        });
        pod["spec"]["nodeName"] = json!("n1");
        self.create("", "pods", pod).await;
    }

    /// Waits until an object is as wanted; it is null when there is none.
    pub(crate) async fn until(
        &self,
        (group, plural, namespace, name): (&str, &str, &str, &str),
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let key = keys::object(group, plural, namespace, name);
        let mut watch = self.api().store.watch(&key, self.api().store.snapshot().revision()).unwrap();
        let mut last = Value::Null;
        let waiting = async {
            loop {
                last =
                    self.api().store.snapshot().get(&key).map_or(Value::Null, |e| encode::decode(e).unwrap());
                if wanted(&last) {
                    return;
                }
                let mut events = Vec::new();
                watch.next_batch(&mut events, 64).await.unwrap();
            }
        };
        let done = tokio::time::timeout(PATIENCE, waiting).await;
        let events = self.events(name);
        let there = self.api().store.snapshot().get(&key).map(|entry| entry.revision);
        assert!(
            done.is_ok(),
            "{name}: {what} in time; it was {last:#}, is at {there:?} now, and had {events:?}"
        );
        last
    }

    pub(crate) async fn pod_until(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until(("", "pods", "default", name), what, wanted).await
    }

    pub(crate) async fn ready(&self, name: &str) -> Value {
        self.pod_until(name, "it is ready", |pod| condition(pod, "Ready") == "True").await
    }

    /// All events about a pod, as `reason: message`.
    pub(crate) fn events(&self, pod: &str) -> Vec<String> {
        let snapshot = self.api().store.snapshot();
        let events = snapshot.range("core/events/", "").filter_map(|e| encode::decode(e).ok());
        let of = events.filter(|event| event["involvedObject"]["name"] == pod);
        let mut found: Vec<String> = of
            .map(|e| format!("{}: {}", e["reason"].as_str().unwrap(), e["message"].as_str().unwrap()))
            .collect();
        found.sort();
        found
    }
}

/// The status of a condition; empty when it is not there.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|c| c["type"] == kind).find_map(|c| c["status"].as_str()).unwrap_or("")
}

/// Where a pod listens.
pub(crate) fn at(pod: &Value, port: u16) -> SocketAddr {
    let address: IpAddr = pod["status"]["podIP"].as_str().expect("it has an address").parse().unwrap();
    SocketAddr::new(address, port)
}

/// Connects from an address.
pub(crate) async fn connect_from(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}

/// A GET on a connection of its own: status and body.
pub(crate) async fn get(to: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    get_on(TcpStream::connect(to).await?, path).await
}

/// A GET on a connection.
pub(crate) async fn get_on(mut stream: TcpStream, path: &str) -> std::io::Result<(u16, String)> {
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut text = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut text)).await.expect("an answer in time")?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    code.map(|code| (code, body.to_owned())).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

/// What an echo says, as JSON.
pub(crate) async fn ask(to: SocketAddr, path: &str) -> Value {
    let (code, body) = get(to, path).await.expect("somebody answers");
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}
