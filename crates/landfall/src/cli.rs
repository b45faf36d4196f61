//! What can be typed. Parsing only; what follows from it is resolved by each command.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Joins many Kubernetes clusters into one federation.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, propagate_version = true, max_term_width = 110)]
pub(crate) struct Arguments {
    /// What to log: a level (error, warn, info, debug) or directives such as `info,landfall_store=debug`.
    #[arg(long, global = true, default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the control plane: the federation's API server and its controllers.
    Hub(HubOptions),
}

const HUB_EXAMPLES: &str = "\
Examples:
  # A hub of its own, everything in one directory
  landfall hub --data-dir ./hub
  kubectl --kubeconfig ./hub/admin.kubeconfig get namespaces

  # Two hubs that share one etcd (copy ./hub-a/pki/{ca.crt,ca.key,sa.key} to ./hub-b/pki first)
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

    /// Static tokens, one per line: token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,

    /// Further authorities whose client certificates are accepted.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,

    /// Refuse requests without credentials instead of treating them as system:anonymous.
    #[arg(long)]
    pub(crate) no_anonymous: bool,

    /// Write audit events to this file (`-` for none). Default: audit.log in the data directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,
}
