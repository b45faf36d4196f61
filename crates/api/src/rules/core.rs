//! Namespaces, ConfigMaps and ServiceAccounts.

use serde_json::{Value, json};

use super::read::{self, flag, items_mut, list, same, text};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{meta, names, objectmeta};

/// Most bytes that the values of a ConfigMap or Secret may take together.
pub(super) const DATA_BYTES_MAX: usize = 1 << 20;
const ONCE_IMMUTABLE: &str = "field is immutable when `immutable` is set";
/// The label that names a namespace, so that selectors can.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The rules of Namespaces.
pub struct Namespace;

impl Rules for Namespace {
    fn default(&self, object: &mut Value) {
        let name = meta::name(object).to_owned();
        if !name.is_empty() {
            let metadata = meta::metadata_mut(object);
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            if !labels.is_object() {
                *labels = json!({});
            }
            if labels.get(NAME_LABEL).and_then(Value::as_str) != Some(&name) {
                labels[NAME_LABEL] = json!(name);
            }
        }
        read::default_to(meta::child_mut(object, "status"), "phase", "Active");
    }

    fn prepare_create(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if !finalizers.is_array() {
            *finalizers = json!([]);
        }
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|f| f == "kubernetes")
        {
            list.push(json!("kubernetes"));
        }
        meta::child_mut(object, "status").insert("phase".into(), json!("Active"));
        // The name may have been generated after the defaults were set.
        self.default(object);
    }

    /// Finalizers change by `/finalize` only; the server carries the spec over there.
    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let spec = meta::child_mut(object, "spec");
        match read::field(read::spec(old), "finalizers") {
            Some(finalizers) => spec.insert("finalizers".into(), finalizers.clone()),
            None => spec.remove("finalizers"),
        };
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = Path::new("spec");
        let path = spec.child("finalizers");
        for name in list(read::spec(object), "finalizers").iter().filter_map(Value::as_str) {
            read::sentences(names::qualified_name(name), name, &path, &mut errors);
            objectmeta::standard_finalizer(name, &path, &mut errors);
        }
        errors
    }

    fn validate_status(&self, object: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let phase = text(read::child(object, "status"), "phase");
        let (wanted, when) =
            if meta::deleting(object) { ("Terminating", "not empty") } else { ("Active", "empty") };
        if phase != wanted {
            let status = Path::new("status");
            let detail = format!("may only be '{wanted}' if `deletionTimestamp` is {when}");
            errors.invalid(&status.child("Phase"), phase, detail);
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_label(name, prefix)
    }
}

/// The rules of ConfigMaps.
pub struct ConfigMap;

impl Rules for ConfigMap {
    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let mut bytes = 0;
        let path = Path::new("data");
        let binary = read::child(object, "binaryData");
        for (key, value) in read::entries(object, "data") {
            read::sentences(names::config_map_key(key), key, &path.key(key), &mut errors);
            if binary.get(key).is_some() {
                errors.invalid(&path.key(key), key.as_str(), "duplicate of key present in binaryData");
            }
            bytes += value.as_str().unwrap_or("").len();
        }
        let path = Path::new("binaryData");
        for (key, value) in read::entries(object, "binaryData") {
            read::sentences(names::config_map_key(key), key, &path.key(key), &mut errors);
            bytes += decoded_len(value.as_str().unwrap_or(""));
        }
        if bytes > DATA_BYTES_MAX {
            // Kubernetes writes the path of the whole object so.
            errors.too_long(&Path::new("[]"), DATA_BYTES_MAX);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        validate_immutable(object, old, &["data", "binaryData"], &mut errors);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}

/// What was marked `immutable` stays so, and so do the named fields.
pub(super) fn validate_immutable(object: &Value, old: &Value, fields: &[&str], errors: &mut ErrorList) {
    if !flag(old, "immutable") {
        return;
    }
    if !flag(object, "immutable") {
        errors.forbidden(&Path::new("immutable"), ONCE_IMMUTABLE);
    }
    for name in fields {
        if !same(object.get(name), old.get(name)) {
            errors.forbidden(&Path::new(name), ONCE_IMMUTABLE);
        }
    }
}

/// How many bytes base64 text stands for.
pub(super) fn decoded_len(base64: &str) -> usize {
    let padding = base64.bytes().rev().take(2).filter(|b| *b == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

/// The rules of ServiceAccounts.
pub struct ServiceAccount;

impl ServiceAccount {
    /// References to secrets keep nothing but the name.
    fn clean(object: &mut Value) {
        let Some(object) = object.as_object_mut() else { return };
        for secret in items_mut(object, "secrets") {
            secret.retain(|key, _| key == "name");
        }
    }
}

impl Rules for ServiceAccount {
    fn prepare_create(&self, object: &mut Value) {
        Self::clean(object);
    }
    fn prepare_update(&self, object: &mut Value, _old: &Value) {
        Self::clean(object);
    }
    fn validate(&self, _object: &Value) -> ErrorList {
        ErrorList::new()
    }
    fn warnings(&self, object: &Value) -> Vec<String> {
        let warning = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        let has = meta::annotation(object, "kubernetes.io/enforce-mountable-secrets").is_some();
        has.then(|| warning.to_owned()).into_iter().collect()
    }
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}
