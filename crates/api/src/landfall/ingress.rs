//! `MultiClusterIngress`: one ingress whose backends are services in several members.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::api::networking::v1::{IngressServiceBackend, IngressTLS};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Address;
use super::object::object;

object! {
    /// One ingress for services that run in several members.
    MultiClusterIngress, MultiClusterIngressSpec, MultiClusterIngressStatus, "multiclusteringresses", NamespaceResourceScope
}

/// What the ingress does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["template"]))]
pub struct MultiClusterIngressSpec {
    /// The ingress: its backends are MultiClusterServices of the same namespace.
    pub template: MultiClusterIngressTemplate,
}

/// An ingress inside a MultiClusterIngress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiClusterIngressTemplate {
    /// Labels and annotations of the derived ingresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    /// The ingress itself.
    pub spec: IngressTemplateSpec,
}

/// An Ingress spec, in the newer spelling of `networking.k8s.io/v1` and the older one of its first years.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressTemplateSpec {
    /// Which controller serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_class_name: Option<String>,
    /// Where requests go that no rule matches; older spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<IngressTemplateBackend>,
    /// Where requests go that no rule matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_backend: Option<IngressTemplateBackend>,
    /// Certificates by host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tls: Vec<IngressTLS>,
    /// Rules by host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<IngressTemplateRule>,
}

/// The paths of one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressTemplateRule {
    /// The host; every host when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<IngressTemplatePaths>,
}

/// Paths of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressTemplatePaths {
    /// The paths; the longest that matches wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<IngressTemplatePath>,
}

/// One path and where its requests go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["backend"]))]
pub struct IngressTemplatePath {
    /// The path; `/` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How it is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_type: Option<PathType>,
    /// Where its requests go.
    pub backend: IngressTemplateBackend,
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PathType {
    /// The whole path.
    Exact,
    /// By segments from the beginning.
    Prefix,
    /// Like `Prefix`.
    #[default]
    ImplementationSpecific,
}

/// Where requests go: exactly one of its fields says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressTemplateBackend {
    /// A MultiClusterService by name; older spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// Its port; older spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_port: Option<IntOrString>,
    /// A MultiClusterService and its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<IngressServiceBackend>,
    /// Another object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<TypedLocalObjectReference>,
    /// An HTTP origin such as a storage bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketBackend>,
    /// The answer is a redirect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<RedirectAction>,
    /// The answer is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_response: Option<FixedResponseAction>,
}

/// An HTTP origin such as a storage bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["url"]))]
pub struct BucketBackend {
    /// Its URL.
    pub url: String,
    /// The Host header sent to it; the URL's host when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// A redirect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RedirectAction {
    /// 301, 302, 303, 307 or 308.
    #[schemars(range(min = 301, max = 308), extend("x-default" = 302))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<i32>,
    /// The scheme to go to; that of the request when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// The host to go to; that of the request when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The path to go to; that of the request when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A fixed answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["statusCode"]))]
pub struct FixedResponseAction {
    /// Its status code.
    #[schemars(range(min = 200, max = 599))]
    pub status_code: i32,
    /// Its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// What has become of the ingress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiClusterIngressStatus {
    /// The first of the addresses.
    #[serde(rename = "VIP", skip_serializing_if = "Option::is_none")]
    pub vip: Option<String>,
    /// Where it is served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Members that have a shard.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Accepted, propagated, and why not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
