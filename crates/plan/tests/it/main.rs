//! The decisions, as a user of the crate sees them.

mod placement;
mod propagation;
mod properties;
mod replicas;
mod vectors;
