//! `MultiClusterService`: one service over chosen members.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::object;

object! {
    /// A service with endpoints in several members: a backend of MultiClusterIngresses.
    MultiClusterService, MultiClusterServiceSpec, MultiClusterServiceStatus, "multiclusterservices", NamespaceResourceScope
}

/// What the service is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["template"]))]
pub struct MultiClusterServiceSpec {
    /// The service in each member.
    pub template: MultiClusterServiceTemplate,
    /// Its ports, where they are not in the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ServicePort>,
    /// Members that have it; all when nothing is said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterEntry>,
}

/// The service in each member. The parts may also stand one level down, in `spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiClusterServiceTemplate {
    /// Which pods serve it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// Its ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ServicePort>,
    /// Members that have it, where they are not said beside the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterEntry>,
    /// The same, one level down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<MultiClusterServiceTemplateSpec>,
}

/// The service in each member, one level down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiClusterServiceTemplateSpec {
    /// Which pods serve it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// Its ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ServicePort>,
}

/// Some members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterEntry {
    /// Members whose labels match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// One member by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// One member as `region/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// What has become of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiClusterServiceStatus {
    /// Members that have a shard.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Endpoints that are ready, in all members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_endpoints: Option<i32>,
    /// Accepted, propagated, and why not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
