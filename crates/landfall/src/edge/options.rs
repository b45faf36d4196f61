//! What can be typed after `landfall edge`.

use clap::{Args, Subcommand};

use crate::basics::options::Connection;
use crate::cli::Span;

#[derive(Args, Debug)]
pub(crate) struct EdgeOptions {
    #[command(subcommand)]
    pub(crate) command: EdgeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EdgeCommand {
    /// Make a token with which edges come in, and show how.
    Token(TokenOptions),
    /// Shut an edge out at once.
    Revoke(RevokeOptions),
    /// Show the edges.
    List(ListOptions),
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

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  landfall edge list")]
pub(crate) struct ListOptions {
    #[command(flatten)]
    pub(crate) connection: Connection,
}
