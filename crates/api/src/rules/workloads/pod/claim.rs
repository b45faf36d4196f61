//! Claims of storage inside pods and StatefulSets.

use serde_json::Value;

use super::super::check;
use super::super::read::{at, has, is_zero, items, same, shown, some, text, texts, unsupported};
use super::resources;
use crate::field::{ErrorList, ErrorType, Path};

/// Metadata a claim's template may not set, by their Kubernetes names.
const FORBIDDEN_METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "UID",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// The template of an ephemeral volume.
pub(super) fn validate_template(errors: &mut ErrorList, path: &Path<'_>, template: &Value) {
    let metadata = at(template, "metadata");
    let here = path.child("metadata");
    check::annotations(errors, &here.child("annotations"), at(metadata, "annotations"));
    check::labels(errors, &here.child("labels"), at(metadata, "labels"));
    for field in FORBIDDEN_METADATA {
        let ours = if field == "UID" { "uid" } else { field };
        if !is_zero(at(metadata, ours)) {
            let said = if field == "UID" { "uID" } else { field };
            errors.forbidden(&here.child(said), "cannot be set");
        }
    }
    validate(errors, &path.child("spec"), at(template, "spec"));
}

/// The spec of a claim.
pub(in super::super) fn validate(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    if items(spec, "accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "at least 1 access mode is required");
    }
    if has(spec, "selector") {
        check::selector(errors, &path.child("selector"), at(spec, "selector"));
    }
    access_modes(errors, &path.child("accessModes"), spec);
    let requests = at(at(spec, "resources"), "requests");
    resources::storage(errors, &path.child("resources").key("storage"), at(requests, "storage"));
    if !text(spec, "storageClassName").is_empty() {
        check::dns_subdomain(errors, &path.child("storageClassName"), text(spec, "storageClassName"));
    }
    let modes = ["Block", "Filesystem"];
    if has(spec, "volumeMode") && !modes.contains(&text(spec, "volumeMode")) {
        unsupported(errors, &path.child("volumeMode"), text(spec, "volumeMode"), &modes);
    }
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = some(spec, field) {
            data_source(errors, &path.child(field), source);
        }
    }
    sources_agree(errors, path, spec);
    let class = "volumeAttributesClassName";
    if !text(spec, class).is_empty() {
        check::dns_subdomain(errors, &path.child(class), text(spec, class));
    }
}

fn access_modes(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    for mode in texts(spec, "accessModes").filter(|mode| !MODES.contains(mode)) {
        unsupported(errors, path, mode, &MODES);
    }
    let once = |mode: &str| mode == "ReadWriteOncePod";
    if texts(spec, "accessModes").any(once)
        && texts(spec, "accessModes").any(|mode| MODES.contains(&mode) && !once(mode))
    {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn data_source(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.is_empty() {
        check::dns_subdomain(errors, &path.child("apiGroup"), group);
    }
    if !text(source, "namespace").is_empty() {
        check::dns_label(errors, &path.child("namespace"), text(source, "namespace"));
    }
}

fn sources_agree(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let (Some(source), Some(reference)) = (some(spec, "dataSource"), some(spec, "dataSourceRef")) else {
        return;
    };
    let why = if !text(reference, "namespace").is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if ["apiGroup", "kind", "name"].iter().any(|f| !same(at(source, f), at(reference, f))) {
        "must match dataSourceRef"
    } else {
        return;
    };
    // Kubernetes prints the path where the value should stand, as an empty object.
    shown(ErrorType::Invalid, errors, path, "{}", why);
}
