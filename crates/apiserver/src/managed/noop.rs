//! Writes that change nothing but the time of their owners.

use serde_json::{Map, Value};

use super::entries;

/// Whether storing `new` over `old` would change nothing: times of managedFields and the resourceVersion aside.
pub fn is_noop(old: &Value, new: &Value) -> bool {
    let (Some(old_map), Some(new_map)) = (old.as_object(), new.as_object()) else { return old == new };
    same_fields(old_map, new_map, &["metadata"])
        && same_metadata(old.get("metadata"), new.get("metadata"))
        && same_entries(entries::raw(old), entries::raw(new))
}

/// Gives `new` the times of `old`, when the two differ in nothing else.
pub fn keep_times(old: &Value, new: &mut Value) {
    if is_noop(old, new)
        && let Some(list) = entries::raw(old).and_then(Value::as_array)
    {
        entries::put(new, list.clone());
    }
}

fn same_fields(a: &Map<String, Value>, b: &Map<String, Value>, except: &[&str]) -> bool {
    let count = |map: &Map<String, Value>| map.keys().filter(|key| !except.contains(&key.as_str())).count();
    count(a) == count(b)
        && a.iter().all(|(key, value)| except.contains(&key.as_str()) || b.get(key) == Some(value))
}

fn same_metadata(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a.and_then(Value::as_object), b.and_then(Value::as_object)) {
        (Some(a), Some(b)) => same_fields(a, b, &["managedFields", "resourceVersion"]),
        _ => a == b,
    }
}

fn same_entries(a: Option<&Value>, b: Option<&Value>) -> bool {
    let list = |side: Option<&'_ Value>| side.and_then(Value::as_array).cloned().unwrap_or_default();
    let (a, b) = (list(a), list(b));
    a.len() == b.len()
        && a.iter().zip(&b).all(|(a, b)| match (a.as_object(), b.as_object()) {
            (Some(a), Some(b)) => same_fields(a, b, &["time"]),
            _ => a == b,
        })
}
