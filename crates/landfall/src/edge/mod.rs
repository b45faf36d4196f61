//! `landfall edge`: an edge that runs, and the commands about edges.
//!
//! ```text
//!   hub ──► session ──► book (plans, on disk too) ──► core ──► voice (names), carrier (requests)
//!    ▲        │                                        │ ▲
//!    └────────┴─── votes, load ◄── prober, carrier ◄───┘ └── own (the member's endpoints)
//! ```
//!
//! Reading order: [`options`] and [`entrance`] (what is typed), [`daemon`] (start and stop), [`trust`] and [`identity`] (coming in), [`session`]
//! (being at the hub), [`book`] (plans), [`core`] (what follows from them), [`bridge`], [`targets`] and [`failover`] (pure), [`status`], [`own`],
//! [`voice`], [`carrier`], [`vips`], [`admin`], and for edges that are pods [`vault`], [`reach`] and [`doors`]; then [`token`], [`revoke`], [`manifests`], [`install`],
//! [`resolver`] and [`image`], which are commands over the public API.

mod admin;
mod book;
mod bridge;
pub(crate) mod carrier;
pub(crate) mod core;
pub(crate) mod daemon;
mod doors;
mod entrance;
mod failover;
mod file;
mod identity;
mod image;
pub(crate) mod install;
mod keeper;
mod keys;
mod manifests;
pub(crate) mod options;
pub(crate) mod own;
pub(crate) mod reach;
mod resolver;
mod revoke;
mod session;
mod status;
mod targets;
pub(crate) mod token;
pub(crate) mod trust;
mod usage;
mod vault;
pub(crate) mod vips;
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
        Some(EdgeCommand::Install(options)) => basics::run(install::install(options)),
        Some(EdgeCommand::Manifests(options)) => basics::run(install::manifests(options)),
        Some(EdgeCommand::Uninstall(options)) => basics::run(install::uninstall(options)),
        Some(EdgeCommand::Image(options)) => image::run(options),
        Some(EdgeCommand::Keeper(options)) => keeper::run(options),
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
