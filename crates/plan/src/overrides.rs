//! Overrides: what differs from cluster to cluster, as JSON patches.
//!
//! ```json
//! [{"clusters": ["east"], "patch": [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "web:2"}]},
//!  {"selector": "region=eu", "patch": [{"op": "add", "path": "/metadata/labels/gdpr", "value": "yes"}]}]
//! ```
//! They apply in the order they are written. Either all that concern a cluster apply, or its shard is not touched and
//! the error says which operation of which override failed in which cluster.

use std::collections::BTreeMap;

use json_patch::{Patch, PatchOperation};
use landfall_api::selector::Selector;
use serde::Deserialize;
use serde_json::Value;

use crate::placement::NAME_LABEL;

/// The annotation that holds overrides as JSON.
pub const ANNOTATION: &str = "landfall.dev/overrides";

/// Most overrides in one annotation.
pub const OVERRIDES_MAX: usize = 256;
/// Most operations in one override.
pub const OPERATIONS_MAX: usize = 256;
/// Most values in a patched shard, so that copies of copies do not grow without end.
const VALUES_MAX: usize = 100_000;
/// How deep a patched shard may be.
const DEPTH_MAX: usize = 128;
/// What must stay as it is: an override does not make another object of a shard.
const IDENTITY: &[&str] = &["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

/// One override.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The clusters it is for by name; with `selector`, both must hold. Empty: any.
    pub clusters: Vec<String>,
    /// The clusters it is for by labels.
    pub selector: Selector,
    /// What it changes.
    pub patch: Patch,
}

/// What is wrong with overrides, or with one where it is applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// The annotation is not what it should be.
    #[error("{ANNOTATION}: {0}")]
    Unreadable(String),
    /// One of them is not what it should be.
    #[error("{ANNOTATION}: override {at}: {problem}")]
    Wrong {
        /// Which, counted from 0.
        at: usize,
        /// What is wrong.
        problem: String,
    },
    /// An operation does not apply.
    #[error("override {at}, operation {operation} ({path}) does not apply in cluster {cluster}: {problem}")]
    Failed {
        /// Which override, counted from 0.
        at: usize,
        /// Which operation, counted from 0.
        operation: usize,
        /// Its path.
        path: String,
        /// In which cluster.
        cluster: String,
        /// What is wrong.
        problem: String,
    },
}

/// What was typed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Typed {
    #[serde(default)]
    clusters: Vec<String>,
    selector: Option<String>,
    patch: Value,
}

/// Reads the overrides a federated object carries.
pub fn read(object: &Value) -> Result<Vec<Override>, OverrideError> {
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let Some(text) = annotations.and_then(|a| a.get(ANNOTATION)).and_then(Value::as_str) else {
        return Ok(Vec::new());
    };
    let typed: Vec<Typed> =
        serde_json::from_str(text).map_err(|error| OverrideError::Unreadable(error.to_string()))?;
    if typed.len() > OVERRIDES_MAX {
        return Err(OverrideError::Unreadable(format!("at most {OVERRIDES_MAX} overrides")));
    }
    typed.into_iter().enumerate().map(|(at, typed)| resolve(at, typed)).collect()
}

/// Applies those that concern a cluster to its shard; the shard given is not changed.
pub fn apply(
    shard: &Value,
    overrides: &[Override],
    cluster: &str,
    labels: &BTreeMap<String, String>,
) -> Result<Value, OverrideError> {
    let mut patched = shard.clone();
    for (at, rule) in overrides.iter().enumerate().filter(|(_, rule)| concerns(rule, cluster, labels)) {
        for (operation, step) in rule.patch.0.iter().enumerate() {
            let failed = |problem: String| OverrideError::Failed {
                at,
                operation,
                path: step.path().to_string(),
                cluster: cluster.to_owned(),
                problem,
            };
            run(&mut patched, step, shard).map_err(failed)?;
        }
    }
    Ok(patched)
}

/// Whether an override is for a cluster.
fn concerns(rule: &Override, cluster: &str, labels: &BTreeMap<String, String>) -> bool {
    let named = rule.clusters.is_empty() || rule.clusters.iter().any(|name| name == cluster);
    named
        && rule.selector.matches_with(|key| match labels.get(key) {
            None if key == NAME_LABEL => Some(cluster),
            found => found.map(String::as_str),
        })
}

fn resolve(at: usize, typed: Typed) -> Result<Override, OverrideError> {
    let wrong = |problem: String| OverrideError::Wrong { at, problem };
    let selector = typed.selector.as_deref().map_or(Ok(Selector::everything()), Selector::parse);
    let selector = selector.map_err(|problem| wrong(format!("selector: {problem}")))?;
    let list = typed.patch.as_array().ok_or_else(|| wrong("patch: must be a list of operations".into()))?;
    if list.len() > OPERATIONS_MAX {
        return Err(wrong(format!("patch: at most {OPERATIONS_MAX} operations")));
    }
    let mut operations = Vec::with_capacity(list.len());
    for (at, operation) in list.iter().enumerate() {
        let read = PatchOperation::deserialize(operation);
        operations.push(read.map_err(|error| wrong(format!("patch[{at}]: {error}")))?);
    }
    Ok(Override { clusters: typed.clusters, selector, patch: Patch(operations) })
}

