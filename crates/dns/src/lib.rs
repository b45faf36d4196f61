//! Answers DNS from compiled plans: the authoritative server in every edge.
//!
//! ```text
//!   plans ─► zone::catalog ─► snapshot ──swap──┐
//!                                              ▼
//!   packet ─► serve::{udp, tcp} ─► wire::query ─► answer ─► lookup ─► wire::reply ─► client
//!                                    │                        │
//!                                    └─► signed, transfer     └─ names, vantage, order: landfall_plan::records
//! ```
//!
//! Reading order: `config`, `responder`, `server`, `zone`, `wire`, `answer`, `lookup`, `srv`, `serve`, then `signed`, `transfer` and `notify`.
//!
//! A question over UDP is answered without allocation and without a lock: a thread holds the snapshot it last saw, and looks
//! once per batch of packets whether there is a newer one. Records stand ready as bytes; what a packet says decides only which of
//! them are copied, and in which order.
//!
//! Deliberately absent: recursion, forwarding, a cache, zone files, DNSSEC signatures. Decisions: who is answered in which order is
//! `landfall_plan::records`' to say.

mod answer;
mod config;
mod cookie;
mod limit;
mod lookup;
mod metrics;
mod notify;
mod responder;
mod serve;
mod server;
mod signed;
mod srv;
mod state;
mod transfer;
mod wire;
mod world;
mod zone;

pub use config::{Config, Key, Rate, Secondary, StartError};
pub use responder::Responder;
pub use server::{Server, start};
pub use zone::catalog::Change;
