//! What every object has: reading and writing `metadata` of a JSON object without copying it.

use serde_json::{Map, Value};

/// A string inside `metadata`, or `""`.
pub fn string<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or("")
}

/// `metadata.name`, or `""`.
pub fn name(object: &Value) -> &str {
    string(object, "name")
}

/// `metadata.namespace`, or `""`.
pub fn namespace(object: &Value) -> &str {
    string(object, "namespace")
}

/// `metadata.uid`, or `""`.
pub fn uid(object: &Value) -> &str {
    string(object, "uid")
}

/// `metadata.resourceVersion`, or `""`.
pub fn resource_version(object: &Value) -> &str {
    string(object, "resourceVersion")
}

/// `metadata.generation`, or 0.
pub fn generation(object: &Value) -> i64 {
    object.get("metadata").and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or(0)
}

/// One label's value.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// One annotation's value.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// The finalizers, in order.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let list = object.get("metadata").and_then(|m| m.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether deletion has begun.
pub fn deleting(object: &Value) -> bool {
    !string(object, "deletionTimestamp").is_empty()
}

/// `metadata` as a map, made if absent. Something that is not a map is replaced.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// The named child as a map, made if absent. Something that is not a map is replaced.
pub fn child_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let map = object.as_object_mut().expect("made an object above");
    let child = map.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    child.as_object_mut().expect("made an object above")
}
