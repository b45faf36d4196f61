//! Replays sequences of writes whose outcome was recorded from kube-apiserver 1.36.4.
//!
//! Each step starts from the object the real server had; what is checked is what this crate decides: the patched
//! object, its owners, the refusals. Defaulting and validation are not ours, so built-in objects are checked for
//! what our result says, not for what the server filled in. In the recording, times are numbers of steps.

use landfall_api::schema::{self, Identity, Struct, StructRef, Type};
use landfall_api::status::Status;
use serde_json::{Value, json};

use super::thing::{field, free, keys, list, map, nested, object};
use crate::managed::{Writer, apply, entries, keep_times, reset_fields, track_update};
use crate::patch;

const RECORDED: &str = include_str!("recorded.json");

#[test]
fn sequences_end_as_on_a_real_server() {
    let sequences: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    assert!(sequences.len() > 30);
    let failures: Vec<String> = sequences.iter().flat_map(check).collect();
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}

fn check(sequence: &Value) -> Vec<String> {
    let kind = sequence["resource"]["kind"].as_str().unwrap();
    let schema = schema_of(kind, &sequence["resource"]);
    let mut failures = Vec::new();
    let mut live: Option<Value> = None;
    for (at, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
        let wanted = &step["result"];
        // Controllers of the real server write too.
        if let Some(found) = step.get("live") {
            live = Some(found.clone());
        }
        let outcome = run(schema.get(), kind, &sequence["resource"], live.as_ref(), step, at);
        let refused = step["code"].as_u64().unwrap() >= 400;
        // Objects that do not pass validation are refused after us.
        let validation = refused && !wanted["details"]["kind"].is_null();
        let difference = match (outcome, refused) {
            (_, true) if validation => None,
            (Ok(_), true) => Some(format!("should be refused: {}", wanted["message"])),
            (Err(status), true) => different_refusal(&status, wanted),
            (Err(status), false) => Some(format!("should not be refused: {}", status.message)),
            (Ok(object), false) => different_object(&object, wanted),
        };
        if let Some(difference) = difference {
            failures.push(format!("{} step {at} {}: {difference}", sequence["name"], step["verb"]));
        }
        if !refused {
            live = Some(wanted.clone());
        }
    }
    failures
}

fn run(
    schema: &Struct,
    kind: &str,
    resource: &Value,
    live: Option<&Value>,
    step: &Value,
    at: usize,
) -> Result<Value, Status> {
    let text = |key: &str| step[key].as_str().unwrap_or("");
    let status = !matches!(kind, "ConfigMap");
    let now = format!("2026-01-01T00:00:{at:02}Z");
    let writer = Writer {
        manager: text("manager"),
        kind,
        api_version: step["version"].as_str().unwrap_or_else(|| resource["version"].as_str().unwrap()),
        subresource: text("subresource"),
        now: &now,
        reset: reset_fields(kind, text("subresource"), kind == "Widget", status),
    };
    let body = &step["body"];
    let bytes = body.to_string();
    let versioned = live.cloned().map(|mut object| {
        object["apiVersion"] = json!(writer.api_version);
        object
    });
    let live = versioned.as_ref();
    let document = || live.cloned().unwrap();
    let patched = match text("verb") {
        "apply" => {
            let force = step["force"].as_bool().unwrap();
            let mut object = apply(schema, live, body, &writer, force)?;
            live.inspect(|live| keep_times(live, &mut object));
            return Ok(object);
        }
        "json" => Some(patch::json::apply(document(), bytes.as_bytes())?),
        "merge" => Some(patch::merge::apply(document(), bytes.as_bytes())?),
        "strategic" => Some(patch::strategic::apply(schema, document(), bytes.as_bytes())?),
        _ => None,
    };
    // What the server stored, with the managedFields that the client sent.
    let mut new = step["result"].clone();
    entries::take(&mut new);
    if let Some(mut patched) = patched.clone() {
        entries::take(&mut patched);
        if text("subresource").is_empty() {
            assert_eq!(missing(&patched, &new, ""), None, "{step}");
        }
    }
    if let Some(sent) = entries::raw(patched.as_ref().unwrap_or(body)) {
        entries::put(&mut new, sent.as_array().unwrap().clone());
    }
    if live.is_none() {
        // Given after ownership is decided.
        for key in ["ipFamilies", "ipFamilyPolicy", "finalizers"] {
            new.get_mut("spec").and_then(Value::as_object_mut).map(|spec| spec.remove(key));
        }
        new["metadata"].as_object_mut().unwrap().remove("uid");
    }
    track_update(schema, live, &mut new, &writer);
    live.inspect(|live| keep_times(live, &mut new));
    Ok(new)
}

