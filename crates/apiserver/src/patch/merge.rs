//! Merge patch (RFC 7386), with Kubernetes' reading of `null` inside new values.

use landfall_api::status::Status;
use serde_json::{Map, Value};

use super::object;

/// The document after the patch.
pub fn apply(document: Value, patch: &[u8]) -> Result<Value, Status> {
    let Some(patch) = object(patch, "error decoding patch: ")? else {
        return Err(Status::bad_request("Invalid JSON Patch"));
    };
    let Value::Object(mut document) = document else { return Err(Status::internal("Invalid JSON Document")) };
    merge_objects(&mut document, patch);
    Ok(Value::Object(document))
}

fn merge_objects(document: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            document.remove(&key);
            continue;
        }
        match (document.get_mut(&key), value) {
            (Some(Value::Object(current)), Value::Object(patch)) => merge_objects(current, patch),
            // Replacing an object by something else takes that as it is.
            (Some(current @ Value::Object(_)), value) => *current = value,
            (_, mut value) => {
                drop_nulls(&mut value);
                document.insert(key, value);
            }
        }
    }
}

/// New values lose the members that are `null`; items of lists stay.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_after_merge_patches() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({"e": null}), json!({"e": {"x": null, "y": 1}}), json!({"e": {"y": 1}})),
            // Lists keep their nulls, objects inside new lists do not.
            (json!({}), json!({"a": [null, {"b": null, "c": 1}]}), json!({"a": [null, {"c": 1}]})),
            (json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
        ];
        for (document, patch, wanted) in cases {
            let text = patch.to_string();
            assert_eq!(apply(document.clone(), text.as_bytes()), Ok(wanted), "{document} + {patch}");
        }
    }

    #[test]
    fn bad_patches_are_refused() {
        let cases = [
            ("null", "Invalid JSON Patch"),
            (
                "[]",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (
                "3",
                "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}",
            ),
        ];
        for (patch, message) in cases {
            let status = apply(json!({}), patch.as_bytes()).unwrap_err();
            assert_eq!((status.reason.code(), status.message.as_str()), (400, message));
        }
        assert_eq!(apply(json!({}), b"{").unwrap_err().reason.code(), 400);
    }
}
