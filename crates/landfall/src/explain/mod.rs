//! `landfall explain`: what a client is told, and why; from the plans at the hub, without asking an edge.

mod dns;
mod http;
pub(crate) mod options;
mod plans;

use anyhow::Result;

use crate::basics;
use options::{ExplainOptions, What};

/// Explains what was asked.
pub(crate) fn run(options: &ExplainOptions) -> Result<()> {
    match &options.what {
        What::Dns(options) => basics::run(dns::run(options)),
        What::Http(options) => basics::run(http::run(options)),
    }
}
