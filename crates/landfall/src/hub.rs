//! `landfall hub`: the store, the API server, and a clean stop.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use landfall_apiserver::{audit, pki, start};
use landfall_runtime::clock;
use landfall_store::{OpenError, Seals, Store, etcd};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::admission::FederationAdmission;
use crate::cli::HubOptions;
use crate::say::say;
use crate::sealing;

/// Runs a hub until it is told to stop.
pub(crate) fn run(options: &HubOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(serve(options));
    // Whatever still runs has had its time to drain.
    runtime.shutdown_background();
    result
}

async fn serve(options: &HubOptions) -> Result<()> {
    let began = clock::instant();
    // Before anybody is told that it runs, so that whoever stops it then finds it ready for that, too.
    let stop = stop_signals()?;
    let hub = start(options).await?;
    announce(options, &hub.url, &hub.server.admin_kubeconfig, began.elapsed());
    stop.await;
    tracing::info!("stopping: no new connections, open requests finish");
    hub.stop().await;
    Ok(())
}

/// A running hub.
pub(crate) struct Hub {
    /// Its API server.
    pub(crate) server: start::Server,
    /// The URL that the administrator's kubeconfig names.
    pub(crate) url: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    store: Arc<dyn Store>,
}

impl Hub {
    /// Lets open requests finish, and closes the store.
    pub(crate) async fn stop(&self) {
        self.server.stop().await;
        self.store.close().await;
    }
}

/// Starts a hub; its API answers when this returns.
pub(crate) async fn start(options: &HubOptions) -> Result<Hub> {
    std::fs::create_dir_all(&options.data_dir)
        .with_context(|| format!("cannot make the data directory {}", options.data_dir.display()))?;
    let listener = TcpListener::bind(options.listen).await.with_context(|| {
        format!("cannot listen on {} (is another server there? try --listen)", options.listen)
    })?;
    let address = listener.local_addr()?;
    let port = address.port();
    let url = url(options, port);
    let config = config(options, &url, port);
    // Both wait for the disk, so they wait together; the server reads the keys again, which costs nothing.
    let keys = config.pki.clone();
    let keys = tokio::task::spawn_blocking(move || pki::open(&keys, clock::epoch_s()).map(drop));
    let (store, keys) = tokio::join!(open_store(options), keys);
    let store = store?;
    keys.context("keys and certificates")?.context("cannot prepare keys and certificates")?;
    let server = start::start(config, store.clone(), listener).await?;
    Ok(Hub { server, url, address, store })
}

/// Opens the store. What is to be encrypted there and is not, or with an older key, is encrypted anew.
async fn open_store(options: &HubOptions) -> Result<Arc<dyn Store>> {
    let seals = sealing::open(options)?;
    let store = match connect_store(options, &seals).await {
        Err(error) if matches!(error.downcast_ref(), Some(OpenError::Sealed(_))) => {
            return Err(error.context(sealing::advice(options)));
        }
        other => other?,
    };
    let renewed = seals.renew(&*store).await.context("cannot encrypt Secrets anew")?;
    if renewed > 0 {
        tracing::info!(
            renewed,
            "Secrets are encrypted anew with the first key; older keys are not needed any more"
        );
    }
    Ok(store)
}

async fn connect_store(options: &HubOptions, seals: &Seals) -> Result<Arc<dyn Store>> {
    if options.etcd.is_empty() {
        let mut config = landfall_store::embedded::Config::new(options.data_dir.join("store"));
        config.seals = seals.clone();
        return landfall_store::open_embedded(config).context("cannot open the embedded store");
    }
    let mut config = etcd::Config::new(options.etcd.iter().cloned());
    config.root.clone_from(&options.etcd_prefix);
    config.tls = etcd_tls(options)?;
    config.seals = seals.clone();
    landfall_store::connect_etcd(config)
        .await
        .with_context(|| format!("cannot use etcd at {}", options.etcd.join(", ")))
}

/// Certificates for etcd; none without an authority.
fn etcd_tls(options: &HubOptions) -> Result<Option<etcd::Tls>> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let Some(authority) = &options.etcd_cafile else { return Ok(None) };
    let client_pem = match (&options.etcd_certfile, &options.etcd_keyfile) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    Ok(Some(etcd::Tls { ca_pem: read(authority)?, client_pem, server_name: None }))
}

