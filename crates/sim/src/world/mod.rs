//! A world: simulated clusters that stand somewhere, run together in one process, and can be broken on command.
//!
//! ```text
//!   WorldConfig ──► World ──► Site (one cluster): Member (API, controllers) + Agent (nodes) + Forwarder (Services)
//!                     ▲                                │  + Backbone (the hub's way to the API)    │
//!                     │                                └────────── Gate (its faults) ──────────┘
//!   Fault ────────────┘
//! ```
//!
//! Reading order: [`config`], [`file`], [`places`], [`World::start`], [`fault`].

mod backbone;
mod breaking;
pub mod config;
pub mod fault;
pub mod file;
mod load;
pub mod places;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use landfall_runtime::tasks::Tasks;
use tokio::sync::Mutex;

use crate::address::{Block, Claim, ClaimError};
use crate::agent::{self, Agent, Pace, Programs};
use crate::forward::{self, Forwarder};
use crate::gate::{Distances, Gate, Origin};
use crate::luck::fnv64;
use crate::member::config::{MemberConfig, NodeSpec, Timings};
use crate::member::{Member, MemberError};
use backbone::Backbone;
use config::{ClusterConfig, HUB, WorldConfig};
use fault::BadFault;

/// The port of simulated API servers, each at an address of its own.
const API_PORT: u16 = 6443;

/// How long the first restart of a crashed container waits; short enough to watch.
const RESTART_FIRST_S: u64 = 1;
const RESTART_MAX_S: u64 = 30;

/// How many members are started at once: it is work for the processor, not waiting.
const START_TOGETHER: usize = 8;

/// Why a world did not start.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// No addresses.
    #[error("{cluster}: no loopback addresses to live on")]
    Addresses {
        /// Which cluster.
        cluster: String,
        /// Why.
        #[source]
        source: ClaimError,
    },
    /// A member.
    #[error(transparent)]
    Member(#[from] MemberError),
}

/// What a world is started with besides its configuration.
#[derive(Clone, Default)]
pub struct Start<'a> {
    /// Where its clusters keep their objects, in a directory each; none for in memory alone.
    pub keep: Option<&'a Path>,
    /// Blocks that clusters had before, by their names. They get them again or nothing: what they keep names them.
    pub before: Vec<(String, Block)>,
}

/// A running world.
pub struct World {
    sites: Vec<Site>,
    /// Where they and the hub stand, whether or not traffic takes its time.
    distances: Arc<Distances>,
    /// One fault at a time: opening and closing doors takes a moment.
    breaking: Mutex<()>,
}

/// One running cluster of a world.
pub struct Site {
    /// How it was configured.
    pub config: ClusterConfig,
    /// Its API and controllers.
    pub member: Member,
    gate: Gate,
    agent: Arc<Agent>,
    forwarder: Forwarder,
    backbone: Backbone,
    claim: Claim,
    tasks: Tasks,
}

/// The addresses of every cluster, in their order: first those that are owed, so that nobody new takes them.
fn claims(config: &WorldConfig, start: &Start<'_>) -> Result<Vec<Claim>, WorldError> {
    let failed = |cluster: &ClusterConfig| {
        let cluster = cluster.name.clone();
        move |source| WorldError::Addresses { cluster, source }
    };
    let before = |cluster: &ClusterConfig| start.before.iter().find(|(name, _)| *name == cluster.name);
    let mut claims: Vec<Option<Claim>> = Vec::with_capacity(config.clusters.len());
    for cluster in &config.clusters {
        let owed = before(cluster).map(|(_, block)| Claim::exactly(*block).map_err(failed(cluster)));
        claims.push(owed.transpose()?);
    }
    let luck = start.keep.map(|keep| fnv64(keep.as_os_str().as_encoded_bytes()));
    let each = claims.into_iter().zip(&config.clusters);
    each.map(|(claim, cluster)| match (claim, luck) {
        (Some(claim), _) => Ok(claim),
        (None, Some(luck)) => Claim::somewhere(luck).map_err(failed(cluster)),
        (None, None) => Claim::take(None).map_err(failed(cluster)),
    })
    .collect()
}

/// Where everybody stands; the hub beside the first cluster.
fn distances(config: &WorldConfig, claims: &[Claim]) -> Distances {
    let hub = config.clusters.first().and_then(ClusterConfig::coordinates).map(|at| (Origin::Hub, at));
    let members =
        config.clusters.iter().zip(claims).filter_map(|(cluster, claim)| {
            cluster.coordinates().map(|at| (Origin::Member(claim.block()), at))
        });
    Distances::new(hub.into_iter().chain(members))
}

// === impl World ===

