//! Looking at fields in place. Absent, null and of the wrong type read as empty: types were checked before.

use serde_json::{Map, Value};

use crate::field::{ErrorList, ErrorType, Path};
use crate::names::Sentences;

/// A field that is there and not null.
pub fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|v| !v.is_null())
}

/// A text, or `""`.
pub fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or("")
}

/// A whole number, or 0.
pub fn int(object: &Value, name: &str) -> i64 {
    object.get(name).and_then(Value::as_i64).unwrap_or(0)
}

/// A yes or no, or no.
pub fn flag(object: &Value, name: &str) -> bool {
    object.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// A list, or an empty one.
pub fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The entries of a map, or none.
pub fn entries<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    object.get(name).and_then(Value::as_object).into_iter().flatten()
}

/// A sub-object to read from, or null.
pub fn child<'a>(object: &'a Value, name: &str) -> &'a Value {
    object.get(name).unwrap_or(&Value::Null)
}

/// The `spec`, or null.
pub fn spec(object: &Value) -> &Value {
    child(object, "spec")
}

/// A field to change, if it is a map.
pub fn map_mut<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(name).and_then(Value::as_object_mut)
}

/// The items of a list to change, those that are maps.
pub fn items_mut<'a>(
    map: &'a mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> + use<'a> {
    map.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Sets a field that is absent, null or an empty text.
pub fn default_to(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    if map.get(name).is_none_or(|v| v.is_null() || v.as_str() == Some("")) {
        map.insert(name.into(), value.into());
    }
}

/// Sets a field that is absent or null; an empty text is a value of its own where Kubernetes has a pointer.
pub fn default_absent(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    if map.get(name).is_none_or(Value::is_null) {
        map.insert(name.into(), value.into());
    }
}

/// Whether a value says nothing: null, false, 0, `""`, `[]` or `{}`.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

/// Whether two values mean the same: what says nothing equals what is absent.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a.filter(|v| !is_empty(v)), b.filter(|v| !is_empty(v))) {
        (None, None) => true,
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.iter().all(|(k, v)| same(Some(v), b.get(k)))
                && b.iter().all(|(k, v)| a.contains_key(k) || is_empty(v))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || same(Some(a), Some(b)))
        }
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// `field is immutable` when a field changed.
pub fn immutable(new: &Value, old: &Value, name: &str, errors: &mut ErrorList) {
    if !same(new.get(name), old.get(name)) {
        errors.invalid(&Path::new(name), child(new, name).clone(), "field is immutable");
    }
}

/// One `Invalid value` for each sentence.
pub fn sentences(wrong: Sentences, value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    for sentence in wrong {
        errors.invalid(path, value, sentence);
    }
}

/// `Invalid value`, showing JSON whose fields stand in an order of their own, as Go writes its structs.
pub fn invalid_shown(errors: &mut ErrorList, path: &Path<'_>, shown: &str, detail: &str) {
    errors.add(ErrorType::Invalid, path, None, format!("{shown}: {detail}"));
}

/// `Unsupported value`, with the supported ones in the order given.
pub fn unsupported(errors: &mut ErrorList, path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) {
    let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
    let detail = format!("supported values: {}", quoted.join(", "));
    errors.add(ErrorType::NotSupported, path, Some(value.into()), detail);
}
