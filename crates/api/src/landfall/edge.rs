//! `Edge`: an edge's registration, heartbeat, load and votes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::object;
use super::{Address, Load};

object! {
    /// An edge: where it is, what it carries, and what it thinks of the endpoints it probes.
    Edge, EdgeSpec, EdgeStatus, "edges", ClusterResourceScope
}

/// What the edge is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster"]))]
pub struct EdgeSpec {
    /// The member it stands in.
    pub cluster: String,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The group it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_replica_set: Option<String>,
    /// Where clients reach it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Where other edges reach it, as `host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_address: Option<String>,
}

/// What the edge says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EdgeStatus {
    /// Its program's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it last spoke.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_time: Option<MicroTime>,
    /// All it carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// What it carries, by service and member.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceLoad>,
    /// What it thinks of the endpoints it probes.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["target"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<Vote>,
    /// How far other members are from it.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub round_trips: Vec<RoundTrip>,
    /// Virtual IPs it holds.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<String>,
    /// Ready, isolated, draining, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What an edge sends to one member for one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["service", "cluster"]))]
pub struct ServiceLoad {
    /// The service, as `namespace/name`.
    pub service: String,
    /// Where it goes.
    pub cluster: String,
    /// How much.
    pub load: Load,
}

/// One edge's opinion of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["target", "up"]))]
pub struct Vote {
    /// What was probed: member, service and port, as `cluster/namespace/name:port`.
    pub target: String,
    /// Whether it is up.
    pub up: bool,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why it is down.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How long the last probe took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
}

/// How far a member is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "milliseconds"]))]
pub struct RoundTrip {
    /// The member.
    pub cluster: String,
    /// The median round trip, in milliseconds.
    pub milliseconds: f64,
}