impl World {
    /// Starts every cluster; `ready` is told of each in turn.
    pub async fn start(
        config: &WorldConfig,
        start: &Start<'_>,
        mut ready: impl FnMut(&Site),
    ) -> Result<Self, WorldError> {
        landfall_runtime::files::raise_open_max();
        let mut claims = claims(config, start)?;
        let distances = Arc::new(distances(config, &claims));
        let gate = |claim: &Claim| match config.distances {
            true => Gate::distant(claim.block(), distances.clone()),
            false => Gate::default(),
        };
        let sites = Vec::with_capacity(config.clusters.len());
        let mut world = Self { sites, distances: distances.clone(), breaking: Mutex::default() };
        for (index, clusters) in config.clusters.chunks(START_TOGETHER).enumerate() {
            let seed = |place: usize| config.seed.wrapping_add((index * START_TOGETHER + place) as u64);
            let claims: Vec<Claim> = claims.drain(..clusters.len()).collect();
            let starting = clusters.iter().zip(claims).enumerate().map(|(place, (cluster, claim))| {
                let gate = gate(&claim);
                Site::start(cluster, claim, gate, start.keep, config.programs.clone(), seed(place))
            });
            let mut failed = None;
            for started in join_all(starting).await {
                match started {
                    Ok(site) => {
                        ready(&site);
                        world.sites.push(site);
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(error) = failed {
                world.stop().await;
                return Err(error);
            }
        }
        Ok(world)
    }

    /// Its clusters, in order.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// How long a round trip between two clusters takes, or between one and the hub (`hub`), as distance has it, whether or
    /// not traffic of this world does take that long. None when there is no such cluster.
    pub fn round_trip(&self, a: &str, b: &str) -> Option<Duration> {
        Some(self.distances.round_trip(self.origin(a)?, self.origin(b)?))
    }

    fn origin(&self, name: &str) -> Option<Origin> {
        if name == HUB {
            return Some(Origin::Hub);
        }
        let site = self.sites.iter().find(|site| site.config.name == name)?;
        Some(Origin::Member(site.block()))
    }

    /// Stops every cluster.
    pub async fn stop(&self) {
        join_all(self.sites.iter().map(Site::stop)).await;
    }
}

// === impl Site ===

impl Site {
    async fn start(
        config: &ClusterConfig,
        claim: Claim,
        gate: Gate,
        keep: Option<&Path>,
        programs: Programs,
        seed: u64,
    ) -> Result<Self, WorldError> {
        let member = Member::start(MemberConfig {
            name: config.name.clone(),
            region: config.region.clone(),
            nodes: (0..config.nodes).map(|number| node(config, number)).collect(),
            listen: SocketAddr::from((claim.block().api(), API_PORT)),
            data: keep.map(|keep| keep.join(&config.name)),
            block: claim.block(),
            timings: Timings::PLAYGROUND,
            seed,
        })
        .await?;
        let agents = agents(config, &claim, &member, programs);
        let doors = forward::Config { nodes: agents.node_addresses(), luck: agents.luck.clone() };
        let agent = Arc::new(agent::start(member.api(), gate.clone(), agents));
        let forwarder = forward::start(member.api(), gate.clone(), doors);
        let at = SocketAddr::from((claim.block().backbone(), API_PORT));
        let backbone = Backbone::open(at, member.address(), gate.clone());
        let backbone = backbone.map_err(|source| MemberError::Listen {
            member: config.name.clone(),
            address: at,
            source,
        })?;
        let tasks = Tasks::default();
        tasks.spawn_until_stop(load::report(agent.clone(), member.settings().clone()));
        Ok(Self { config: config.clone(), member, gate, agent, forwarder, backbone, claim, tasks })
    }

    /// Its addresses.
    pub const fn block(&self) -> Block {
        self.claim.block()
    }

    /// Its faults.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Its node agents.
    pub const fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// The URL of its API for the hub. A cut silences it; users have one that goes on.
    pub fn backbone_url(&self) -> String {
        format!("https://{}:{API_PORT}", self.claim.block().backbone())
    }

    /// Closes or opens the doors of its API as its faults say.
    async fn follow_gate(&self) -> Result<(), BadFault> {
        if self.gate.api_down() {
            self.member.api_down().await;
        } else {
            self.member.api_up().await.map_err(|error| BadFault::Door(error.to_string()))?;
        }
        self.backbone.follow().await.map_err(|error| BadFault::Door(error.to_string()))
    }

    async fn stop(&self) {
        self.backbone.shut().await;
        self.tasks.join().await;
        self.forwarder.stop().await;
        self.agent.stop().await;
        self.member.stop().await;
    }
}

/// A node by its number: `us-east-1`, `us-east-2`, …
fn node(config: &ClusterConfig, number: usize) -> NodeSpec {
    NodeSpec {
        cpu: config.cpu.clone(),
        memory: config.memory.clone(),
        pods: config.pods,
        ..NodeSpec::new(format!("{}-{}", config.name, number + 1), config.zone(number))
    }
}

fn agents(config: &ClusterConfig, claim: &Claim, member: &Member, programs: Programs) -> agent::Config {
    let pace = Pace {
        heartbeat: Timings::PLAYGROUND.heartbeat,
        restart_first: std::time::Duration::from_secs(RESTART_FIRST_S),
        restart_max: std::time::Duration::from_secs(RESTART_MAX_S),
    };
    agent::Config {
        programs,
        pace,
        luck: member.settings().event_luck.clone(),
        ..agent::Config::new(config.name.clone(), claim.block(), member.nodes().to_vec())
    }
}
