//! Simulated member clusters: our own API server with member kinds, small controllers, and node agents that run pods
//! as real servers on loopback addresses. For the playground and for scale; tests of what real clusters do use `rig`.
//!
//! A member's API side: [`member`] (starting one), [`view`] (its objects in memory), [`controllers`] and [`scheduler`]
//! (what Kubernetes' controllers decide), [`luck`] (names and uids that are the same in every run).
//!
//! Its nodes and its network: [`address`] (the loopback addresses of a member), [`agent`] (nodes that run pods),
//! [`echo`] (what pods do), [`forward`] (Services), [`gate`] (faults); [`clients`] ask them all, and so does [`curl`].

pub mod address;
pub mod agent;
pub mod clients;
pub mod controllers;
pub mod curl;
pub mod echo;
pub mod forward;
pub mod gate;
pub mod listen;
pub mod luck;
pub mod member;
pub mod scheduler;
#[cfg(test)]
mod testing;
pub mod view;
pub mod world;

pub use member::Member;
pub use member::config::{MemberConfig, NodeSpec, Timings};
