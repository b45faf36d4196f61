//! `RoutePlan`: what the hub made of one Ingress, MultiClusterIngress or Service of type LoadBalancer for the edges to carry:
//! hosts, paths, certificates and ports. Where a request of a service then goes is in that service's `TrafficPlan`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::object;
use super::{BucketBackend, FixedResponseAction, ObjectReference, RedirectAction};

/// The namespace of the certificates that edges may read: checked copies of the Secrets that routes name.
pub const CERTIFICATES_NAMESPACE: &str = "landfall-certificates";

object! {
    /// What edges carry for one Ingress, MultiClusterIngress or Service: hosts, paths, certificates and ports.
    RoutePlan, RoutePlanSpec, RoutePlanStatus, "routeplans", NamespaceResourceScope
}

/// The routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["sourceRef"]))]
pub struct RoutePlanSpec {
    /// What they were made of.
    pub source_ref: ObjectReference,
    /// When that was created: of two that want the same, the older has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_created: Option<Time>,
    /// Rises with every change.
    pub revision: i64,
    /// Groups of edges that carry them (IngressReplicaSets); every edge that is in none when empty.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// HTTP, by host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<RouteHost>,
    /// What becomes of requests that no route of any plan matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_action: Option<Box<RouteAction>>,
    /// Certificates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<RouteCertificate>,
    /// TLS that is not ended at the edge, by the name that clients ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passthrough: Vec<RoutePassthrough>,
    /// Ports whose connections or datagrams are carried as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<RoutePort>,
    /// How its hosts are spoken to.
    pub options: RouteOptions,
}

/// The paths of one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteHost {
    /// The host, `*.` and a domain for all names one label below it, or empty for every host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Its paths; which one is taken is by kind and length, not by order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<RoutePath>,
}

/// One path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["path", "match", "action"]))]
pub struct RoutePath {
    /// The path, which begins with `/`.
    pub path: String,
    /// How it is compared.
    #[serde(rename = "match")]
    pub compare: RouteMatch,
    /// What becomes of it.
    pub action: RouteAction,
}

/// How a path is compared. An exact one is taken before a prefix, and a longer prefix before a shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RouteMatch {
    /// By its first elements.
    #[default]
    Prefix,
    /// As a whole.
    Exact,
}

/// What becomes of a request: exactly one of these. What is rare is in boxes: edges keep thousands of routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteAction {
    /// It goes to a service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<RouteService>,
    /// It goes to a storage bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Box<BucketBackend>>,
    /// The client is sent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Box<RedirectAction>>,
    /// It is answered at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_response: Option<Box<FixedResponseAction>>,
    /// It cannot be carried, and is answered with 503: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// A service's port. Its plan is the `TrafficPlan` of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["namespace", "name", "port"]))]
pub struct RouteService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port's number at the service.
    pub port: i32,
    /// The port's name, where it has one: endpoints know it by that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub port_name: String,
    /// What is spoken to its endpoints.
    pub protocol: BackendProtocol,
}

/// What is spoken to endpoints.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum BackendProtocol {
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "HTTP")]
    Http,
    /// HTTP/2 without TLS, as `appProtocol: kubernetes.io/h2c` or `grpc` asks for.
    #[serde(rename = "H2C")]
    H2c,
    /// HTTP over TLS.
    #[serde(rename = "HTTPS")]
    Https,
}

/// A certificate, and whom it is shown to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["secret"]))]
pub struct RouteCertificate {
    /// The hosts it is for; those the certificate names when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The Secret with `tls.crt` and `tls.key` in the namespace [`CERTIFICATES_NAMESPACE`].
    pub secret: String,
}

/// TLS that is carried as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["host", "service"]))]
pub struct RoutePassthrough {
    /// The name that clients ask for, or `*.` and a domain.
    pub host: String,
    /// Where it goes.
    pub service: RouteService,
}

/// A port that is carried as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["port", "protocol", "service"]))]
pub struct RoutePort {
    /// The port at the edge.
    pub port: i32,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// Where it goes.
    pub service: RouteService,
}

/// How hosts are spoken to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteOptions {
    /// Plain HTTP is redirected to HTTPS where there is a certificate.
    pub redirect_to_https: bool,
    /// `Strict-Transport-Security`, in seconds; not sent when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsts_seconds: Option<i64>,
    /// `1.2` or `1.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tls_version: Option<String>,
    /// Clients must show a certificate by an authority in `ca.crt` of this Secret in [`CERTIFICATES_NAMESPACE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_authority: Option<String>,
    /// Connections to endpoints begin with a PROXY protocol header, version 2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub send_proxy_protocol: bool,
    /// Only clients with addresses in these blocks may use the ports; all may when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_ranges: Vec<String>,
}

/// How far the routes have come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RoutePlanStatus {
    /// Accepted, in conflict, and why.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
