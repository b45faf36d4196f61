//! What can be typed after `landfall edge`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::basics::options::Connection;
use crate::cli::{Listen, Span};
use crate::clusters::options::{HubConnection, MemberConnection};

const EXAMPLES: &str = "\
Examples:
  # At the hub: a token, and the command that uses it
  landfall edge token --cluster us-east

  # Where the edge shall run
  landfall edge --hub https://hub.example.com:6443 --hub-ca-hash sha256:… --cluster us-east --token abcdef.… \\
    --data-dir ./edge --dns-listen 127.0.0.1:5353

  # Again, without a token: the certificate is in the data directory
  landfall edge --hub https://hub.example.com:6443 --cluster us-east --data-dir ./edge --dns-listen 127.0.0.1:5353

The data directory keeps the edge's key, its certificate, the hub's authority, and the last plans: with these it goes on
without the hub, also after a restart.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct EdgeOptions {
    #[command(subcommand)]
    pub(crate) command: Option<EdgeCommand>,

    #[command(flatten)]
    pub(crate) daemon: DaemonOptions,
}

/// An edge that runs.
#[derive(Args, Debug)]
pub(crate) struct DaemonOptions {
    /// The hub.
    #[arg(long, value_name = "URL")]
    pub(crate) hub: Option<String>,

    /// The authority of the hub's certificate.
    #[arg(long, value_name = "FILE")]
    pub(crate) hub_ca: Option<PathBuf>,

    /// The hash of that authority's key, instead of the authority itself.
    #[arg(long, conflicts_with = "hub_ca", value_name = "sha256:HEX")]
    pub(crate) hub_ca_hash: Option<String>,

    /// With what it comes in the first time.
    #[arg(long, env = "LANDFALL_EDGE_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,

    /// The member it stands in.
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,

    /// Its name. Default: the member's name and the machine's.
    #[arg(long, env = "LANDFALL_EDGE_NAME", value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Its key, its certificate, and the last plans.
    #[arg(long, default_value = "/var/lib/landfall-edge", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,

    /// Answer names here, over UDP and TCP; may be repeated.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) dns_listen: Vec<Listen>,

    /// Clients of this prefix are inside its member: its pods, services and nodes; may be repeated.
    #[arg(long, value_delimiter = ',', value_name = "CIDR")]
    pub(crate) inside: Vec<String>,

    /// A database of the world's addresses in MaxMind's format: clients that no prefix names stand where it says.
    #[arg(long, value_name = "FILE")]
    pub(crate) geo_database: Option<PathBuf>,

    /// Keys with which other servers may transfer the zones: lines of [hmac-sha256:]NAME:SECRET, as `dig -y` takes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) transfer_key_file: Option<PathBuf>,

    /// Tell about itself here: /healthz, /readyz, /metrics, /plans and /votes, over HTTP and to everybody who asks.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) admin_listen: Option<Listen>,

    /// An address or host name where clients reach it; may be repeated.
    #[arg(long, env = "LANDFALL_EDGE_ADDRESS", value_delimiter = ',', value_name = "HOST")]
    pub(crate) advertise: Vec<String>,

    /// Where other edges reach it. Default: the first address, at the port of its names.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) peer_address: Option<String>,

    /// The kubeconfig of its own member, to probe endpoints directly.
    #[arg(long, conflicts_with = "in_cluster", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// It is a pod of its own member, whose service account may see EndpointSlices.
    #[arg(long)]
    pub(crate) in_cluster: bool,

    /// Its node, for people.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// Its zone, for people.
    #[arg(long, value_name = "NAME")]
    pub(crate) zone: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EdgeCommand {
    /// Make a token with which edges come in, and show how.
    Token(TokenOptions),
    /// Shut an edge out at once.
    Revoke(RevokeOptions),
    /// Show the edges.
    List(ListOptions),
    /// Run edges as pods of a member.
    Install(InstallOptions),
    /// Print what runs edges as pods of a member, for `kubectl apply -f -` there.
    Manifests(ManifestsOptions),
}

const TOKEN_EXAMPLES: &str = "\
Examples:
  # For edges of us-east, good for an hour
  landfall edge token --cluster us-east

