//! What a simulated member is given.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::address::Block;
use crate::controllers::autoscaler::Memory;
use crate::luck::Luck;

/// CPUs, memory and the most pods of a node when nobody says.
pub const CPU: &str = "4";
/// See [`CPU`].
pub const MEMORY: &str = "16Gi";
/// See [`CPU`].
pub const PODS: u32 = 110;

/// A member to start.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// Its name.
    pub name: String,
    /// Its region, as nodes are labelled with it.
    pub region: String,
    /// Its nodes.
    pub nodes: Vec<NodeSpec>,
    /// Where its API listens; port 0 for any that is free.
    pub listen: SocketAddr,
    /// Where its objects and keys are kept; none for in memory alone.
    pub data: Option<PathBuf>,
    /// Its addresses.
    pub block: Block,
    /// How patient its controllers are.
    pub timings: Timings,
    /// What its luck follows from.
    pub seed: u64,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Its zone, as it is labelled with it; empty for none.
    pub zone: String,
    /// CPUs, as a quantity.
    pub cpu: String,
    /// Memory, as a quantity.
    pub memory: String,
    /// The most pods.
    pub pods: u32,
    /// Further labels.
    pub labels: Vec<(String, String)>,
    /// Taints: key, value, effect.
    pub taints: Vec<(String, String, String)>,
}

impl NodeSpec {
    /// An ordinary node of a zone.
    pub fn new(name: impl Into<String>, zone: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            zone: zone.into(),
            cpu: CPU.into(),
            memory: MEMORY.into(),
            pods: PODS,
            labels: Vec::new(),
            taints: Vec::new(),
        }
    }
}

/// How patient a member's controllers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How often a node says that it is there.
    pub heartbeat: Duration,
    /// How long a silent node counts as ready.
    pub node_grace: Duration,
    /// How long pods stay on a node that is not ready or not reachable, unless they say otherwise.
    pub eviction: Duration,
    /// How often autoscalers look.
    pub autoscaler: Duration,
    /// How long an autoscaler waits before it scales down, unless it says otherwise.
    pub downscale: Duration,
}

impl Timings {
    /// As Kubernetes has them by default.
    pub const KUBERNETES: Self = Self {
        heartbeat: Duration::from_secs(10),
        node_grace: Duration::from_secs(50),
        eviction: Duration::from_secs(300),
        autoscaler: Duration::from_secs(15),
        downscale: Duration::from_secs(300),
    };
    /// Short enough to watch.
    pub const PLAYGROUND: Self = Self {
        heartbeat: Duration::from_secs(2),
        node_grace: Duration::from_secs(8),
        eviction: Duration::from_secs(15),
        autoscaler: Duration::from_secs(3),
        downscale: Duration::from_secs(30),
    };
}

impl Default for Timings {
    fn default() -> Self {
        Self::KUBERNETES
    }
}

/// What a member's controllers need to know of its configuration and of the world.
#[derive(Debug)]
pub struct Settings {
    /// The member's name.
    pub name: String,
    /// Its addresses.
    pub block: Block,
    /// How patient to be.
    pub timings: Timings,
    /// What names and uids are made from.
    pub luck: Arc<Luck>,
    /// What names of events are made from; there are many.
    pub event_luck: Arc<Luck>,
    /// How much CPU its pods use, as the world reports it.
    pub loads: Arc<Loads>,
    /// What autoscalers remember.
    pub(crate) scaling: Memory,
}

impl Settings {
    /// The settings of a member in a world without load.
    pub fn new(name: &str, block: Block, timings: Timings, seed: u64) -> Self {
        let (loads, scaling) = (Arc::default(), Memory::default());
        let luck = Arc::new(Luck::new(seed));
        let event_luck = Arc::new(luck.child("events"));
        Self { name: name.into(), block, timings, luck, event_luck, loads, scaling }
    }
}

/// How much CPU pods use, in thousandths; reported by whoever knows.
#[derive(Debug, Default)]
pub struct Loads(Mutex<HashMap<(String, String), i64>>);

impl Loads {
    /// Reports what a pod uses.
    pub fn set(&self, namespace: &str, pod: &str, cpu_milli: i64) {
        self.0.lock().insert((namespace.into(), pod.into()), cpu_milli);
    }

    /// Forgets a pod.
    pub fn forget(&self, namespace: &str, pod: &str) {
        self.0.lock().remove(&(namespace.into(), pod.into()));
    }

    /// What a pod uses, if it was reported.
    pub fn cpu_milli(&self, namespace: &str, pod: &str) -> Option<i64> {
        self.0.lock().get(&(namespace.into(), pod.into())).copied()
    }
}
