//! `landfall join|unjoin|forget|cordon|uncordon|drain|status`: clusters come, rest and go, over the public API.
//!
//! ```text
//!   join ──► member (account, token) ──► hub (Secret, Cluster) ──► the hub's controllers do the rest
//! ```
//!
//! Reading order: [`options`] (what is typed), [`hub`] and [`member`] (whom we talk to), [`federated`] (what objects say of
//! their shards), then a file for each group of commands.

mod account;
mod drain;
mod federated;
mod hub;
mod join;
mod leave;
mod member;
pub(crate) mod options;
mod status;

use anyhow::Result;

use crate::basics::run;
use options::{CordonOptions, DrainOptions, ForgetOptions, JoinOptions, StatusOptions, UnjoinOptions};

/// Whose fields these are that commands set on clusters, so that joining again does not take them back.
const MANAGER: &str = "landfall-command";

/// Makes a cluster a member.
pub(crate) fn join(options: &JoinOptions) -> Result<()> {
    run(join::run(options))
}

/// Lets a member go.
pub(crate) fn unjoin(options: &UnjoinOptions) -> Result<()> {
    run(leave::unjoin(options))
}

/// Gives a dead member up.
pub(crate) fn forget(options: &ForgetOptions) -> Result<()> {
    run(leave::forget(options))
}

/// Keeps new replicas away from a member.
pub(crate) fn cordon(options: &CordonOptions) -> Result<()> {
    run(drain::cordon(options))
}

/// Lets replicas come to a member again.
pub(crate) fn uncordon(options: &CordonOptions) -> Result<()> {
    run(drain::uncordon(options))
}

/// Moves replicas off a member.
pub(crate) fn drain(options: &DrainOptions) -> Result<()> {
    run(drain::drain(options))
}

/// Shows the federation.
pub(crate) fn status(options: &StatusOptions) -> Result<()> {
    run(status::run(options))
}
