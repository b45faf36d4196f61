//! What can be typed after `landfall explain`.

use clap::{Args, Subcommand};

use crate::basics::options::Connection;

/// Tell what a client is answered, and why.
#[derive(Args, Debug)]
pub(crate) struct ExplainOptions {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// What a name is answered with: the addresses in order, votes, distances, load, and who is left out.
    Dns(DnsOptions),
}

const DNS_EXAMPLES: &str = "\
Examples:
  # As a client of whom nothing is known
  landfall explain dns web.default.federation.example.com

  # As clients of a network, or inside a cluster
  landfall explain dns web.default.federation.example.com --from 192.0.2.0/24
  landfall explain dns web.default.federation.example.com --from us-east";

#[derive(Args, Debug)]
#[command(after_help = DNS_EXAMPLES)]
pub(crate) struct DnsOptions {
    /// The name.
    pub(crate) name: String,

    /// Where the client stands: an address, a prefix, or the name of a cluster that it is inside of.
    #[arg(long, value_name = "CIDR|CLUSTER")]
    pub(crate) from: Option<String>,

    #[command(flatten)]
    pub(crate) connection: Connection,
}
