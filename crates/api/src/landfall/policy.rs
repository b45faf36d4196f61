//! `TrafficPolicy`: how traffic of a service is spread over the members.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::object;
use super::{ClusterSelection, ObjectReference};

object! {
    /// How traffic of some services is spread: capacity, locality, overflow, fence, weights, affinity, health.
    TrafficPolicy, TrafficPolicySpec, TrafficPolicyStatus, "trafficpolicies", NamespaceResourceScope
}

/// The policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficPolicySpec {
    /// The services it is about, by name; every service of the namespace when neither names nor a selector are given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target_refs: Vec<ObjectReference>,
    /// The services it is about, by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// What one endpoint can carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<EndpointCapacity>,
    /// Which members are near.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// What happens to traffic the nearest has no room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Overflow>,
    /// Members that the traffic must never leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<ClusterSelection>,
    /// Shares of members, instead of nearness.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<Weight>,
    /// A share of traffic for some members, whatever the rest does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// Whether a client stays where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<SessionAffinity>,
    /// Which of a member's endpoints takes a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// What edges never exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<TrafficLimits>,
    /// When an endpoint is left out because of what it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlier: Option<Outlier>,
    /// How endpoints are probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// What to answer when everything is down.
    #[schemars(extend("x-default" = "Open"))]
    pub when_all_down: WhenAllDown,
    /// How names are answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsPolicy>,
    /// When requests are tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<Retries>,
    /// How long things may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
}

/// What one endpoint can carry; the first that is reached counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointCapacity {
    /// Requests per second.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// Requests in flight.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<i32>,
    /// Utilisation that endpoints report, in percent.
    #[schemars(range(min = 1, max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<i32>,
}

/// Which members are near.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Locality {
    /// How distance is found.
    #[schemars(extend("x-default" = "Measured"))]
    pub by: LocalityBy,
    /// Members to take first, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefer: Vec<String>,
}

/// How distance is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LocalityBy {
    /// Measured round trips; where there are none, coordinates, then zones and regions.
    #[default]
    Measured,
    /// Coordinates only.
    Coordinates,
    /// Zones and regions only.
    Topology,
    /// All members are equally near.
    Ignore,
}

/// What happens to traffic the nearest has no room for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Overflow {
    /// Where it goes.
    #[schemars(extend("x-default" = "NextNearest"))]
    pub mode: OverflowMode,
    /// How full a member is, in percent of its capacity, before traffic overflows.
    #[schemars(range(min = 1, max = 100), extend("x-default" = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_percent: Option<i32>,
}

/// Where overflow goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OverflowMode {
    /// To the next nearest with room.
    #[default]
    NextNearest,
    /// To all others by their room.
    Spread,
    /// Nowhere: the nearest takes everything.
    Never,
}

/// The share of some members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["clusters", "weight"]))]
pub struct Weight {
    /// The members.
    pub clusters: ClusterSelection,
    /// Their share, relative to others.
    #[schemars(range(min = 0))]
    pub weight: i32,
}

/// A share of traffic for some members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["clusters", "percent"]))]
pub struct Canary {
    /// The members.
    pub clusters: ClusterSelection,
    /// Their share in percent.
    #[schemars(range(min = 0, max = 100))]
    pub percent: f64,
    /// Requests with these headers always go there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// Whether a client stays where it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionAffinity {
    /// By what a client is known again.
    #[schemars(extend("x-default" = "None"))]
    pub mode: AffinityMode,
    /// The cookie's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_name: Option<String>,
    /// How long.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<i32>,
}

/// By what a client is known again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AffinityMode {
    /// Not at all.
    #[default]
    None,
    /// Its address.
    #[serde(rename = "ClientIP")]
    ClientIp,
    /// A cookie.
    Cookie,
}

/// Which of a member's endpoints takes a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Balance {
    /// How it is chosen.
    #[schemars(extend("x-default" = "LeastRequests"))]
    pub mode: BalanceMode,
    /// By what a request is told apart from others, where it is chosen by a ring.
    #[schemars(extend("x-default" = "ClientIP"))]
    pub hash_on: HashOn,
    /// The header's or the cookie's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How an endpoint is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BalanceMode {
    /// The less busy of two.
    #[default]
    LeastRequests,
    /// The same for the same, on a ring: when endpoints come and go, few others are moved.
    RingHash,
}

