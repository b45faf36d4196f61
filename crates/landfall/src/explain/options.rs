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
    /// What becomes of a request: its route, the clusters in order, why, and what would happen if one died.
    Http(HttpOptions),
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

const HTTP_EXAMPLES: &str = "\
Examples:
  # As a client of whom nothing is known
  landfall explain http https://shop.example.com/cart

  # As a client of a network, or inside a cluster; and if a cluster died
  landfall explain http https://shop.example.com/cart --from 192.0.2.0/24
  landfall explain http https://shop.example.com/cart --from us-east --without us-east";

#[derive(Args, Debug)]
#[command(after_help = HTTP_EXAMPLES)]
pub(crate) struct HttpOptions {
    /// The URL.
    pub(crate) url: String,

    /// Where the client stands: an address, a prefix, or the name of a cluster that it is inside of.
    #[arg(long, value_name = "CIDR|CLUSTER")]
    pub(crate) from: Option<String>,

    /// Tell also what would happen without this cluster.
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) without: Option<String>,

    #[command(flatten)]
    pub(crate) connection: Connection,
}
