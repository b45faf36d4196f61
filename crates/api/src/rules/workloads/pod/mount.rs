//! Where containers see volumes: as directories and as raw devices.

use std::collections::HashSet;

use serde_json::Value;

use super::super::check;
use super::super::read::{at, flag, items, some, text, unsupported};
use super::spec::Whole;
use crate::field::{ErrorList, Path};

/// `volumeMounts`.
pub(super) fn mounts(errors: &mut ErrorList, path: &Path<'_>, container: &Value, whole: &Whole<'_>) {
    let mut points = HashSet::new();
    let devices = items(container, "volumeDevices");
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let here = path.index(index);
        let (name, point) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(&here.child("name"), "");
        }
        if !whole.volumes.contains_key(name) {
            errors.not_found(&here.child("name"), name);
        }
        if point.is_empty() {
            errors.required(&here.child("mountPath"), "");
        }
        if !points.insert(point) {
            errors.invalid(&here.child("mountPath"), point, "must be unique");
        }
        if devices.iter().any(|d| text(d, "name") == name) {
            errors.invalid(&here.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|d| text(d, "devicePath") == point) {
            let why = "must not already exist as a path in volumeDevices";
            errors.invalid(&here.child("mountPath"), point, why);
        }
        sub_paths(errors, path, &here, mount);
        propagation(errors, &path.child("mountPropagation"), mount, container);
        recursive(errors, &path.child("recursiveReadOnly"), mount);
    }
}

fn sub_paths(errors: &mut ErrorList, list: &Path<'_>, here: &Path<'_>, mount: &Value) {
    let (plain, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    if !plain.is_empty() {
        check::descending_path(errors, &list.child("subPath"), plain);
    }
    if !expression.is_empty() {
        if !plain.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&here.child("subPathExpr"), expression, why);
        }
        check::descending_path(errors, &list.child("subPathExpr"), expression);
    }
}

fn propagation(errors: &mut ErrorList, path: &Path<'_>, mount: &Value, container: &Value) {
    const MODES: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    let Some(mode) = some(mount, "mountPropagation").and_then(Value::as_str) else { return };
    if !MODES.contains(&mode) {
        unsupported(errors, path, mode, &MODES);
    }
    if mode == "Bidirectional" && !flag(at(container, "securityContext"), "privileged") {
        errors.forbidden(path, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn recursive(errors: &mut ErrorList, path: &Path<'_>, mount: &Value) {
    match some(mount, "recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !flag(mount, "readOnly") {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if !matches!(text(mount, "mountPropagation"), "" | "None") {
                errors
                    .forbidden(path, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => unsupported(errors, path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// `volumeDevices`.
pub(super) fn devices(errors: &mut ErrorList, path: &Path<'_>, container: &Value, whole: &Whole<'_>) {
    let (mut paths, mut names) = (HashSet::new(), HashSet::new());
    let mounts = items(container, "volumeMounts");
    for (index, device) in items(container, "volumeDevices").iter().enumerate() {
        let path = path.index(index);
        let (name, point) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        }
        if names.contains(name) {
            errors.invalid(&path.child("name"), name, "must be unique");
        }
        match whole.volumes.get(name) {
            Some(true) => {}
            Some(false) => {
                let why =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&path.child("name"), name, why);
            }
            None => errors.not_found(&path.child("name"), name),
        }
        if point.is_empty() {
            errors.required(&path.child("devicePath"), "");
        }
        if paths.contains(point) {
            errors.invalid(&path.child("devicePath"), point, "must be unique");
        }
        if point.split('/').any(|part| part == "..") {
            errors.invalid(&path.child("devicePath"), point, "can not contain backsteps ('..')");
        } else {
            paths.insert(point);
        }
        if mounts.iter().any(|m| text(m, "name") == name) {
            errors.invalid(&path.child("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|m| text(m, "mountPath") == point) {
            let why = "must not already exist as a path in volumeMounts";
            errors.invalid(&path.child("devicePath"), point, why);
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
