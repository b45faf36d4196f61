//! Ownership rule by rule: sequences of writes to a `Thing`, with what structured-merge-diff makes of them.
//!
//! `cases.json` holds the sequences and, after each step, the object and its owners, or the refusal.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::thing::thing;
use crate::managed::{Set, Writer, apply, entries, track_update};

const CASES: &str = include_str!("cases.json");

#[test]
fn owners_after_each_write() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    assert!(cases.len() > 80);
    let failures: Vec<String> = cases.iter().filter_map(check).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// The first difference.
pub(super) fn check(case: &Value) -> Option<String> {
    let schema = thing();
    let mut live: Option<Value> = None;
    for (at, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let mut object = step["object"].clone();
        object["apiVersion"] = json!("example.com/v1");
        object["kind"] = json!("Thing");
        let writer = Writer {
            manager: step["manager"].as_str().unwrap(),
            kind: "Thing",
            api_version: "example.com/v1",
            subresource: "",
            now: "2026-01-01T00:00:00Z",
            reset: &Set::EMPTY,
        };
        let outcome = match step["op"].as_str().unwrap() {
            "update" => {
                track_update(&schema, live.as_ref(), &mut object, &writer);
                Ok(object)
            }
            op => apply(&schema, live.as_ref(), &object, &writer, op == "force"),
        };
        let got = match outcome {
            Ok(object) => {
                let shown = show(object.clone());
                live = Some(object);
                shown
            }
            Err(status) => {
                let text = |value: &Value, key: &str| value[key].as_str().unwrap_or("").to_owned();
                let causes = status.to_value()["details"]["causes"].as_array().cloned().unwrap_or_default();
                let mut causes: Vec<String> =
                    causes.iter().map(|c| format!("{} {}", text(c, "message"), text(c, "field"))).collect();
                causes.sort();
                json!({"error": status.message, "causes": causes})
            }
        };
        let mut wanted = step["result"].clone();
        if let Some(map) = wanted.as_object_mut().filter(|map| map.contains_key("error")) {
            map.remove("code");
            map.entry("causes").or_insert_with(|| json!([]));
        }
        if got != wanted {
            let name = &case["name"];
            return Some(format!("{name} step {at}: {step}\n  wanted {wanted}\n  got    {got}"));
        }
    }
    None
}

/// The object without what the server adds, and its owners by operation and name.
fn show(mut object: Value) -> Value {
    let list = entries::take(&mut object).unwrap_or_default();
    let owners: BTreeMap<String, Value> = list
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap();
            (format!("{} {}", text("operation"), text("manager")), entry["fieldsV1"].clone())
        })
        .collect();
    let map = object.as_object_mut().unwrap();
    map.retain(|key, value| match key.as_str() {
        "apiVersion" | "kind" => false,
        "metadata" => !value.as_object().is_some_and(Map::is_empty),
        _ => true,
    });
    json!({"object": object, "owners": owners})
}
