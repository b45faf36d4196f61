//! What can be typed after `landfall playground`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use landfall_sim::world::fault::{Fault, Pods};

const EXAMPLES: &str = "\
Examples:
  # Three simulated clusters, until Ctrl-C
  landfall playground

  # Ten of them; or as a file says
  landfall playground --clusters 10
  landfall playground --config world.yaml

  # Kept: go on tomorrow where it was
  landfall playground --keep ./world

  # From another shell: lose a cluster, and get it back
  landfall playground fault kill us-east
  landfall playground fault heal

A config file:
  clusters:
  - name: us-east          # a region of the table, or give latitude and longitude
    nodes: 3
  - name: lab
    region: home
    zones: [cellar]
    cpu: \"8\"
    memory: 32Gi
  distances: false         # as --no-distances";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct PlaygroundOptions {
    #[command(subcommand)]
    pub(crate) command: Option<PlaygroundCommand>,

    /// How many simulated clusters.
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(crate) clusters: Option<usize>,

    /// A file that says which clusters there are.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Let traffic between clusters be as fast as it can, instead of taking the time that distance costs. Traffic of users
    /// is never slowed.
    #[arg(long)]
    pub(crate) no_distances: bool,

    /// The domain of federated Services: they are called SERVICE.NAMESPACE.federation.DOMAIN. None when it is empty.
    #[arg(long, default_value = "example.com", value_name = "DOMAIN")]
    pub(crate) domain: String,

    /// Run no edges: nobody answers names, and nobody votes on who is up.
    #[arg(long)]
    pub(crate) no_edges: bool,

    /// Keep everything in this directory, and go on from what is there.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlaygroundCommand {
    /// Break something in the running playground, or mend it.
    Fault(FaultOptions),
}

const FAULT_EXAMPLES: &str = "\
Examples:
  landfall playground fault kill us-east
  landfall playground fault cut us-east            # from everybody, the hub too
  landfall playground fault cut us-east eu-west    # these two from each other
  landfall playground fault cut us-east hub        # its API from the hub
  landfall playground fault api-down asia-east
  landfall playground fault slow eu-west --delay-ms 500 -l app=web
  landfall playground fault node-down us-east us-east-1
  landfall playground fault heal";

#[derive(Args, Debug)]
#[command(after_help = FAULT_EXAMPLES)]
pub(crate) struct FaultOptions {
    /// The playground's directory. Default: the one that runs.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) what: What,
}

/// Names of clusters.
#[derive(Args, Clone, Debug)]
pub(crate) struct Clusters {
    /// Which clusters.
    #[arg(required = true, value_name = "CLUSTER")]
    clusters: Vec<String>,
}

/// Which pods of them.
#[derive(Args, Clone, Debug)]
pub(crate) struct Which {
    /// Only pods of this namespace.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Only pods with such labels.
    #[arg(short = 'l', long, default_value = "", value_name = "SELECTOR")]
    selector: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Whole clusters are gone: API, nodes, pods and addresses.
    Kill(Clusters),
    /// The first cluster and the others lose sight of each other. Named alone, it is cut off from all of them and from
    /// the hub. `hub` names the hub: `cut us-east hub` is between those two. Users still reach every API.
    #[command(verbatim_doc_comment)]
    Cut {
        /// Which clusters; `hub` for the hub.
        #[arg(required = true, value_name = "CLUSTER")]
        clusters: Vec<String>,
    },
    /// API servers do not answer; pods go on.
    ApiDown(Clusters),
    /// A node is gone, and its pods with it.
    NodeDown {
        /// In which cluster.
        cluster: String,
        /// Which node.
        node: String,
    },
    /// Load-balancer addresses do not answer.
    LbDown(Clusters),
    /// Pods answer late.
    Slow {
        #[command(flatten)]
        clusters: Clusters,
        /// How much later.
        #[arg(long, default_value_t = 1000, value_name = "MS")]
        delay_ms: u64,
        #[command(flatten)]
        pods: Which,
    },
    /// Pods answer 503 to more than a few requests at once.
    Overload {
        #[command(flatten)]
        clusters: Clusters,
        /// How many requests at once each pod still serves.
        #[arg(long, default_value_t = 0, value_name = "N")]
        requests_max: u32,
        #[command(flatten)]
        pods: Which,
    },
    /// Containers exit, and exit again when they are restarted.
    Crash {
        #[command(flatten)]
        clusters: Clusters,
        #[command(flatten)]
        pods: Which,
    },
    /// Everything is well again; everywhere, when no cluster is named.
    Heal {
        /// Which clusters; `hub` for what the hub is cut off from.
        #[arg(value_name = "CLUSTER")]
        clusters: Vec<String>,
    },
}

impl From<&What> for Fault {
    fn from(what: &What) -> Self {
        let pods =
            |which: &Which| Pods { namespace: which.namespace.clone(), selector: which.selector.clone() };
        match what {
            What::Kill(named) => Self::Kill { clusters: named.clusters.clone() },
            What::Cut { clusters } => Self::Cut { clusters: clusters.clone() },
            What::ApiDown(named) => Self::ApiDown { clusters: named.clusters.clone() },
            What::LbDown(named) => Self::LbDown { clusters: named.clusters.clone() },
            What::NodeDown { cluster, node } => {
                Self::NodeDown { cluster: cluster.clone(), node: node.clone() }
            }
            What::Slow { clusters, delay_ms, pods: which } => {
                Self::Slow { clusters: clusters.clusters.clone(), delay_ms: *delay_ms, pods: pods(which) }
            }
            What::Overload { clusters, requests_max, pods: which } => Self::Overload {
                clusters: clusters.clusters.clone(),
                requests_max: *requests_max,
                pods: pods(which),
            },
            What::Crash { clusters, pods: which } => {
                Self::Crash { clusters: clusters.clusters.clone(), pods: pods(which) }
            }
            What::Heal { clusters } => Self::Heal { clusters: clusters.clone() },
        }
    }
}
