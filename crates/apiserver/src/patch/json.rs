//! JSON patch (RFC 6902) with the leniencies of the library kube-apiserver uses (evanphx/json-patch v4):
//! `replace` of a missing member adds it, negative indices count from the end, `test` of a missing member passes
//! for `null`.

use landfall_api::status::{Reason, Status};
use serde_json::{Map, Value};

use super::{json_name, unprocessable};

/// Operations in one patch.
const OPERATIONS_MAX: usize = 10_000;
/// Bytes that the `copy` operations of one patch may add.
const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// How deep a patched document may be nested: what our parser accepts.
const DEPTH_MAX: usize = 128;
/// The members an operation may have.
const MEMBERS: [&str; 4] = ["op", "path", "from", "value"];

/// The document after the patch. 400 for what is not a patch, 413 for too many operations, 422 for a patch
/// that does not apply.
pub fn apply(mut document: Value, patch: &[u8]) -> Result<Value, Status> {
    let operations = decode(patch)?;
    if operations.len() > OPERATIONS_MAX {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        );
        return Err(Status::new(Reason::RequestEntityTooLarge, message));
    }
    let mut copied = 0;
    for operation in operations {
        run(&mut document, operation, &mut copied).ok_or_else(unprocessable)?;
    }
    Ok(document)
}

/// What strict field validation says about a patch: `json patch unknown field "[0].foo"`.
pub fn unknown_fields(patch: &[u8]) -> Vec<String> {
    let operations = decode(patch).unwrap_or_default();
    let each = operations.iter().enumerate().flat_map(|(at, operation)| {
        let unknown = operation.keys().filter(|key| !MEMBERS.contains(&key.as_str()));
        unknown.map(move |key| format!("json patch unknown field \"[{at}].{key}\""))
    });
    each.collect()
}

fn decode(patch: &[u8]) -> Result<Vec<Map<String, Value>>, Status> {
    let bad = |what: &Value, into: &str| {
        let name = json_name(what);
        Status::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {name} into Go value of type {into}"
        ))
    };
    let parsed: Value = serde_json::from_slice(patch)
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    let items = match parsed {
        Value::Array(items) => items,
        Value::Null => Vec::new(),
        other => return Err(bad(&other, "[]handlers.jsonPatchOp")),
    };
    let operations = items.into_iter().map(|item| match item {
        Value::Object(map) => check_members(map),
        Value::Null => Ok(Map::new()),
        other => Err(bad(&other, "handlers.jsonPatchOp")),
    });
    operations.collect()
}

fn check_members(map: Map<String, Value>) -> Result<Map<String, Value>, Status> {
    for key in ["op", "path", "from"] {
        if let Some(other) = map.get(key).filter(|value| !value.is_string() && !value.is_null()) {
            return Err(Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {} into Go struct field jsonPatchOp.{key} of type string",
                json_name(other)
            )));
        }
    }
    Ok(map)
}

/// One operation; none when it does not apply.
fn run(document: &mut Value, mut operation: Map<String, Value>, copied: &mut usize) -> Option<()> {
    let value = operation.remove("value");
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = text("path")?;
    match text("op")? {
        "add" => add(document, path, value.unwrap_or(Value::Null)),
        "remove" => remove(document, path).map(|_| ()),
        "replace" => replace(document, path, value.unwrap_or(Value::Null)),
        "test" => test(document, path, value.as_ref()),
        "move" => {
            let value = remove(document, text("from")?)?;
            add(document, path, value)
        }
        "copy" => {
            let value = get(document, text("from")?)?.cloned().unwrap_or(Value::Null);
            *copied = copied.saturating_add(value.to_string().len());
            (*copied <= COPY_BYTES_MAX).then_some(())?;
            add(document, path, value)
        }
        _ => None,
    }
}

