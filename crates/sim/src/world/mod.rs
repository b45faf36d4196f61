//! A world: simulated clusters that stand somewhere, run together in one process, and can be broken on command.
//!
//! ```text
//!   WorldConfig ──► World ──► Site (one cluster): Member (API, controllers) + Agent (nodes) + Forwarder (Services)
//!                     ▲                                └────────── Gate (its faults) ──────────┘
//!   Fault ────────────┘
//! ```
//!
//! Reading order: [`config`], [`places`], [`World::start`], [`fault`].

pub mod config;
pub mod fault;
mod load;
pub mod places;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use futures::future::join_all;
use landfall_runtime::tasks::Tasks;
use tokio::sync::Mutex;

use crate::address::{Block, Claim, ClaimError};
use crate::agent::{self, Agent, Pace, Programs};
use crate::forward::{self, Forwarder};
use crate::gate::{Faults, Gate};
use crate::member::config::{MemberConfig, NodeSpec, Timings};
use crate::member::{Member, MemberError};
use config::{ClusterConfig, WorldConfig};
use fault::{BadFault, Fault};

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
    let luck = start.keep.map(|keep| luck_of(keep.as_os_str().as_encoded_bytes()));
    let each = claims.into_iter().zip(&config.clusters);
    each.map(|(claim, cluster)| match (claim, luck) {
        (Some(claim), _) => Ok(claim),
        (None, Some(luck)) => Claim::somewhere(luck).map_err(failed(cluster)),
        (None, None) => Claim::take(None).map_err(failed(cluster)),
    })
    .collect()
}

