//! A running edge, from what was typed to a clean stop.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use landfall_api::landfall::Address;
use landfall_api::names;
use landfall_health::Source;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

use super::core::{Config, Core};
use super::options::DaemonOptions;
use super::own::Access;
use super::trust::Trust;
use super::voice::Voice;
use super::{admin, keys, session};
use crate::hub::stop_signals;
use crate::say::say;

/// Runs an edge until it is told to stop.
pub(super) fn run(options: &DaemonOptions) -> Result<()> {
    let config = resolve(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        // Before anybody is told that it runs.
        let stop = stop_signals()?;
        let edge = start(config).await?;
        announce(&edge);
        stop.await;
        tracing::info!("stopping");
        edge.stop().await;
        Ok(())
    });
    runtime.shutdown_background();
    result
}

/// A running edge.
pub(crate) struct Edge {
    core: Arc<Core>,
    admin: Option<SocketAddr>,
    tasks: Tasks,
}

impl Edge {
    /// Where it answers names.
    pub(crate) fn dns(&self) -> &[SocketAddr] {
        self.core.voice.addresses()
    }

    /// Where it tells about itself.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Stops it.
    pub(crate) async fn stop(&self) {
        self.tasks.join().await;
    }
}

/// Starts an edge. It serves from what is on disk at once, and finds the hub in its own time.
pub(crate) async fn start(config: Config) -> Result<Edge> {
    let mut dir = std::fs::DirBuilder::new();
    dir.recursive(true)
        .mode(0o700)
        .create(&config.data_dir)
        .with_context(|| format!("cannot make the data directory {}", config.data_dir.display()))?;
    let (tasks, registry) = (Tasks::default(), Arc::new(Registry::default()));
    let voice = Voice::start(&config, &registry, &tasks)?;
    let core = Arc::new(Core::new(config, voice, registry, &tasks));
    let admin = match core.config.admin {
        Some(at) => Some(admin::serve(core.clone(), at, &tasks).await?),
        None => None,
    };
    let part = core.clone();
    tasks.spawn_until_stop(async move { part.follow_plans().await });
    let part = core.clone();
    tasks.spawn_until_stop(async move { part.voice.resolve().await });
    let part = core.clone();
    tasks.spawn_until_stop(async move { part.book.keep().await });
    let part = core.clone();
    tasks.spawn_until_stop(async move { part.follow_own().await });
    let part = core.clone();
    tasks.spawn_until_stop(async move { session::run(&part).await });
    Ok(Edge { core, admin, tasks })
}

fn announce(edge: &Edge) {
    let config = &edge.core.config;
    say(&format!("Landfall edge {} of {} is ready.", config.name, config.cluster));
    say(&format!("  hub    {}", config.trust.url));
    say(&format!("  data   {}", config.data_dir.display()));
    for at in edge.dns() {
        say(&format!("  names  {at}"));
    }
    if let Some(at) = edge.admin() {
        say(&format!("  admin  http://{at}/plans"));
    }
}

/// What follows from what was typed.
fn resolve(options: &DaemonOptions) -> Result<Config> {
    let (Some(hub), Some(cluster)) = (&options.hub, &options.cluster) else {
        bail!("say which hub with --hub URL, and in which member this edge stands with --cluster NAME");
    };
    let name = options.name.clone().unwrap_or_else(|| default_name(cluster));
    if let Some(wrong) = names::dns1123_subdomain(&name).into_iter().next() {
        bail!("{name:?} cannot be an edge's name: {wrong}; give another with --name");
    }
    let address = |host: &String| match host.parse::<IpAddr>() {
        Ok(ip) => Address { ip: Some(ip.to_string()), hostname: None },
        Err(_) => Address { ip: None, hostname: Some(host.clone()) },
    };
    let access = match (&options.kubeconfig, options.in_cluster) {
        (Some(file), _) => Some(Access::Kubeconfig(file.clone(), None)),
        (None, true) => Some(Access::InCluster),
        (None, false) => None,
    };
    Ok(Config {
        name,
        cluster: cluster.clone(),
        trust: Trust {
            url: hub.trim_end_matches('/').to_owned(),
            ca_file: options.hub_ca.clone(),
            ca_hash: options.hub_ca_hash.clone(),
        },
        token: options.token.clone().filter(|token| !token.is_empty()),
        data_dir: options.data_dir.clone(),
        dns: options.dns_listen.iter().map(|listen| listen.0).collect(),
        dns_threads: 0,
        inside: options.inside.clone(),
        geo_database: options.geo_database.clone(),
        transfer_keys: options.transfer_key_file.as_deref().map(keys::read).transpose()?.unwrap_or_default(),
        admin: options.admin_listen.map(|listen| listen.0),
        addresses: options.advertise.iter().map(address).collect(),
        peer_address: options.peer_address.clone(),
        node: options.node.clone().filter(|node| !node.is_empty()),
        zone: options.zone.clone().filter(|zone| !zone.is_empty()),
        access,
        source: Source::default(),
    })
}

/// The member's name and the machine's.
fn default_name(cluster: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_ascii_lowercase();
    let own: String =
        host.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }).collect();
    let own = own.trim_matches('-');
    if own.is_empty() { format!("{cluster}-1") } else { format!("{cluster}-{own}") }
}
