//! What can be typed after `landfall edge`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use landfall_proxy::AccessLog;

use super::entrance::Entrance;
use crate::basics::options::Connection;
use crate::cli::{Bytes, Span};
use crate::clusters::options::{HubConnection, MemberConnection};

const EXAMPLES: &str = "\
Examples:
  # At the hub: a token, and the command that uses it
  landfall edge token --cluster us-east

  # Where the edge shall run
  landfall edge --hub https://hub.example.com:6443 --hub-ca-hash sha256:… --cluster us-east --token abcdef.… \\
    --data-dir ./edge --dns-listen 127.0.0.1:5353 --http-listen :8080 --peer-listen :8444

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

/// Nodes take a moment to hear that a pod is not ready any more.
const POD_SHUTDOWN_DELAY: Duration = Duration::from_secs(5);

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
    pub(crate) dns_listen: Vec<Entrance>,

    /// The same for clients inside its member alone, such as the member's resolver; may be repeated.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) dns_listen_inside: Vec<Entrance>,

    /// Carry HTTP here, as Ingresses say; may be repeated.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) http_listen: Vec<Entrance>,

    /// Carry HTTPS here; may be repeated.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) https_listen: Vec<Entrance>,

    /// Let other edges in here, with what they carry for this member; may be repeated.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) peer_listen: Vec<Entrance>,

    /// Carry ports of Services of type LoadBalancer on this address; may be repeated. Where HTTP is carried on the same port of
    /// the same address, the Service is told that it cannot have it.
    #[arg(long, value_delimiter = ',', value_name = "ADDR")]
    pub(crate) ports_on: Vec<IpAddr>,

    /// Balancers of this prefix tell with a PROXY protocol header who the client is; may be repeated.
    #[arg(long, value_delimiter = ',', value_name = "CIDR")]
    pub(crate) proxy_protocol_from: Vec<String>,

    /// Threads that carry HTTP; as many as there are cores when 0.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) proxy_threads: usize,

    /// Which requests are written down: off, errors, retried (errors, and those that were asked more than once), all, or 1/N for one of N and the errors.
    #[arg(long, default_value = "errors", value_name = "WHICH")]
    pub(crate) access_log: Logged,

    /// Where they are written, as lines of JSON: a file, or - for standard output. Default: the program's log.
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log_file: Option<PathBuf>,

    /// Send traces to this collector, by OTLP over HTTP, such as http://127.0.0.1:4318.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,

    /// Which requests begin a trace that belong to none: off, all, or 1/N. Those of recorded traces are always followed.
    #[arg(long, default_value = "off", requires = "otlp_endpoint", value_name = "WHICH")]
    pub(crate) trace_sample: Sampled,

    /// Who vouches for storage buckets over HTTPS, beside those whom the system trusts.
    #[arg(long, value_name = "FILE")]
    pub(crate) bucket_ca: Option<PathBuf>,

    /// Connections of clients that may be open; more are turned away.
    #[arg(long, default_value_t = 50_000, value_name = "NUMBER")]
    pub(crate) max_connections: usize,

    /// Requests that may be in flight; more are answered with 503.
    #[arg(long, default_value_t = 20_000, value_name = "NUMBER")]
    pub(crate) max_requests: usize,

    /// Bytes that a request's body may have, such as 100Mi; longer ones are answered with 413. Default: no limit, as bodies are passed on as they
    /// come.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_body: Option<Bytes>,

    /// Memory that may be used, such as 512Mi: when it runs out, only a few requests are carried at once and the others are answered with 503.
    /// Default: what its container may use, else what the machine has.
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_memory: Option<Bytes>,

    /// How long requests may still take when the edge is told to stop.
    #[arg(long, default_value = "20s", value_name = "DURATION")]
    pub(crate) drain: Span,

    /// How long the edge goes on as before when it is told to stop, while /readyz says that it is not ready; 5s with --in-cluster.
    #[arg(long, value_name = "DURATION")]
    pub(crate) shutdown_delay: Option<Span>,

    /// Clients of this prefix are inside its member: its pods, services and nodes; may be repeated.
    #[arg(long, value_delimiter = ',', value_name = "CIDR")]
    pub(crate) inside: Vec<String>,

    /// A database of the world's addresses in MaxMind's format: clients that no prefix names stand where it says.
    #[arg(long, value_name = "FILE")]
    pub(crate) geo_database: Option<PathBuf>,

    /// Keys with which other servers may transfer the zones: lines of [hmac-sha256:]NAME:SECRET, as `dig -y` takes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) transfer_key_file: Option<PathBuf>,

    /// Tell another server that transfers the zones when they have changed; signed with one of those keys, if it is named. May be
    /// repeated.
    #[arg(long, value_name = "[KEY@]ADDR:PORT")]
    pub(crate) notify: Vec<String>,

    /// Tell about itself here: /healthz, /readyz, /metrics, /plans, /routes and /votes, over HTTP and to everybody who asks.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) admin_listen: Option<Entrance>,

    /// An address or host name where clients reach it; may be repeated.
    #[arg(long, env = "LANDFALL_EDGE_ADDRESS", value_delimiter = ',', value_name = "HOST")]
    pub(crate) advertise: Vec<String>,

    /// Where other edges reach it. Default: the first address, at the port where they come in.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) peer_address: Option<String>,

    /// The kubeconfig of its own member, to probe endpoints directly.
    #[arg(long, conflicts_with = "in_cluster", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// It is a pod of its own member, whose service account may see EndpointSlices.
    #[arg(long)]
    pub(crate) in_cluster: bool,

    /// The Service of its own namespace by whose load balancer clients reach it; needs --in-cluster or --kubeconfig. With
    /// --ports-on, ports of federated Services are opened there too.
    #[arg(long, conflicts_with = "advertise", value_name = "NAME")]
    pub(crate) service: Option<String>,

    /// A Secret of its own namespace where it keeps what is in its data directory; needs --in-cluster.
    #[arg(long, requires = "in_cluster", value_name = "NAME")]
    pub(crate) keep_in: Option<String>,

    /// Its node, for people.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// The group of edges it belongs to: an IngressReplicaSet. It carries what is bound to that group, and nothing else.
    #[arg(long, env = "LANDFALL_EDGE_GROUP", value_name = "NAME")]
    pub(crate) group: Option<String>,

    /// Hold its group's virtual IPs by the keeper that is met in this directory: `landfall edge keeper`.
    #[arg(long, requires = "group", value_name = "DIR")]
    pub(crate) vip_keeper: Option<PathBuf>,

    /// An address of its node on the link of these; may be repeated. Default: those where clients reach it.
    #[arg(long, env = "LANDFALL_EDGE_LINK_ADDRESS", value_delimiter = ',', value_name = "ADDR")]
    pub(crate) link_address: Vec<IpAddr>,

    /// Its zone, for people.
    #[arg(long, value_name = "NAME")]
    pub(crate) zone: Option<String>,
}

