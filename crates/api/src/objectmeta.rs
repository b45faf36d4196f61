//! `metadata` of any object: what is right on create, and what may change on update.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{Kind, Scope};
use crate::rules::read::{self, child, field, flag, list, text};
use crate::{labels, meta, names};

const METADATA: Path<'static> = Path::new("metadata");
/// Longest name of a field manager.
const MANAGER_BYTES_MAX: usize = 128;
/// Longest name of a subresource in `managedFields`.
const SUBRESOURCE_BYTES_MAX: usize = 256;
/// Finalizers that need no prefix.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What is wrong with a new object's `metadata`. Its name has been generated already if it had to be.
pub fn validate_create(kind: &Kind, object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let metadata = child(object, "metadata");
    validate_name(kind, metadata, &mut errors);
    validate_namespace(kind.scope, text(metadata, "namespace"), &mut errors);
    if meta::generation(object) < 0 {
        let detail = "must be greater than or equal to 0";
        errors.invalid(&METADATA.child("generation"), meta::generation(object), detail);
    }
    validate_common(metadata, &mut errors);
    validate_finalizers(kind, metadata, &mut errors);
    errors
}

/// What is wrong with a change of an object's `metadata`.
pub fn validate_update(kind: &Kind, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (metadata, before) = (child(new, "metadata"), child(old, "metadata"));
    if meta::deleting(old) {
        validate_no_new_finalizers(metadata, before, &mut errors);
    }
    if text(metadata, "resourceVersion").is_empty() {
        errors.invalid(&METADATA.child("resourceVersion"), "", "must be specified for an update");
    }
    if meta::generation(new) < meta::generation(old) {
        errors.invalid(&METADATA.child("generation"), meta::generation(new), "must not be decremented");
    }
    for name in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"] {
        if text(metadata, name) != text(before, name) {
            let value = field(metadata, name).cloned().unwrap_or_else(|| absent(name));
            errors.invalid(&METADATA.child(name), value, "field is immutable");
        }
    }
    let grace = "deletionGracePeriodSeconds";
    if field(metadata, grace) != field(before, grace) {
        errors.invalid(&METADATA.child(grace), child(metadata, grace).clone(), "field is immutable");
    }
    validate_common(metadata, &mut errors);
    if !read::same(metadata.get("finalizers"), before.get("finalizers")) {
        validate_finalizers(kind, metadata, &mut errors);
    }
    errors
}

/// Carries over what an update can never change, so that leaving it out, or sending it stale, is no error.
pub fn carry_over(new: &mut Value, old: &Value) {
    let before = child(old, "metadata");
    let metadata = meta::metadata_mut(new);
    if metadata.get("uid").is_none_or(|v| v.as_str() == Some("") || v.is_null()) {
        copy(metadata, before, "uid");
    }
    for name in ["creationTimestamp", "generation"] {
        copy(metadata, before, name);
    }
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if field(before, name).is_some() {
            copy(metadata, before, name);
        }
    }
    metadata.remove("selfLink");
}

fn copy(metadata: &mut serde_json::Map<String, Value>, before: &Value, name: &str) {
    match field(before, name) {
        Some(value) => metadata.insert(name.into(), value.clone()),
        None => metadata.remove(name),
    };
}

/// How Go shows a field that was left out: no time is null, no text is empty.
fn absent(name: &str) -> Value {
    if name.ends_with("Timestamp") { Value::Null } else { "".into() }
}

fn validate_name(kind: &Kind, metadata: &Value, errors: &mut ErrorList) {
    let (name, prefix) = (text(metadata, "name"), text(metadata, "generateName"));
    if !prefix.is_empty() {
        let wrong = kind.rules.validate_name(prefix, true);
        read::sentences(wrong, prefix, &METADATA.child("generateName"), errors);
    }
    if name.is_empty() {
        errors.required(&METADATA.child("name"), "name or generateName is required");
    } else {
        read::sentences(kind.rules.validate_name(name, false), name, &METADATA.child("name"), errors);
    }
}

fn validate_namespace(scope: Scope, namespace: &str, errors: &mut ErrorList) {
    let path = METADATA.child("namespace");
    match (scope, namespace) {
        (Scope::Namespaced, "") => errors.required(&path, ""),
        (Scope::Namespaced, name) => read::sentences(names::dns1123_label(name), name, &path, errors),
        (Scope::Cluster, "") => {}
        (Scope::Cluster, _) => errors.forbidden(&path, "not allowed on this type"),
    }
}