/// The URL that the administrator's kubeconfig names.
fn url(options: &HubOptions, port: u16) -> String {
    let host = match (options.advertise.first(), options.listen.ip()) {
        (Some(host), _) => host.clone(),
        (None, ip) if ip.is_unspecified() => "127.0.0.1".into(),
        (None, IpAddr::V6(ip)) => format!("[{ip}]"),
        (None, IpAddr::V4(ip)) => ip.to_string(),
    };
    format!("https://{host}:{port}")
}

fn config(options: &HubOptions, url: &str, port: u16) -> start::Config {
    let mut names = options.advertise.clone();
    if !options.listen.ip().is_unspecified() {
        names.push(options.listen.ip().to_string());
    }
    let audit = match &options.audit_log {
        Some(path) if path.as_os_str() == "-" => None,
        Some(path) => Some(audit::Config::new(path)),
        None => Some(audit::Config::new(options.data_dir.join("audit.log"))),
    };
    start::Config {
        pki: pki::Config {
            data_dir: options.data_dir.clone(),
            names,
            server: url.to_owned(),
            client_ca: options.client_ca_file.clone(),
            ..pki::Config::default()
        },
        token_file: options.token_auth_file.clone(),
        anonymous: !options.no_anonymous,
        audit,
        kinds: landfall_api::kinds::federation(),
        definitions: landfall_api::landfall::definitions(),
        identity: format!("{}-{}", hostname(), options.listen.port()),
        admission: Some(Arc::new(FederationAdmission)),
        beside: Some(controllers(options, port)),
        edge_certificate_s: i64::try_from(options.edge_certificate_ttl.0.as_secs()).unwrap_or(i64::MAX),
    }
}

/// The controllers, which run in the hub that leads and talk to their own hub like any client.
fn controllers(options: &HubOptions, port: u16) -> start::Beside {
    let config = landfall_control::Config {
        federation: options.federation.clone(),
        domain: options.domain.clone(),
        dns_ttl_s: options.dns_ttl,
        keys: Some(crate::keys::open),
        mint: Some(crate::edge::token::mint),
    };
    let ip =
        if options.listen.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { options.listen.ip() };
    let (own, kubeconfig) = (SocketAddr::new(ip, port), options.data_dir.join("admin.kubeconfig"));
    Arc::new(move |registry| {
        let (config, kubeconfig) = (config.clone(), kubeconfig.clone());
        Box::pin(async move {
            match own_api(&kubeconfig, own).await {
                Ok(hub) => landfall_control::run(config, &hub, &registry).await,
                Err(error) => tracing::error!(error = format!("{error:#}"), "the controllers cannot start"),
            }
        })
    })
}

/// Our own API at its own address, whatever address others are told.
async fn own_api(kubeconfig: &Path, own: SocketAddr) -> Result<kube::Config> {
    let kubeconfig =
        Kubeconfig::read_from(kubeconfig).context("cannot read the administrator's kubeconfig")?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.cluster_url = format!("https://{own}").parse().context("our own address")?;
    Ok(config)
}

/// The machine's name, for people who read who leads; what makes identities different is added by the server.
fn hostname() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.unwrap_or_default();
    if name.trim().is_empty() { "hub".into() } else { name.trim().into() }
}

fn announce(options: &HubOptions, url: &str, kubeconfig: &Path, took: std::time::Duration) {
    let kept = if options.etcd.is_empty() {
        options.data_dir.join("store").display().to_string()
    } else {
        options.etcd.join(", ")
    };
    say(&format!("Landfall hub is ready after {} ms.", took.as_millis()));
    say(&format!("  API         {url}"));
    say(&format!("  objects in  {kept}"));
    say(&format!("  kubeconfig  {}", kubeconfig.display()));
    say("");
    say(&format!("Try:  kubectl --kubeconfig {} get namespaces", kubeconfig.display()));
}

/// Listens for Ctrl-C and polite kills from now on; ends when the first one comes.
pub(crate) fn stop_signals() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    })
}
