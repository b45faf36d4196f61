//! What can be broken in a running world, as it is asked for from outside.

use std::time::Duration;

use landfall_api::selector::Selector;
use serde::{Deserialize, Serialize};

use crate::gate::{Effect, PodFault};

/// The longest delay of slow pods.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Something to break, or to mend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "fault", deny_unknown_fields)]
pub enum Fault {
    /// Whole clusters are gone: API, nodes, pods, addresses.
    Kill {
        /// Which.
        clusters: Vec<String>,
    },
    /// The first and each of the others do not hear of each other; with one name, all others and the hub. One of them
    /// may be the hub: `hub`.
    Cut {
        /// Which.
        clusters: Vec<String>,
    },
    /// API servers do not answer; pods go on.
    ApiDown {
        /// Which.
        clusters: Vec<String>,
    },
    /// A node is gone, and its pods with it.
    NodeDown {
        /// Where.
        cluster: String,
        /// Which.
        node: String,
    },
    /// No load-balancer address of the clusters answers.
    LbDown {
        /// Which.
        clusters: Vec<String>,
    },
    /// Pods answer late.
    Slow {
        /// Where.
        clusters: Vec<String>,
        /// How much later.
        delay_ms: u64,
        /// Which pods.
        #[serde(default)]
        pods: Pods,
    },
    /// Pods answer more than so many requests at once with 503.
    Overload {
        /// Where.
        clusters: Vec<String>,
        /// How many are still served.
        requests_max: u32,
        /// Which pods.
        #[serde(default)]
        pods: Pods,
    },
    /// Containers exit, and exit again when they are restarted.
    Crash {
        /// Where.
        clusters: Vec<String>,
        /// Which pods.
        #[serde(default)]
        pods: Pods,
    },
    /// Everything is well again; in all clusters when none is named.
    Heal {
        /// Which.
        clusters: Vec<String>,
    },
}

/// Which pods of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pods {
    /// Only those of this namespace.
    pub namespace: Option<String>,
    /// Only those with such labels.
    pub selector: String,
}

/// Why a fault cannot be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadFault {
    /// No such cluster.
    #[error("there is no cluster {name:?}; there are {known}")]
    Cluster {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No such node.
    #[error("cluster {cluster:?} has no node {name:?}; it has {known}")]
    Node {
        /// Where.
        cluster: String,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No cluster at all.
    #[error("name at least one cluster: {0}")]
    Nothing(String),
    /// What cannot be cut in two.
    #[error("{0:?} cannot be cut from itself: name another cluster, or the hub")]
    Itself(String),
    /// A selector that cannot be read.
    #[error("cannot read the selector {0:?}: write it as kubectl does, such as app=web")]
    Selector(String),
    /// An API that does not come up again.
    #[error("an API does not come up again ({0}): try `heal` once more")]
    Door(String),
    /// A delay that is too long.
    #[error("a delay is at most {} s", DELAY_MAX.as_secs())]
    Delay,
}

impl Fault {
    /// The clusters it names.
    pub(super) fn clusters(&self) -> &[String] {
        match self {
            Self::Kill { clusters }
            | Self::Cut { clusters }
            | Self::ApiDown { clusters }
            | Self::LbDown { clusters }
            | Self::Slow { clusters, .. }
            | Self::Overload { clusters, .. }
            | Self::Crash { clusters, .. }
            | Self::Heal { clusters } => clusters,
            Self::NodeDown { cluster, .. } => std::slice::from_ref(cluster),
        }
    }

    /// What it does to pods; none when it is about something else.
    pub(super) fn pods(&self) -> Result<Option<PodFault>, BadFault> {
        let (pods, effect) = match self {
            Self::Slow { delay_ms, pods, .. } => {
                let delay = Duration::from_millis(*delay_ms);
                if delay > DELAY_MAX {
                    return Err(BadFault::Delay);
                }
                (pods, Effect::Slow(delay))
            }
            Self::Overload { requests_max, pods, .. } => {
                (pods, Effect::Overloaded { requests_max: *requests_max })
            }
            Self::Crash { pods, .. } => (pods, Effect::Crash),
            Self::Kill { .. }
            | Self::Cut { .. }
            | Self::ApiDown { .. }
            | Self::NodeDown { .. }
            | Self::LbDown { .. }
            | Self::Heal { .. } => return Ok(None),
        };
        let selector =
            Selector::parse(&pods.selector).map_err(|_| BadFault::Selector(pods.selector.clone()))?;
        Ok(Some(PodFault { namespace: pods.namespace.clone(), selector, effect }))
    }
}