/// By what a request is told apart from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HashOn {
    /// The client's address.
    #[default]
    #[serde(rename = "ClientIP")]
    ClientIp,
    /// A header; requests without it go to the less busy of two.
    Header,
    /// A cookie; requests without it go to the less busy of two.
    Cookie,
    /// The path.
    Path,
}

/// What edges never exceed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficLimits {
    /// Requests that each edge has in flight at one member: more go to the next, or are refused with 503.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_concurrency: Option<i32>,
}

/// When an endpoint is left out because of what it answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Outlier {
    /// Failures in a row.
    #[schemars(range(min = 1), extend("x-default" = 5))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_errors: Option<i32>,
    /// How many times slower than the others.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_factor: Option<f64>,
    /// How long it is left out at first.
    #[schemars(range(min = 1), extend("x-default" = 30))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ejection_seconds: Option<i32>,
    /// At most so many percent of the endpoints are left out.
    #[schemars(range(min = 0, max = 100), extend("x-default" = 50))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ejected_percent: Option<i32>,
}

/// How endpoints are probed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheck {
    /// What is spoken.
    #[schemars(extend("x-default" = "TCP"))]
    pub protocol: ProbeProtocol,
    /// The port, by name or number; the service's first when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,
    /// The path, for HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The host, for HTTP and TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Status codes that are well, such as `200` or `200-299`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected_statuses: Vec<String>,
    /// What the body must contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_body: Option<String>,
    /// The service name, for gRPC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_service: Option<String>,
    /// Time between probes.
    #[schemars(range(min = 100), extend("x-default" = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<i32>,
    /// How long one may take.
    #[schemars(range(min = 10), extend("x-default" = 800))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i32>,
    /// So many in a row fail: down.
    #[schemars(range(min = 1), extend("x-default" = 3))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_threshold: Option<i32>,
    /// So many in a row succeed: up.
    #[schemars(range(min = 1), extend("x-default" = 2))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_threshold: Option<i32>,
}

/// What a probe speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProbeProtocol {
    /// Connects.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// Requests a path.
    #[serde(rename = "HTTP")]
    Http,
    /// The same over TLS.
    #[serde(rename = "HTTPS")]
    Https,
    /// Asks the gRPC health service.
    #[serde(rename = "GRPC")]
    Grpc,
    /// Shakes hands, and looks at the certificate's end.
    #[serde(rename = "TLS")]
    Tls,
}

/// What to answer when everything is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhenAllDown {
    /// As if everything were up.
    #[default]
    Open,
    /// Nothing.
    Closed,
}

/// How names are answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsPolicy {
    /// Which addresses, in which order.
    #[schemars(extend("x-default" = "NearestFirst"))]
    pub answer: DnsAnswer,
    /// How long answers may be kept; what the hub was told (`--dns-ttl`), or else 180, when not given.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<i32>,
    /// The longest that answers may be kept which change when a cluster is lost or comes back: those of `NearestOnly` and
    /// `Weighted`, and all answers while a cluster of the service is down.
    #[schemars(range(min = 0), extend("x-default" = 10))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover_ttl_seconds: Option<i32>,
}

/// Which addresses an answer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DnsAnswer {
    /// The nearest, then the rest.
    #[default]
    NearestFirst,
    /// The nearest.
    NearestOnly,
    /// All, in turn.
    All,
    /// One, by the plan's fractions.
    Weighted,
}

/// When requests are tried again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Retries {
    /// How often at most.
    #[schemars(range(min = 0), extend("x-default" = 2))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// At most so many percent of all requests.
    #[schemars(range(min = 0, max = 100), extend("x-default" = 20))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_percent: Option<i32>,
}

/// How long things may take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// To connect.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_ms: Option<i32>,
    /// The whole request.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_ms: Option<i32>,
    /// Without a byte.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<i32>,
}

/// What has become of the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficPolicyStatus {
    /// Accepted, in conflict, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
