//! `Cluster`: a member of the federation.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::object;

object! {
    /// A member of the federation: a Kubernetes cluster, where it is, and whether it is well.
    Cluster, ClusterSpec, ClusterStatus, "clusters", ClusterResourceScope
}

/// What is known about a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Where its API is served; tried in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<ApiEndpoint>,
    /// The certificate authority of its API, PEM in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// The name its API's certificate is checked for, where it is not the endpoint's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// The Secret with the credentials that the hub uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
    /// Where it stands, such as `europe-west`. Found from its nodes' labels when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The zones it spans. Found from its nodes' labels when not given.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Where it stands on the globe: for distances where nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinates: Option<Coordinates>,
    /// Who runs it, such as `gce` or `on-premises`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// What keeps workloads away that do not tolerate it.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// No new shards and no more replicas are placed here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// Traffic, and then replicas, are moved away.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// How its API is probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<ApiProbe>,
}

/// One address of a member's API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["server"]))]
pub struct ApiEndpoint {
    /// Its URL, such as `https://192.0.2.1:6443`.
    #[schemars(length(min = 1))]
    pub server: String,
    /// Clients that can reach it; everyone when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cidr: Option<String>,
}

/// A Secret by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct SecretReference {
    /// Its namespace; `landfall-system` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// A point on the globe, in degrees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["latitude", "longitude"]))]
pub struct Coordinates {
    /// North is positive.
    #[schemars(range(min = -90, max = 90))]
    pub latitude: f64,
    /// East is positive.
    #[schemars(range(min = -180, max = 180))]
    pub longitude: f64,
}

/// What keeps workloads away from a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["key", "effect"]))]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What it does to workloads that do not tolerate it.
    pub effect: TaintEffect,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// Nothing new is placed.
    #[default]
    NoSchedule,
    /// Others are preferred.
    PreferNoSchedule,
    /// What is there is moved away.
    NoExecute,
}

/// How a member's API is probed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiProbe {
    /// Time between probes.
    #[schemars(range(min = 1), extend("x-default" = 2))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<i32>,
    /// How long one may take.
    #[schemars(range(min = 1), extend("x-default" = 2))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// So many in a row fail: offline.
    #[schemars(range(min = 1), extend("x-default" = 3))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<i32>,
    /// So many in a row succeed: back.
    #[schemars(range(min = 1), extend("x-default" = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_threshold: Option<i32>,
}

/// What is seen of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// `Ready`, `Offline` and others. An API that does not answer is no proof that its pods are dead.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The version its API server tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The uid of its `kube-system` namespace: the cluster's own identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The region in use; it survives going offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The zones in use.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// The endpoint in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Nodes, and how many of them are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCount>,
    /// What its nodes have together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// What is left for pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// When it was last probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
}

/// Nodes of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCount {
    /// All of them.
    pub total: i32,
    /// Those that are ready.
    pub ready: i32,
}
