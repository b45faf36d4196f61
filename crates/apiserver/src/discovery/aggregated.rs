//! The newer form of discovery: everything in one list, `apidiscovery.k8s.io`.

use landfall_api::{Kind, Scope};
use serde_json::{Value, json};

use super::groups::{Group, Version};
use super::legacy::{Subresource, subresources, verbs};

/// `/api` or `/apis` as an `APIGroupDiscoveryList`.
pub(super) fn list<'a>(groups: impl Iterator<Item = &'a Group>, v2: bool) -> Value {
    let items: Vec<Value> = groups.map(group).collect();
    let version = if v2 { "apidiscovery.k8s.io/v2" } else { "apidiscovery.k8s.io/v2beta1" };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": version, "metadata": {}, "items": items})
}

fn group(group: &Group) -> Value {
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
    json!({"metadata": metadata, "versions": group.versions.iter().map(version).collect::<Vec<_>>()})
}

fn version(version: &Version) -> Value {
    let resources: Vec<Value> = version.kinds.iter().map(|kind| resource(kind)).collect();
    json!({"version": version.name, "resources": resources, "freshness": "Current"})
}

fn resource(kind: &Kind) -> Value {
    let scope = match kind.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let mut entry = json!({
        "resource": kind.plural, "responseKind": response_kind(kind, "", "", &kind.kind), "scope": scope,
        "singularResource": kind.singular, "verbs": verbs(kind),
    });
    for (key, list) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !list.is_empty() {
            entry[key] = json!(list);
        }
    }
    let subs: Vec<Value> = subresources(kind).iter().map(|sub| subresource(kind, sub)).collect();
    if !subs.is_empty() {
        entry["subresources"] = Value::Array(subs);
    }
    entry
}

fn subresource(kind: &Kind, sub: &Subresource<'_>) -> Value {
    json!({
        "subresource": sub.name,
        "responseKind": response_kind(kind, sub.group, sub.version, sub.kind),
        "verbs": sub.verbs,
    })
}

/// Built-in kinds leave group and version empty where they are the list's own; custom kinds write them out.
fn response_kind(of: &Kind, group: &str, version: &str, kind: &str) -> Value {
    match (group, of.strategic) {
        ("", false) => json!({"group": of.group, "version": of.version, "kind": kind}),
        _ => json!({"group": group, "version": version, "kind": kind}),
    }
}
