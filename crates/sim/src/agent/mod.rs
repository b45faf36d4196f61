//! The node agents of one member: one set of tasks that keeps its nodes alive, and runs the pods bound to them as
//! real servers at addresses of their own.
//!
//! ```text
//!   node  (heartbeats of each)
//!   pods  (objects: followed) ──► pod (one task each) ──► container (listeners, program, probes) ──► echo
//!                                  └──► status (pure), events, logs
//! ```
//!
//! Reading order: [`Config`], `pod` (what happens when), `status` and `resume` (to and from JSON), `program` (what a
//! container runs), `container`, `probe`, `logs`, `node` (heartbeats), `objects` (the API from here).
//!
//! Deliberately absent: deciding where pods go (the scheduler's), images, volumes, `exec` and `port-forward`.

mod addresses;
mod container;
mod events;
#[cfg(test)]
mod hostile;
mod local;
mod logs;
mod node;
pub(crate) mod objects;
mod pod;
mod probe;
mod program;
mod registry;
mod resume;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::meta;
use landfall_apiserver::api::Api;
use landfall_runtime::tasks::Tasks;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::sync::watch;

use crate::NodeSpec;
use crate::address::Block;
use crate::echo;
use crate::gate::Gate;
use crate::listen;
use addresses::Addresses;
use objects::{Change, Client};
use pod::{Latest, Pod};
use registry::Registry;

pub use program::{Local, Programs};

/// What the agents of one member are given.
#[derive(Clone, Debug)]
pub struct Config {
    /// The member's name, which its pods tell.
    pub cluster: String,
    /// Its addresses.
    pub block: Block,
    /// Its nodes, in the order of their addresses.
    pub nodes: Vec<NodeSpec>,
    /// Programs that stand for images.
    pub programs: Programs,
    /// The certificate of ports that speak TLS (named `https…`, or 443 and 8443): one that nobody signed, unless it is
    /// given. Without it they speak plainly.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether events about pods are written.
    pub events: bool,
    /// How fast things happen.
    pub pace: Pace,
}

/// How fast things happen.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time between heartbeats of a node.
    pub heartbeat: Duration,
    /// The first delay before a container is restarted a second time; it doubles every time.
    pub restart_first: Duration,
    /// The longest delay before a restart.
    pub restart_max: Duration,
}

impl Config {
    /// A member without programs of its own, at the pace of Kubernetes.
    pub fn new(cluster: impl Into<String>, block: Block, nodes: Vec<NodeSpec>) -> Self {
        Self {
            cluster: cluster.into(),
            block,
            nodes,
            programs: Programs::default(),
            tls: echo::self_signed(),
            events: true,
            pace: Pace::default(),
        }
    }

    /// Names and addresses of the nodes: the forwarder needs them.
    pub fn node_addresses(&self) -> Vec<(String, Ipv4Addr)> {
        self.nodes.iter().map(|node| node.name.clone()).zip(self.block.nodes().iter()).collect()
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(10),
            restart_first: Duration::from_secs(10),
            restart_max: Duration::from_secs(300),
        }
    }
}

impl Pace {
    /// How long to wait before a restart, after so many restarts in a row: the first is free.
    fn restart_delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 2_u32.checked_pow(doublings).unwrap_or(u32::MAX);
        self.restart_first.checked_mul(factor).unwrap_or(self.restart_max).min(self.restart_max)
    }
}

/// How often a pod without an address looks for one.
const ADDRESS_RETRY: Duration = Duration::from_secs(1);

/// The running agents of a member.
pub struct Agent {
    tasks: Tasks,
    registry: Arc<Registry>,
}

/// How busy a pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests since its containers started.
    pub requests: u64,
    /// Requests being served.
    pub in_flight: u32,
}

/// What all tasks of a member's agents share.
pub(crate) struct Context {
    config: Config,
    client: Client,
    gate: Gate,
    logs: Arc<Registry>,
    addresses: Vec<Arc<Addresses>>,
}

/// Starts the agents of a member. They serve the logs of its pods through its API from then on.
pub fn start(api: &Arc<Api>, gate: Gate, config: Config) -> Agent {
    let tasks = Tasks::default();
    let registry = Arc::new(Registry::new(gate.clone()));
    // A listener for every port of every pod.
    listen::raise_open_files();
    let count = u32::try_from(config.nodes.len()).unwrap_or(u32::MAX);
    let range = |index: u32| config.block.node_pods(index, count);
    let addresses = (0..count).map_while(range).map(Addresses::new).collect();
    let client = Client::new(api.clone(), gate.clone());
    let context = Arc::new(Context { config, client, gate, logs: registry.clone(), addresses });
    for index in 0..context.addresses.len() {
        tasks.spawn_until_stop(node::run(context.clone(), index));
    }
    tasks.spawn(run(context, tasks.clone()));
    // A second agent on the same API leaves the first one's logs.
    let _ = api.pod_logs.set(registry.clone());
    Agent { tasks, registry }
}

