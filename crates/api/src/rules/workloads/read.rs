//! Reading objects in place: a field that is absent, `null` or of another type reads as its zero value, as in Go.

use serde_json::{Map, Value};

use crate::field::{ErrorList, ErrorType, Path};
pub(super) use crate::rules::read::{
    child as at, field as some, flag, int, is_empty as is_zero, list as items, text, unsupported,
};

static NULL: Value = Value::Null;

/// Whether the field is there.
pub(super) fn has(value: &Value, field: &str) -> bool {
    some(value, field).is_some()
}

/// The number, if there is one.
pub(super) fn opt_int(value: &Value, field: &str) -> Option<i64> {
    at(value, field).as_i64()
}

/// The flag, if there is one.
pub(super) fn opt_flag(value: &Value, field: &str) -> Option<bool> {
    at(value, field).as_bool()
}

/// The texts in a list.
pub(super) fn texts<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    items(value, field).iter().map(|v| v.as_str().unwrap_or(""))
}

/// The entries of a map, sorted by key.
pub(super) fn entries<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    at(value, field).as_object().into_iter().flatten().map(|(k, v)| (k.as_str(), v))
}

/// Whether two values mean the same: absent, `null` and empty maps and lists are equal, at any depth.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            x.iter().all(|(k, v)| same(v, y.get(k).unwrap_or(&NULL)))
                && y.iter().all(|(k, v)| x.contains_key(k) || same(&NULL, v))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(a, b)| same(a, b)),
        (Value::Null, Value::Object(o)) | (Value::Object(o), Value::Null) => {
            o.values().all(|v| same(&NULL, v))
        }
        (Value::Null, Value::Array(l)) | (Value::Array(l), Value::Null) => l.is_empty(),
        _ => a == b,
    }
}

// === writing defaults ===

/// Sets a field that is absent or `null`.
pub(super) fn fill(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    match map.get_mut(field) {
        Some(Value::Null) => *map.entry(field).or_insert(Value::Null) = value.into(),
        Some(_) => {}
        None => {
            map.insert(field.to_owned(), value.into());
        }
    }
}

/// Sets a text that is absent or empty.
pub(super) fn fill_text(map: &mut Map<String, Value>, field: &str, value: &str) {
    if map.get(field).is_none_or(|v| v.is_null() || v.as_str() == Some("")) {
        map.insert(field.to_owned(), Value::String(value.to_owned()));
    }
}

/// Sets a number that is absent or 0.
pub(super) fn fill_int(map: &mut Map<String, Value>, field: &str, value: i64) {
    if map.get(field).is_none_or(|v| v.is_null() || v.as_i64() == Some(0)) {
        map.insert(field.to_owned(), Value::from(value));
    }
}

/// The child as a map, if it is one.
pub(super) fn child<'a>(map: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(field).and_then(Value::as_object_mut)
}

/// The child as a map, made if absent; `None` when it is something else.
pub(super) fn child_or_new<'a>(
    map: &'a mut Map<String, Value>,
    field: &str,
) -> Option<&'a mut Map<String, Value>> {
    fill(map, field, Value::Object(Map::new()));
    child(map, field)
}

/// The maps in a list.
pub(super) fn maps<'a>(
    map: &'a mut Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let list = map.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// `spec` of an object as a map, made if absent.
pub(super) fn spec(object: &mut Value) -> Option<&mut Map<String, Value>> {
    child_or_new(object.as_object_mut()?, "spec")
}

// === errors whose value is not shown as plain JSON ===

/// The value is shown as this text, unquoted.
pub(super) fn shown(class: ErrorType, errors: &mut ErrorList, path: &Path<'_>, value: &str, detail: &str) {
    errors.add(class, path, None, format!("{value}: {detail}"));
}

/// `supported values: "a", "b"`.
pub(super) fn supported_list(supported: &[&str]) -> String {
    let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
    format!("supported values: {}", quoted.join(", "))
}

/// `field: Too many: N: must have at most M items`.
pub(super) fn too_many(errors: &mut ErrorList, path: &Path<'_>, count: usize, most: usize) {
    errors.add(ErrorType::TooMany, path, None, format!("{count}: must have at most {most} items"));
}

/// `must be greater than or equal to 0`.
pub(super) fn nonnegative(errors: &mut ErrorList, path: &Path<'_>, value: i64) {
    if value < 0 {
        errors.invalid(path, value, "must be greater than or equal to 0");
    }
}

/// The same, for a field that may be absent.
pub(super) fn nonnegative_field(errors: &mut ErrorList, path: &Path<'_>, of: &Value, field: &str) {
    nonnegative(errors, &path.child(field), int(of, field));
}

/// A text out of a closed set that must be there.
pub(super) fn one_of(errors: &mut ErrorList, path: &Path<'_>, value: &str, allowed: &[&str]) {
    if value.is_empty() {
        errors.required(path, "");
    } else if !allowed.contains(&value) {
        unsupported(errors, path, value, allowed);
    }
}

/// A selector as Go prints it: matchLabels first; items as key, operator, values.
pub(super) fn selector_json(selector: &Value) -> String {
    if selector.is_null() {
        return "null".into();
    }
    let mut parts = Vec::new();
    let labels = at(selector, "matchLabels");
    if !is_zero(labels) {
        parts.push(format!("\"matchLabels\":{labels}"));
    }
    let expressions: Vec<String> = items(selector, "matchExpressions").iter().map(expression_json).collect();
    if !expressions.is_empty() {
        parts.push(format!("\"matchExpressions\":[{}]", expressions.join(",")));
    }
    format!("{{{}}}", parts.join(","))
}

fn expression_json(item: &Value) -> String {
    let (key, operator) = (Value::from(text(item, "key")), Value::from(text(item, "operator")));
    let mut out = format!("{{\"key\":{key},\"operator\":{operator}");
    if !items(item, "values").is_empty() {
        out.push_str(&format!(",\"values\":{}", at(item, "values")));
    }
    out.push('}');
    out
}
