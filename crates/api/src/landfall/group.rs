//! `IngressReplicaSet` and `IngressVIPRange`: groups of edges that share a virtual IP, and where the addresses come from.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::object;
use super::{ClusterSelection, Load};

object! {
    /// A group of ingress pods (edges) that share a virtual IP; ingresses are bound to it.
    IngressReplicaSet, IngressReplicaSetSpec, IngressReplicaSetStatus, "ingressreplicasets", ClusterResourceScope
}

/// What the group is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressReplicaSetSpec {
    /// How many edges; two or more survive the loss of a node.
    #[schemars(range(min = 0), extend("x-default" = 2))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Members it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ClusterSelection>,
    /// Nodes it may use: those that can be reached from outside and share one link.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes it tolerates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// The virtual IP it asks for; one is allocated when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<String>,
    /// The virtual IPs it asks for where it runs in several members.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster", "address"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<WantedVip>,
    /// The range the address comes from; any when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_range: Option<String>,
    /// Which addresses it gets in every member: one of each of these; one of whichever family there is when empty.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_families: Vec<IpFamily>,
    /// The network interface that holds the address; found when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its edges tell each other who holds the addresses one by one, for links that carry no multicast; else they tell the
    /// whole link.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unicast: bool,
    /// What the group can carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<GroupCapacity>,
    /// Ingresses are moved to other groups when so much of what it can carry, in percent, is used.
    #[schemars(range(min = 1, max = 1000), extend("x-default" = 95))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload_percent: Option<i32>,
    /// What each edge may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

/// A virtual IP that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "address"]))]
pub struct WantedVip {
    /// The member.
    pub cluster: String,
    /// The address.
    pub address: String,
}

/// A family of addresses.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum IpFamily {
    /// 32 bits.
    #[default]
    IPv4,
    /// 128 bits.
    IPv6,
}

/// What a group can carry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupCapacity {
    /// Ingresses bound to it.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingresses: Option<i32>,
    /// Requests per second.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<i64>,
    /// Open connections.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<i64>,
    /// Bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Quantity>,
}

/// What has become of the group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressReplicaSetStatus {
    /// Its virtual IP; the first where it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<String>,
    /// Who holds that address now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<VipHolder>,
    /// How often its addresses moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transitions: Option<i64>,
    /// All its virtual IPs. What stands here is given out, and stays the group's own for as long as it is there.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["address"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<GroupVip>,
    /// Virtual IPs that it has no more and that are nobody else's yet: one of its edges may still hold them.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["address"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub releasing: Vec<GroupVip>,
    /// Edges there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Edges that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Which edges are its own, as a label selector in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Ingresses bound to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_ingresses: Option<i32>,
    /// Measured load of all its edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// The claim it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Allocated, ready, and why not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A virtual IP of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["address", "cluster"]))]
pub struct GroupVip {
    /// The address.
    pub address: String,
    /// The member whose nodes hold it.
    pub cluster: String,
    /// The range it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// The number, from 1 to 255, that tells the group from others on the same link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_id: Option<i32>,
    /// Who holds it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<VipHolder>,
    /// How often it moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transitions: Option<i64>,
}

/// Who holds a virtual IP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["edge"]))]
pub struct VipHolder {
    /// The edge.
    pub edge: String,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
}

object! {
    /// Addresses that virtual IPs are allocated from.
    IngressVIPRange, IngressVIPRangeSpec, IngressVIPRangeStatus, "ingressvipranges", ClusterResourceScope
}

/// The addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cidrs"]))]
pub struct IngressVIPRangeSpec {
    /// IPv4 and IPv6 ranges such as `192.0.2.0/28`.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub cidrs: Vec<String>,
    /// Addresses and ranges that are not given out.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Members whose groups may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ClusterSelection>,
}

/// What has become of the addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressVIPRangeStatus {
    /// Addresses that can be given out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// Addresses given out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<i64>,
    /// Who has which.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["vip"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<VipAllocation>,
    /// Valid, exhausted, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// An address given out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["vip", "ingressReplicaSet"]))]
pub struct VipAllocation {
    /// The address.
    pub vip: String,
    /// The group that has it.
    pub ingress_replica_set: String,
    /// The member it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
}
