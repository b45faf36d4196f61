//! What can be typed. Parsing only; what follows from it is resolved by each command.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use landfall_api::quantity::Quantity;

use crate::basics::options::{ApplyOptions, DeleteOptions, DescribeOptions, GetOptions};
use crate::clusters::options::{
    CordonOptions, DrainOptions, ForgetOptions, JoinOptions, StatusOptions, UnjoinOptions,
};
use crate::edge::options::{EdgeCommand, EdgeOptions};
use crate::explain::options::ExplainOptions;
use crate::playground::options::PlaygroundOptions;

/// Joins many Kubernetes clusters into one federation.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, propagate_version = true, max_term_width = 110)]
pub(crate) struct Arguments {
    /// What to log: a level (error, warn, info, debug) or directives such as `info,landfall_store=debug`.
    /// Default: info for daemons, warn for commands that people watch.
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the control plane: the federation's API server and its controllers.
    Hub(HubOptions),
    /// Run the data plane: votes on health and answers names; or let edges in, and shut them out.
    Edge(Box<EdgeOptions>),
    /// Run an HTTP, TCP and UDP server that tells what it was asked.
    Echo(EchoOptions),
    /// Do nothing until told to stop: the process that holds a pod together.
    #[command(hide = true)]
    Pause,
    /// Run a hub and simulated clusters in one process: everything to try, nothing to install.
    Playground(PlaygroundOptions),
    /// Make a cluster a member of the federation.
    Join(JoinOptions),
    /// Take our objects out of a cluster, and let it go.
    Unjoin(UnjoinOptions),
    /// Give up a cluster that is dead and will not return.
    Forget(ForgetOptions),
    /// Place no new shards and no more replicas in a cluster.
    Cordon(CordonOptions),
    /// Let replicas come to a cluster again; this ends a drain, too.
    Uncordon(CordonOptions),
    /// Move traffic and replicas off a cluster.
    Drain(DrainOptions),
    /// Show the federation on one screen.
    Status(StatusOptions),
    /// Tell what a client is answered, and why.
    Explain(ExplainOptions),
    /// Show objects.
    Get(GetOptions),
    /// Create or change the objects of manifests.
    Apply(ApplyOptions),
    /// Tell all about objects, and what happened to them.
    Describe(DescribeOptions),
    /// Delete objects.
    Delete(DeleteOptions),
}

impl Arguments {
    /// What to log.
    pub(crate) fn log(&self) -> &str {
        let daemon = match &self.command {
            Command::Hub(_) | Command::Echo(_) => true,
            Command::Edge(options) => matches!(options.command, None | Some(EdgeCommand::Keeper(_))),
            _ => false,
        };
        let usual = if daemon { "info" } else { "warn" };
        self.log.as_deref().unwrap_or(usual)
    }
}

const HUB_EXAMPLES: &str = "\
Examples:
  # A hub of its own, everything in one directory
  landfall hub --data-dir ./hub
  kubectl --kubeconfig ./hub/admin.kubeconfig get namespaces

  # Two hubs that share one etcd (first copy secrets.key and pki/{ca.crt,ca.key,sa.key} from ./hub-a to ./hub-b)
  landfall hub --data-dir ./hub-a --listen 127.0.0.1:6443 --etcd http://127.0.0.1:2379
  landfall hub --data-dir ./hub-b --listen 127.0.0.1:6444 --etcd http://127.0.0.1:2379";

#[derive(Args, Debug)]
#[command(after_help = HUB_EXAMPLES)]
pub(crate) struct HubOptions {
    /// Keys, certificates, the administrator's kubeconfig and, without --etcd, all objects.
    #[arg(long, default_value = "/var/lib/landfall", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,

    /// Where to serve the API, over HTTPS only. Port 0 takes any free port.
    #[arg(long, default_value = "0.0.0.0:6443", value_name = "ADDR:PORT")]
    pub(crate) listen: SocketAddr,

    /// A host name or address that clients use; may be repeated. The first one goes into the kubeconfig.
    #[arg(long = "advertise", value_name = "HOST")]
    pub(crate) advertise: Vec<String>,

    /// The federation's name: it stands in the names of federated Services, and on every object in the members.
    #[arg(long, default_value = FEDERATION, value_parser = federation_name, value_name = "NAME")]
    pub(crate) federation: String,

    /// The domain of federated Services: they are called SERVICE.NAMESPACE.FEDERATION.DOMAIN.
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,

    /// How many seconds answers about these names may be kept where no TrafficPolicy says; 180 when not given.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) dns_ttl: Option<u32>,

    /// Keep objects in etcd: URLs of its members, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    pub(crate) etcd: Vec<String>,

    /// The authority of etcd's certificates.
    #[arg(long, requires = "etcd", value_name = "FILE")]
    pub(crate) etcd_cafile: Option<PathBuf>,

    /// Our client certificate for etcd.
    #[arg(long, requires = "etcd_keyfile", value_name = "FILE")]
    pub(crate) etcd_certfile: Option<PathBuf>,

    /// The key of our client certificate for etcd.
    #[arg(long, requires = "etcd_certfile", value_name = "FILE")]
    pub(crate) etcd_keyfile: Option<PathBuf>,

    /// Where in etcd our keys live.
    #[arg(long, requires = "etcd", default_value = "/landfall/", value_name = "PREFIX")]
    pub(crate) etcd_prefix: String,

    /// The keys that Secrets are encrypted with at rest, 32 bytes in base64 each, one per line; the first one encrypts.
    /// Hubs that share an etcd need the same. Default: secrets.key in the data directory, made when missing.
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_key_file: Option<PathBuf>,

    /// Static tokens, one per line: token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,

