//! What a rig promises, on real clusters: an ordinary day with kubectl, every fault, and nothing left behind.
//!
//! Needs root, some programs and the built Kubernetes (`cargo xtask test` gets them); without, it is skipped by name.
//! All tests share one rig of two clusters, one after the other, but those that start rigs of their own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::print_stdout, reason = "what a test prints is shown when it fails")]

mod carries;
mod classes;
mod day;
mod divided;
mod faults;
mod federated;
mod federation;
mod groups;
mod kinds;
mod leftovers;
mod losses;
#[path = "../../../../tests/members/run.rs"]
mod members;
mod names;
mod secure;
mod streams;
mod support;
