//! Looking at fields of objects, and times.

use landfall_api::meta;
use serde_json::{Value, json};

/// Milliseconds since 1970.
pub type Millis = i64;

/// A number at a JSON pointer, or 0.
pub fn int(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// How many, at a JSON pointer, or 0. Kubernetes counts in 32 bits: sums and differences of counts are safe.
pub fn count(object: &Value, pointer: &str) -> i64 {
    counted(int(object, pointer))
}

/// A number as a count.
pub fn counted(number: i64) -> i64 {
    number.clamp(i32::MIN.into(), i32::MAX.into())
}

/// A text at a JSON pointer, or "".
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// Whether the boolean at a JSON pointer is true.
pub fn is_true(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// A list at a JSON pointer, or none of it.
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `spec.replicas`, 1 when it is not said.
pub fn replicas(object: &Value) -> i64 {
    counted(object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1))
}

/// When an object was made.
pub fn created(object: &Value) -> Millis {
    parse_time(meta::string(object, "creationTimestamp")).unwrap_or(0)
}

/// Reads RFC 3339.
pub fn parse_time(text: &str) -> Option<Millis> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

/// A time as objects carry it: whole seconds.
pub fn time_text(at: Millis) -> String {
    jiff::Timestamp::from_second(at.div_euclid(1000)).map(|t| t.to_string()).unwrap_or_default()
}

/// A time with microseconds, as leases and new events carry it.
pub fn time_micro(at: Millis) -> String {
    jiff::Timestamp::from_millisecond(at).map(|t| format!("{t:.6}")).unwrap_or_default()
}

/// The condition of a type.
pub fn condition<'a>(object: &'a Value, ty: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|c| text(c, "/type") == ty)
}

/// Whether the condition of a type is `True`.
pub fn condition_true(object: &Value, ty: &str) -> bool {
    condition(object, ty).is_some_and(|c| text(c, "/status") == "True")
}

/// A number or a percentage of `total`.
pub fn scaled(value: Option<&Value>, total: i64, up: bool) -> i64 {
    counted(match value {
        Some(Value::Number(number)) => number.as_i64().unwrap_or(0),
        Some(Value::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent.saturating_mul(total);
            if up { product.saturating_add(99).div_euclid(100) } else { product.div_euclid(100) }
        }
        _ => 0,
    })
}

/// An owner reference that makes `owner` the controller.
pub fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta::name(owner),
        "uid": meta::uid(owner), "controller": true, "blockOwnerDeletion": true,
    })
}

/// Removes numbers that are 0 and lists that are empty, which Kubernetes leaves out of a status.
pub fn omit_empty(status: &mut Value, always: &[&str]) {
    let Some(map) = status.as_object_mut() else { return };
    map.retain(|key, value| {
        let empty = match value {
            Value::Null => true,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::String(text) => text.is_empty(),
            Value::Bool(_) => false,
        };
        !empty || always.contains(&key.as_str())
    });
}

/// Sets a value at keys, making maps on the way: what stands there and is no map is replaced.
pub fn set(object: &mut Value, keys: &[&str], value: Value) {
    match keys {
        [] => *object = value,
        [key, rest @ ..] => {
            if !object.is_object() {
                *object = json!({});
            }
            set(&mut object[*key], rest, value);
        }
    }
}

/// A JSON pointer's segment for a key.
pub fn segment(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_as_asked() {
        for (value, total, up, expected) in [
            (json!(3), 10, true, 3),
            (json!("25%"), 10, true, 3),
            (json!("25%"), 10, false, 2),
            (json!("100%"), 3, false, 3),
            (json!("0%"), 3, true, 0),
            (json!("rubbish"), 3, true, 0),
        ] {
            assert_eq!(scaled(Some(&value), total, up), expected, "{value} of {total}");
        }
    }

    #[test]
    fn times_survive_a_round_trip() {
        assert_eq!(time_text(1_700_000_000_999), "2023-11-14T22:13:20Z");
        assert_eq!(time_micro(1_700_000_000_999), "2023-11-14T22:13:20.999000Z");
        assert_eq!(parse_time("2023-11-14T22:13:20Z"), Some(1_700_000_000_000));
        assert_eq!(parse_time("rubbish"), None);
    }
}
