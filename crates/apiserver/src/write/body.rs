//! Request bodies: from bytes of any accepted media type to an object of the expected kind.

use crate::stub::{
    decode::{parse_json, parse_yaml},
    schema, wire,
};
use landfall_api::{Kind, Status};
use serde_json::Value;

use crate::encode::api_version;
use crate::http::negotiate::{self, Content};
use crate::options::FieldValidation;

/// What `create` and `update` accept.
const OBJECT_TYPES: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// An object as sent, with what was odd about it.
#[derive(Debug)]
pub struct Decoded {
    /// The object; unknown fields are gone.
    pub object: Value,
    /// Warnings to send along (unknown or duplicate fields when they are only warned about).
    pub warnings: Vec<String>,
}

/// Decodes an object of a kind.
pub fn object(
    kind: &Kind,
    content: Option<Content>,
    bytes: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let (object, odd) = parse(content, bytes)?;
    check_type(kind, &object, bytes)?;
    shape(kind, object, odd, validation)
}

/// Decodes any document (options, reviews) without a schema.
pub fn value(content: Option<Content>, bytes: &[u8]) -> Result<Value, Status> {
    Ok(parse(content, bytes)?.0)
}

/// Bytes to JSON, with what a strict decoder would mind.
pub fn parse(content: Option<Content>, bytes: &[u8]) -> Result<(Value, Vec<String>), Status> {
    match content {
        Some(Content::Json) => parse_json(bytes).map_err(|e| unreadable(&e)),
        Some(Content::Yaml | Content::ApplyPatch) => parse_yaml(bytes).map_err(|e| unreadable(&e)),
        Some(Content::Protobuf) => {
            let message = wire::decode(bytes).map_err(|e| unreadable(&e))?;
            Ok((message, Vec::new()))
        }
        _ => Err(negotiate::unsupported(OBJECT_TYPES)),
    }
}

/// Fits an object to its schema: types must match, unknown fields go, and what is odd is refused or warned about.
pub fn shape(
    kind: &Kind,
    mut object: Value,
    mut odd: Vec<String>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let report = schema::normalize(kind.schema.get(), &mut object);
    if let Some(wrong) = report.wrong_type {
        return Err(Status::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {wrong}",
            kind.kind, kind.version, kind.kind
        )));
    }
    odd.extend(report.unknown);
    if validation == FieldValidation::Strict && !odd.is_empty() {
        return Err(Status::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
            kind.kind,
            kind.version,
            kind.kind,
            odd.join(", ")
        )));
    }
    let warnings = if validation == FieldValidation::Warn { odd } else { Vec::new() };
    Ok(Decoded { object, warnings })
}

fn unreadable(error: &impl std::fmt::Display) -> Status {
    Status::bad_request(format!("the object provided is unrecognized (must be of type Object): {error}"))
}

/// The body must be of the kind that its path says; built-in kinds may leave it out.
fn check_type(kind: &Kind, object: &Value, bytes: &[u8]) -> Result<(), Status> {
    if !object.is_object() {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): not a JSON object",
            kind.kind
        )));
    }
    let given_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or("");
    let given_kind = object.get("kind").and_then(Value::as_str).unwrap_or("");
    let expected = api_version(&kind.group, &kind.version);
    if given_kind.is_empty() && !kind.strategic {
        let shown: String = String::from_utf8_lossy(bytes).chars().take(1024).collect();
        return Err(Status::bad_request(format!("Object 'Kind' is missing in '{shown}'")));
    }
    if !given_version.is_empty() && given_version != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({expected})"
        )));
    }
    if !given_kind.is_empty() && given_kind != kind.kind {
        let (group, version) = given_version.split_once('/').unwrap_or(("", given_version));
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {group}/{version}, Kind={given_kind} was given",
            kind.kind
        )));
    }
    Ok(())
}
