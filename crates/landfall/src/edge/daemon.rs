//! A running edge, from what was typed to a clean stop.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use landfall_api::landfall::Address;
use landfall_api::names;
use landfall_health::Source;
use landfall_proxy::haproxy::Prefixes;
use landfall_proxy::{Collect, Limits, LogTo};
use landfall_runtime::memory::Memory;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

use super::carrier::{Carriage, Carrier};
use super::core::{Config, Core};
use super::entrance::Entrance;
use super::options::DaemonOptions;
use super::own::Access;
use super::trust::Trust;
use super::vault::Vault;
use super::vips::Keeping;
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

    /// Ends it as a machine ends that dies: nobody is told.
    pub(crate) async fn die(&self) {
        self.tasks.join().await;
    }

    /// Stops it: its virtual IPs are given away first, and whoever leads clients here by its readiness has time to see it.
    pub(crate) async fn stop(&self) {
        self.core.leave();
        self.core.vips.give_away().await;
        tokio::time::sleep(self.core.config.shutdown_delay).await;
        self.tasks.join().await;
    }
}

/// Starts an edge. It serves from what is on disk at once, and finds the hub in its own time.
pub(crate) async fn start(config: Config) -> Result<Edge> {
    // A probe, a client and an endpoint each take one.
    landfall_runtime::files::raise_open_max();
    let mut dir = std::fs::DirBuilder::new();
    dir.recursive(true)
        .mode(0o700)
        .create(&config.data_dir)
        .with_context(|| format!("cannot make the data directory {}", config.data_dir.display()))?;
    let vault = vault(&config);
    if let Some(vault) = &vault {
        vault.restore().await.with_context(|| format!("cannot read the Secret {}", vault.secret))?;
    }
    let (tasks, registry) = (Tasks::default(), Arc::new(Registry::default()));
    let voice = Voice::start(&config, &registry, &tasks)?;
    let carrier = Carrier::start(&config, &registry, &tasks)?;
    let core = Arc::new(Core::new(config, voice, carrier, registry, &tasks));
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
    tasks.spawn_until_stop(async move { part.follow_reach().await });
    let part = core.clone();
    tasks.spawn_until_stop(async move { part.follow_doors().await });
    if let Some(vault) = vault {
        let stop = tasks.stopping();
        tasks.spawn(async move { vault.keep(stop).await });
    }
    let part = core.clone();
    tasks.spawn_until_stop(async move { session::run(&part).await });
    Ok(Edge { core, admin, tasks })
}

/// Where an edge keeps what must outlive its disk, if it was told to.
fn vault(config: &Config) -> Option<Vault> {
    let (access, secret) = (config.access.clone()?, config.keep_in.clone()?);
    Some(Vault { access, secret, edge: config.name.clone(), dir: config.data_dir.clone() })
}

fn announce(edge: &Edge) {
    let config = &edge.core.config;
    let mut lines = vec![
        format!("Landfall edge {} of {} is ready.", config.name, config.cluster),
        format!("  hub    {}", config.trust.url),
        format!("  data   {}", config.data_dir.display()),
    ];
    lines.extend(edge.dns().iter().map(|at| format!("  names  {at}")));
    let carriage = [
        ("http", config.carriage.http.len()),
        ("https", config.carriage.https.len()),
        ("peers", config.carriage.peer.len()),
    ];
    let entrances = carriage.iter().flat_map(|(name, count)| std::iter::repeat_n(name, *count));
    lines.extend(entrances.zip(edge.core.carrier.addresses()).map(|(name, at)| format!("  {name:<6} {at}")));
    lines.extend(edge.admin().map(|at| format!("  admin  http://{at}/plans")));
    // At once: whoever waits for the first line reads the others, too.
    say(&lines.join("\n"));
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
    if options.service.is_some() && access.is_none() {
        bail!("--service needs --in-cluster or --kubeconfig FILE: its Service is looked up there");
    }
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
        dns: addresses(&options.dns_listen),
        dns_inside: addresses(&options.dns_listen_inside),
        dns_threads: 0,
        inside: options.inside.clone(),
        geo_database: options.geo_database.clone(),
        transfer_keys: options.transfer_key_file.as_deref().map(keys::read).transpose()?.unwrap_or_default(),
        secondaries: options.notify.iter().map(|text| keys::secondary(text)).collect::<Result<_>>()?,
        admin: options.admin_listen.and_then(Entrance::widest),
        addresses: options.advertise.iter().map(address).collect(),
        peer_address: options.peer_address.clone(),
        node: options.node.clone().filter(|node| !node.is_empty()),
        zone: options.zone.clone().filter(|zone| !zone.is_empty()),
        group: options.group.clone().filter(|group| !group.is_empty()),
        link_addresses: link_addresses(options),
        keeping: options.vip_keeper.clone().map_or(Keeping::None, Keeping::Keeper),
        access,
        service: options.service.clone(),
        keep_in: options.keep_in.clone(),
        source: Source::default(),
        carriage: carriage(options)?,
        shutdown_delay: options.shutdown_delay(),
    })
}

/// What it carries, and where.
fn carriage(options: &DaemonOptions) -> Result<Carriage> {
    let prefixes = options.proxy_protocol_from.iter().map(String::as_str);
    Ok(Carriage {
        http: addresses(&options.http_listen),
        https: addresses(&options.https_listen),
        peer: addresses(&options.peer_listen),
        ports_on: options.ports_on.clone(),
        proxy_protocol_from: Prefixes::parse(prefixes).map_err(|wrong| {
            anyhow::anyhow!("--proxy-protocol-from: {wrong:?} is no prefix such as 10.0.0.0/8")
        })?,
        threads: options.proxy_threads,
        access_log: options.access_log.0,
        access_log_to: match &options.access_log_file {
            None => LogTo::Program,
            Some(file) if file.as_os_str() == "-" => LogTo::Stdout,
            Some(file) => LogTo::File(file.clone()),
        },
        collector: options.otlp_endpoint.clone().map(|url| Collect { url, one_of: options.trace_sample.0 }),
        limits: Limits {
            connections: options.max_connections,
            requests: options.max_requests,
            body_bytes: options.max_body.as_ref().map(|most| most.0),
            memory: options.max_memory.map(|given| Memory::of_process(given.0)).or_else(Memory::find),
            ..Limits::default()
        },
        drain: options.drain.0,
        buckets_may_be_local: false,
        bucket_authorities_pem: match &options.bucket_ca {
            Some(file) => std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?,
            None => Vec::new(),
        },
    })
}

fn addresses(entrances: &[Entrance]) -> Vec<SocketAddr> {
    entrances.iter().flat_map(|entrance| entrance.addresses()).collect()
}

/// As given; else those where clients reach it, which are its node's where it has the node's network.
fn link_addresses(options: &DaemonOptions) -> Vec<IpAddr> {
    match &options.link_address[..] {
        [] => options.advertise.iter().filter_map(|host| host.parse().ok()).collect(),
        given => given.to_vec(),
    }
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
