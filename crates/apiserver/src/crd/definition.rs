//! `CrdRules`: defaulting and validation of CustomResourceDefinitions themselves.
//!
//! Kubernetes checks its older, unversioned form, in which what all versions share stands once at the top. Its error
//! paths show that (`spec.validation.openAPIV3Schema…` for a definition of one version), and so do ours.

use landfall_api::field::{ErrorList, Path};
use landfall_api::{Rules, meta, names};
use serde_json::{Value, json};

use super::schema::{Schema, list, texts};
use super::spec::{self, validate_names};
use super::{FINALIZER, flag, formats, status, text};

const IMMUTABLE: &str = "field is immutable";

/// The rules of `apiextensions.k8s.io/v1` CustomResourceDefinition.
pub struct CrdRules;

impl Rules for CrdRules {
    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        if spec.get("conversion").is_none_or(Value::is_null) {
            spec.insert("conversion".into(), json!({"strategy": "None"}));
        }
        if let Some(Value::Object(names)) = spec.get_mut("names") {
            let kind = names.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
            let mut fill = |key: &str, value: String| {
                let empty = names.get(key).and_then(Value::as_str).is_none_or(str::is_empty);
                if empty && !value.is_empty() {
                    names.insert(key.into(), value.into());
                }
            };
            fill("singular", kind.to_lowercase());
            fill("listKind", if kind.is_empty() { String::new() } else { format!("{kind}List") });
        }
        let service = "/spec/conversion/webhook/clientConfig/service";
        if let Some(Value::Object(service)) = object.pointer_mut(service)
            && !service.contains_key("port")
        {
            service.insert("port".into(), 443.into());
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let stored: Vec<String> = status::storage_version(object).into_iter().collect();
        if let Some(map) = object.as_object_mut() {
            let names = json!({"plural": "", "kind": ""});
            let first = json!({"conditions": null, "acceptedNames": names, "storedVersions": stored});
            map.insert("status".into(), first);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let mut kept = old.get("status").cloned().unwrap_or_else(|| json!({}));
        if let Some(version) = status::storage_version(object) {
            status::add_stored(&mut kept, &version);
        }
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), kept);
        }
    }

    fn prepare_delete(&self, object: &mut Value, now: &str) {
        if !meta::finalizers(object).any(|f| f == FINALIZER) {
            let finalizers = meta::metadata_mut(object).entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = finalizers.as_array_mut() {
                list.push(FINALIZER.into());
            }
        }
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        status::set_condition(object, "Terminating", "True", ("InstanceDeletionPending", message), now);
    }

    fn update_alone(&self) -> bool {
        true
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let wanted =
            format!("{}.{}", text(spec.get("names").unwrap_or(&Value::Null), "plural"), text(spec, "group"));
        if meta::name(object) != wanted {
            let path = Path::new("metadata");
            let detail = "must be spec.names.plural+\".\"+spec.group";
            errors.invalid(&path.child("name"), meta::name(object), detail);
        }
        validate_whole(object, None, &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        validate_whole(object, Some(old), &mut errors);
        errors
    }

    fn validate_status(&self, object: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("status");
        if let Some(accepted) = object.get("status").and_then(|s| s.get("acceptedNames")) {
            validate_names(accepted, &path.child("acceptedNames"), &mut errors);
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for version in object.get("spec").map_or(&[][..], |spec| list(spec, "versions")) {
            if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
                Schema::read(schema).any(&mut |node| {
                    if !node.format.is_empty() && formats::effective(&node.ty, &node.format).is_empty() {
                        found.push(format!("unrecognized format {:?}", node.format));
                    }
                    false
                });
            }
        }
        found.dedup();
        found
    }
}

fn validate_whole(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let null = Value::Null;
    let spec = object.get("spec").unwrap_or(&null);
    spec::validate(spec, errors);
    if let Some(old) = old {
        immutable(object, old, errors);
    }
    let status = Path::new("status");
    if let Some(accepted) = object.get("status").and_then(|s| s.get("acceptedNames")) {
        validate_names(accepted, &status.child("acceptedNames"), errors);
    }
    stored_versions(object, &status.child("storedVersions"), errors);
    approval(object, old, errors);
    let preserve = |crd: &Value| crd.get("spec").is_some_and(|s| flag(s, "preserveUnknownFields"));
    if preserve(object) && !old.is_some_and(preserve) {
        errors.invalid(
            &Path::new("spec").child("preserveUnknownFields"),
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
}

fn immutable(object: &Value, old: &Value, errors: &mut ErrorList) {
    let always = [(&["group"][..], true), (&["names", "plural"], true)];
    let established = status::is_true(old, "Established");
    let later = [(&["scope"][..], established), (&["names", "kind"], established)];
    for (steps, fixed) in later.into_iter().chain(always) {
        let of = |crd: &Value| steps.iter().try_fold(crd.get("spec")?, |v, step| v.get(*step)).cloned();
        let (now, before) = (of(object), of(old));
        if fixed && now != before {
            errors.invalid(
                &Path::new(&format!("spec.{}", steps.join("."))),
                now.unwrap_or_default(),
                IMMUTABLE,
            );
        }
    }
}

fn stored_versions(object: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let status = object.get("status").unwrap_or(&Value::Null);
    let stored = texts(status, "storedVersions");
    let shown: Value = if stored.is_empty() { Value::Null } else { stored.clone().into() };
    if stored.is_empty() {
        errors.invalid(path, shown, "must have at least one stored version");
        return;
    }
    let versions = object.get("spec").map_or(&[][..], |spec| list(spec, "versions"));
    for (at, version) in versions.iter().enumerate().filter(|(_, v)| flag(v, "storage")) {
        let name = text(version, "name");
        let again = versions.iter().take(at).any(|earlier| text(earlier, "name") == name);
        if again || !stored.iter().any(|s| s == name) {
            let detail = format!("must have the storage version {name}");
            errors.invalid(path, shown.clone(), detail);
        }
    }
    for (at, name) in stored.iter().enumerate() {
        if !versions.iter().any(|v| text(v, "name") == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(&path.index(at), name.as_str(), detail);
        }
    }
}

fn approval(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let group = object.get("spec").map_or("", |s| text(s, "group"));
    if !status::is_protected(group) {
        return;
    }
    let (state, reason) = status::approval(object);
    if old.is_some_and(|old| status::approval(old).0 == state) {
        return;
    }
    let path = Path::new("metadata");
    let path = path.child("annotations");
    let path = path.key(status::APPROVED);
    match state {
        status::Approval::Missing => errors.required(&path, reason),
        status::Approval::Invalid => {
            let value = meta::annotation(object, status::APPROVED).unwrap_or("");
            errors.invalid(&path, value, reason);
        }
        status::Approval::Approved | status::Approval::Bypassed => {}
    }
}
