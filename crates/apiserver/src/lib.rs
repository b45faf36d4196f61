//! Serves kinds over the Kubernetes protocol from a store; generic over the table of kinds.

pub mod keys;