/// One operation, and the checks that keep its result within bounds and the same object.
fn run(patched: &mut Value, step: &PatchOperation, shard: &Value) -> Result<(), String> {
    if step.path().tokens().count() > DEPTH_MAX {
        return Err(format!("more than {DEPTH_MAX} levels deep"));
    }
    json_patch::patch(patched, std::slice::from_ref(step)).map_err(|error| error.kind.to_string())?;
    let mut values = VALUES_MAX;
    if !fits(patched, DEPTH_MAX, &mut values) {
        return Err(format!("the result has more than {VALUES_MAX} values or {DEPTH_MAX} levels"));
    }
    match IDENTITY.iter().find(|path| patched.pointer(path) != shard.pointer(path)) {
        Some(path) => Err(format!("{path} cannot be overridden")),
        None => Ok(()),
    }
}

/// Whether a value is within bounds; never looks deeper than these.
fn fits(value: &Value, depth: usize, values: &mut usize) -> bool {
    let Some(left) = values.checked_sub(1) else { return false };
    *values = left;
    match value {
        Value::Array(list) => depth > 0 && list.iter().all(|item| fits(item, depth - 1, values)),
        Value::Object(map) => depth > 0 && map.values().all(|item| fits(item, depth - 1, values)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shard() -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "namespace": "d" },
            "data": { "a": "1" },
        })
    }

    /// What becomes of the data in cluster `east` (region=us), or the error.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let object = json!({ "metadata": { "annotations": { ANNOTATION: text } } });
        let labels = BTreeMap::from([("region".to_owned(), "us".to_owned())]);
        let done = read(&object).and_then(|overrides| apply(&shard(), &overrides, "east", &labels));
        let shown = done.map_or_else(|error| error.to_string(), |value| value["data"].to_string());
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn overrides_apply_where_they_are_meant() {
        check("[]", r#"{"a":"1"}"#);
        let replace = r#""patch":[{"op":"replace","path":"/data/a","value":"2"}]"#;
        check(&format!("[{{{replace}}}]"), r#"{"a":"2"}"#);
        check(&format!(r#"[{{"clusters":["east","west"],{replace}}}]"#), r#"{"a":"2"}"#);
        check(&format!(r#"[{{"clusters":["west"],{replace}}}]"#), r#"{"a":"1"}"#);
        check(&format!(r#"[{{"selector":"region in (us)",{replace}}}]"#), r#"{"a":"2"}"#);
        check(&format!(r#"[{{"clusters":["east"],"selector":"region=eu",{replace}}}]"#), r#"{"a":"1"}"#);
        check(
            r#"[{"patch":[{"op":"add","path":"/data/b","value":"3"},{"op":"remove","path":"/data/a"}]}]"#,
            r#"{"b":"3"}"#,
        );
    }

    #[test]
    fn errors_say_which_and_where() {
        check("nonsense", "landfall.dev/overrides: expected ident at line 1 column 2");
        check(r#"[{"patch":{}}]"#, "landfall.dev/overrides: override 0: patch: must be a list of operations");
        check(
            r#"[{"selector":"a b","patch":[]}]"#,
            "landfall.dev/overrides: override 0: selector: unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        );
        check(
            r#"[{"patch":[]},{"patch":[{"op":"test","path":"/data/a","value":"1"},{"op":"remove","path":"/data/b"}]}]"#,
            "override 1, operation 1 (/data/b) does not apply in cluster east: path is invalid",
        );
        check(
            r#"[{"patch":[{"op":"replace","path":"/metadata/name","value":"y"}]}]"#,
            "override 0, operation 0 (/metadata/name) does not apply in cluster east: /metadata/name cannot be overridden",
        );
        check(
            r#"[{"patch":[{"op":"replace","path":"","value":null}]}]"#,
            "override 0, operation 0 () does not apply in cluster east: /apiVersion cannot be overridden",
        );
    }

    #[test]
    fn copies_of_copies_end() {
        let copy = r#"{"op":"copy","from":"/data","path":"/data/x"}"#;
        let many = vec![copy; OPERATIONS_MAX].join(",");
        let object =
            json!({ "metadata": { "annotations": { ANNOTATION: format!(r#"[{{"patch":[{many}]}}]"#) } } });
        let error = apply(&shard(), &read(&object).unwrap(), "east", &BTreeMap::new()).unwrap_err();
        assert!(
            error.to_string().ends_with("the result has more than 100000 values or 128 levels"),
            "{error}"
        );
    }
}
