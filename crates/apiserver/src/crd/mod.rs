//! Kinds that users define: CustomResourceDefinitions, and the kinds made from them.
//!
//! ```text
//!   CustomResourceDefinition ──CrdRules──► accepted ──status_for──► Established
//!            │
//!            └──kinds()──► one Kind per served version: CustomRules (prune, default, validate), Columns, type graph
//! ```
//!
//! Everything here is pure. Reading order: [`definition`] (the definition itself) with [`spec`],
//! [`structural`] and [`openapi`] (its schemas), [`status`] (what the server says about it), [`schema`] (a schema, read), [`custom`] (objects of it)
//! with [`prune`], [`check`], [`formats`], [`lists`] and [`cel`], [`columns`] and [`jsonpath`] (tables), [`graph`].
//!
//! Deliberately absent: conversion by webhook (refused where a definition asks for it), `apiextensions.k8s.io/v1beta1`.

pub mod cel;
pub mod check;
pub mod columns;
pub mod custom;
pub mod definition;
pub mod formats;
mod go_text;
pub mod graph;
#[cfg(test)]
mod hostile;
pub mod jsonpath;
pub mod lists;
pub mod openapi;
pub mod prune;
pub mod schema;
pub mod spec;
pub mod status;
pub mod structural;
#[cfg(test)]
mod vectors;

use std::sync::Arc;

use landfall_api::Kind;
use landfall_api::Scope;
use landfall_api::kind::{ScalePaths, Subresources};
use serde_json::Value;

use crate::discovery::by_priority;

pub use custom::CustomRules;
pub use definition::CrdRules;
pub use status::{Taken, is_settled, settle, status_for};

/// The group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";
/// The resource name of definitions.
pub const PLURAL: &str = "customresourcedefinitions";
/// The finalizer that keeps a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// In the order in which Kubernetes lists them for custom resources.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The kinds that a definition makes, one per served version, in the order of `spec.versions`.
///
/// Names are the accepted ones where the status has them, so that a conflict does not show in discovery.
pub fn kinds(crd: &Value) -> Vec<Kind> {
    let Some(spec) = crd.get("spec") else { return Vec::new() };
    let versions = schema::list(spec, "versions");
    let stored = versions.iter().find(|v| flag(v, "storage")).map_or("", |v| text(v, "name"));
    versions.iter().filter(|v| flag(v, "served")).map(|version| kind(crd, spec, version, stored)).collect()
}

/// The version in which objects are stored, when it is not served: nobody can ask for it, but objects are there.
pub fn unserved(crd: &Value) -> Option<Kind> {
    let spec = crd.get("spec")?;
    let version = schema::list(spec, "versions").iter().find(|v| flag(v, "storage") && !flag(v, "served"))?;
    Some(kind(crd, spec, version, text(version, "name")))
}

/// Group and plural of a definition.
pub fn names(definition: &Value) -> (&str, &str) {
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    (text(spec, "group"), spec.get("names").map_or("", |names| text(names, "plural")))
}

/// What is said with every answer of a deprecated version.
pub fn deprecation(crd: &Value, version: &Value) -> Option<String> {
    if !flag(version, "deprecated") {
        return None;
    }
    let spec = crd.get("spec")?;
    Some(version.get("deprecationWarning").and_then(Value::as_str).map_or_else(
        || {
            let kind = spec.get("names").map_or("", |names| text(names, "kind"));
            let (group, name) = (text(spec, "group"), text(version, "name"));
            let better = newer(spec, name).map(|newer| format!("; use {group}/{newer} {kind}"));
            format!("{group}/{name} {kind} is deprecated{}", better.unwrap_or_default())
        },
        Into::into,
    ))
}

/// The best served version that is not deprecated and better than this one.
fn newer<'a>(spec: &'a Value, than: &str) -> Option<&'a str> {
    let versions = schema::list(spec, "versions").iter();
    let usable = versions.filter(|v| flag(v, "served") && !flag(v, "deprecated")).map(|v| text(v, "name"));
    usable.filter(|name| by_priority(name, than).is_lt()).min_by(|a, b| by_priority(a, b))
}

fn kind(crd: &Value, spec: &Value, version: &Value, stored: &str) -> Kind {
    let accepted =
        crd.get("status").and_then(|s| s.get("acceptedNames")).filter(|n| !text(n, "plural").is_empty());
    let null = Value::Null;
    let names = accepted.or_else(|| spec.get("names")).unwrap_or(&null);
    let owned = |value: &Value, key: &str| text(value, key).to_owned();
    let all = |key: &str| schema::texts(names, key).into_iter().map(Into::into).collect();
    let (group, plural) = (owned(spec, "group"), owned(names, "plural"));
    let mut shape =
        schema::Schema::read(version.get("schema").and_then(|s| s.get("openAPIV3Schema")).unwrap_or(&null));
    cel::compile(&mut shape);
    let sub = version.get("subresources").unwrap_or(&null);
    let scale = sub.get("scale").filter(|s| s.is_object());
    Kind {
        version: owned(version, "name").into(),
        kind: owned(names, "kind").into(),
        list_kind: owned(names, "listKind").into(),
        singular: owned(names, "singular").into(),
        short_names: all("shortNames"),
        categories: all("categories"),
        scope: if text(spec, "scope") == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
        verbs: VERBS,
        sub: Subresources {
            status: sub.get("status").is_some_and(|s| !s.is_null()),
            scale: scale.map(|scale| ScalePaths {
                spec: pointer(text(scale, "specReplicasPath")).into(),
                status: pointer(text(scale, "statusReplicasPath")).into(),
                selector: pointer(text(scale, "labelSelectorPath")).into(),
            }),
            ..Subresources::default()
        },
        stored_as: (group.clone().into(), plural.clone().into()),
        storage_version: stored.to_owned().into(),
        schema: graph::root(&shape),
        has_generation: true,
        strategic: false,
        selectable: selectable(version),
        ttl_s: 0,
        printer: Arc::new(columns::Columns::of(version)),
        rules: Arc::new(CustomRules {
            schema: shape,
            has_status: sub.get("status").is_some_and(|s| !s.is_null()),
            scale: scale.map(|scale| custom::Scale {
                spec: owned(scale, "specReplicasPath"),
                status: owned(scale, "statusReplicasPath"),
                selector: owned(scale, "labelSelectorPath"),
            }),
            deprecated: deprecation(crd, version),
        }),
        group: group.into(),
        plural: plural.into(),
    }
}

fn selectable(version: &Value) -> Vec<landfall_api::kind::Text> {
    schema::list(version, "selectableFields")
        .iter()
        .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned().into())
        .collect()
}

/// `.spec.replicas` as the JSON pointer `/spec/replicas`; empty stays empty.
fn pointer(path: &str) -> String {
    path.replace('~', "~0").replace('/', "~1").replace('.', "/")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}
