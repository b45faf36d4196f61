//! Holds a virtual IP on exactly one node of a group of edges.
//!
//! ```text
//!   edge ──(line: what is wanted, and that it lives)──► keeper ──► keepalived ──► the interface
//!    ▲                                                    │ ▲          │
//!    └───────────── who holds it, since when ◄────────────┘ └─ notify ─┘
//! ```
//!
//! The keeper is a process beside the edge, not a part of it: an address that nobody takes off outlives the process that put
//! it on, so of two that watch each other the survivor must do it. The edge dies: the keeper sees its line end and
//! keepalived gives the address away. keepalived dies: the keeper takes the address off and starts it again. The keeper dies:
//! keepalived ends with it, and the edge takes off what is left.
//!
//! Who holds the address is VRRP's decision (RFC 5798), made by keepalived; nothing here votes.
//!
//! In reading order: [`Wanted`] and [`Held`] (what is said on the line), [`config`] (pure: keepalived's configuration),
//! [`Line`] (the edge's end), [`Keeper`] (the other end), and below it `keepalived` (the process), `check` (whether the edge answers), `links`
//! (addresses of interfaces), `listen` (hearing others before speaking). [`Loopback`] stands in where all nodes are one machine.

mod check;
pub mod config;
mod keepalived;
mod keeper;
mod line;
mod links;
mod listen;
mod loopback;
mod words;

pub use keeper::{Keeper, KeeperError};
pub use line::Line;
pub use loopback::Loopback;
pub use words::{Held, Problem, Reason, State, Wanted};

use tokio::sync::watch;

/// Whoever holds virtual IPs for an edge.
pub trait Holder: Send + Sync {
    /// Wants this from now on; nothing when `None`.
    fn want(&self, wanted: Option<Wanted>);

    /// What has become of it, and of every change.
    fn held(&self) -> watch::Receiver<Held>;
}
