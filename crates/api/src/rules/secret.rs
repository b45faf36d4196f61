//! Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::core::{DATA_BYTES_MAX, decoded_len, validate_immutable};
use super::read::{self, default_to, text};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{meta, names};

/// How every PEM block begins.
const PEM: &[u8] = b"-----BEGIN ";
const DATA: Path<'static> = Path::new("data");
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// The rules of Secrets.
pub struct Secret;

impl Rules for Secret {
    /// `stringData` is a way to write, never a way to read: it becomes `data` here.
    fn default(&self, object: &mut Value) {
        let Some(secret) = object.as_object_mut() else { return };
        default_to(secret, "type", "Opaque");
        let Some(Value::Object(texts)) = secret.remove("stringData") else { return };
        if texts.is_empty() {
            return;
        }
        let data = meta::child_mut(object, "data");
        for (key, value) in texts {
            data.insert(key, json!(STANDARD.encode(value.as_str().unwrap_or(""))));
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let mut bytes = 0;
        for (key, value) in read::entries(object, "data") {
            read::sentences(names::config_map_key(key), key, &DATA.key(key), &mut errors);
            bytes += decoded_len(value.as_str().unwrap_or(""));
        }
        if bytes > DATA_BYTES_MAX {
            errors.too_long(&DATA, DATA_BYTES_MAX);
        }
        validate_type(object, &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        read::immutable(object, old, "type", &mut errors);
        validate_immutable(object, old, &["data"], &mut errors);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    /// Whether there is a certificate and a key at all; whether they fit is not looked at here.
    fn warnings(&self, object: &Value) -> Vec<String> {
        if text(object, "type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        let data = read::child(object, "data");
        let has_pem = |key| {
            let bytes = STANDARD.decode(text(data, key)).unwrap_or_default();
            bytes.windows(PEM.len()).any(|window| window == PEM)
        };
        let missing =
            [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| !has_pem(key));
        missing
            .map(|(_, what)| format!("tls: failed to find any PEM data in {what} input"))
            .into_iter()
            .collect()
    }
}

fn validate_type(object: &Value, errors: &mut ErrorList) {
    let data = read::child(object, "data");
    let account = meta::annotation(object, ACCOUNT).unwrap_or("");
    let mut need = |keys: &[&str]| {
        for key in keys {
            if data.get(key).is_none() {
                errors.required(&DATA.key(key), "");
            }
        }
    };
    match text(object, "type") {
        "kubernetes.io/service-account-token" if account.is_empty() => {
            let metadata = Path::new("metadata");
            errors.required(&metadata.child("annotations").key(ACCOUNT), "");
        }
        "kubernetes.io/dockercfg" => validate_json(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => validate_json(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" => {
            let keys = ["username", "password"];
            if keys.iter().all(|key| data.get(key).is_none()) {
                need(&keys);
            }
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            errors.required(&DATA.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
        _ => {}
    }
}

/// A key whose value is a JSON object. The reason why it is not says nothing of what is inside.
fn validate_json(data: &Value, key: &str, errors: &mut ErrorList) {
    let Some(value) = data.get(key) else { return errors.required(&DATA.key(key), "") };
    let bytes = STANDARD.decode(value.as_str().unwrap_or("")).unwrap_or_default();
    let first = bytes.iter().copied().find(|b| !b.is_ascii_whitespace());
    let why = match (serde_json::from_slice::<Value>(&bytes), first) {
        (Ok(Value::Object(_) | Value::Null), _) => return,
        (Ok(other), _) => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
        }
        (Err(e), _) if e.is_eof() => "unexpected end of JSON input".to_owned(),
        (Err(_), Some(b)) if !b"{[\"-0123456789tfn".contains(&b) => {
            format!("invalid character {:?} looking for beginning of value", char::from(b))
        }
        (Err(_), _) => "invalid character in JSON".to_owned(),
    };
    errors.invalid(&DATA.key(key), "<secret contents redacted>", why);
}
