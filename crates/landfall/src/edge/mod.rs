//! `landfall edge`: an edge that runs, and the commands about edges.
//!
//! ```text
//!   hub ──► session ──► book (plans, on disk too) ──► core ──► voice (names)
//!    ▲        │                                        │ ▲
//!    └────────┴─── votes, heartbeat ◄── prober ◄───────┘ └── own (the member's endpoints)
//! ```
//!
//! Reading order: [`options`] (what is typed), [`daemon`] (start and stop), [`trust`] and [`identity`] (coming in), [`session`]
//! (being at the hub), [`book`] (plans), [`core`] (what follows from them), [`targets`] and [`failover`] (pure), [`status`], [`own`],
//! [`voice`], [`admin`]; then [`token`], [`revoke`] and [`manifests`], which are commands over the public API.

mod admin;
mod book;
pub(crate) mod core;
pub(crate) mod daemon;
mod failover;
mod identity;
mod keys;
mod manifests;
pub(crate) mod options;
pub(crate) mod own;
mod revoke;
mod session;
mod status;
mod targets;
pub(crate) mod token;
pub(crate) mod trust;
mod voice;

use anyhow::Result;

use crate::basics;
use crate::basics::options::{GetOptions, Output};
use options::{EdgeCommand, EdgeOptions, ListOptions};

/// Does what was typed.
pub(crate) fn run(options: &EdgeOptions) -> Result<()> {
    match &options.command {
        None => daemon::run(&options.daemon),
        Some(EdgeCommand::Token(options)) => basics::run(token::run(options)),
        Some(EdgeCommand::Revoke(options)) => basics::run(revoke::run(options)),
        Some(EdgeCommand::List(options)) => list(options),
        Some(EdgeCommand::Install(options)) => basics::run(manifests::install(options)),
        Some(EdgeCommand::Manifests(options)) => basics::run(manifests::manifests(options)),
    }
}

fn list(options: &ListOptions) -> Result<()> {
    basics::get(&GetOptions {
        what: vec!["edges.landfall.dev".into()],
        all_namespaces: false,
        selector: None,
        output: Some(Output::Wide),
        connection: options.connection.clone(),
    })
}