/// The container that a path's last token is in, and the token. What comes before the first `/` is ignored.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parents, last) = path.rsplit_once('/')?;
    let mut at = document;
    for token in parents.split('/').skip(1) {
        let token = unescape(token);
        at = match at {
            Value::Object(map) => map.get_mut(&token)?,
            Value::Array(items) => {
                let index = index(&token, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then(|| (at, unescape(last)))
}

fn unescape(token: &str) -> String {
    if token.contains('~') { token.replace("~1", "/").replace("~0", "~") } else { token.to_owned() }
}

/// An index into `length` items; negative ones count from the end.
fn index(token: &str, length: usize) -> Option<usize> {
    let number: i64 = token.parse().ok()?;
    if number >= 0 {
        return usize::try_from(number).ok();
    }
    length.checked_sub(usize::try_from(number.checked_neg()?).ok()?)
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    let depth = path.split('/').count().saturating_add(depth_of(&value));
    (depth <= DEPTH_MAX).then_some(())?;
    match find(document, path)? {
        (Value::Object(map), key) => {
            map.insert(key, value);
        }
        (Value::Array(items), token) if token == "-" => items.push(value),
        (Value::Array(items), token) => {
            let index = index(&token, items.len().saturating_add(1))?;
            (index <= items.len()).then(|| items.insert(index, value))?;
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    match find(document, path)? {
        (Value::Object(map), key) => map.remove(&key),
        (Value::Array(items), token) => {
            let index = index(&token, items.len())?;
            (index < items.len()).then(|| items.remove(index))
        }
        _ => None,
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Option<()> {
    let depth = path.split('/').count().saturating_add(depth_of(&value));
    (depth <= DEPTH_MAX).then_some(())?;
    if path.is_empty() {
        (value.is_object() || value.is_array()).then_some(())?;
        *document = value;
        return Some(());
    }
    match find(document, path)? {
        (Value::Object(map), key) => {
            map.insert(key, value);
        }
        (Value::Array(items), token) => {
            let index = index(&token, items.len())?;
            *items.get_mut(index)? = value;
        }
        _ => return None,
    }
    Some(())
}

/// The value at a path: none when the path cannot be followed, `Some(None)` when a member is missing.
fn get<'a>(document: &'a mut Value, path: &str) -> Option<Option<&'a Value>> {
    match find(document, path)? {
        (Value::Object(map), key) => Some(map.get(&key)),
        (Value::Array(items), token) => {
            let index = index(&token, items.len())?;
            items.get(index).map(Some)
        }
        _ => None,
    }
}

fn test(document: &mut Value, path: &str, wanted: Option<&Value>) -> Option<()> {
    let found = if path.is_empty() { Some(&*document) } else { get(document, path)? };
    let found = found.filter(|value| !value.is_null());
    (found == wanted.filter(|value| !value.is_null())).then_some(())
}

/// How deep a value is nested, up to the limit.
fn depth_of(value: &Value) -> usize {
    let below = match value {
        Value::Array(items) => items.iter().map(depth_of).max(),
        Value::Object(map) => map.values().map(depth_of).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 0,
    };
    below.unwrap_or(0).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_after_patches() {
        let document = || json!({"a": 1, "l": [1, 2, 3], "o": {"x/y": "z", "n": null}});
        let cases = [
            (json!([{"op": "add", "path": "/b", "value": 2}]), "/b", Some(json!(2))),
            (json!([{"op": "add", "path": "/l/1", "value": 9}]), "/l", Some(json!([1, 9, 2, 3]))),
            (json!([{"op": "add", "path": "/l/-", "value": 9}]), "/l", Some(json!([1, 2, 3, 9]))),
            (json!([{"op": "add", "path": "/l/3", "value": 9}]), "/l", Some(json!([1, 2, 3, 9]))),
            (json!([{"op": "add", "path": "/l/-1", "value": 9}]), "/l", Some(json!([1, 2, 3, 9]))),
            (json!([{"op": "add", "path": "/l/4", "value": 9}]), "", None),
            (json!([{"op": "add", "path": "/q/x", "value": 9}]), "", None),
            (json!([{"op": "add", "path": "", "value": {}}]), "", None),
            (json!([{"op": "remove", "path": "/l/0"}]), "/l", Some(json!([2, 3]))),
            (json!([{"op": "remove", "path": "/l/-1"}]), "/l", Some(json!([1, 2]))),
            (json!([{"op": "remove", "path": "/nope"}]), "", None),
            (json!([{"op": "remove", "path": "/l/3"}]), "", None),
            (json!([{"op": "remove", "path": "/o/x~1y"}]), "/o", Some(json!({"n": null}))),
            (json!([{"op": "replace", "path": "/a", "value": 5}]), "/a", Some(json!(5))),
            (json!([{"op": "replace", "path": "/new", "value": 5}]), "/new", Some(json!(5))),
            (json!([{"op": "replace", "path": "/l/7", "value": 5}]), "", None),
            (json!([{"op": "replace", "path": "", "value": {"z": 1}}]), "/z", Some(json!(1))),
            (json!([{"op": "replace", "path": "", "value": 1}]), "", None),
            (json!([{"op": "move", "from": "/a", "path": "/b"}]), "/b", Some(json!(1))),
            (json!([{"op": "move", "from": "/nope", "path": "/b"}]), "", None),
            (json!([{"op": "copy", "from": "/l", "path": "/m"}]), "/m", Some(json!([1, 2, 3]))),
            (json!([{"op": "test", "path": "/a", "value": 1}]), "/a", Some(json!(1))),
            (json!([{"op": "test", "path": "/a", "value": 2}]), "", None),
            (json!([{"op": "test", "path": "/nope", "value": null}]), "/a", Some(json!(1))),
            (json!([{"op": "test", "path": "/nope"}]), "/a", Some(json!(1))),
            (json!([{"op": "test", "path": "/o/n", "value": null}]), "/a", Some(json!(1))),
            (json!([{"op": "test", "path": "/a", "value": null}]), "", None),
            (json!([{"op": "bogus", "path": "/a"}]), "", None),
            (json!([{"op": "add", "value": 1}]), "", None),
            (json!([]), "/a", Some(json!(1))),
            (json!(null), "/a", Some(json!(1))),
        ];
        for (patch, at, wanted) in cases {
            let result = apply(document(), patch.to_string().as_bytes());
            match wanted {
                Some(wanted) => {
                    assert_eq!(result.ok().and_then(|d| d.pointer(at).cloned()), Some(wanted), "{patch}");
                }
                None => assert_eq!(result, Err(unprocessable()), "{patch}"),
            }
        }
    }

    #[test]
    fn limits_are_kept() {
        let many = vec![json!({"op": "add", "path": "/x", "value": 1}); OPERATIONS_MAX + 1];
        let status = apply(json!({}), Value::Array(many).to_string().as_bytes()).unwrap_err();
        assert_eq!(status.reason.code(), 413);
        assert_eq!(status.message, "The allowed maximum operations in a JSON patch is 10000, got 10001");
        let bomb = vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 40];
        let status = apply(json!({"a": [1]}), Value::Array(bomb).to_string().as_bytes()).unwrap_err();
        assert_eq!(status, unprocessable());
        let deep: Vec<Value> =
            (1..200).map(|n| json!({"op": "add", "path": "/a".repeat(n), "value": {}})).collect();
        assert_eq!(apply(json!({}), Value::Array(deep).to_string().as_bytes()), Err(unprocessable()));
    }

    #[test]
    fn what_is_not_a_patch_is_refused() {
        let cases = [
            ("{}", "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
            ("[1]", "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
            (
                r#"[{"op":1}]"#,
                "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
        ];
        for (patch, message) in cases {
            let status = apply(json!({}), patch.as_bytes()).unwrap_err();
            assert_eq!(status, Status::bad_request(format!("error decoding patch: {message}")));
        }
        assert_eq!(unknown_fields(br#"[{"op":"add","foo":1}]"#), [r#"json patch unknown field "[0].foo""#]);
    }
}
