//! The decisions, as a user of the crate sees them.

mod placement;
mod propagation;
mod properties;
mod proximity;
mod quorum;
mod replicas;
mod traffic;
mod vectors;
