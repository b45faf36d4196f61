//! Request bodies: JSON and YAML into `Value`s, with what strict validation wants to know about them.
//!
//! ```text
//!   bytes ──► parse_json / parse_yaml ──► Decoded { value, duplicates } ──► schema::normalize ──► Strict
//!   bytes ──► wire (protobuf) ──────────► value
//! ```
//!
//! Limits: values 127 deep, 100 duplicate keys reported, 100,000 values copied through YAML aliases. No input panics.
//! Errors are worded as Kubernetes words them.

mod json;
mod scan;
mod yaml;

use serde_json::Value;

use crate::schema::Report;
use crate::status::Status;

/// Values inside each other.
pub(crate) const DEPTH_MAX: usize = 127;
/// Duplicate keys reported of one body.
const DUPLICATES_MAX: usize = 100;

/// A body taken in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// What it says. Of a key that is there twice, the last counts.
    pub value: Value,
    /// Keys that were there twice.
    pub duplicates: Vec<Duplicate>,
}

/// A key that was there twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// In JSON: the path, such as `spec.ports[0].port`.
    Json(String),
    /// In YAML: the line and the key.
    Yaml(usize, String),
}

/// A body that is not what it claims to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON.
    #[error("{0}")]
    Json(String),
    /// Not YAML.
    #[error("yaml: {0}")]
    Yaml(String),
    /// Not protobuf.
    #[error("{0}")]
    Wire(String),
}

/// Takes in JSON.
pub fn parse_json(body: &[u8]) -> Result<Decoded, DecodeError> {
    json::parse(body)
}

/// Takes in YAML 1.1 as Kubernetes reads it: the first document, `yes` and `on` are true.
pub fn parse_yaml(body: &[u8]) -> Result<Decoded, DecodeError> {
    yaml::parse(body)
}

/// Whether a body can be an API object: a map whose `apiVersion` and `kind`, if any, are texts.
pub fn expect_object(value: &Value) -> Result<(), DecodeError> {
    const META: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let Value::Object(map) = value else {
        let what = crate::schema::json_word(value);
        return match value {
            Value::Null => Ok(()),
            _ => {
                Err(DecodeError::Json(format!("json: cannot unmarshal {what} into Go value of type {META}")))
            }
        };
    };
    for key in ["apiVersion", "kind"] {
        if let Some(value) = map.get(key).filter(|v| !v.is_string() && !v.is_null()) {
            let what = crate::schema::json_word(value);
            let text = format!("json: cannot unmarshal {what} into Go struct field .{key} of type string");
            return Err(DecodeError::Json(text));
        }
    }
    Ok(())
}

impl DecodeError {
    /// The refusal of a body that gave no object, for a request that wanted a `kind`.
    pub fn refuse(&self, kind: &str, body: &[u8]) -> Status {
        let couldnt = match self {
            Self::Json(_) => "couldn't get version/kind; json parse error: ",
            Self::Yaml(_) | Self::Wire(_) => "",
        };
        let shown = summary(body);
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {couldnt}{self} ({shown})"
        ))
    }
}

/// The refusal of an object that is not of its kind's shape: `error` is a [`Report`]'s or a [`Strict`]'s.
pub fn refuse_object(kind: &str, version: &str, error: &str) -> Status {
    Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"))
}

/// The first bytes of a body for a message: text if it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    const SHOWN_MAX: usize = 30;
    let (shown, more) = match body.get(..SHOWN_MAX) {
        Some(head) if body.len() > SHOWN_MAX => (head, " ..."),
        _ => (body, ""),
    };
    match shown.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// What strict field validation has to say about a body: duplicate keys, then unknown fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strict {
    /// One sentence each, as sent in `Warning` headers with `fieldValidation=Warn`.
    pub warnings: Vec<String>,
    yaml: usize,
}

impl Strict {
    /// Joins what the decoder and the walk found. Duplicates inside an unknown field are not worth a word.
    pub fn new(duplicates: &[Duplicate], report: &Report) -> Self {
        let unknown: Vec<&str> = report.unknown.iter().filter_map(|text| text.split('"').nth(1)).collect();
        let inside = |path: &str| {
            unknown.iter().any(|field| {
                let rest = path.strip_prefix(field);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        let mut strict = Self::default();
        for duplicate in duplicates {
            match duplicate {
                Duplicate::Json(path) if inside(path) => {}
                Duplicate::Json(path) => strict.warnings.push(format!("duplicate field \"{path}\"")),
                Duplicate::Yaml(line, key) => {
                    strict.yaml += 1;
                    strict.warnings.push(format!("line {line}: key {key:?} already set in map"));
                }
            }
        }
        strict.warnings.extend(report.unknown.iter().cloned());
        strict
    }

    /// The sentence that refuses the object with `fieldValidation=Strict`; none when all is well.
    pub fn error(&self) -> Option<String> {
        let (yaml, rest) = self.warnings.split_at_checked(self.yaml)?;
        let mut parts = Vec::new();
        if !yaml.is_empty() {
            parts.push(format!("yaml: unmarshal errors:\n  {}", yaml.join("\n  ")));
        }
        parts.extend(rest.iter().cloned());
        (!parts.is_empty()).then(|| format!("strict decoding error: {}", parts.join(", ")))
    }
}