impl DaemonOptions {
    /// How long it goes on as before when it is told to stop.
    pub(crate) fn shutdown_delay(&self) -> Duration {
        match self.shutdown_delay {
            Some(given) => given.0,
            None if self.in_cluster => POD_SHUTDOWN_DELAY,
            None => Duration::ZERO,
        }
    }
}

/// Which requests are written to the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged(pub(crate) AccessLog);

impl FromStr for Logged {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("1/").map(str::parse)) {
            ("off", _) => Ok(Self(AccessLog::Off)),
            ("errors", _) => Ok(Self(AccessLog::Errors)),
            ("retried", _) => Ok(Self(AccessLog::Retried)),
            ("all", _) => Ok(Self(AccessLog::Sampled(1))),
            (_, Some(Ok(of))) if of > 0 => Ok(Self(AccessLog::Sampled(of))),
            _ => Err("expected off, errors, retried, all, or 1/N such as 1/100"),
        }
    }
}

/// Which requests begin a trace: one of so many; none when 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled(pub(crate) u32);

impl FromStr for Sampled {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("1/").map(str::parse)) {
            ("off", _) => Ok(Self(0)),
            ("all", _) => Ok(Self(1)),
            (_, Some(Ok(of))) if of > 0 => Ok(Self(of)),
            _ => Err("expected off, all, or 1/N such as 1/1000"),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum EdgeCommand {
    /// Make a token with which edges come in, and show how.
    Token(TokenOptions),
    /// Shut an edge out at once.
    Revoke(RevokeOptions),
    /// Show the edges.
    List(ListOptions),
    /// Run edges as pods of a member, and let its resolver ask them.
    Install(InstallOptions),
    /// Take edges that are pods out of a member.
    Uninstall(UninstallOptions),
    /// Write a container image of this program.
    Image(ImageOptions),
    /// Hold virtual IPs for the edge beside it.
    Keeper(KeeperOptions),
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

    /// Only edges of this group (IngressReplicaSet) may come in with it; of any group, or none, when not given.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,

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

    /// Leave the tokens that let edges of its cluster in as they are: others need them.
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

    /// How long new pods can come in; those that have come in need no token any more.
    #[arg(long, default_value = "1h", value_name = "DURATION")]
    pub(crate) ttl: Span,

    /// A Secret of landfall-system whose keys the pods have as files in /etc/landfall: for options that name files.
    #[arg(long, value_name = "SECRET")]
    pub(crate) files_from: Option<String>,

    /// Further options of `landfall edge` for the pods.
    #[arg(last = true, value_name = "EDGE_OPTION")]
    pub(crate) further: Vec<String>,
}

const INSTALL_EXAMPLES: &str = "\
Examples:
  # The member's context and the hub's are in one kubeconfig; the hub's is the current one
  landfall edge install --context us-east

