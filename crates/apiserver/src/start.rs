//! Starting and stopping an API server: doors, catalog, what must exist, background work, connections.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use futures::future::OptionFuture;
use landfall_api::{Kind, Status};
use landfall_runtime::clock;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use landfall_store::Store;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::admission::Admission;
use crate::api::Api;
use crate::audit::{self, Audit};
use crate::authn::{Authenticator, ServiceAccounts, TokenFile};
use crate::authz::live::Rbac;
use crate::catalog::Catalog;
use crate::edges::signer::Signer;
use crate::housekeeping::{self, ObjectClient};
use crate::http::server::Door;
use crate::inside::Inside;
use crate::openapi::CustomSchemas;
use crate::telemetry::Telemetry;
use crate::{bootstrap, certificates, crd, definitions, edges, leader, openapi, pki};

/// Who issues service-account tokens, unless told otherwise.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Work that only the server that leads does, besides housekeeping: it is begun when this server leads, and dropped when
/// it leads no longer.
pub type Beside = Arc<dyn Fn(Arc<Registry>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What an API server is given.
pub struct Config {
    /// Keys, certificates and the administrator's kubeconfig.
    pub pki: pki::Config,
    /// Static tokens, in Kubernetes' CSV form.
    pub token_file: Option<PathBuf>,
    /// Whether requests without credentials go on as `system:anonymous`.
    pub anonymous: bool,
    /// Where to write audit events; none for nowhere.
    pub audit: Option<audit::Config>,
    /// What is served besides custom resources.
    pub kinds: Vec<Kind>,
    /// Definitions of kinds that are always served and cannot be deleted: our own.
    pub definitions: Vec<Value>,
    /// This server's name among several, for people; leader election adds what makes it unique.
    pub identity: String,
    /// What the surroundings add to objects, or refuse.
    pub admission: Option<Arc<dyn Admission>>,
    /// What else the server that leads does.
    pub beside: Option<Beside>,
    /// How long edges' certificates last at most, in seconds.
    pub edge_certificate_s: i64,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Keys and certificates.
    #[error("cannot prepare keys and certificates")]
    Pki(#[from] pki::Error),
    /// The token file.
    #[error("cannot use the token file {}", path.display())]
    Tokens {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The audit log.
    #[error("cannot open the audit log")]
    Audit(#[source] std::io::Error),
    /// What must exist could not be made.
    #[error("cannot prepare the API")]
    Bootstrap(#[from] Status),
    /// The store.
    #[error("cannot read the store")]
    Store(#[from] landfall_store::Error),
}

/// What servers of one process with the same kinds can share: the kinds, and documents made from them.
pub struct Served {
    builtin: Vec<Arc<Kind>>,
    rows: Arc<[Kind]>,
    schemas: CustomSchemas,
    catalog: Arc<Catalog>,
}

impl Served {
    /// These kinds and those that definitions define, always.
    pub fn new(kinds: Vec<Kind>, definitions: &[Value]) -> Self {
        let own = definitions.iter().flat_map(crd::kinds);
        let builtin: Vec<Arc<Kind>> = kinds.into_iter().chain(own).map(with_rules).collect();
        let schemas: CustomSchemas = definitions.iter().flat_map(openapi::schemas_of).collect();
        Self {
            rows: builtin.iter().map(|kind| (**kind).clone()).collect(),
            catalog: Arc::new(Catalog::new(builtin.clone(), &[], schemas.clone())),
            builtin,
            schemas,
        }
    }
}

/// A server's parts, where whoever starts it has more to say than [`Config`].
pub struct Parts {
    /// Keys and certificates.
    pub pki: pki::Pki,
    /// Static tokens.
    pub tokens: TokenFile,
    /// Whether requests without credentials go on as `system:anonymous`.
    pub anonymous: bool,
    /// Where to write audit events; none for nowhere.
    pub audit: Option<audit::Config>,
    /// What is served.
    pub served: Arc<Served>,
    /// This server's name among several that share the store; none when it is alone and need not ask who leads.
    pub identity: Option<String>,
    /// What the surroundings add to objects.
    pub admission: Option<Arc<dyn Admission>>,
    /// What else the server that leads does.
    pub beside: Option<Beside>,
    /// How long edges' certificates last at most, in seconds; none where no edges come in.
    pub edge_certificate_s: Option<i64>,
}

/// A running API server.
pub struct Server {
    /// Its state.
    pub api: Arc<Api>,
    /// The administrator's kubeconfig; empty when keys are in memory alone.
    pub admin_kubeconfig: PathBuf,
    /// Where connections come in.
    pub door: Door,
    tasks: Tasks,
}

impl Server {
    /// Stops accepting, ends watches, lets requests finish, and waits for all of it.
    pub async fn stop(&self) {
        self.tasks.join().await;
    }
}

/// Starts serving on `listener`.
pub async fn start(
    config: Config,
    store: Arc<dyn Store>,
    listener: TcpListener,
) -> Result<Server, StartError> {
    let pki = pki::open(&config.pki, clock::epoch_s())?;
    let tokens = match &config.token_file {
        Some(path) => TokenFile::read(path)
            .map_err(|source| StartError::Tokens { path: path.clone(), source: source.into() })?,
        None => TokenFile::default(),
    };
    let parts = Parts {
        pki,
        tokens,
        anonymous: config.anonymous,
        audit: config.audit,
        served: Arc::new(Served::new(config.kinds, &config.definitions)),
        identity: Some(config.identity),
        admission: config.admission,
        beside: config.beside,
        edge_certificate_s: Some(config.edge_certificate_s),
    };
    start_parts(parts, store, listener).await
}

/// Starts a server from its parts.
pub async fn start_parts(
    parts: Parts,
    store: Arc<dyn Store>,
    listener: TcpListener,
) -> Result<Server, StartError> {
    let Parts { pki, tokens, anonymous, audit, served, identity, admission, beside, edge_certificate_s } =
        parts;
    let tasks = Tasks::default();
    let audiences = [ISSUER.to_owned()];
    let accounts = Arc::new(ServiceAccounts::new(ISSUER, &audiences, pki.sa_key, Vec::new()));
    let telemetry = Telemetry::new(Arc::new(Registry::default()));
    let audit = open_audit(audit.as_ref(), &telemetry, &tasks)?;
    let api = Arc::new(Api {
        audit,
        catalog: ArcSwap::new(served.catalog.clone()),
        builtin: served.builtin.clone(),
        builtin_schemas: served.schemas.clone(),
        authn: Authenticator::new(tokens, accounts, anonymous),
        authz: Rbac::start(store.clone(), &tasks),
        admission,
        telemetry,
        vault: edge_certificate_s.is_some(),
        pod_logs: OnceLock::new(),
        tasks: tasks.clone(),
        definitions: tokio::sync::Mutex::default(),
        store,
    });
    prepare(&api, listener.local_addr().map_or(443, |a| a.port())).await?;
    tasks.spawn_until_stop(definitions::follow(api.clone()));
    let house =
        housekeeping::Config { root_ca: Some(pki.authority.pem().into()), builtin: served.rows.clone() };
    let signer =
        edge_certificate_s.map(|lifetime_s| Arc::new(Signer { authority: pki.authority, lifetime_s }));
    keep_house(&api, house, identity.as_deref(), signer, beside);
    let door = Door::new(api.clone(), pki.tls);
    door.open(listener);
    Ok(Server { api, admin_kubeconfig: pki.admin_kubeconfig, door, tasks })
}

fn open_audit(
    config: Option<&audit::Config>,
    telemetry: &Telemetry,
    tasks: &Tasks,
) -> Result<Option<Audit>, StartError> {
    let dropped = telemetry.registry.counter(
        "apiserver_audit_dropped_total",
        "Audit events that found the queue full or could not be written.",
        "",
    );
    config.map(|config| Audit::open(config, tasks, dropped)).transpose().map_err(StartError::Audit)
}

/// Keeps house while this hub leads; always when it is alone.
fn keep_house(
    api: &Arc<Api>,
    config: housekeeping::Config,
    identity: Option<&str>,
    signer: Option<Arc<Signer>>,
    beside: Option<Beside>,
) {
    let client: Arc<dyn ObjectClient> = Arc::new(Inside(api.clone()));
    let registry = api.telemetry.registry.clone();
    let signs = api.clone();
    let work = move || {
        let house = housekeeping::run(client.clone(), config.clone());
        let beside = OptionFuture::from(beside.as_ref().map(|beside| beside(registry.clone())));
        let signer = signer.clone().map(|signer| edges::signer::run(signs.clone(), signer));
        let signer = OptionFuture::from(signer);
        async move { _ = tokio::join!(house, beside, signer) }
    };
    let Some(identity) = identity else { return api.tasks.spawn_until_stop(work()) };
    // Names of machines and ports repeat among containers.
    let identity = format!("{identity}_{}", uuid::Uuid::new_v4());
    api.tasks.spawn(leader::lead(api.clone(), identity, work));
}

/// Definitions and requests for certificates have rules that only this crate knows.
fn with_rules(mut kind: Kind) -> Arc<Kind> {
    if kind.group == crd::GROUP {
        kind.rules = Arc::new(crd::CrdRules);
    }
    if certificates::is_request(&kind) {
        kind.rules = Arc::new(certificates::RULES);
    }
    Arc::new(kind)
}

async fn prepare(api: &Arc<Api>, port: u16) -> Result<(), StartError> {
    api.refresh_catalog().await;
    // Together, so that they share the store's syncs.
    tokio::try_join!(bootstrap::run(api, port), bootstrap::roles(api))?;
    Ok(())
}
