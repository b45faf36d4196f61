//! Parts that several of our kinds have.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which members: by name, by label, or both; everything when nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSelection {
    /// Members by name.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Members whose labels match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// Another object, by kind and name, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind", "name"]))]
pub struct ObjectReference {
    /// Its group; empty for core.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// An address where traffic is taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Address {
    /// An IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// A host name, where there is no fixed IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// Measured load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Load {
    /// Processor, such as `1500m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// Bytes per second in both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Quantity>,
    /// Open connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<i64>,
    /// Requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// Requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<f64>,
    /// Failed requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_per_second: Option<f64>,
    /// Median time to answer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// How much of their capacity the endpoints use, by their own word (ORCA): 1 is all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
}
