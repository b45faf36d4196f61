//! Controllers that every Kubernetes API relies on, inside the server: garbage collection, the life of namespaces and
//! of definitions, aggregated roles.
//!
//! ```text
//!   ObjectClient::watch ──► Housekeeper::observe ──► Queue ──► Housekeeper::work ──► ObjectClient (get, update, delete)
//!                               │
//!                               └── Graph: who owns whom
//! ```
//!
//! One hub at a time runs it (the composition elects one), but nothing breaks when two do for a while: every write
//! carries the version it was decided on, and decisions look at the source.
//!
//! Reading order: [`client`] (the boundary), [`keeper`] (events to work), [`queue`], then the work itself: [`graph`],
//! [`plan`] and [`gc`]; [`namespaces`]; [`definitions`]; [`roles`].

pub mod client;
pub mod definitions;
pub mod gc;
pub mod graph;
pub mod keeper;
#[cfg(test)]
mod model;
pub mod namespaces;
pub mod plan;
pub mod queue;
pub mod roles;
#[cfg(test)]
mod tests;

pub use client::ObjectClient;
pub use keeper::{Config, Housekeeper, run};
