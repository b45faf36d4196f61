//! Environment variables of containers.

use serde_json::Value;

use super::super::check;
use super::super::read::{at, some, text, unsupported};
use super::resources;
use crate::field::{ErrorList, Path};

/// Fields of a pod that a variable may show.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields that Kubernetes knows, though not each may be shown everywhere.
const KNOWN_FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];

/// Resources of a container that may be shown.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// `env`.
pub(super) fn variables(errors: &mut ErrorList, path: &Path<'_>, variables: &[Value]) {
    for (index, variable) in variables.iter().enumerate() {
        let path = path.index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            check::env_name(errors, &path.child("name"), name);
        }
        if let Some(from) = some(variable, "valueFrom") {
            value_from(errors, &path.child("valueFrom"), from, text(variable, "value"));
        }
    }
}

fn value_from(errors: &mut ErrorList, path: &Path<'_>, from: &Value, value: &str) {
    let mut sources = 0;
    if let Some(reference) = some(from, "fieldRef") {
        sources += 1;
        field_ref(errors, &path.child("fieldRef"), reference, &FIELDS);
    }
    if let Some(reference) = some(from, "resourceFieldRef") {
        sources += 1;
        resource_ref(errors, &path.child("resourceFieldRef"), reference, false);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = some(from, field) {
            sources += 1;
            key_ref(errors, &path.child(field), reference);
        }
    }
    if let Some(reference) = some(from, "fileKeyRef") {
        sources += 1;
        file_ref(errors, &path.child("fileKeyRef"), reference);
    }
    let why = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !value.is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.invalid(path, "", why);
}

fn key_ref(errors: &mut ErrorList, path: &Path<'_>, reference: &Value) {
    check::dns_subdomain(errors, &path.child("name"), text(reference, "name"));
    let key = text(reference, "key");
    if key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        check::config_key(errors, &path.child("key"), key);
    }
}

fn file_ref(errors: &mut ErrorList, path: &Path<'_>, reference: &Value) {
    for (field, checked) in [
        ("key", check::env_name as fn(&mut ErrorList, &Path<'_>, &str)),
        ("volumeName", check::dns_label),
        ("path", check::no_backsteps),
    ] {
        let value = text(reference, field);
        if value.is_empty() {
            errors.required(&path.child(field), "");
        } else {
            checked(errors, &path.child(field), value);
        }
    }
}

/// A field of the pod.
pub(super) fn field_ref(errors: &mut ErrorList, path: &Path<'_>, reference: &Value, allowed: &[&str]) {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    for (name, value) in [("apiVersion", version), ("fieldPath", field)] {
        if value.is_empty() {
            errors.required(&path.child(name), "");
            return;
        }
    }
    let here = path.child("fieldPath");
    let mut refuse = |why: String| errors.invalid(&here, field, format!("error converting fieldPath: {why}"));
    if version != "v1" {
        refuse(format!("unsupported pod version: {version}"));
        return;
    }
    match subscript(field) {
        Some(("metadata.annotations", key)) => check::qualified_name(errors, path, &key.to_lowercase()),
        Some(("metadata.labels", key)) => check::qualified_name(errors, path, key),
        Some(_) => refuse(format!("field label does not support subscript: {field}")),
        None if !KNOWN_FIELDS.contains(&field) => refuse(format!("field label not supported: {field}")),
        None => {
            let field = if field == "spec.host" { "spec.nodeName" } else { field };
            if !allowed.contains(&field) {
                unsupported(errors, &here, field, allowed);
            }
        }
    }
}

/// `path['key']` in two.
fn subscript(field: &str) -> Option<(&str, &str)> {
    let (path, key) = field.strip_suffix("']")?.split_once("['")?;
    (!path.is_empty()).then_some((path, key))
}

/// A resource of a container; files must say of which.
pub(super) fn resource_ref(errors: &mut ErrorList, path: &Path<'_>, reference: &Value, file: bool) {
    let resource = text(reference, "resource");
    let huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|start| resource.starts_with(start));
    if file && text(reference, "containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !huge {
        unsupported(errors, &path.child("resource"), resource, &RESOURCES);
    }
    divisor(errors, &path.child("divisor"), resource, at(reference, "divisor"));
}

fn divisor(errors: &mut ErrorList, path: &Path<'_>, resource: &str, divisor: &Value) {
    const SIZES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let of = match resource.split_once('.').map_or("", |(_, of)| of) {
        "cpu" => "cpu",
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        other if other.starts_with("hugepages-") => "hugepages",
        _ => return,
    };
    let Some(text) = resources::nonzero(divisor) else { return };
    let (good, listed) = if of == "cpu" {
        (matches!(&*text, "1m" | "1"), "1m and 1".to_owned())
    } else {
        (SIZES.contains(&&*text), SIZES.join(", "))
    };
    if !good {
        let why = format!("only divisor's values {listed} are supported with the {of} resource");
        errors.invalid(path, resource, why);
    }
}

/// `envFrom`.
pub(super) fn sources(errors: &mut ErrorList, path: &Path<'_>, sources: &[Value]) {
    for (index, source) in sources.iter().enumerate() {
        let here = path.index(index);
        if !text(source, "prefix").is_empty() {
            check::env_name(errors, &here.child("prefix"), text(source, "prefix"));
        }
        let mut found = 0;
        for field in ["configMapRef", "secretRef"] {
            let Some(reference) = some(source, field) else { continue };
            found += 1;
            let name = text(reference, "name");
            let path = here.child(field);
            if name.is_empty() {
                errors.required(&path.child("name"), "");
            } else {
                check::dns_subdomain_prefix(errors, &path.child("name"), name);
            }
        }
        match found {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}
