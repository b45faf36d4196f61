//! `IngressClaim`: a group of edges on demand.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::IngressReplicaSetSpec;
use super::object::object;

object! {
    /// A claim for a group of edges that serves some ingresses: the group is made, bound, and disposed of.
    IngressClaim, IngressClaimSpec, IngressClaimStatus, "ingressclaims", NamespaceResourceScope
}

/// What is claimed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressClaimSpec {
    /// The ingresses to serve, by name.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ingresses: Vec<LocalObjectReference>,
    /// The ingresses to serve, by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_selector: Option<LabelSelector>,
    /// The group to make.
    pub ingress_replica_set_spec: IngressReplicaSetSpec,
    /// What becomes of the group when its last ingress is gone.
    #[schemars(extend("x-default" = "Delete"))]
    pub reclaim_policy: ReclaimPolicy,
}

/// What becomes of a group that nobody needs any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimPolicy {
    /// It stays for an administrator to look at.
    Retain,
    /// It serves the next claim.
    Recycle,
    /// It goes.
    #[default]
    Delete,
}

/// What has become of the claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressClaimStatus {
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// The group that was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_replica_set_name: Option<String>,
    /// The group's virtual IP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<String>,
    /// The ingresses it serves.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ingresses: Vec<String>,
    /// Provisioned, bound, and why not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How far a claim is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClaimPhase {
    /// No group yet.
    #[default]
    Pending,
    /// The group serves its ingresses.
    Bound,
    /// Its ingresses are gone; the group is being disposed of.
    Released,
    /// It cannot be fulfilled.
    Failed,
}
