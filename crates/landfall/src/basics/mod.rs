//! `landfall get|apply|describe|delete`: the basics of kubectl for machines without it, over the public API.
//!
//! Reading order: [`options`] (what is typed), [`target`] (which server), [`kinds`] (what it serves), then a file for each
//! command. Deliberately absent: everything else; kubectl is the user interface wherever it is installed.

mod apply;
mod delete;
mod describe;
mod get;
mod kinds;
mod manifest;
pub(crate) mod options;
mod outline;
pub(crate) mod table;
pub(crate) mod target;

use anyhow::Result;

use options::{ApplyOptions, DeleteOptions, DescribeOptions, GetOptions};
use target::Target;

use crate::say::print;

/// Shows objects.
pub(crate) fn get(options: &GetOptions) -> Result<()> {
    run(async { get::run(options, &Target::find(&options.connection).await?).await })
}

/// Creates or changes objects.
pub(crate) fn apply(options: &ApplyOptions) -> Result<()> {
    run(async { apply::run(options, &Target::find(&options.connection).await?).await })
}

/// Tells all about objects.
pub(crate) fn describe(options: &DescribeOptions) -> Result<()> {
    run(async { describe::run(options, &Target::find(&options.connection).await?).await })
}

/// Deletes objects.
pub(crate) fn delete(options: &DeleteOptions) -> Result<()> {
    run(async { delete::run(options, &Target::find(&options.connection).await?).await })
}

/// Runs a command that talks to servers.
pub(crate) fn run(command: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}
