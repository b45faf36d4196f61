//! `DNSZone`: a zone of another DNS server that the federation's names are published to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretReference;
use super::object::object;

object! {
    /// A zone of another DNS server that the federation's names are published to: by dynamic updates (RFC 2136), or as
    /// SkyDNS records in etcd.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "!has(oldSelf.status) || !has(oldSelf.status.names) || oldSelf.status.names == 0 \
            || (self.spec.zone == oldSelf.spec.zone && has(self.spec.rfc2136) == has(oldSelf.spec.rfc2136) \
            && has(self.spec.skydns) == has(oldSelf.spec.skydns) \
            && (!has(self.spec.rfc2136) || self.spec.rfc2136.server == oldSelf.spec.rfc2136.server) \
            && (!has(self.spec.skydns) || has(self.spec.skydns.prefix) == has(oldSelf.spec.skydns.prefix) \
            && (!has(self.spec.skydns.prefix) || self.spec.skydns.prefix == oldSelf.spec.skydns.prefix)))",
        // Nobody would ever take the names out of the old place.
        "message": "the zone, its server and its prefix cannot be changed while names of ours are there: delete the DNSZone, \
            which takes them out, and make another",
    }]))]
    DNSZone, DNSZoneSpec, DNSZoneStatus, "dnszones", ClusterResourceScope
}

/// Where to publish: exactly one of `rfc2136` and `skydns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["zone"]))]
pub struct DNSZoneSpec {
    /// The zone's name, such as `example.com`. Names of the federation that are not in it are not published there.
    #[schemars(length(min = 1, max = 253))]
    pub zone: String,
    /// The shortest time, in seconds, that records are published with; what services say when not given.
    #[schemars(range(min = 0, max = 86400))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_ttl: Option<i32>,
    /// A server that takes dynamic updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rfc2136: Option<Rfc2136>,
    /// An etcd that CoreDNS reads (its plugin `etcd`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skydns: Option<SkyDns>,
}

/// A server that takes dynamic updates, and lets us read the zone (AXFR).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["server"]))]
pub struct Rfc2136 {
    /// The zone's primary server, as `host:port`; port 53 when not given.
    #[schemars(length(min = 1))]
    pub server: String,
    /// How updates are sent. UDP for small ones and TCP for large ones when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<UpdateTransport>,
    /// The key that signs what is sent; nothing is signed when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tsig: Option<Tsig>,
}

/// How updates are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateTransport {
    /// In datagrams, as many as it takes.
    UDP,
    /// Over a connection.
    #[default]
    TCP,
}

/// A key for transaction signatures (RFC 8945).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["keyName", "secretRef"]))]
pub struct Tsig {
    /// The key's name, as the server knows it.
    pub key_name: String,
    /// How signatures are made.
    #[schemars(extend("x-default" = "hmac-sha256"))]
    pub algorithm: TsigAlgorithm,
    /// Where the key is, in base64 as servers' configurations have it.
    pub secret_ref: SecretKeyReference,
}

/// How transaction signatures are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TsigAlgorithm {
    /// HMAC with SHA-256.
    #[default]
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    /// HMAC with SHA-384.
    #[serde(rename = "hmac-sha384")]
    HmacSha384,
    /// HMAC with SHA-512.
    #[serde(rename = "hmac-sha512")]
    HmacSha512,
}

/// One entry of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct SecretKeyReference {
    /// The Secret's namespace; `landfall-system` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The Secret's name.
    pub name: String,
    /// Which entry; `secret` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An etcd that CoreDNS reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["endpoints"]))]
pub struct SkyDns {
    /// URLs of its members, such as `https://192.0.2.1:2379`.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub endpoints: Vec<String>,
    /// What all keys begin with: `path` in CoreDNS' configuration; `/skydns` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The Secret with what opens it: `username` and `password`, `ca.crt`, `tls.crt` and `tls.key`, those that are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
}

/// How far publishing has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DNSZoneStatus {
    /// Names of ours that the zone has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<i32>,
    /// Record sets of ours that the zone has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<i32>,
    /// Names that somebody else has there, and that are therefore not published; the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// When something was last published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_publish_time: Option<Time>,
    /// Which version of the spec this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Published, and why not.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
