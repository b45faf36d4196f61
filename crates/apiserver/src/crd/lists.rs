//! What schemas say beyond single values: lists that are sets or maps, and whole objects inside objects.

use std::collections::HashMap;

use landfall_api::field::{ErrorList, Path};
use landfall_api::names;
use landfall_api::schema::{StructRef, Type};
use serde_json::{Map, Value};

use super::schema::Schema;

/// The shape of `metadata`.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Doubles in lists of type set and map, anywhere in the value.
pub fn doubles(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(child) = schema.additional_schema() {
                    doubles(child, value, &path.key(name), errors);
                }
                if let Some(child) = schema.properties.get(name) {
                    doubles(child, value, &path.child(name), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type.as_deref() {
                Some("set") => {
                    for at in repeated(items.iter().map(Value::to_string)) {
                        errors.duplicate(&path.index(at), items.get(at).cloned().unwrap_or_default());
                    }
                }
                Some("map") => map_doubles(schema, items, path, errors),
                _ => {}
            }
            if let Some(child) = schema.items.as_deref() {
                for (at, value) in items.iter().enumerate() {
                    doubles(child, value, &path.index(at), errors);
                }
            }
        }
        _ => {}
    }
}

fn map_doubles(schema: &Schema, items: &[Value], path: &Path<'_>, errors: &mut ErrorList) {
    if let Some((at, value)) = items.iter().enumerate().find(|(_, v)| !v.is_object() && !v.is_null()) {
        errors.invalid(&path.index(at), value.clone(), "must be an object for an array of list-type map");
        return;
    }
    let keys: Vec<Value> = items
        .iter()
        .map(|item| {
            let of = |key: &String| item.get(key).map(|value| (key.clone(), value.clone()));
            Value::Object(schema.list_keys.iter().filter_map(of).collect())
        })
        .collect();
    for at in repeated(keys.iter().map(Value::to_string)) {
        errors.duplicate(&path.index(at), keys.get(at).cloned().unwrap_or_default());
    }
}

/// The places where something appears for the second time.
fn repeated(values: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen = HashMap::<String, usize>::new();
    let mut found = Vec::new();
    for (at, value) in values.enumerate() {
        let times = seen.entry(value).or_default();
        *times += 1;
        if *times == 2 {
            found.push(at);
        }
    }
    found
}

/// Whole objects inside an object: apiVersion, kind and metadata must be right.
pub fn embedded(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                whole_object(map, path, errors);
            }
            for (name, value) in map {
                if let Some(child) = schema.properties.get(name) {
                    embedded(child, value, &path.child(name), errors);
                } else if let Some(child) = schema.additional_schema() {
                    embedded(child, value, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = schema.items.as_deref() {
                for (at, value) in items.iter().enumerate() {
                    embedded(child, value, &path.index(at), errors);
                }
            }
        }
        _ => {}
    }
}

fn whole_object(map: &Map<String, Value>, path: &Path<'_>, errors: &mut ErrorList) {
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        match map.get(name) {
            None => errors.required(&path, ""),
            Some(Value::String(text)) if text.is_empty() => errors.invalid(&path, "", "must not be empty"),
            Some(Value::String(text)) => type_name(name, text, &path, errors),
            Some(other) => errors.invalid(&path, other.clone(), "must be a string"),
        }
    }
    let Some(metadata) = map.get("metadata") else { return };
    let path = path.child("metadata");
    if !metadata.is_object() {
        let found = go_type(metadata);
        let detail = format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta");
        errors.invalid(&path, metadata.clone(), detail);
        return;
    }
    if let Some(name) = metadata.get("name").and_then(Value::as_str) {
        for wrong in names::path_segment(name, false) {
            errors.invalid(&path.child("name"), name, wrong);
        }
    }
}

fn type_name(name: &str, text: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name == "apiVersion" {
        if text.matches('/').count() > 1 {
            errors.invalid(path, text, format!("unexpected GroupVersion string: {text}"));
        }
        return;
    }
    let wrong = names::dns1035_label(&text.to_lowercase());
    if !wrong.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.invalid(path, text, detail);
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Drops unknown fields of `metadata` of objects inside an object, and adds their paths to `removed`.
pub fn coerce_embedded(schema: &Schema, value: &mut Value, path: &str, removed: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if schema.embedded && name == "metadata" {
                    known_only(value, &Type::Struct(StructRef::named(OBJECT_META)), &below, removed);
                    drop_null_time(value);
                }
                if let Some(child) = schema.child(name) {
                    coerce_embedded(child, value, &below, removed);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = schema.items.as_deref() {
                for (at, value) in items.iter_mut().enumerate() {
                    coerce_embedded(child, value, &format!("{path}[{at}]"), removed);
                }
            }
        }
        _ => {}
    }
}

fn drop_null_time(metadata: &mut Value) {
    if let Some(map) = metadata.as_object_mut()
        && map.get("creationTimestamp").is_some_and(Value::is_null)
    {
        map.remove("creationTimestamp");
    }
}

fn known_only(value: &mut Value, ty: &Type, path: &str, removed: &mut Vec<String>) {
    match (value, ty) {
        (Value::Object(map), Type::Struct(shape)) => {
            let shape = shape.get();
            map.retain(|name, value| match shape.field(name) {
                Some(field) => {
                    known_only(value, &field.ty, &format!("{path}.{name}"), removed);
                    true
                }
                None if shape.preserve_unknown => true,
                None => {
                    removed.push(format!("{path}.{name}"));
                    false
                }
            });
        }
        (Value::Array(items), Type::List(list)) => {
            for (at, value) in items.iter_mut().enumerate() {
                known_only(value, &list.item, &format!("{path}[{at}]"), removed);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, value: &Value, expected: &[&str]) {
        let mut errors = ErrorList::new();
        let schema = Schema::read(schema);
        doubles(&schema, value, &Path::ROOT, &mut errors);
        embedded(&schema, value, &Path::ROOT, &mut errors);
        let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn doubles_are_named_once_by_their_second_place() {
        let set = json!({"properties": {"s": {"type": "array", "x-kubernetes-list-type": "set"}}});
        check(&set, &json!({"s": ["a", "b", "a", "a"]}), &["s[2]: Duplicate value: \"a\""]);
        check(&set, &json!({"s": ["a", "b"]}), &[]);
        let map = json!({"properties": {"m": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"]}}});
        check(&map, &json!({"m": [{"k": 1}, {"k": 1, "x": 2}]}), &["m[1]: Duplicate value: {\"k\":1}"]);
        check(
            &map,
            &json!({"m": [{"k": 1}, 5]}),
            &["m[1]: Invalid value: 5: must be an object for an array of list-type map"],
        );
    }

    #[test]
    fn objects_inside_objects_need_a_type() {
        let schema = json!({"properties": {"t": {"type": "object", "x-kubernetes-embedded-resource": true}}});
        check(&schema, &json!({"t": {"apiVersion": "v1", "kind": "Pod"}}), &[]);
        check(
            &schema,
            &json!({"t": {"kind": ""}}),
            &["t.apiVersion: Required value", "t.kind: Invalid value: \"\": must not be empty"],
        );
    }
}
