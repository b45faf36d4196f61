//! Starting and stopping an API server: doors, catalog, what must exist, background work, connections.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use landfall_api::{Kind, Status};
use landfall_runtime::clock;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use landfall_store::Store;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::api::Api;
use crate::audit::{self, Audit};
use crate::authn::{Authenticator, ServiceAccounts, TokenFile};
use crate::authz::live::Rbac;
use crate::catalog::Catalog;
use crate::housekeeping::{self, ObjectClient};
use crate::http::server;
use crate::inside::Inside;
use crate::openapi::CustomSchemas;
use crate::telemetry::Telemetry;
use crate::{bootstrap, crd, definitions, leader, openapi, pki};

/// Who issues service-account tokens, unless told otherwise.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

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

/// A running API server.
pub struct Server {
    /// Its state.
    pub api: Arc<Api>,
    /// The administrator's kubeconfig.
    pub admin_kubeconfig: PathBuf,
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
    let tasks = Tasks::default();
    let audiences = [ISSUER.to_owned()];
    let accounts = Arc::new(ServiceAccounts::new(ISSUER, &audiences, pki.sa_key, Vec::new()));
    let own = config.definitions.iter().flat_map(crd::kinds);
    let builtin: Vec<Arc<Kind>> = config.kinds.into_iter().chain(own).map(with_rules).collect();
    let builtin_schemas: CustomSchemas = config.definitions.iter().flat_map(openapi::schemas_of).collect();
    let telemetry = Telemetry::new(Arc::new(Registry::default()));
    let audit = open_audit(config.audit.as_ref(), &telemetry, &tasks)?;
    let api = Arc::new(Api {
        audit,
        catalog: ArcSwap::from_pointee(Catalog::new(builtin.clone(), &[], builtin_schemas.clone())),
        builtin,
        builtin_schemas,
        authn: Authenticator::new(tokens, accounts, config.anonymous),
        authz: Rbac::start(store.clone(), &tasks),
        telemetry,
        tasks: tasks.clone(),
        definitions: tokio::sync::Mutex::default(),
        store,
    });
    prepare(&api, listener.local_addr().map_or(443, |a| a.port())).await?;
    tasks.spawn_until_stop(definitions::follow(api.clone()));
    keep_house(&api, &config.identity, pki.authority.pem().into());
    tasks.spawn(server::run(api.clone(), listener, pki.tls));
    Ok(Server { api, admin_kubeconfig: pki.admin_kubeconfig, tasks })
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

/// Keeps house while this hub leads.
fn keep_house(api: &Arc<Api>, identity: &str, root_ca: Arc<str>) {
    let builtin: Arc<[Kind]> = api.builtin.iter().map(|kind| (**kind).clone()).collect();
    let config = housekeeping::Config { root_ca: Some(root_ca), builtin };
    let client: Arc<dyn ObjectClient> = Arc::new(Inside(api.clone()));
    let work = move || housekeeping::run(client.clone(), config.clone());
    // Names of machines and ports repeat among containers.
    let identity = format!("{identity}_{}", uuid::Uuid::new_v4());
    api.tasks.spawn(leader::lead(api.clone(), identity, work));
}

/// Definitions have rules that only this crate knows.
fn with_rules(mut kind: Kind) -> Arc<Kind> {
    if kind.group == crd::GROUP {
        kind.rules = Arc::new(crd::CrdRules);
    }
    Arc::new(kind)
}

async fn prepare(api: &Arc<Api>, port: u16) -> Result<(), StartError> {
    api.refresh_catalog().await;
    // Together, so that they share the store's syncs.
    tokio::try_join!(bootstrap::run(api, port), bootstrap::roles(api))?;
    Ok(())
}
