//! Probes targets, and keeps this edge's opinion of each.
//!
//! ```text
//!   Check, points ──► probe (TCP, HTTP, TLS, gRPC) ──► Outcome ──► opinion::step (pure) ──► Opinion
//!        ▲                                                                                    │
//!   Prober::set(targets)        one task per target, bounded together         Prober::opinions, Prober::changed
//! ```
//!
//! Reading order: [`check`] (how a target is probed), [`opinion`] (what follows from what was seen; pure), [`probe`] (seeing),
//! [`prober`] (doing it again and again), [`distance`] (how far others are).
//!
//! Deliberately absent: which targets there are, who votes on them, and what a majority says: whoever composes an edge
//! asks `plan` for that. Certificates of probed servers are not verified: a probe asks whether a server lives, not who it is.

pub mod check;
pub mod distance;
pub mod opinion;
pub mod probe;
pub mod prober;

pub use check::{Check, Protocol};
pub use opinion::{Opinion, Outcome};
pub use probe::{Admits, Bridge, Door, Point, Road, Shut, Source, Stream};
pub use prober::{Config, Prober, Target};
