//! Serves kinds over the Kubernetes protocol from a store; generic over the table of kinds.

pub mod audit;
pub mod authn;
pub mod authz;
pub mod crd;
pub mod discovery;
pub mod housekeeping;
pub mod keys;
pub mod managed;
pub mod openapi;
pub mod patch;
pub mod pki;
pub mod reviews;
