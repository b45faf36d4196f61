//! Patches: JSON patch, merge patch and strategic merge patch, as functions from a document to a document.
//!
//! Server-side apply is in [`crate::managed`]. What a patch makes of a built-in object may hold `null`s and
//! unknown fields: decoding it afterwards is the caller's.

pub(crate) mod golang;
pub mod json;
pub mod merge;
mod order;
pub mod strategic;

use landfall_api::schema::Struct;
use landfall_api::status::{Reason, Status};
use serde_json::{Map, Value};

/// Drops fields that are `null`, as decoding a built-in object does; custom objects are left alone.
pub fn drop_nulls(schema: &Struct, object: &mut Value) {
    crate::managed::drop_nulls(schema, object);
}

/// 422 in the words kube-apiserver uses for a patch that does not apply.
fn unprocessable() -> Status {
    Status::new(Reason::Invalid, "the server rejected our request due to an error in our request")
}

/// A patch that must be an object.
fn object(patch: &[u8], prefix: &str) -> Result<Option<Map<String, Value>>, Status> {
    match serde_json::from_slice(patch) {
        Ok(Value::Object(map)) => Ok(Some(map)),
        Ok(Value::Null) => Ok(None),
        Ok(other) => Err(Status::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_name(&other)
        ))),
        Err(error) => Err(Status::bad_request(format!("{prefix}{error}"))),
    }
}

/// What Go's decoder calls a value of this type.
const fn json_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
