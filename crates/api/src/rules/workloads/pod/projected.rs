//! Projected volumes, and files made from a pod's own fields.

use std::collections::HashSet;

use serde_json::Value;

use super::super::check;
use super::super::read::{at, has, int, items, some, text};
use super::env;
use super::volume::{key_to_path, mode, required};
use crate::field::{ErrorList, Path};

const KINDS: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];

/// Fields of a pod that a file may show.
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Everything wrong with the sources of a projected volume.
pub(super) fn validate(errors: &mut ErrorList, path: &Path<'_>, projected: &Value) {
    let mut paths = HashSet::new();
    for (index, source) in items(projected, "sources").iter().enumerate() {
        let list = path.child("sources");
        let at_source = list.index(index);
        for kind in ["secret", "configMap"] {
            if let Some(files) = some(source, kind) {
                key_files(errors, path, &at_source.child(kind), files, &mut paths);
            }
        }
        if let Some(files) = some(source, "downwardAPI") {
            for file in items(files, "items") {
                downward_file(errors, &at_source.child("downwardAPI"), file);
                once(errors, path, text(file, "path"), text(file, "path"), &mut paths);
            }
        }
        if let Some(token) = some(source, "serviceAccountToken") {
            account_token(errors, path, &at_source.child("serviceAccountToken"), token);
        }
        if KINDS.iter().filter(|kind| has(source, kind)).count() > 1 {
            errors.forbidden(&at_source, "may not specify more than 1 volume type per source");
        }
    }
}

fn key_files<'a>(
    errors: &mut ErrorList,
    volume: &Path<'_>,
    path: &Path<'_>,
    source: &'a Value,
    paths: &mut HashSet<&'a str>,
) {
    required(errors, path, source, &["name"]);
    for (index, item) in items(source, "items").iter().enumerate() {
        key_to_path(errors, &path.child("items").index(index), item);
        once(errors, volume, text(item, "path"), text(source, "name"), paths);
    }
}

fn once<'a>(
    errors: &mut ErrorList,
    path: &Path<'_>,
    file: &'a str,
    shown: &str,
    paths: &mut HashSet<&'a str>,
) {
    if !file.is_empty() && !paths.insert(file) {
        errors.invalid(path, shown, "conflicting duplicate paths");
    }
}

fn account_token(errors: &mut ErrorList, volume: &Path<'_>, path: &Path<'_>, token: &Value) {
    let seconds = int(token, "expirationSeconds");
    if seconds < 600 {
        errors.invalid(
            &path.child("expirationSeconds"),
            seconds,
            "may not specify a duration less than 10 minutes",
        );
    }
    if seconds > 1 << 32 {
        errors.invalid(
            &path.child("expirationSeconds"),
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    if text(token, "path").is_empty() {
        errors.required(&volume.child("path"), "");
    } else {
        check::local_path(errors, &volume.child("path"), text(token, "path"));
    }
}

/// One file that shows a field of the pod or a resource of a container.
pub(super) fn downward_file(errors: &mut ErrorList, path: &Path<'_>, file: &Value) {
    required(errors, path, file, &["path"]);
    check::local_path(errors, &path.child("path"), text(file, "path"));
    if has(file, "fieldRef") {
        env::field_ref(errors, &path.child("fieldRef"), at(file, "fieldRef"), &FILE_FIELDS);
        if has(file, "resourceFieldRef") {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.invalid(path, "resource", why);
        }
    } else if let Some(reference) = some(file, "resourceFieldRef") {
        env::resource_ref(errors, &path.child("resourceFieldRef"), reference, true);
    } else {
        errors.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    mode(errors, path, file, "mode");
}
