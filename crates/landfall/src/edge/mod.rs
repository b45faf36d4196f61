//! `landfall edge`: the commands about edges, over the public API.
//!
//! Reading order: [`options`] (what is typed), then a file for each command.

pub(crate) mod options;
mod revoke;
mod token;

use anyhow::Result;

use crate::basics;
use crate::basics::options::{GetOptions, Output};
use options::{EdgeCommand, EdgeOptions, ListOptions};

/// Does what was typed.
pub(crate) fn run(options: &EdgeOptions) -> Result<()> {
    match &options.command {
        EdgeCommand::Token(options) => basics::run(token::run(options)),
        EdgeCommand::Revoke(options) => basics::run(revoke::run(options)),
        EdgeCommand::List(options) => list(options),
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