    /// Further authorities whose client certificates are accepted.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,

    /// How long the certificates of edges last, such as 24h or 30m; they are renewed after two thirds of it.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    pub(crate) edge_certificate_ttl: Span,

    /// Refuse requests without credentials instead of treating them as system:anonymous.
    #[arg(long)]
    pub(crate) no_anonymous: bool,

    /// Write audit events to this file (`-` for none). Default: audit.log in the data directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,
}

const ECHO_EXAMPLES: &str = "\
Examples:
  # HTTP/1.1 and HTTP/2 (without TLS) on every address
  landfall echo --http :8080
  curl localhost:8080/hello?name=you

  # HTTPS, and plain TCP and UDP beside it
  landfall echo --https :8443 --cert server.crt --key server.key --tcp :9000 --udp :9000

Paths:
  /            everything about the request, as JSON (so is every path not named here)
  /status/503  the same with this status           /delay/250   the same after 250 ms (any path: ?delay=250)
  /gzip        the same, compressed                /ws          a WebSocket that echoes
  /stream/10   10 lines, one by one (?interval=MS) /bytes/1000  1000 bytes
  /healthz     200                                 /readyz      200, and 503 once it is stopping
  any gRPC method echoes its messages";

#[derive(Args, Debug)]
#[command(after_help = ECHO_EXAMPLES)]
pub(crate) struct EchoOptions {
    /// Serve HTTP here; may be repeated. Default, when nothing else is asked for: :8080.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) http: Vec<Listen>,

    /// Serve HTTPS here; may be repeated.
    #[arg(long, requires_all = ["cert", "key"], value_name = "[ADDR]:PORT")]
    pub(crate) https: Vec<Listen>,

    /// The certificate chain for HTTPS, in PEM.
    #[arg(long, requires = "key", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,

    /// The key of the certificate, in PEM.
    #[arg(long, requires = "cert", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,

    /// Echo TCP here; may be repeated.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) tcp: Vec<Listen>,

    /// Echo UDP here; may be repeated.
    #[arg(long, value_name = "[ADDR]:PORT")]
    pub(crate) udp: Vec<Listen>,

    /// So many requests a second are all that it can do: answers tell how much of that is used, in the words of ORCA.
    #[arg(long, env = landfall_sim::echo::CAPACITY, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub(crate) capacity: u32,

    /// Write no access log.
    #[arg(long, env = landfall_sim::echo::QUIET)]
    pub(crate) quiet: bool,

    /// The pod's name in answers. Default: this machine's name.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub(crate) pod_name: Option<String>,

    /// The pod's namespace in answers.
    #[arg(long, env = "POD_NAMESPACE", default_value = "", hide_default_value = true, value_name = "NAME")]
    pub(crate) pod_namespace: String,

    /// The node's name in answers.
    #[arg(long, env = "NODE_NAME", default_value = "", hide_default_value = true, value_name = "NAME")]
    pub(crate) node_name: String,

    /// The cluster's name in answers.
    #[arg(long, env = "CLUSTER_NAME", default_value = "", hide_default_value = true, value_name = "NAME")]
    pub(crate) cluster_name: String,
}

/// Where to listen: `127.0.0.1:8080`, or `:8080` for every address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl Listen {
    /// Port 8080 on every address.
    pub(crate) const DEFAULT: Self = Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080));
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = text.strip_prefix(':').and_then(|port| port.parse().ok());
        let all = all.map(|port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
        let found = all.or_else(|| text.parse().ok());
        found
            .map(Self)
            .ok_or_else(|| "expected an address and a port, such as :8080 or 127.0.0.1:8080".into())
    }
}

/// A length of time as people write it: `90s`, `30m`, `24h`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    /// A day.
    pub(crate) const DAY: Self = Self(Duration::from_secs(24 * 3600));
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("h", 3600), ("m", 60), ("s", 1)];
        let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
        let span = found.and_then(|(number, seconds)| number.parse::<u64>().ok()?.checked_mul(seconds));
        match span.filter(|seconds| (1..=365 * 24 * 3600).contains(seconds)) {
            Some(seconds) => Ok(Self(Duration::from_secs(seconds))),
            None => Err("expected a time up to a year, such as 90s, 30m or 24h".into()),
        }
    }
}

/// A number of bytes as Kubernetes writes it: `512Mi`, `1G`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = Quantity::parse(text).and_then(|given| u64::try_from(given.whole()).ok());
        let bytes = bytes.filter(|bytes| *bytes > 0);
        bytes.map(Self).ok_or_else(|| "expected a number of bytes, such as 512Mi or 2G".into())
    }
}

/// How a federation is called that nobody named.
const FEDERATION: &str = "federation";

/// A federation's name is a label's value and a part of host names.
fn federation_name(text: &str) -> Result<String, String> {
    let problems = landfall_api::names::dns1123_label(text);
    if problems.is_empty() { Ok(text.to_owned()) } else { Err(problems.join("; ")) }
}

impl HubOptions {
    /// A hub of its own on loopback.
    pub(crate) fn local(data_dir: PathBuf, listen: SocketAddr) -> Self {
        Self {
            data_dir,
            listen,
            advertise: Vec::new(),
            federation: FEDERATION.into(),
            domain: None,
            dns_ttl: None,
            etcd: Vec::new(),
            etcd_cafile: None,
            etcd_certfile: None,
            etcd_keyfile: None,
            etcd_prefix: String::new(),
            encryption_key_file: None,
            token_auth_file: None,
            client_ca_file: None,
            edge_certificate_ttl: Span::DAY,
            no_anonymous: false,
            audit_log: None,
        }
    }
}
