//! A simulated member: our API server with member kinds, kept in memory or on disk, and Kubernetes' controllers.
//!
//! ```text
//!   kubectl, hub ──► door ──► API server ──► store
//!                              ▲  ▲
//!              controllers ────┘  └──── node agents (started by whoever starts the member)
//! ```
//!
//! The API can go down and come up again on the same address while nodes go on.

pub mod admission;
pub mod config;
mod ledger;
pub mod nodes;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use landfall_api::{Reason, Status};
use landfall_apiserver::api::Api;
use landfall_apiserver::authn::TokenFile;
use landfall_apiserver::housekeeping::client::Place;
use landfall_apiserver::local::Local;
use landfall_apiserver::pki;
use landfall_apiserver::start::{Parts, Served, Server, StartError, start_parts};
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use landfall_store::{HistoryLimits, OpenError, Store, embedded};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::controllers::driver;
use config::{Loads, MemberConfig, NodeSpec, Settings};

pub use config::Timings;

/// How much history a member's watches can go back: many members share one process.
const HISTORY: HistoryLimits = HistoryLimits { changes_max: 2048, bytes_max: 2 << 20 };

/// Memory for pages of a member's data file.
const CACHE_BYTES: usize = 1 << 20;

/// How often the address is tried when the API comes up: the system may need a moment to let it go.
const BIND_TRIES: u32 = 50;
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// Why a member did not start, or its API did not come up.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The address.
    #[error("{member}: cannot listen on {address}")]
    Listen {
        /// Which member.
        member: String,
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The store.
    #[error("{member}: cannot open its store")]
    Store {
        /// Which member.
        member: String,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// The API server.
    #[error("{member}: cannot start its API server")]
    Server {
        /// Which member.
        member: String,
        /// Why.
        #[source]
        source: StartError,
    },
    /// What every cluster has.
    #[error("{member}: cannot make its nodes")]
    Nodes {
        /// Which member.
        member: String,
        /// Why.
        #[source]
        source: Status,
    },
}

/// What a client needs to be a member's administrator.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The API's URL.
    pub server: String,
    /// The certificate (PEM) of the authority that signed the server's.
    pub ca_pem: String,
    /// The administrator's certificate (PEM).
    pub cert_pem: String,
    /// Its key (PEM).
    pub key_pem: String,
}

/// A running member.
pub struct Member {
    settings: Arc<Settings>,
    nodes: Vec<NodeSpec>,
    address: SocketAddr,
    credentials: Credentials,
    server: Server,
    store: Arc<dyn Store>,
    up: watch::Sender<bool>,
    tasks: Tasks,
}

impl Member {
    /// Starts a member; its API answers when this returns.
    pub async fn start(config: MemberConfig) -> Result<Self, MemberError> {
        let member = || config.name.clone();
        let listener = listen(config.listen).await;
        let listener = listener.map_err(|source| MemberError::Listen {
            member: member(),
            address: config.listen,
            source,
        })?;
        let address = listener.local_addr().unwrap_or(config.listen);
        let store = open_store(config.data.as_deref())
            .map_err(|source| MemberError::Store { member: member(), source })?;
        let server_error = |source| MemberError::Server { member: member(), source };
        let (pki, credentials) = keys(&config, address).map_err(|e| server_error(e.into()))?;
        // What is made after a restart differs from what was made before.
        let seed = config.seed ^ store.snapshot().revision().rotate_left(32);
        let settings = Arc::new(Settings::new(&config.name, config.block, config.timings, seed));
        let (block, eviction) = (config.block, config.timings.eviction);
        let admission = admission::MemberAdmission::new(block, eviction, settings.luck.clone());
        let parts = Parts {
            beside: None,
            pki,
            tokens: TokenFile::default(),
            anonymous: true,
            audit: None,
            served: served(),
            identity: None,
            admission: Some(Arc::new(admission)),
            edge_certificate_s: None,
        };
        let server = start_parts(parts, store.clone(), listener).await.map_err(server_error)?;
        let this = Self {
            settings,
            nodes: config.nodes.clone(),
            address,
            credentials,
            server,
            store,
            up: watch::Sender::new(true),
            tasks: Tasks::default(),
        };
        this.furnish(&config).await.map_err(|source| MemberError::Nodes { member: member(), source })?;
        let api = Local::new(this.server.api.clone(), "kube-controller-manager");
        this.tasks.spawn_until_stop(driver::run(api, this.settings.clone(), this.up.subscribe()));
        Ok(this)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Where its API listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What its controllers know.
    pub const fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Where the world reports how much its pods work; autoscalers follow that.
    pub fn loads(&self) -> &Loads {
        &self.settings.loads
    }

    /// Its nodes as configured, in the order of their addresses.
    pub fn nodes(&self) -> &[NodeSpec] {
        &self.nodes
    }

    /// How to be its administrator.
    pub const fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// A kubeconfig for its administrator, with one context named after it.
    pub fn kubeconfig(&self) -> String {
        self.credentials.kubeconfig(self.name())
    }

    /// The API for a program of this name in this process. It works while the API is down: whoever plays a program
    /// outside the server asks [`Member::is_up`] first.
    pub fn client(&self, program: &str) -> Local {
        Local::new(self.server.api.clone(), program)
    }

    /// The server's state.
    pub const fn api(&self) -> &Arc<Api> {
        &self.server.api
    }

    /// Whether the API is up, and a way to wait for it.
    pub fn is_up(&self) -> watch::Receiver<bool> {
        self.up.subscribe()
    }

    /// Takes the API down: connections and watches break, new ones are refused, controllers stand still.
    pub async fn api_down(&self) {
        if self.up.send_replace(false) {
            self.server.door.shut().await;
        }
    }

    /// Brings the API up again on the same address.
    pub async fn api_up(&self) -> Result<(), MemberError> {
        if *self.up.borrow() {
            return Ok(());
        }
        let listener = listen(self.address).await.map_err(|source| MemberError::Listen {
            member: self.name().to_owned(),
            address: self.address,
            source,
        })?;
        self.server.door.open(listener);
        self.up.send_replace(true);
        Ok(())
    }

    /// Stops the controllers and the server, and closes the store.
    pub async fn stop(&self) {
        self.tasks.join().await;
        // Clients of a simulated member are not waited for.
        self.server.door.shut().await;
        self.server.stop().await;
        self.store.close().await;
    }

    /// Makes what every cluster has from the start: nodes, and the way to the API itself.
    async fn furnish(&self, config: &MemberConfig) -> Result<(), Status> {
        let api = self.client("kubelet");
        let total = u32::try_from(config.nodes.len()).unwrap_or(u32::MAX);
        let now = driver::now();
        for (index, spec) in config.nodes.iter().enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let node = nodes::node(config, spec, index, total, now);
            let status = node["status"].clone();
            ensure(&api, "", "nodes", "", node).await?;
            let place = Place::new("", "nodes", "", &spec.name);
            let with_status = |old: &Value| {
                let mut node = old.clone();
                node["status"] = status.clone();
                Ok(node)
            };
            api.modify(&place, landfall_apiserver::write::update::Part::Status, with_status).await?;
            let lease = nodes::lease(&spec.name, now);
            ensure(&api, "coordination.k8s.io", "leases", nodes::LEASES, lease).await?;
        }
        let api = self.client("kube-apiserver");
        let (endpoints, slice) = nodes::own_endpoints(self.address);
        // The address may be another than last time.
        put(&api, "", "endpoints", endpoints).await?;
        put(&api, "discovery.k8s.io", "endpointslices", slice).await
    }
}

