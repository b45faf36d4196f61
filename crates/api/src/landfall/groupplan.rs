//! `GroupPlan`: what the edges of one group must know of it: its virtual IPs and each other. Written by the hub, read by edges.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::object;

/// The longest name of a label after its prefix.
const LABEL_CHARS_MAX: usize = 63;

object! {
    /// What the edges of a group must know of it: its virtual IPs, and each other. It has the group's name.
    GroupPlan, GroupPlanSpec, GroupPlanStatus, "groupplans", ClusterResourceScope
}

/// The group, as its edges must know it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupPlanSpec {
    /// Rises with every change.
    pub revision: i64,
    /// The network interface that holds the addresses; the one with the node's own address on the same link when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its edges tell each other who holds the addresses one by one; else they tell the whole link.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unicast: bool,
    /// The members it runs in.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<GroupPlanMember>,
}

/// The group in one member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster"]))]
pub struct GroupPlanMember {
    /// The member.
    pub cluster: String,
    /// The number, from 1 to 255, that tells the group from others on the same link.
    pub router_id: i32,
    /// Its virtual IPs here: all on one node at a time. None when none could be given.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<String>,
    /// The port at which its edges answer HTTP there, where they say so: others look at whether anybody does.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_port: Option<i32>,
    /// Its edges here, those that are silent now too.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<GroupPlanEdge>,
}

/// An edge of the group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "priority"]))]
pub struct GroupPlanEdge {
    /// The edge.
    pub name: String,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Addresses of its node on the link.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// From 1 to 254: of those that are well, the one with the highest takes an address that nobody holds. An edge keeps its
    /// number for as long as it belongs to the group.
    pub priority: i32,
}

/// The label of routes and certificates that edges of a group need; of those that edges of no group need when none is given.
pub fn group_label(group: Option<&str>) -> String {
    let Some(group) = group else { return "landfall.dev/no-group".to_owned() };
    // What stands after the slash may not be longer.
    if group.len() <= LABEL_CHARS_MAX {
        return format!("group.landfall.dev/{group}");
    }
    let hash = group.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("group.landfall.dev/{hash:016x}")
}

/// How far the plan has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupPlanStatus {
    /// What is wrong with it.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