/// A number that a directory's name leads to, the same every time (FNV-1a).
fn luck_of(name: &[u8]) -> u64 {
    name.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

// === impl World ===

impl World {
    /// Starts every cluster; `ready` is told of each in turn.
    pub async fn start(
        config: &WorldConfig,
        start: &Start<'_>,
        mut ready: impl FnMut(&Site),
    ) -> Result<Self, WorldError> {
        crate::listen::raise_open_files();
        let mut world = Self { sites: Vec::with_capacity(config.clusters.len()), breaking: Mutex::default() };
        let mut claims = claims(config, start)?;
        for (index, clusters) in config.clusters.chunks(START_TOGETHER).enumerate() {
            let seed = |place: usize| config.seed.wrapping_add((index * START_TOGETHER + place) as u64);
            let claims: Vec<Claim> = claims.drain(..clusters.len()).collect();
            let starting = clusters.iter().zip(claims).enumerate().map(|(place, (cluster, claim))| {
                Site::start(cluster, claim, start.keep, config.programs.clone(), seed(place))
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

    /// Breaks or mends something; says what was done. A fault that cannot be changes nothing.
    pub async fn break_or_mend(&self, fault: &Fault) -> Result<String, BadFault> {
        let _one_at_a_time = self.breaking.lock().await;
        let sites = self.named(fault)?;
        let pods = fault.pods()?;
        match fault {
            Fault::Kill { .. } => each(&sites, |faults, _| faults.dead = true),
            Fault::ApiDown { .. } => each(&sites, |faults, _| faults.api_down = true),
            Fault::LbDown { .. } => each(&sites, |faults, site| {
                faults.addresses_lost = site.claim.block().load_balancers().iter().collect();
            }),
            Fault::NodeDown { cluster, node } => {
                self.node(cluster, node)?;
                each(&sites, |faults, _| {
                    faults.nodes_lost.insert(node.clone());
                });
            }
            Fault::Cut { clusters } => self.cut(&sites, clusters)?,
            Fault::Slow { .. } | Fault::Overload { .. } | Fault::Crash { .. } => {
                each(&sites, |faults, _| faults.pods.splice(0..0, pods.clone()).for_each(drop));
            }
            Fault::Heal { .. } => self.heal(&sites),
        }
        let followed = join_all(self.sites.iter().map(Site::follow_gate)).await;
        followed.into_iter().collect::<Result<(), BadFault>>()?;
        Ok(said(fault, &sites))
    }

    /// Stops every cluster.
    pub async fn stop(&self) {
        join_all(self.sites.iter().map(Site::stop)).await;
    }

    fn find(&self, name: &str) -> Result<&Site, BadFault> {
        let known = || self.sites.iter().map(|s| s.config.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = self.sites.iter().find(|site| site.config.name == name);
        found.ok_or_else(|| BadFault::Cluster { name: name.into(), known: known() })
    }

    /// The clusters that a fault names; all of them for a heal without names.
    fn named(&self, fault: &Fault) -> Result<Vec<&Site>, BadFault> {
        let names = fault.clusters();
        if !names.is_empty() {
            return names.iter().map(|name| self.find(name)).collect();
        }
        if matches!(fault, Fault::Heal { .. }) {
            return Ok(self.sites.iter().collect());
        }
        Err(BadFault::Nothing(
            self.sites.iter().map(|s| s.config.name.as_str()).collect::<Vec<_>>().join(", "),
        ))
    }

    fn node(&self, cluster: &str, node: &str) -> Result<(), BadFault> {
        let names: Vec<&str> = self.find(cluster)?.member.nodes().iter().map(|n| n.name.as_str()).collect();
        if names.contains(&node) {
            return Ok(());
        }
        Err(BadFault::Node { cluster: cluster.into(), name: node.into(), known: names.join(", ") })
    }

    /// The first and each of the others; all others when it is named alone.
    fn cut(&self, named: &[&Site], names: &[String]) -> Result<(), BadFault> {
        let Some((first, others)) = named.split_first() else { return Ok(()) };
        let others: Vec<&Site> = match others {
            [] => self.sites.iter().filter(|site| site.config.name != names[0]).collect(),
            some => some.to_vec(),
        };
        if others.is_empty() {
            return Err(BadFault::Alone(first.config.name.clone()));
        }
        for other in others {
            first.gate.change(|faults| {
                faults.cut.insert(other.claim.block());
            });
            other.gate.change(|faults| {
                faults.cut.insert(first.claim.block());
            });
        }
        Ok(())
    }

    fn heal(&self, sites: &[&Site]) {
        for site in sites {
            site.gate.heal();
            // A cut has two sides.
            for other in &self.sites {
                other.gate.change(|faults| {
                    faults.cut.remove(&site.claim.block());
                });
            }
        }
    }
}

fn each(sites: &[&Site], change: impl Fn(&mut Faults, &Site)) {
    for site in sites {
        site.gate.change(|faults| change(faults, site));
    }
}

/// What was done, for people.
fn said(fault: &Fault, sites: &[&Site]) -> String {
    let names: Vec<&str> = sites.iter().map(|site| site.config.name.as_str()).collect();
    let names = names.join(", ");
    match fault {
        Fault::Kill { .. } => format!("{names}: dead"),
        Fault::Cut { clusters } if clusters.len() == 1 => format!("{names}: cut off from all others"),
        Fault::Cut { clusters } => format!("{}: cut off from {}", clusters[0], clusters[1..].join(", ")),
        Fault::ApiDown { .. } => format!("{names}: the API is down; pods go on"),
        Fault::NodeDown { node, .. } => format!("{names}: node {node} is lost"),
        Fault::LbDown { .. } => format!("{names}: load-balancer addresses do not answer"),
        Fault::Slow { delay_ms, .. } => format!("{names}: pods answer {delay_ms} ms later"),
        Fault::Overload { requests_max, .. } => {
            format!("{names}: pods answer 503 to more than {requests_max} requests at once")
        }
        Fault::Crash { .. } => format!("{names}: containers crash"),
        Fault::Heal { .. } => format!("{names}: healed"),
    }
}

// === impl Site ===

impl Site {
    async fn start(
        config: &ClusterConfig,
        claim: Claim,
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
        let gate = Gate::default();
        let agents = agents(config, &claim, &member, programs);
        let doors = forward::Config { nodes: agents.node_addresses() };
        let agent = Arc::new(agent::start(member.api(), gate.clone(), agents));
        let forwarder = forward::start(member.api(), gate.clone(), doors);
        let tasks = Tasks::default();
        tasks.spawn_until_stop(load::report(agent.clone(), member.settings().clone()));
        Ok(Self { config: config.clone(), member, gate, agent, forwarder, claim, tasks })
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

    /// Closes or opens the door of its API as its faults say.
    async fn follow_gate(&self) -> Result<(), BadFault> {
        if self.gate.api_down() {
            self.member.api_down().await;
            return Ok(());
        }
        self.member.api_up().await.map_err(|error| BadFault::Door(error.to_string()))
    }

    async fn stop(&self) {
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
        ..agent::Config::new(config.name.clone(), claim.block(), member.nodes().to_vec())
    }
}
