//! `/scale`: one small object in place of many kinds' ways to say how many.

use landfall_api::field::{ErrorList, Path};
use landfall_api::selector::Selector;
use landfall_api::{Kind, Status, decode, meta, schema};
use serde_json::{Value, json};

use super::update::{Part, update};
use super::{By, Wanted, Written};
use crate::api::Api;
use crate::http::negotiate::{self, Content};
use crate::patch;

/// What a Scale looks like.
const SCHEMA: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The `Scale` of an object.
pub fn of(kind: &Kind, object: &Value) -> Result<Value, Status> {
    let Some(paths) = &kind.sub.scale else {
        return Err(Status::not_found(&kind.group, &kind.plural, meta::name(object)));
    };
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = serde_json::Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|m| m.get(field)) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let mut status = json!({"replicas": number(&paths.status)});
    if let Some(selector) = object.pointer(&paths.selector).filter(|_| !paths.selector.is_empty())
        && let Some(text) = selector_text(selector)
    {
        status["selector"] = json!(text);
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number(&paths.spec)}, "status": status,
    }))
}

/// A selector as text, whatever form the kind keeps it in.
fn selector_text(selector: &Value) -> Option<String> {
    if let Some(text) = selector.as_str() {
        return Some(text.to_owned());
    }
    let is_object = selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    if is_object {
        Selector::from_object(Some(selector)).ok().map(|s| s.to_string())
    } else {
        Some(Selector::from_map(Some(selector)).to_string())
    }
}

/// A Scale as sent or patched: of the right kind, with values of the right types.
pub fn checked(mut scale: Value) -> Result<Value, Status> {
    let text = |field: &str| scale.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if !version.is_empty() && version != "autoscaling/v1" {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version (autoscaling/v1)"
        )));
    }
    if !kind.is_empty() && kind != "Scale" {
        return Err(decode::refuse_object("Scale", "v1", &format!("the kind in the data is {kind}")));
    }
    match schema::normalize(schema::builtin(SCHEMA), &mut scale).error {
        Some(error) => Err(decode::refuse_object("Scale", "v1", &error)),
        None => Ok(scale),
    }
}

/// A patched Scale.
pub fn patched(content: Option<Content>, scale: &Value, bytes: &[u8]) -> Result<Value, Status> {
    match content {
        Some(Content::JsonPatch) => patch::json::apply(scale.clone(), bytes),
        Some(Content::MergePatch) => patch::merge::apply(scale.clone(), bytes),
        Some(Content::StrategicPatch) => {
            patch::strategic::apply(schema::builtin(SCHEMA), scale.clone(), bytes)
        }
        _ => Err(negotiate::unsupported(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ])),
    }
}

/// Changes the replicas. `change` turns the current Scale into the wanted one.
pub async fn change(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    name: &str,
    by: &By<'_>,
    mut change: impl FnMut(&Value) -> Result<Value, Status> + Send,
) -> Result<Written, Status> {
    update(api, kind, namespace, name, Part::Scale, by, |old| {
        let scale = checked(change(&of(kind, old)?)?)?;
        let mut object = old.clone();
        let version = meta::resource_version(&scale);
        if !version.is_empty() {
            meta::metadata_mut(&mut object).insert("resourceVersion".into(), json!(version));
        }
        let uid = meta::uid(&scale);
        if !uid.is_empty() {
            meta::metadata_mut(&mut object).insert("uid".into(), json!(uid));
        }
        set_replicas(kind, &mut object, &scale)?;
        Ok(Wanted::new(object, Vec::new()))
    })
    .await
}

fn set_replicas(kind: &Kind, object: &mut Value, scale: &Value) -> Result<(), Status> {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        errors.invalid(&path.child("replicas"), replicas, "must be greater than or equal to 0");
        return Err(Status::invalid("autoscaling", "Scale", meta::name(scale), &errors));
    }
    let Some(paths) = &kind.sub.scale else { return Ok(()) };
    set_at(object, &paths.spec, json!(replicas));
    Ok(())
}

/// Sets the value at a JSON pointer, making objects on the way.
fn set_at(object: &mut Value, pointer: &str, value: Value) {
    match pointer.trim_start_matches('/').split_once('/') {
        Some((step, rest)) => {
            let child = meta::child_mut(object, step);
            let mut inner = Value::Object(std::mem::take(child));
            set_at(&mut inner, rest, value);
            if let Value::Object(map) = inner {
                *meta::child_mut(object, step) = map;
            }
        }
        None => {
            if let Some(map) = object.as_object_mut() {
                map.insert(pointer.trim_start_matches('/').into(), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scales_are_taken() {
        let check = |scale: Value, expected: Option<Value>| {
            let found = checked(scale.clone());
            assert_eq!(
                found.as_ref().ok().and_then(|s| s.pointer("/spec/replicas")),
                expected.as_ref(),
                "{scale}"
            );
            if let Err(status) = found {
                assert_eq!(status.reason.code(), 400, "{scale}");
            }
        };
        check(
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": 3}}),
            Some(json!(3)),
        );
        check(json!({"spec": {"replicas": 3}}), Some(json!(3)));
        check(json!({"kind": "Deployment", "spec": {"replicas": 3}}), None);
        check(json!({"apiVersion": "apps/v1", "spec": {"replicas": 3}}), None);
        check(json!({"spec": {"replicas": "3"}}), None);
        check(json!({"spec": {"replicas": 4_294_967_296_i64}}), None);
        check(json!({"spec": {"replicas": 1.5}}), None);
        check(json!({"spec": [3]}), None);
        check(json!(3), None);
    }
}
