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

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::meta;
use landfall_apiserver::api::Api;
use landfall_runtime::tasks::Tasks;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::NodeSpec;
use crate::address::Block;
use crate::echo;
use crate::gate::Gate;
use crate::luck::Luck;
use addresses::{Addresses, Held};
use objects::{Change, Client};
use pod::{End, Latest, Pod};
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
    /// What names of events are made from.
    pub luck: Arc<Luck>,
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
            luck: Arc::default(),
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
    landfall_runtime::files::raise_open_max();
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

/// Keys of pods that are over and wait to be looked at.
const OVER_MAX: usize = 64;

/// What follows the pods and gives each that is bound to a node here a task.
struct Pods {
    context: Arc<Context>,
    tasks: Tasks,
    /// Nodes by name.
    nodes: HashMap<String, usize>,
    /// The pods of nodes here, by key.
    known: HashMap<Arc<str>, Known>,
    /// Tasks of pods that are over say so here.
    over: mpsc::Sender<(Arc<str>, String)>,
}

/// A pod of a node here.
struct Known {
    uid: String,
    /// Tells its task how the pod is; none when the pod is over and needs none.
    task: Option<watch::Sender<Latest>>,
}

async fn run(context: Arc<Context>, tasks: Tasks) {
    let nodes =
        context.config.nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect();
    let mut follow = context.client.follow(&[("", "pods")]);
    let (over, mut ended) = mpsc::channel(OVER_MAX);
    let mut pods = Pods { context, tasks: tasks.clone(), nodes, known: HashMap::new(), over };
    loop {
        let changes = tokio::select! {
            changes = follow.next() => changes,
            Some((key, uid)) = ended.recv() => {
                pods.over(key, &uid);
                continue;
            }
            () = tasks.stopping() => None,
        };
        let Some(mut changes) = changes.map(last_words) else { break };
        // Those that have an address already choose first.
        changes
            .sort_by_key(|change| change.object.as_ref().is_none_or(|pod| pod["status"]["podIP"].is_null()));
        changes.into_iter().for_each(|change| pods.apply(change));
    }
    // Dropping the senders tells every pod that the agent stops.
}

/// The last word on each pod. What was said before it is old, and would be told last by whoever sorts it.
fn last_words(changes: Vec<Change>) -> Vec<Change> {
    let mut known = HashSet::new();
    let mut last: Vec<Change> =
        changes.into_iter().rev().filter(|change| known.insert(change.key.clone())).collect();
    last.reverse();
    last
}

impl Pods {
    fn apply(&mut self, Change { key, object }: Change) {
        let Some(object) = object else {
            match self.known.remove(&key).and_then(|known| known.task) {
                Some(task) => drop(task.send_replace(None)),
                None => self.forget(&key),
            }
            return;
        };
        match self.known.get(&key) {
            Some(Known { uid, task }) if uid == meta::uid(&object) => match task {
                Some(task) => return drop(task.send_replace(Some(object))),
                // What is told late is from before it was over.
                None if !meta::deleting(&object) => return,
                None => {}
            },
            Some(Known { task: Some(task), .. }) => drop(task.send_replace(None)),
            _ => {}
        }
        let name = object["spec"]["nodeName"].as_str();
        let Some(node) = name.and_then(|name| self.nodes.get(name)).copied() else { return };
        let (over, deleting) = (status::is_over(&object), meta::deleting(&object));
        if over && !deleting {
            return;
        }
        // What only has to be removed needs none.
        let held = if over || deleting { None } else { address(&self.context, node, &object) };
        self.begin(key, node, object, held);
    }

    fn begin(&mut self, key: Arc<str>, node: usize, object: Arc<Value>, held: Option<Held>) {
        let (task, updates) = watch::channel(Some(object.clone()));
        let uid = meta::uid(&object).to_owned();
        self.known.insert(key.clone(), Known { uid: uid.clone(), task: Some(task) });
        let (pod, over) = (Pod::new(self.context.clone(), node, object, updates, held), self.over.clone());
        self.tasks.spawn(async move {
            if pod.run().await == End::Over {
                // An agent that is gone does not need to know.
                let _ = over.send((key, uid)).await;
            }
        });
    }

    /// The task of a pod that is over has ended: looks at what it was not told any more.
    fn over(&mut self, key: Arc<str>, uid: &str) {
        let Some(known) = self.known.get_mut(&key) else { return self.forget(&key) };
        if known.uid != uid {
            return;
        }
        let latest = known.task.take().and_then(|task| task.borrow().clone());
        if let Some(object) = latest.filter(|object| meta::deleting(object)) {
            self.apply(Change { key, object: Some(object) });
        }
    }

    /// The pod of this key is gone, and had no task any more to clean up after it.
    fn forget(&self, key: &str) {
        let mut parts = key.rsplit('/');
        if let (Some(name), Some(namespace)) = (parts.next(), parts.next()) {
            self.context.logs.forget_named(namespace, name);
        }
    }
}

/// The address of a pod: its node's if it shares its network, else one of the node's range.
fn address(context: &Arc<Context>, node: usize, pod: &Value) -> Option<Held> {
    let addresses = context.addresses.get(node)?;
    if pod["spec"]["hostNetwork"] == true {
        return Some(addresses.foreign(context.node(node)?.1));
    }
    addresses.take(pod["status"]["podIP"].as_str().and_then(|address| address.parse().ok()))
}
