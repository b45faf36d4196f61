//! What every edge must know of the federation as a whole: a part of one plan, so that an edge reads plans and nothing else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Address, Coordinates};

/// The plan, in the namespace `landfall-system`, that tells about the federation itself.
pub const FEDERATION_PLAN: &str = "federation";

/// The federation: its name, its members, its edges, and where clients stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct PlanFederation {
    /// Its name, a part of host names.
    pub name: String,
    /// The domain under which its Services have names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Its members.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<PlanMember>,
    /// Its edges.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<PlanEdge>,
    /// Where clients stand, by their addresses; the longest prefix counts.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cidr"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<PlanPrefix>,
}

/// A member, as edges must know it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct PlanMember {
    /// The member.
    pub name: String,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Its zones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Where it stands on the globe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinates: Option<Coordinates>,
}

/// An edge, as other edges must know it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "cluster", "alive"]))]
pub struct PlanEdge {
    /// The edge.
    pub name: String,
    /// The uid of its `Edge`, which its certificate carries: one of the same name that was there before is another.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The member it stands in.
    pub cluster: String,
    /// Where clients reach it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Where other edges reach it, as `host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_address: Option<String>,
    /// It carries what clients send to its addresses, as Ingresses say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub carries: bool,
    /// Other edges may come in at its peer address with what they carry for its member.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub linked: bool,
    /// Whether it has spoken lately: only then it votes.
    pub alive: bool,
}

/// Where the clients of a prefix stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cidr"]))]
pub struct PlanPrefix {
    /// The prefix, such as `192.0.2.0/24`.
    pub cidr: String,
    /// Inside this member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// In this region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// At this point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinates: Option<Coordinates>,
}
