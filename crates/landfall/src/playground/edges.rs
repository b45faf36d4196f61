//! An edge in every simulated cluster: comes in with a token of its own as real ones do, stands at addresses of the cluster,
//! and shares its faults.
//!
//! ```text
//!   edge ──► relay (the cluster's distance from the hub, and its faults) ──► hub
//!   other edges ──► relay (their distance, and its faults) ──► edge
//!   cluster dead ──► edge stopped;  cluster back ──► edge started again, with the certificate that it has
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use landfall_api::landfall::Address;
use landfall_apiserver::authn::bootstrap_token;
use landfall_health::{Road, Source};
use landfall_proxy::AccessLog;
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use landfall_sim::address::Block;
use landfall_sim::gate::{Gate, Origin, Passage};
use landfall_sim::world::{Site, World};
use serde_json::{Value, json};

use super::home::Home;
use super::relay::{self, Far};
use crate::basics::target::Target;
use crate::edge::carrier::Carriage;
use crate::edge::core::Config;
use crate::edge::daemon;
use crate::edge::own::Access;
use crate::edge::token::Token;
use crate::edge::trust::Trust;
use crate::edge::vips::Keeping;

/// Where edges carry HTTP and HTTPS.
pub(super) const HTTP_PORT: u16 = 8080;
pub(super) const HTTPS_PORT: u16 = 8443;
/// Where they let each other in.
const LINK_PORT: u16 = 5304;
/// Where edges answer names: a port that needs no root, and that no other service of a desktop has.
pub(super) const DNS_PORT: u16 = 5300;
/// Where other edges reach them, through a relay.
const PEER_PORT: u16 = 5301;
/// Where they reach the hub, through a relay.
const HUB_PORT: u16 = 5302;
/// Where they tell about themselves.
pub(super) const ADMIN_PORT: u16 = 5303;
/// Tokens are used at once; a cluster that is dead for longer has a certificate.
const TOKEN_S: i64 = 600;
/// The place of an edge's address among those for clients of its cluster.
const ADDRESS: u32 = 1;

/// The address of a cluster's edge.
pub(super) fn address(site: &Site) -> Ipv4Addr {
    site.block().clients().get(ADDRESS).unwrap_or(Ipv4Addr::LOCALHOST)
}

/// The name of a cluster's edge.
fn name(site: &Site) -> String {
    format!("{}-edge", site.member.name())
}

/// Every edge, for programs.
pub(super) fn described(world: &World) -> Vec<Value> {
    let one = |site: &Site| {
        json!({
            "name": name(site),
            "cluster": site.member.name(),
            "dns": SocketAddr::from((address(site), DNS_PORT)),
            "http": SocketAddr::from((address(site), HTTP_PORT)),
            "https": SocketAddr::from((address(site), HTTPS_PORT)),
            "admin": format!("http://{}:{ADMIN_PORT}", address(site)),
        })
    };
    world.sites().iter().map(one).collect()
}

/// Starts an edge in every cluster; they live as their clusters do, until the tasks stop.
pub(super) async fn start(
    home: &Home,
    hub: &Target,
    hub_at: SocketAddr,
    world: &World,
    tasks: &Tasks,
) -> Result<()> {
    let road: Arc<dyn Road> = Arc::new(Roads::of(world));
    for site in world.sites() {
        let own = address(site);
        let at = |port: u16| SocketAddr::from((own, port));
        relay::open(at(HUB_PORT), hub_at, site.gate().clone(), Far::Hub, tasks).await?;
        relay::open(at(PEER_PORT), at(LINK_PORT), site.gate().clone(), Far::Caller, tasks).await?;
        let token = token(hub, site)
            .await
            .with_context(|| format!("no token for the edge of {}", site.member.name()))?;
        let config = config(&home.join(""), site, &token, &road);
        let (gate, stopping) = (site.gate().clone(), tasks.stopping());
        tasks.spawn(async move { live(config, &gate, stopping).await });
    }
    Ok(())
}

/// The ways between clusters: who is cut off from a cluster does not reach it.
pub(super) struct Roads(Vec<(Block, Gate)>);

impl Roads {
    pub(super) fn of(world: &World) -> Self {
        Self(world.sites().iter().map(|site| (site.block(), site.gate().clone())).collect())
    }
}

impl Road for Roads {
    fn open(&self, from: Option<IpAddr>, to: IpAddr) -> BoxFuture<'_, ()> {
        let there = Block::of(to).and_then(|block| self.0.iter().find(|(own, _)| *own == block));
        async move {
            if let (Some(from), Some((_, gate))) = (from.map(Origin::of), there) {
                gate.until(|faults| faults.passage(from) != Passage::Blackhole).await;
            }
        }
        .boxed()
    }
}

/// Makes a token that is good for edges of this cluster alone.
pub(super) async fn token(hub: &Target, site: &Site) -> Result<String> {
    let token = Token::new();
    let secret = token.secret(Some(site.member.name()), clock::epoch_s().saturating_add(TOKEN_S));
    hub.post(&format!("/api/v1/namespaces/{}/secrets", bootstrap_token::NAMESPACE), &secret).await?;
    Ok(token.text())
}

pub(super) fn config(home: &Path, site: &Site, token: &str, road: &Arc<dyn Road>) -> Config {
    let own = address(site);
    let at = |port: u16| SocketAddr::from((own, port));
    let data_dir: PathBuf = home.join("edges").join(site.member.name());
    Config {
        name: name(site),
        cluster: site.member.name().to_owned(),
        trust: Trust {
            url: format!("https://{own}:{HUB_PORT}"),
            ca_file: Some(home.join("hub").join("pki").join("ca.crt")),
            ca_hash: None,
        },
        token: Some(token.to_owned()),
        data_dir,
        dns: vec![at(DNS_PORT)],
        dns_inside: Vec::new(),
        dns_threads: 1,
        inside: vec![site.block().to_string()],
        geo_database: None,
        transfer_keys: Vec::new(),
        secondaries: Vec::new(),
        admin: Some(at(ADMIN_PORT)),
        addresses: vec![Address { ip: Some(own.to_string()), hostname: None }],
        peer_address: Some(format!("{own}:{PEER_PORT}")),
        node: None,
        zone: site.config.zones.first().cloned(),
        group: None,
        link_addresses: vec![own.into()],
        keeping: Keeping::None,
        access: Some(Access::Kubeconfig(home.join("kubeconfig"), Some(site.member.name().to_owned()))),
        service: None,
        keep_in: None,
        source: Source { address: Some(own.into()), road: Some(road.clone()), ..Source::default() },
        carriage: Carriage {
            http: vec![at(HTTP_PORT)],
            https: vec![at(HTTPS_PORT)],
            peer: vec![at(LINK_PORT)],
            ports_on: vec![own.into()],
            threads: 1,
            access_log: AccessLog::Errors,
            // A cluster that dies does not wait.
            drain: Duration::ZERO,
            buckets_may_be_local: true,
            ..Carriage::default()
        },
        shutdown_delay: Duration::ZERO,
    }
}

/// An edge that lives while its cluster does, until it is told to stop.
pub(super) async fn live(config: Config, gate: &Gate, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = gate.until(|faults| !faults.dead) => {}
            () = &mut stop => return,
        }
        let edge = match daemon::start(config.clone()).await {
            Ok(edge) => edge,
            Err(error) => {
                let error = format!("{error:#}");
                return tracing::error!(edge = config.name, error, "an edge cannot start");
            }
        };
        tokio::select! {
            () = gate.until(|faults| faults.dead) => edge.die().await,
            () = &mut stop => return edge.stop().await,
        }
    }
}