fn different_refusal(status: &Status, wanted: &Value) -> Option<String> {
    let mut causes = wanted["details"]["causes"].as_array().cloned().unwrap_or_default();
    let mut got = status.to_value()["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.sort_by_key(ToString::to_string);
    got.sort_by_key(ToString::to_string);
    let same = json!(status.message) == wanted["message"]
        && json!(status.reason.code()) == wanted["code"]
        && status.to_value()["reason"] == wanted["reason"]
        && causes == got;
    (!same).then(|| format!("wanted {wanted}\n  got    {}", status.to_value()))
}

fn different_object(object: &Value, wanted: &Value) -> Option<String> {
    let owners = |object: &Value| object["metadata"].get("managedFields").cloned().unwrap_or_default();
    if owners(object) != owners(wanted) {
        return Some(format!("owners\n  wanted {}\n  got    {}", owners(wanted), owners(object)));
    }
    missing(object, wanted, "").map(|path| format!("{path}\n  wanted {wanted}\n  got    {object}"))
}

/// The first path of `object` that `wanted` does not have.
fn missing(object: &Value, wanted: &Value, path: &str) -> Option<String> {
    match (object, wanted) {
        (Value::Object(map), Value::Object(other)) => map.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match other.get(key) {
                _ if matches!(
                    key.as_str(),
                    "managedFields" | "apiVersion" | "status" | "sessionAffinityConfig"
                ) =>
                {
                    None
                }
                Some(wanted) => missing(value, wanted, &path),
                None if value.is_null() || *value == json!({}) => None,
                None => Some(path),
            }
        }),
        // Protobuf storage has no empty lists.
        (Value::Array(items), Value::Null) if items.is_empty() => None,
        (Value::Array(items), Value::Array(other)) if items.len() == other.len() => items
            .iter()
            .zip(other)
            .enumerate()
            .find_map(|(at, (item, wanted))| missing(item, wanted, &format!("{path}[{at}]"))),
        _ => (object != wanted).then(|| path.to_owned()),
    }
}

fn schema_of(kind: &str, resource: &Value) -> StructRef {
    let found = match kind {
        "Widget" => return StructRef::owned(widget()),
        _ => {
            let version = resource["version"].as_str().unwrap();
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            schema::of_kind(group, version, kind)
        }
    };
    found.unwrap()
}

/// The schema of the CRD that the recording used.
fn widget() -> Struct {
    let port = nested(vec![
        field("port", Type::Int64),
        field("protocol", Type::String),
        field("name", Type::String),
    ]);
    let item = nested(vec![field("id", Type::String), field("value", Type::Int64)]);
    let deep = nested(vec![field("a", Type::Int64), field("b", Type::String), field("c", Type::IntOrString)]);
    let spec = nested(vec![
        field("name", Type::String),
        field("size", Type::Int64),
        field("items", list(Type::String, Identity::Set)),
        field("ports", list(port, keys(&[("port", None), ("protocol", Some(json!("TCP")))]))),
        field("labels", map(Type::String, false)),
        field("whole", map(Type::String, true)),
        field("nested", nested(vec![field("list", list(item, keys(&[("id", None)]))), field("deep", deep)])),
        field("free", free()),
    ]);
    object(vec![
        field("apiVersion", Type::String),
        field("kind", Type::String),
        field("metadata", Type::Struct(StructRef::named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"))),
        field("spec", spec),
        field("status", nested(vec![field("phase", Type::String)])),
    ])
}
