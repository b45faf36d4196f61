//! `Edge`: an edge's registration, heartbeat, load and votes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::object;
use super::{Address, Load};

/// The group of all edges: the organisation in their certificates.
pub const EDGES_GROUP: &str = "system:landfall:edges";
/// How edges are called, before their name: the common name in their certificates.
pub const EDGE_USER_PREFIX: &str = "system:landfall:edge:";
/// The attribute of a certificate's subject that carries the uid of the `Edge`.
pub const UID_OID: &str = "1.3.6.1.4.1.57683.2";

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
    /// It carries what clients send to its addresses, as Ingresses say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub carries: bool,
    /// Ports that it cannot carry for Services because it needs them itself, as `80/TCP`.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_ports: Vec<String>,
    /// Other edges may come in at its peer address with what they carry for its member.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub linked: bool,
    /// The port at which it answers HTTP.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_port: Option<i32>,
    /// Addresses of its node on the link where its group's virtual IPs are held: there other edges of the group hear it.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_addresses: Vec<String>,
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
    /// So many services are left out of these this time: they carry what they did, and are told of in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services_untold: Option<i64>,
    /// What it thinks of the endpoints it probes.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["target"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<Vote>,
    /// More of them, in fewer words, where there are many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vote_groups: Vec<VoteGroup>,
    /// How far other members are from it.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub round_trips: Vec<RoundTrip>,
    /// What it has at most: `cpu` and `memory`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// How it stands to each virtual IP of its group.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["address"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<EdgeVip>,
    /// The revision of its group's plan that it follows, 0 before it has seen one; told by edges that may hold virtual IPs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_revision: Option<i64>,
    /// Ready, isolated, draining, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How an edge stands to a virtual IP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["address", "state"]))]
pub struct EdgeVip {
    /// The address.
    pub address: String,
    /// Whether it holds it.
    pub state: VipState,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// How often this edge has taken it since it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transitions: Option<i64>,
    /// Why it cannot hold it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Whether an edge holds a virtual IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VipState {
    /// Another one may; this one would take over.
    #[default]
    Standby,
    /// It does.
    Holding,
    /// It cannot.
    Fault,
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

/// Votes on targets of one member that say the same, since the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "up", "targets"]))]
pub struct VoteGroup {
    /// The member.
    pub cluster: String,
    /// Whether they are up.
    pub up: bool,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// What was probed: service and port, as `namespace/name:port`.
    pub targets: Vec<String>,
}

impl EdgeStatus {
    /// All votes, however they are told.
    pub fn all_votes(self) -> Vec<Vote> {
        let mut votes = self.votes;
        for group in self.vote_groups {
            let VoteGroup { cluster, up, since, targets } = group;
            votes.extend(targets.into_iter().map(|target| Vote {
                target: format!("{cluster}/{target}"),
                up,
                since: since.clone(),
                ..Vote::default()
            }));
        }
        votes
    }
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