  # Reached by everybody, with an image of your own registry
  landfall edge install --context us-east --service-type LoadBalancer --image registry.example.com/landfall:1

  # With options that edges have; files come from a Secret
  kubectl --context us-east -n landfall-system create secret generic files --from-file=transfer.keys
  landfall edge install --context us-east --files-from files -- --access-log all --transfer-key-file /etc/landfall/transfer.keys

What it makes in the member: the namespace landfall-system with the StatefulSet, Services, ServiceAccount, Role and Secrets
landfall-edge…, and the ClusterRole and ClusterRoleBinding landfall-edge, which allow to see EndpointSlices and nothing else.
Ports of federated Services of type LoadBalancer are opened by the edges themselves, at the Service landfall-edge-public.
The member's CoreDNS (or kube-dns) asks the edges for names of the federation's domain and of clusterset.local from then on:
one block is added to its configuration, and `landfall edge uninstall` takes it out again.";

#[derive(Args, Debug)]
#[command(after_help = INSTALL_EXAMPLES)]
pub(crate) struct InstallOptions {
    /// The member's name in the federation. Default: as its context.
    pub(crate) name: Option<String>,

    /// Do not wait until an edge is ready.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Leave the member's resolver alone.
    #[arg(long)]
    pub(crate) no_dns: bool,

    #[command(flatten)]
    pub(crate) pods: PodOptions,

    #[command(flatten)]
    pub(crate) member: MemberConnection,

    #[command(flatten)]
    pub(crate) hub: HubConnection,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  landfall edge uninstall --context us-east")]
pub(crate) struct UninstallOptions {
    /// The member's name in the federation. Default: as its context.
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) member: MemberConnection,

    #[command(flatten)]
    pub(crate) hub: HubConnection,
}

const IMAGE_EXAMPLES: &str = "\
Examples:
  # For nodes that have no registry
  landfall edge image -o landfall.tar && ctr -n k8s.io images import landfall.tar

  # For a registry of your own
  landfall edge image -o landfall.tar --tag registry.example.com/landfall:1 && docker load -i landfall.tar

It holds this very program and the libraries that it needs.";

#[derive(Args, Debug)]
#[command(after_help = IMAGE_EXAMPLES)]
pub(crate) struct ImageOptions {
    /// The archive to write.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// How the image is called.
    #[arg(long, default_value = "landfall.dev/landfall:dev", value_name = "NAME:TAG")]
    pub(crate) tag: String,
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

const KEEPER_EXAMPLES: &str = "\
Examples:
  # On every node of the group, as root
  landfall edge keeper --dir /run/landfall-vip &
  landfall edge --vip-keeper /run/landfall-vip --group front --hub https://hub.example.com:6443 --cluster us-east \\
    --token abcdef.… --http-listen :80

A process of its own, because an address that nobody takes off outlives whoever put it on: when the edge dies, the keeper gives
its addresses away; when keepalived dies, the keeper takes them off and starts it again; when the keeper dies, keepalived
ends with it.";

#[derive(Args, Debug)]
#[command(after_help = KEEPER_EXAMPLES)]
pub(crate) struct KeeperOptions {
    /// Where it meets the edge; for both of them alone.
    #[arg(long, default_value = "/run/landfall-vip", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// keepalived.
    #[arg(long, default_value = "keepalived", value_name = "PROGRAM")]
    pub(crate) keepalived: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  landfall edge list")]
pub(crate) struct ListOptions {
    #[command(flatten)]
    pub(crate) connection: Connection,
}
