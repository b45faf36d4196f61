//! The older form of discovery: one document per group and version.

use landfall_api::{Kind, Scope};
use serde_json::{Map, Value, json};

use super::groups::{Group, Version};
use super::storage_version_hash;

/// `/api`: the versions of the core group.
pub(super) fn versions<'a>(groups: impl Iterator<Item = &'a Group>, server_address: &str) -> Value {
    let versions: Vec<&String> =
        groups.flat_map(|group| &group.versions).map(|version| &version.name).collect();
    json!({
        "kind": "APIVersions",
        "versions": versions,
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`: all other groups.
pub(super) fn groups<'a>(groups: impl Iterator<Item = &'a Group>) -> Value {
    let groups: Vec<Value> = groups.map(|group| Value::Object(versions_of(group))).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`.
pub(super) fn group(group: &Group) -> Value {
    let mut value = versions_of(group);
    value.insert("kind".into(), json!("APIGroup"));
    value.insert("apiVersion".into(), json!("v1"));
    Value::Object(value)
}

fn versions_of(group: &Group) -> Map<String, Value> {
    let version =
        |version: &Version| json!({"groupVersion": version.group_version(group), "version": version.name});
    let mut value = Map::new();
    value.insert("name".into(), json!(group.name));
    value.insert("versions".into(), group.versions.iter().map(version).collect());
    value.insert("preferredVersion".into(), group.versions.first().map(version).unwrap_or_default());
    value
}

/// `/api/v1` and `/apis/<group>/<version>`: the resources of one version.
pub(super) fn resources(group: &Group, version: &Version) -> Value {
    let resources: Vec<Value> = version.kinds.iter().flat_map(|kind| entries(kind)).collect();
    let mut value = json!({"kind": "APIResourceList", "groupVersion": version.group_version(group), "resources": resources});
    if !group.name.is_empty() {
        value["apiVersion"] = json!("v1");
    }
    value
}

fn entries(kind: &Kind) -> Vec<Value> {
    let namespaced = kind.scope == Scope::Namespaced;
    let mut entry = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": namespaced, "kind": kind.kind,
        "verbs": verbs(kind),
    });
    for (key, list) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !list.is_empty() {
            entry[key] = json!(list);
        }
    }
    if !kind.verbs.is_empty() {
        let hash = storage_version_hash(&kind.stored_as.0, &kind.storage_version, &kind.kind);
        entry["storageVersionHash"] = json!(hash);
    }
    let mut entries = vec![entry];
    for sub in subresources(kind) {
        let mut entry = json!({
            "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": namespaced,
            "kind": sub.kind, "verbs": sub.verbs,
        });
        if !sub.group.is_empty() {
            entry["group"] = json!(sub.group);
            entry["version"] = json!(sub.version);
        }
        entries.push(entry);
    }
    entries
}

/// The verbs of a kind; questions are only ever created.
pub(super) fn verbs(kind: &Kind) -> &'static [&'static str] {
    if kind.verbs.is_empty() { &["create"] } else { kind.verbs }
}

/// A subresource as discovery shows it.
pub(super) struct Subresource<'a> {
    /// Such as `status`.
    pub(super) name: &'static str,
    /// The group of what it answers; empty for the resource's own.
    pub(super) group: &'static str,
    /// The version of what it answers; empty for the resource's own.
    pub(super) version: &'static str,
    /// The kind of what it answers.
    pub(super) kind: &'a str,
    /// What can be done with it.
    pub(super) verbs: &'static [&'static str],
}

/// The subresources of a kind, sorted by name.
pub(super) fn subresources(kind: &Kind) -> Vec<Subresource<'_>> {
    const CHANGE: &[&str] = &["get", "patch", "update"];
    let own = |name, verbs| Subresource { name, group: "", version: "", kind: &kind.kind, verbs };
    let mut found = Vec::new();
    if kind.sub.approval {
        found.push(own("approval", CHANGE));
    }
    if kind.sub.eviction {
        let (group, version, kind) = ("", "v1", "Binding");
        found.push(Subresource { name: "binding", group, version, kind, verbs: &["create"] });
        let (group, version, kind) = ("policy", "v1", "Eviction");
        found.push(Subresource { name: "eviction", group, version, kind, verbs: &["create"] });
    }
    if kind.sub.finalize {
        found.push(own("finalize", &["update"]));
    }
    if kind.sub.eviction {
        found.push(own("log", &["get"]));
    }
    if kind.sub.scale.is_some() {
        let (group, version, kind) = ("autoscaling", "v1", "Scale");
        found.push(Subresource { name: "scale", group, version, kind, verbs: CHANGE });
    }
    if kind.sub.status {
        found.push(own("status", CHANGE));
    }
    if kind.sub.token {
        let (group, version, kind) = ("authentication.k8s.io", "v1", "TokenRequest");
        found.push(Subresource { name: "token", group, version, kind, verbs: &["create"] });
    }
    found
}
