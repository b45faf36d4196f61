//! Request bodies: from bytes of any accepted media type to an object of the expected kind.

use landfall_api::decode::{self, DecodeError, Duplicate, Strict};
use landfall_api::schema::{self, Report};
use landfall_api::{Kind, Status, wire};
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
    let mut body = parse(&api_version(&kind.group, &kind.version), &kind.kind, content, bytes)?;
    if body.value.is_null() && content == Some(Content::Json) && kind.strategic {
        // Go reads null into a struct as nothing said.
        body.value = serde_json::json!({});
    }
    decode::expect_object(&body.value).map_err(|e| e.refuse(&kind.kind, bytes))?;
    check_type(kind, &body.value, bytes)?;
    shape(kind, body.value, &body.duplicates, validation)
}

/// Decodes any document (options, scales) without a schema; it must be a JSON object.
pub fn value((version, kind): (&str, &str), content: Option<Content>, bytes: &[u8]) -> Result<Value, Status> {
    let body = parse(version, kind, content, bytes)?;
    decode::expect_object(&body.value).map_err(|e| e.refuse(kind, bytes))?;
    Ok(body.value)
}

/// Bytes to JSON, with what a strict decoder would mind; `version` and `kind` are what was expected.
pub fn parse(
    version: &str,
    kind: &str,
    content: Option<Content>,
    bytes: &[u8],
) -> Result<decode::Decoded, Status> {
    let refuse = |error: DecodeError| error.refuse(kind, bytes);
    match content {
        Some(Content::Json) => decode::parse_json(bytes).map_err(refuse),
        Some(Content::Yaml | Content::ApplyPatch) => decode::parse_yaml(bytes).map_err(refuse),
        Some(Content::Protobuf) => {
            let value = wire::parse(bytes, version, kind)?;
            Ok(decode::Decoded { value, duplicates: Vec::new() })
        }
        _ => Err(negotiate::unsupported(OBJECT_TYPES)),
    }
}

/// Fits an object to its schema: types must match, unknown fields go, and what is odd is refused or warned about.
pub fn shape(
    kind: &Kind,
    mut object: Value,
    duplicates: &[Duplicate],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let report = match kind.rules.prune(&mut object) {
        Some(paths) => {
            let unknown = paths.iter().map(|path| format!("unknown field \"{path}\"")).collect();
            Report { error: None, unknown }
        }
        None => schema::normalize(kind.schema.get(), &mut object),
    };
    if let Some(error) = &report.error {
        return Err(decode::refuse_object(&kind.kind, &kind.version, error));
    }
    if report.is_clean() && duplicates.is_empty() {
        return Ok(Decoded { object, warnings: Vec::new() });
    }
    let strict = Strict::new(duplicates, &report);
    match validation {
        FieldValidation::Strict => match strict.error() {
            Some(error) => Err(decode::refuse_object(&kind.kind, &kind.version, &error)),
            None => Ok(Decoded { object, warnings: Vec::new() }),
        },
        FieldValidation::Warn => Ok(Decoded { object, warnings: strict.warnings }),
        FieldValidation::Ignore => Ok(Decoded { object, warnings: Vec::new() }),
    }
}

/// The body must be of the kind that its path says; built-in kinds may leave it out.
fn check_type(kind: &Kind, object: &Value, bytes: &[u8]) -> Result<(), Status> {
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
            "{given_kind} in version {version:?} cannot be handled as a {}: converting (.{given_kind}) to ({group}.{}): unknown conversion",
            kind.kind, kind.kind
        )));
    }
    Ok(())
}