impl Agent {
    /// Stops everything at once: pods are not ended, they are just not run any more.
    pub async fn stop(&self) {
        self.tasks.join().await;
    }

    /// How busy a pod is; none when it does not run here.
    pub fn usage(&self, namespace: &str, pod: &str) -> Option<Usage> {
        self.registry.usage(namespace, pod)
    }

    /// How busy every pod is that runs here, by namespace and name.
    pub fn usages(&self) -> BTreeMap<(String, String), Usage> {
        self.registry.usages()
    }
}

impl Context {
    /// A node and its address.
    fn node(&self, index: usize) -> Option<(&NodeSpec, Ipv4Addr)> {
        let address = self.config.block.nodes().iter().nth(index)?;
        Some((self.config.nodes.get(index)?, address))
    }
}

/// Follows the pods and gives each that is bound to a node here a task.
async fn run(context: Arc<Context>, tasks: Tasks) {
    let nodes: HashMap<String, usize> =
        context.config.nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect();
    let mut pods: HashMap<Arc<str>, watch::Sender<Latest>> = HashMap::new();
    let mut follow = context.client.follow(&[("", "pods")]);
    loop {
        let changes = tokio::select! {
            changes = follow.next() => changes,
            () = tasks.stopping() => None,
        };
        let Some(mut changes) = changes else { break };
        // Those that have an address already choose first.
        changes
            .sort_by_key(|change| change.object.as_ref().is_none_or(|pod| pod["status"]["podIP"].is_null()));
        for change in changes {
            apply(&context, &tasks, &nodes, &mut pods, change);
        }
        pods.retain(|_, sender| !sender.is_closed());
    }
    // Dropping the senders tells every pod that the agent stops.
    drop(pods);
}

fn apply(
    context: &Arc<Context>,
    tasks: &Tasks,
    nodes: &HashMap<String, usize>,
    pods: &mut HashMap<Arc<str>, watch::Sender<Latest>>,
    Change { key, object }: Change,
) {
    let known = pods.get(&key);
    let Some(object) = object else {
        if let Some(sender) = pods.remove(&key) {
            sender.send_replace(None);
        }
        return;
    };
    if let Some(sender) = known {
        let same = sender.borrow().as_ref().is_none_or(|pod| meta::uid(pod) == meta::uid(&object));
        if same && !sender.is_closed() {
            sender.send_replace(Some(object));
            return;
        }
        sender.send_replace(None);
    }
    let Some(node) = object["spec"]["nodeName"].as_str().and_then(|name| nodes.get(name)).copied() else {
        return;
    };
    let over = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if over && !meta::deleting(&object) {
        return;
    }
    // Taken here, not in the task, so that pods get their old addresses in the order they are told of.
    let held = address(context, node, &object);
    let (sender, updates) = watch::channel(Some(object.clone()));
    pods.insert(key, sender);
    tasks.spawn(begin(context.clone(), node, object, updates, held));
}

/// Runs a pod, as soon as there is an address for it.
async fn begin(
    context: Arc<Context>,
    node: usize,
    object: Arc<Value>,
    mut updates: watch::Receiver<Latest>,
    mut held: Option<addresses::Held>,
) {
    while held.is_none() {
        tracing::warn!(pod = meta::name(&object), "no address is left for a pod; waiting for one");
        tokio::select! {
            () = tokio::time::sleep(ADDRESS_RETRY) => held = address(&context, node, &object),
            _ = updates.wait_for(Option::is_none) => return,
        }
    }
    if let Some(held) = held {
        Pod::new(context, node, object, updates, held).run().await;
    }
}

/// The address of a pod: its node's if it shares its network, else one of the node's range.
fn address(context: &Arc<Context>, node: usize, pod: &Value) -> Option<addresses::Held> {
    let addresses = context.addresses.get(node)?;
    if pod["spec"]["hostNetwork"] == true {
        return Some(addresses.foreign(context.node(node)?.1));
    }
    addresses.take(pod["status"]["podIP"].as_str().and_then(|address| address.parse().ok()))
}
