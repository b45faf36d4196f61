//! `TrafficPlan`: what the hub decided about one service; the edges follow it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::object;
use super::{
    Address, Balance, Coordinates, DnsAnswer, EndpointCapacity, HealthCheck, ObjectReference, Outlier,
    PlanFederation, Retries, SessionAffinity, Timeouts, TrafficLimits, WhenAllDown,
};

object! {
    /// What was decided about one service: members, verdicts, capacity, and who goes where, with reasons.
    TrafficPlan, TrafficPlanSpec, TrafficPlanStatus, "trafficplans", NamespaceResourceScope
}

/// The decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["targetRef"]))]
pub struct TrafficPlanSpec {
    /// The service it is about.
    pub target_ref: ObjectReference,
    /// Rises with every change.
    pub revision: i64,
    /// The service's ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PlanPort>,
    // Atomic, though they have names: one writer has them all, and who has which field of each would take half as much room again.
    /// Members that serve it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<PlanCluster>,
    /// Who goes where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vantages: Vec<PlanVantage>,
    /// Members that the traffic must never leave; all when empty. A fence that nobody is in has the one name `-`.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fence: Vec<String>,
    /// Whether a client stays where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<SessionAffinity>,
    /// What to answer when everything is down.
    pub when_all_down: WhenAllDown,
    /// Which addresses names are answered with.
    pub dns_answer: DnsAnswer,
    /// How long answers may be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_ttl_seconds: Option<i32>,
    /// How long answers may be kept that change when a cluster is lost or comes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_failover_ttl_seconds: Option<i32>,
    /// Further names it answers to: the hosts of its Ingresses.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// How its endpoints are probed; a TCP connection to the first port when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Which of a member's endpoints takes a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// What edges never exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<TrafficLimits>,
    /// When an endpoint is left out because of what it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlier: Option<Outlier>,
    /// When requests are tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<Retries>,
    /// How long things may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// What one endpoint can carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_capacity: Option<EndpointCapacity>,
    /// Requests that go to some members whatever the fractions are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<PlanCanary>,
    /// What every edge must know of the federation; only in the plan [`FEDERATION_PLAN`](super::FEDERATION_PLAN).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub federation: Option<PlanFederation>,
}

/// Requests with these headers go to these members, if one of them is up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["clusters"]))]
pub struct PlanCanary {
    /// The members.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub clusters: Vec<String>,
    /// The headers; all of them must be there with just these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// A port of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["port"]))]
pub struct PlanPort {
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its number.
    pub port: i32,
    /// `TCP` or `UDP`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// What is spoken, as the service's `appProtocol` says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub app_protocol: String,
    /// The same on every node of every member, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_port: Option<i32>,
}

/// A member that serves it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "verdict"]))]
pub struct PlanCluster {
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
    /// Where clients reach the service there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Its address inside the member.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_ips: Vec<String>,
    /// The majority's decision.
    pub verdict: Verdict,
    /// Endpoints that are ready.
    pub endpoints: i32,
    /// Its pods, where the service is headless.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PlanPod>,
    /// What they can carry, in requests per second; without a limit when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
    /// What they carry now, in requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Nothing new goes there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// Where clients reach its Ingresses there: what `spec.hosts` are answered with, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ingress_addresses: Vec<Address>,
    /// Why no vantage has it among its choices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// A ready pod of a headless service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["ips"]))]
pub struct PlanPod {
    /// Its own name under the service, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Its addresses.
    pub ips: Vec<String>,
}

/// The majority's decision about a member's endpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["up"]))]
pub struct Verdict {
    /// Whether it is up.
    pub up: bool,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Edges that say up.
    pub votes_up: i32,
    /// Edges that say down.
    pub votes_down: i32,
    /// Who says what, and since when.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["edge"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<PlanVote>,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What one edge says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["edge", "up"]))]
pub struct PlanVote {
    /// The edge.
    pub edge: String,
    /// What it says.
    pub up: bool,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why it says down.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Who goes where: the clusters for clients that stand in one place, in order: those that take a part, then those that stand
/// by. What is not among them must not be used. With neither a member nor
/// a region it is about clients of whom nothing is known. A member that is not told of is told what its region is, and a
/// region that is not told of what clients are told of whom nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanVantage {
    /// Clients inside this member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Clients in this region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Where they go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<PlanChoice>,
}

/// A member, its fraction, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["cluster", "fraction"]))]
pub struct PlanChoice {
    /// The member.
    pub cluster: String,
    /// Its share of the traffic, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub fraction: f64,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The decision in few words, for whoever looks at it. It is written together with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficPlanStatus {
    /// Members that are up and take clients, of those that serve it, such as `2/3`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub up: String,
    /// The members, and what is with those that are not up.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub clusters: String,
    /// Serving, and why not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