impl Credentials {
    /// A kubeconfig with one context.
    pub fn kubeconfig(&self, context: &str) -> String {
        let text = |text: &str| Value::from(text).to_string();
        let data = |pem: &str| landfall_apiserver::local::base64(pem);
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {name}
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}
current-context: {name}
",
            name = text(context),
            server = text(&self.server),
            ca = data(&self.ca_pem),
            cert = data(&self.cert_pem),
            key = data(&self.key_pem),
        )
    }
}

async fn ensure(
    api: &Local,
    group: &str,
    plural: &str,
    namespace: &str,
    object: Value,
) -> Result<(), Status> {
    match api.create(&Place::new(group, plural, namespace, ""), object).await {
        Err(status) if status.reason != Reason::AlreadyExists => Err(status),
        _ => Ok(()),
    }
}

/// Makes an object of the namespace `default`, or what it says the one that is there.
async fn put(api: &Local, group: &str, plural: &str, object: Value) -> Result<(), Status> {
    let place = Place::new(group, plural, "default", landfall_api::meta::name(&object));
    match api.create(&place, object.clone()).await {
        Err(status) if status.reason == Reason::AlreadyExists => {
            api.update(&place, object, landfall_apiserver::write::update::Part::Main).await.map(drop)
        }
        other => other.map(drop),
    }
}

/// The kinds of members; all members of a process share them and the documents made from them.
fn served() -> Arc<Served> {
    static SERVED: OnceLock<Arc<Served>> = OnceLock::new();
    SERVED.get_or_init(|| Arc::new(Served::new(landfall_api::kinds::member(), &[]))).clone()
}

fn open_store(data: Option<&Path>) -> Result<Arc<dyn Store>, OpenError> {
    let directory = data.map(|data| data.join("store")).unwrap_or_default();
    let config = embedded::Config {
        history: HISTORY,
        cache_bytes: CACHE_BYTES,
        queue_max: 1024,
        ..embedded::Config::new(directory)
    };
    match data {
        Some(_) => landfall_store::open_embedded(config),
        None => landfall_store::open_memory(config),
    }
}

fn keys(config: &MemberConfig, address: SocketAddr) -> Result<(pki::Pki, Credentials), pki::Error> {
    let (now_s, server) = (clock::epoch_s(), format!("https://{address}"));
    let names = vec![address.ip().to_string(), config.block.backbone().to_string(), config.name.clone()];
    let pki = match &config.data {
        Some(data) => {
            let config = pki::Config {
                data_dir: data.clone(),
                names,
                server: server.clone(),
                ..pki::Config::default()
            };
            pki::open(&config, now_s)?
        }
        None => pki::make(&names, now_s)?,
    };
    let (cert_pem, key_pem) = pki::administrator(&pki.authority, now_s)?;
    let ca_pem = pki.authority.pem().to_owned();
    Ok((pki, Credentials { server, ca_pem, cert_pem, key_pem }))
}

async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let mut tries = 1;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < BIND_TRIES => {
                tries += 1;
                tokio::time::sleep(BIND_PAUSE).await;
            }
            other => return other,
        }
    }
}