/// What create and update check alike.
fn validate_common(metadata: &Value, errors: &mut ErrorList) {
    labels::validate_labels(metadata.get("labels"), &METADATA.child("labels"), errors);
    labels::validate_annotations(metadata.get("annotations"), &METADATA.child("annotations"), errors);
    validate_owners(list(metadata, "ownerReferences"), errors);
    let path = METADATA.child("managedFields");
    for (at, entry) in list(metadata, "managedFields").iter().enumerate() {
        // One empty entry asks to forget them all.
        if entry.as_object().is_some_and(serde_json::Map::is_empty) {
            continue;
        }
        validate_managed(entry, &path.index(at), errors);
    }
}

fn validate_owners(owners: &[Value], errors: &mut ErrorList) {
    let path = METADATA.child("ownerReferences");
    let mut controller: Option<&Value> = None;
    for owner in owners {
        let (api_version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
        if api_version.is_empty() || api_version.ends_with('/') {
            errors.invalid(&path.child("apiVersion"), api_version, "version must not be empty");
        }
        for name in ["kind", "name", "uid"] {
            if text(owner, name).is_empty() {
                errors.invalid(&path.child(name), "", "must not be empty");
            }
        }
        if (api_version, kind) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            read::invalid_shown(errors, &path, &shown_owner(owner), detail);
        }
        if !flag(owner, "controller") {
            continue;
        }
        match controller {
            None => controller = Some(owner),
            Some(first) => {
                let name = |o| format!("{}/{}", text(o, "kind"), text(o, "name"));
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                    name(first),
                    name(owner)
                );
                read::invalid_shown(errors, &path, &shown_owners(owners), &detail);
            }
        }
    }
}

/// Owners as Go writes them.
fn shown_owners(owners: &[Value]) -> String {
    let shown: Vec<String> = owners.iter().map(shown_owner).collect();
    format!("[{}]", shown.join(","))
}

fn shown_owner(owner: &Value) -> String {
    let texts =
        ["apiVersion", "kind", "name", "uid"].map(|name| (name, Some(Value::from(text(owner, name)))));
    let flags = ["controller", "blockOwnerDeletion"].map(|name| (name, field(owner, name).cloned()));
    let fields = texts.into_iter().chain(flags);
    let shown: Vec<String> =
        fields.filter_map(|(name, value)| Some(format!("{name:?}:{}", value?))).collect();
    format!("{{{}}}", shown.join(","))
}

fn validate_finalizers(kind: &Kind, metadata: &Value, errors: &mut ErrorList) {
    let path = METADATA.child("finalizers");
    let finalizers = list(metadata, "finalizers");
    for name in finalizers.iter().filter_map(Value::as_str) {
        read::sentences(names::qualified_name(name), name, &path, errors);
    }
    let has = |name: &str| finalizers.iter().any(|f| f == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid(&path, finalizers.to_vec(), detail);
    }
    // Custom resources and leases may have finalizers of any qualified name, with or without a prefix.
    if !kind.strategic || kind.group == "coordination.k8s.io" {
        return;
    }
    for (at, name) in finalizers.iter().filter_map(Value::as_str).enumerate() {
        standard_finalizer(name, &path.index(at), errors);
    }
}

/// A finalizer has a prefix, or is one of the few that every server knows.
pub(crate) fn standard_finalizer(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.invalid(path, name, detail);
    }
}

fn validate_no_new_finalizers(new: &Value, old: &Value, errors: &mut ErrorList) {
    let before = list(old, "finalizers");
    let mut extra: Vec<&str> = list(new, "finalizers")
        .iter()
        .filter(|name| !before.contains(name))
        .filter_map(Value::as_str)
        .collect();
    if extra.is_empty() {
        return;
    }
    extra.sort_unstable();
    extra.dedup();
    let shown: Vec<String> = extra.iter().map(|name| format!("{name:?}")).collect();
    errors.forbidden(
        &METADATA.child("finalizers"),
        format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            shown.join(", ")
        ),
    );
}

fn validate_managed(entry: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let operation = text(entry, "operation");
    if !matches!(operation, "Apply" | "Update") {
        errors.invalid(&path.child("operation"), operation, "must be `Apply` or `Update`");
    }
    if !matches!(text(entry, "fieldsType"), "" | "FieldsV1") {
        errors.invalid(&path.child("fieldsType"), text(entry, "fieldsType"), "must be `FieldsV1`");
    }
    validate_manager(text(entry, "manager"), &path.child("manager"), errors);
    if text(entry, "subresource").len() > SUBRESOURCE_BYTES_MAX {
        errors.too_long(&path.child("subresource"), SUBRESOURCE_BYTES_MAX);
    }
}

