//! Workloads: what is filled in, refused and warned of, against what a real kube-apiserver 1.36 answered.
//!
//! `data/workloads`: our manifests, each with the object or the message Kubernetes gave for a create; `changes.json`: an
//! object, a change of it (a merge patch), and the message. Kubernetes walks maps in any order: rows marked `unordered`
//! are compared without regard to it.

use std::fs;
use std::path::Path;

use landfall_api::kind::Kind;
use landfall_api::rules::workloads::hpa_convert;
use landfall_api::schema;
use landfall_api::{Status, kinds, objectmeta};
use serde_json::{Value, json};

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn rows(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/workloads").join(file);
    serde_json::from_slice(&fs::read(path).expect("data is there")).expect("JSON")
}

fn kind_of<'a>(kinds: &'a [Kind], object: &Value) -> &'a Kind {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let is = |k: &&Kind| k.group == group && k.version == version && object["kind"] == *k.kind;
    kinds.iter().find(is).expect("the kind is served")
}

/// Drops what the server sets by itself.
fn strip(object: &mut Value) {
    for field in ["uid", "namespace"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
}

/// What a server does with a create: the object, or why not; and the warnings.
fn create(kind: &Kind, manifest: &Value) -> (Result<Value, String>, Vec<String>) {
    let mut object = manifest.clone();
    let report = schema::normalize(kind.schema.get(), &mut object);
    assert!(report.is_clean(), "{report:?}");
    object["metadata"]["namespace"] = json!("default");
    object["metadata"]["uid"] = json!(UID);
    kind.rules.default(&mut object);
    object.as_object_mut().unwrap().remove("status");
    kind.rules.prepare_create(&mut object);
    let mut errors = objectmeta::validate_create(kind, &object);
    errors.extend(kind.rules.validate(&object));
    if !errors.is_empty() {
        let name = object["metadata"]["name"].as_str().unwrap();
        return (Err(Status::invalid(&kind.group, &kind.kind, name, &errors).message), Vec::new());
    }
    let warnings = kind.rules.warnings(&object);
    schema::complete(kind.schema.get(), &mut object);
    (Ok(object), warnings)
}

/// A message cut into its errors, in order of the alphabet.
fn sorted(message: &str) -> Vec<&str> {
    let mut parts: Vec<&str> =
        message.split(", spec.").map(|part| part.trim_start_matches("spec.").trim_end_matches(']')).collect();
    if let Some(first) = parts.first_mut() {
        *first = first.split_once("invalid: ").map_or(*first, |(_, rest)| rest.trim_start_matches(['[']));
        *first = first.trim_start_matches("spec.");
    }
    parts.sort_unstable();
    parts
}

fn check(file: &str) {
    let kinds = kinds::member();
    let mut wrong = Vec::new();
    for row in rows(file) {
        let (manifest, expect) = (&row["manifest"], &row["expect"]);
        let kind = kind_of(&kinds, manifest);
        let (got, warnings) = create(kind, manifest);
        let same = match (&got, expect.get("message").and_then(Value::as_str)) {
            (Err(got), Some(want)) if row["unordered"] == true => sorted(got) == sorted(want),
            (Err(got), Some(want)) => got == want,
            (Ok(got), None) => {
                let mut got = got.clone();
                strip(&mut got);
                got == expect["object"]
                    && Value::from(warnings) == *expect.get("warnings").unwrap_or(&json!([]))
            }
            _ => false,
        };
        if !same {
            let got = got.map_or_else(|e| e, |object| object.to_string());
            wrong.push(format!("{}\n  got  {got}\n  want {expect}", row["name"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {file}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn deployments() {
    check("deployment.json");
}

#[test]
fn containers() {
    check("containers.json");
}

#[test]
fn volumes() {
    check("volumes.json");
}

#[test]
fn scheduling() {
    check("scheduling.json");
}

#[test]
fn sets_and_controllers() {
    check("sets.json");
}

#[test]
fn jobs_and_cronjobs() {
    check("jobs.json");
}

#[test]
fn autoscalers_and_budgets() {
    check("others.json");
}

#[test]
fn pods() {
    check("pods.json");
}

#[test]
fn warnings() {
    check("warnings.json");
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// What a server does with an update.
fn update(kind: &Kind, old: &Value, patch: &Value) -> Result<Value, String> {
    let mut object = old.clone();
    merge(&mut object, patch);
    schema::normalize(kind.schema.get(), &mut object);
    kind.rules.default(&mut object);
    kind.rules.prepare_update(&mut object, old);
    let mut errors = kind.rules.validate(&object);
    errors.extend(kind.rules.validate_update(&object, old));
    if !errors.is_empty() {
        let name = object["metadata"]["name"].as_str().unwrap();
        return Err(Status::invalid(&kind.group, &kind.kind, name, &errors).message);
    }
    schema::complete(kind.schema.get(), &mut object);
    Ok(object)
}

#[test]
fn changes() {
    let kinds = kinds::member();
    for row in rows("changes.json") {
        let kind = kind_of(&kinds, &row["old"]);
        let got = match update(kind, &row["old"], &row["patch"]) {
            Ok(object) => json!({ "object": object }),
            Err(message) => json!({ "message": message }),
        };
        assert_eq!(got, row["expect"], "{}", row["name"]);
    }
}

#[test]
fn autoscalers_convert_between_versions() {
    let kinds = kinds::member();
    for row in rows("conversions.json") {
        let (v1, v2) = (&row["v1"], &row["v2"]);
        let complete = |mut object: Value| {
            schema::complete(kind_of(&kinds, &object).schema.get(), &mut object);
            object
        };
        assert_eq!(&complete(hpa_convert::to_v1(v2)), v1);
        assert_eq!(&complete(hpa_convert::to_v2(v1)), v2);
    }
}
