//! Carries HTTP, TCP and UDP to the best endpoint: what routes and plans say, for one edge.
//!
//! ```text
//!   World ─► table (compiled by what has changed) ──swap──┐
//!                                                         ▼
//!   client ─► serve (a thread per core) ─► http ─► which route ─► which cluster, which endpoint ─► upstream ─► endpoint
//!                                                                 landfall_plan::choose
//! ```
//!
//! Reading order: [`world`] (what it is told), `config`, `proxy` (its life), `table`, `core` and `clients` and `ticker` (what a
//! thread has for itself), `serve` and `handover` (how clients get in, and to whoever comes after us), `lane`, `http`, `upstream`, `meter`, `orca`, `log`, `trace`; [`tls`] (certificates by name) and [`sni`], [`haproxy`]
//! (who the client is, told by others), [`l4`] (ports as they are), [`peer`] (the link between edges), `beside` (all of these), `outside` and `guard` (where
//! buckets are, and what nobody may be led to).
//!
//! A thread shares nothing with another on the way of a request: it has its own listeners, connections, pools and counts, and
//! sees by one number whether there is a new table. Headers are moved, bodies are passed on as they come.
//!
//! Deliberately absent: the hub, and choices. What is carried stands in `RoutePlan`s, where it goes in `TrafficPlan`s; which of
//! several places a request takes is asked of `plan`.

mod beside;
mod carried;
mod clients;
mod config;
mod core;
mod guard;
mod handover;
pub mod haproxy;
mod http;
pub mod l4;
pub mod lane;
mod log;
mod meter;
mod orca;
mod outside;
pub mod peer;
mod pressure;
mod proxy;
mod serve;
pub mod sni;
mod table;
mod ticker;
pub mod tls;
mod trace;
mod upstream;
pub mod world;

pub use config::{AccessLog, Collect, CollectorError, Config, Limits, LogTo, StartError};
pub use guard::Guard;
pub use proxy::Proxy;
pub use world::{Certificate, Endpoints, Key, World};
