//! Simulated member clusters: our own API server with member kinds, small controllers, and node agents that run pods
//! as real servers on loopback addresses. For the playground and for scale; tests of what real clusters do use `rig`.
//!
//! A member's API side: [`member`] (starting one), [`view`] (its objects in memory), [`controllers`] and [`scheduler`]
//! (what Kubernetes' controllers decide).

pub mod address;
pub mod controllers;
pub mod member;
pub mod scheduler;
pub mod view;

pub use member::Member;
pub use member::config::{MemberConfig, NodeSpec, Timings};
