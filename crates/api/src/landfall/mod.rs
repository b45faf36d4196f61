//! Our own kinds, group `landfall.dev/v1alpha1`: typed here, and defined to the API server as CustomResourceDefinitions.
//!
//! | kind | what it says |
//! |---|---|
//! | [`Cluster`] | a member: where its API is, where it stands, whether it is well |
//! | [`MultiClusterIngress`], [`MultiClusterService`] | one ingress over services in chosen members |
//! | [`IngressReplicaSet`], [`IngressVIPRange`], [`IngressClaim`] | groups of edges with a virtual IP, on demand |
//! | [`TrafficPolicy`] | how traffic of a service is spread: capacity, overflow, fence, affinity, health |
//! | [`TrafficPlan`] | what the hub decided about a service: written by the hub, read by the edges |
//! | [`RoutePlan`] | what the hub made of an Ingress: hosts, paths, certificates, ports; read by the edges |
//! | [`GroupPlan`] | what the edges of a group must know of it: virtual IPs, each other; read by the edges |
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
mod groupplan;
mod ingress;
mod object;
mod plan;
mod policy;
mod route;
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
pub use groupplan::*;
pub use ingress::*;
pub use plan::*;
pub use policy::*;
pub use route::*;
pub use service::*;
pub use shared::*;
pub use zone::*;

/// The group of our own kinds.
pub const GROUP: &str = "landfall.dev";
/// The version of our own kinds.
pub const VERSION: &str = "v1alpha1";
/// Both, as objects carry them.
pub const API_VERSION: &str = "landfall.dev/v1alpha1";
/// The group of MultiClusterIngress and -Service in their other spelling.
pub const GKE_GROUP: &str = "networking.gke.io";
/// Its version.
pub const GKE_VERSION: &str = "v1";
/// The annotation of a federated object that tells what each cluster has of it.
pub const CLUSTERS_ANNOTATION: &str = "landfall.dev/clusters";
/// The annotation of an Ingress that says by labels which groups of edges may carry it.
pub const INGRESS_SELECTOR_ANNOTATION: &str = "landfall.dev/ingress-selector";
/// The annotation of an Ingress that names the groups of edges that carry it, with commas between them.
pub const INGRESS_GROUP_ANNOTATION: &str = "landfall.dev/ingress-replicaset";
/// The annotation of an Ingress that says how many groups shall carry it.
pub const INGRESS_GROUPS_ANNOTATION: &str = "landfall.dev/ingress-replicasets-wanted";
/// The annotation, written by the hub, of an Ingress that is bound: its groups, with commas between them.
pub const BOUND_ANNOTATION: &str = "landfall.dev/bound-to";
/// The annotation, written by the hub, of an Ingress that asks to be bound: why it is where it is.
pub const BINDING_ANNOTATION: &str = "landfall.dev/binding";
/// The namespace, at the hub and in members, of the pods that are groups of edges.
pub const GROUPS_NAMESPACE: &str = "landfall-groups";
/// The ConfigMap at the hub, in [`SYSTEM_NAMESPACE`], that tells for every member with which image and to which hub edges run there.
pub const EDGE_PODS: &str = "edge-pods";
/// The namespace of the federation's own secrets.
pub const SYSTEM_NAMESPACE: &str = "landfall-system";
