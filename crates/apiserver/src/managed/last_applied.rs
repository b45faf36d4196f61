//! The annotation of `kubectl apply` without `--server-side`: moving from it to server-side apply.

use landfall_api::meta;
use landfall_api::schema::Struct;
use serde_json::Value;

use super::compare::{Made, compare};
use super::conflict::Conflict;
use super::set::Set;
use super::walk::{field_set, validate};

/// The annotation's name.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// All annotations together may have this many bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The conflicts that remain when those are allowed whose fields still are what kubectl last applied.
pub(super) fn unresolved(
    schema: &Struct,
    live: &Value,
    conflicts: Vec<Conflict>,
    version: &str,
) -> Vec<Conflict> {
    let Some(allowed) = allowed(schema, live, version) else { return conflicts };
    let left = conflicts.into_iter().map(|c| Conflict { set: c.set.difference(&allowed), owner: c.owner });
    left.filter(|conflict| !conflict.set.is_empty()).collect()
}

fn allowed(schema: &Struct, live: &Value, version: &str) -> Option<Set> {
    let text = meta::annotation(live, LAST_APPLIED).filter(|text| !text.is_empty())?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(version) || validate(schema, &last).is_err() {
        return None;
    }
    let delta = compare(schema, Some(&last), live, Made::Merged);
    let same = field_set(schema, &last).difference(&delta.modified).difference(&delta.added);
    Some(same.difference(&delta.removed))
}

/// Writes what was applied into the annotation, if the object has it; too long a text removes it.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if meta::annotation(object, LAST_APPLIED).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    if let Some(Value::Object(map)) = applied.pointer_mut("/metadata/annotations") {
        map.remove(LAST_APPLIED);
    }
    let mut text = encode(&applied);
    text.push('\n');
    if let Some(Value::Object(map)) = object.pointer_mut("/metadata/annotations") {
        map.insert(LAST_APPLIED.into(), text.into());
        let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
        if map.iter().map(size).sum::<usize>() > ANNOTATIONS_BYTES_MAX {
            map.remove(LAST_APPLIED);
        }
    }
}

/// JSON with the characters escaped that Go escapes for the sake of HTML.
fn encode(value: &Value) -> String {
    let plain = value.to_string();
    let mut text = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            _ => text.push(c),
        }
    }
    text
}
