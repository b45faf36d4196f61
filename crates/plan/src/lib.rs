//! What should be done, and why: pure functions from what is wanted and what is seen to a plan.
//!
//! ```text
//!   federated object ─┬─► placement   which members get a shard
//!   Cluster objects ──┤       │
//!                     │       ├─► replicas    how many replicas each  ◄── autoscale (split of an autoscaler)
//!                     │       ├─► overrides   what differs there
//!   members' state ───┤       ├─► rollout     whose turn it is
//!                     │       ▼
//!                     └─► propagation   Apply, Adopt, Delete, Owe, Wait … with a reason
//!
//!   probes ─► membership   Ready, Offline
//!   edges' votes ─► quorum   verdicts: up or down, by the majority
//!   round trips, places ─► proximity   who is near to whom
//!   verdicts, capacity, load, nearness ─► traffic   who goes where, and how much
//!   traffic plans ─► choose   where one request goes
//!   traffic plans ─► records   what names are answered with ─► publish   what other DNS servers are told
//!   Ingresses, MultiClusterIngresses, load balancers ─► routes   what edges carry: hosts, paths, certificates, ports
//!   groups of edges, IngressVIPRanges ─► vips   who has which address
//!   IngressClaims ─► claims   which groups are made, taken, disposed of
//!   Ingresses, groups, load ─► binding   which groups carry which Ingress
//!   shards' status ─► status   the federated object's own: honest sums
//!   decisions ─► truth   what each cluster has, in words
//! ```
//!
//! Reading order: [`reason`], [`membership`], [`placement`], [`replicas`], [`autoscale`], [`overrides`], [`rollout`],
//! [`propagation`], [`status`], [`truth`], [`drain`]; then [`quorum`], [`proximity`], [`traffic`], [`routes`], [`choose`],
//! [`records`], [`publish`]; [`vips`], [`claims`], [`binding`].
//!
//! Every decision carries a [`Reason`] that `kubectl describe` can print. Times are milliseconds since the Unix
//! epoch and end in `_ms`; where waiting is part of the decision, it says when to look again.
//!
//! Deliberately absent: clocks, randomness, sockets, files, threads, and memory between calls. The same input gives the same
//! plan on every hub, so that a new leader goes on where the last one stopped.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod autoscale;
pub mod binding;
pub mod choose;
pub mod claims;
pub mod drain;
pub mod guard;
pub mod hash;
pub mod membership;
pub mod nodeports;
pub mod overrides;
pub mod placement;
pub mod propagation;
pub mod proximity;
pub mod publish;
pub mod quorum;
pub mod reason;
pub mod records;
pub mod replicas;
pub mod rollout;
pub mod routes;
pub mod status;
pub mod traffic;
pub mod truth;
pub mod vips;

pub use reason::Reason;

/// The earlier of two times, either of which may be none.
pub(crate) fn earlier(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