/// The name of a field manager, in `managedFields` or as a query parameter.
pub fn validate_manager(manager: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if manager.len() > MANAGER_BYTES_MAX {
        errors.too_long(path, MANAGER_BYTES_MAX);
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.invalid(path, manager, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kind(name: &str) -> Kind {
        crate::kinds::federation().into_iter().find(|k| k.kind == name).unwrap()
    }

    fn check_create(kind_name: &str, metadata: &Value, expected: &str) {
        let errors = validate_create(&kind(kind_name), &json!({"metadata": metadata}));
        let found = if errors.is_empty() { String::new() } else { errors.summary() };
        assert_eq!(found, expected, "{metadata}");
    }

    fn check_update(old: &Value, change: &Value, expected: &str) {
        let base = |extra: &Value| {
            let mut metadata = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"});
            for (key, value) in extra.as_object().unwrap() {
                metadata[key] = value.clone();
            }
            json!({"metadata": metadata})
        };
        let errors = validate_update(&kind("ConfigMap"), &base(change), &base(old));
        let found = if errors.is_empty() { String::new() } else { errors.summary() };
        assert_eq!(found, expected, "{old} to {change}");
    }

    #[test]
    fn creating() {
        let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        check_create("ConfigMap", &json!({"name": "a", "namespace": "n"}), "");
        check_create("ConfigMap", &json!({"name": "a-x", "generateName": "a-", "namespace": "n"}), "");
        check_create(
            "ConfigMap",
            &json!({}),
            "[metadata.name: Required value: name or generateName is required, metadata.namespace: Required value]",
        );
        check_create(
            "ConfigMap",
            &json!({"name": "a", "namespace": "N"}),
            &format!("metadata.namespace: Invalid value: \"N\": {label}"),
        );
        check_create(
            "Namespace",
            &json!({"name": "a", "namespace": "n"}),
            "metadata.namespace: Forbidden: not allowed on this type",
        );
        check_create(
            "ConfigMap",
            &json!({"name": "a", "namespace": "n", "finalizers": ["x", "orphan", "foregroundDeletion"]}),
            "[metadata.finalizers: Invalid value: [\"x\",\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set, metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified]",
        );
    }

    #[test]
    fn owners() {
        let owner =
            json!({"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u", "controller": true});
        let owners = |list: Value| json!({"name": "a", "namespace": "n", "ownerReferences": list});
        check_create("ConfigMap", &owners(json!([owner])), "");
        check_create(
            "ConfigMap",
            &owners(json!([{"apiVersion": "apps/", "kind": "", "name": "", "uid": ""}])),
            "[metadata.ownerReferences.apiVersion: Invalid value: \"apps/\": version must not be empty, metadata.ownerReferences.kind: Invalid value: \"\": must not be empty, metadata.ownerReferences.name: Invalid value: \"\": must not be empty, metadata.ownerReferences.uid: Invalid value: \"\": must not be empty]",
        );
        let shown = r#"{"apiVersion":"v1","kind":"Secret","name":"s","uid":"u","controller":true}"#;
        check_create(
            "ConfigMap",
            &owners(json!([owner, owner])),
            &format!(
                "metadata.ownerReferences: Invalid value: [{shown},{shown}]: Only one reference can have Controller set to true. Found \"true\" in references for Secret/s and Secret/s"
            ),
        );
    }

    #[test]
    fn updating() {
        check_update(&json!({}), &json!({"labels": {"a": "b"}}), "");
        check_update(
            &json!({}),
            &json!({"resourceVersion": ""}),
            "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
        );
        check_update(
            &json!({}),
            &json!({"uid": "v"}),
            "metadata.uid: Invalid value: \"v\": field is immutable",
        );
        check_update(
            &json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}),
            &json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b", "c/d"]}),
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"c/d\"}",
        );
        check_update(
            &json!({"generation": 2}),
            &json!({"generation": 1}),
            "metadata.generation: Invalid value: 1: must not be decremented",
        );
    }

    #[test]
    fn carried_over() {
        let old = json!({"metadata": {"uid": "u", "creationTimestamp": "t", "generation": 3, "deletionTimestamp": "d"}});
        let mut new =
            json!({"metadata": {"name": "a", "creationTimestamp": "x", "generation": 9, "selfLink": "/"}});
        carry_over(&mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"name": "a", "uid": "u", "creationTimestamp": "t", "generation": 3, "deletionTimestamp": "d"}})
        );
    }
}
