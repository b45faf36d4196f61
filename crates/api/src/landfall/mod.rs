//! Our own kinds, group `landfall.dev/v1alpha1`: typed here, and defined to the API server as CustomResourceDefinitions.
//!
//! | kind | what it says |
//! |---|---|
//! | [`Cluster`] | a member: where its API is, where it stands, whether it is well |
//! | [`MultiClusterIngress`], [`MultiClusterService`] | one ingress over services in chosen members |
//! | [`IngressReplicaSet`], [`IngressVIPRange`], [`IngressClaim`] | groups of edges with a virtual IP, on demand |
//! | [`TrafficPolicy`] | how traffic of a service is spread: capacity, overflow, fence, affinity, health |
//! | [`TrafficPlan`] | what the hub decided: written by the hub, read by the edges |
//! | [`Edge`] | an edge's registration, load and votes |
//! | [`DNSZone`] | a zone of another DNS server that the federation's names are published to |
//!
//! [`definitions`] gives the CustomResourceDefinitions: the server makes its rows, rules, columns and OpenAPI from
//! them just as for a user's own, and they can be installed in any other Kubernetes.

mod claim;
mod cluster;
mod definition;
mod edge;
mod federation;
mod group;
mod ingress;
mod object;
mod plan;
mod policy;
mod service;
mod shared;
mod structural;
mod zone;

pub use claim::*;
pub use cluster::*;
pub use definition::definitions;
pub use edge::*;
pub use federation::*;
pub use group::*;
pub use ingress::*;
pub use plan::*;
pub use policy::*;
pub use service::*;
pub use shared::*;
pub use zone::*;

/// The group of our own kinds.
pub const GROUP: &str = "landfall.dev";
/// The version of our own kinds.
pub const VERSION: &str = "v1alpha1";
/// Both, as objects carry them.
pub const API_VERSION: &str = "landfall.dev/v1alpha1";
/// The annotation of a federated object that tells what each cluster has of it.
pub const CLUSTERS_ANNOTATION: &str = "landfall.dev/clusters";
/// The namespace of the federation's own secrets.
pub const SYSTEM_NAMESPACE: &str = "landfall-system";