  # For edges of any cluster, good for a day
  landfall edge token --ttl 24h

Whoever has the token can become an edge: it is shown once, and kept in the Secret kube-system/bootstrap-token-ID.";

#[derive(Args, Debug)]
#[command(after_help = TOKEN_EXAMPLES)]
pub(crate) struct TokenOptions {
    /// Only edges of this cluster may come in with it.
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,

    /// How long it is good, such as 30m or 24h.
    #[arg(long, default_value = "1h", value_name = "DURATION")]
    pub(crate) ttl: Span,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

const REVOKE_EXAMPLES: &str = "\
Examples:
  landfall edge revoke us-east-1

Its certificate opens nothing from then on, and what it watches ends. The token it came in with is taken back, too, so
that it cannot return; edges that came in with the same token stay.";

#[derive(Args, Debug)]
#[command(after_help = REVOKE_EXAMPLES)]
pub(crate) struct RevokeOptions {
    /// The edge.
    pub(crate) name: String,

    /// Leave the token that it came in with as it is: others need it.
    #[arg(long)]
    pub(crate) keep_token: bool,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Edges that are pods.
#[derive(Args, Debug)]
pub(crate) struct PodOptions {
    /// The image, which has our binary as /bin/landfall.
    #[arg(long, default_value = "landfall.dev/landfall:dev", value_name = "IMAGE")]
    pub(crate) image: String,

    /// How many.
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(crate) replicas: u16,

    /// Where the hub is for the pods, if not where it is for you.
    #[arg(long, value_name = "URL")]
    pub(crate) hub_url: Option<String>,

    /// How their names are reached: ClusterIP for the member's own pods, LoadBalancer for everybody.
    #[arg(long, default_value = "ClusterIP", value_parser = ["ClusterIP", "NodePort", "LoadBalancer"], value_name = "TYPE")]
    pub(crate) service_type: String,

    /// Clients of this prefix are inside the member: its pods, services and nodes; may be repeated.
    #[arg(long, value_delimiter = ',', value_name = "CIDR")]
    pub(crate) inside: Vec<String>,

    /// How long new pods can come in; running them again, or this command, makes another token.
    #[arg(long, default_value = "720h", value_name = "DURATION")]
    pub(crate) ttl: Span,
}

const INSTALL_EXAMPLES: &str = "\
Examples:
  # The member's context and the hub's are in one kubeconfig; the hub's is the current one
  landfall edge install --context us-east

  # Reached by everybody, with an image of your own registry
  landfall edge install --context us-east --service-type LoadBalancer --image registry.example.com/landfall:1

What it makes in the member: the namespace landfall-system with the StatefulSet, Service, ServiceAccount and Secret
landfall-edge, and the ClusterRole and ClusterRoleBinding landfall-edge, which allow to see EndpointSlices and nothing else.";

#[derive(Args, Debug)]
#[command(after_help = INSTALL_EXAMPLES)]
pub(crate) struct InstallOptions {
    /// The member's name in the federation. Default: as its context.
    pub(crate) name: Option<String>,

    /// Do not wait until an edge is ready.
    #[arg(long)]
    pub(crate) no_wait: bool,

    #[command(flatten)]
    pub(crate) pods: PodOptions,

    #[command(flatten)]
    pub(crate) member: MemberConnection,

    #[command(flatten)]
    pub(crate) hub: HubConnection,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  landfall edge manifests us-east | kubectl --context us-east apply -f -")]
pub(crate) struct ManifestsOptions {
    /// The member's name in the federation.
    pub(crate) cluster: String,

    #[command(flatten)]
    pub(crate) pods: PodOptions,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  landfall edge list")]
pub(crate) struct ListOptions {
    #[command(flatten)]
    pub(crate) connection: Connection,
}
