//! What a rig promises, on real clusters: an ordinary day with kubectl, every fault, and nothing left behind.
//!
//! Needs root, some programs and the built Kubernetes (`cargo xtask test` gets them); without, it is skipped by name.
//! All tests share one rig of two clusters, one after the other, but those that start rigs of their own.

mod day;
mod faults;
mod leftovers;
mod support;
