//! Volumes and their sources.

use std::collections::HashMap;

use serde_json::Value;

use super::super::check;
use super::super::read::{at, has, items, opt_int, some, text, unsupported};
use super::defaults::SOURCES;
use super::spec::Options;
use super::{claim, legacy, projected, resources};
use crate::field::{ErrorList, Path};

/// Checks all volumes; gives the good ones by name, and whether each is made from a claim.
pub(super) fn validate_all<'a>(
    errors: &mut ErrorList,
    path: &Path<'_>,
    spec: &'a Value,
    options: &Options<'a>,
) -> HashMap<&'a str, bool> {
    let volumes = items(spec, "volumes");
    let mut good = HashMap::with_capacity(volumes.len() + options.claims.len());
    let claim_name = |claim: &'a Value| text(at(claim, "metadata"), "name");
    let mut made = 0;
    for name in options.claims.iter().map(claim_name) {
        if good.contains_key(name) {
            continue;
        }
        let before = errors.len();
        name_of(errors, &path.index(made).child("name"), name);
        if errors.len() == before {
            good.insert(name, true);
        }
        made += 1;
    }
    let pod = options.metadata.map_or("", |m| text(m, "name"));
    // Claims of the set hide volumes of the same name; those that remain are counted after the claims.
    let kept = volumes.iter().filter(|v| !options.claims.iter().any(|c| claim_name(c) == text(v, "name")));
    for (index, volume) in kept.enumerate() {
        let path = path.index(index.saturating_add(made));
        let name = text(volume, "name");
        let before = errors.len();
        source(errors, &path, volume, pod);
        name_of(errors, &path.child("name"), name);
        if good.contains_key(name) {
            errors.duplicate(&path.child("name"), name);
        }
        if errors.len() == before {
            good.insert(name, has(volume, "persistentVolumeClaim") || has(volume, "ephemeral"));
        }
        foreign_claim(errors, &path, volume, volumes, pod);
    }
    good
}

fn name_of(errors: &mut ErrorList, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        errors.required(path, "");
    } else {
        check::dns_label(errors, path, name);
    }
}

/// A pod must not name, as a claim of somebody else, one that it makes itself.
fn foreign_claim(errors: &mut ErrorList, path: &Path<'_>, volume: &Value, all: &[Value], pod: &str) {
    let name = text(at(volume, "persistentVolumeClaim"), "claimName");
    let Some(own) = name.strip_prefix(pod).and_then(|rest| rest.strip_prefix('-')) else { return };
    if !pod.is_empty() && all.iter().any(|v| has(v, "ephemeral") && text(v, "name") == own) {
        errors.invalid(
            &path.child("persistentVolumeClaim").child("claimName"),
            name,
            "must not reference a PVC that gets created for an ephemeral volume",
        );
    }
}

fn source(errors: &mut ErrorList, path: &Path<'_>, volume: &Value, pod: &str) {
    let mut found = false;
    for name in SOURCES {
        let Some(source) = some(volume, name) else { continue };
        if found {
            // Two of the paths that Kubernetes says here are misspelt; they are what clients see.
            let said = match name {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                other => other,
            };
            errors.forbidden(&path.child(said), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        let said = if name == "gcePersistentDisk" { "persistentDisk" } else { name };
        of_kind(errors, &path.child(said), name, source);
        if name == "ephemeral" {
            ephemeral_name(errors, path, text(volume, "name"), pod);
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn ephemeral_name(errors: &mut ErrorList, path: &Path<'_>, volume: &str, pod: &str) {
    if pod.is_empty() || volume.is_empty() {
        return;
    }
    let name = format!("{pod}-{volume}");
    for message in check::subdomain_messages(&name) {
        errors.invalid(&path.child("name"), volume, format!("PVC name {name:?}: {message}"));
    }
}

fn of_kind(errors: &mut ErrorList, path: &Path<'_>, name: &str, source: &Value) {
    match name {
        "emptyDir" => {
            if resources::is_negative(at(source, "sizeLimit")) {
                errors
                    .forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
            }
        }
        "hostPath" => host_path(errors, path, source),
        "secret" => files(errors, path, source, "secretName"),
        "configMap" => files(errors, path, source, "name"),
        "persistentVolumeClaim" => required(errors, path, source, &["claimName"]),
        "nfs" => {
            required(errors, path, source, &["server", "path"]);
            if !text(source, "path").starts_with('/') {
                errors.invalid(&path.child("path"), text(source, "path"), "must be an absolute path");
            }
        }
        "downwardAPI" => {
            mode(errors, path, source, "defaultMode");
            for file in items(source, "items") {
                projected::downward_file(errors, path, file);
            }
        }
        "projected" => {
            mode(errors, path, source, "defaultMode");
            projected::validate(errors, path, source);
        }
        "csi" => csi(errors, path, source),
        "ephemeral" => match some(source, "volumeClaimTemplate") {
            None => errors.required(&path.child("volumeClaimTemplate"), ""),
            Some(template) => claim::validate_template(errors, &path.child("volumeClaimTemplate"), template),
        },
        "image" => pull_policy(errors, &path.child("pullPolicy"), text(source, "pullPolicy")),
        _ => legacy::validate(errors, path, name, source),
    }
}

/// Fields that must not be empty.
pub(super) fn required(errors: &mut ErrorList, path: &Path<'_>, source: &Value, fields: &[&str]) {
    for field in fields {
        if text(source, field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
}

/// `Always`, `IfNotPresent` or `Never`.
pub(super) fn pull_policy(errors: &mut ErrorList, path: &Path<'_>, policy: &str) {
    match policy {
        "Always" | "IfNotPresent" | "Never" => {}
        "" => errors.required(path, ""),
        other => unsupported(errors, path, other, &["Always", "IfNotPresent", "Never"]),
    }
}

/// A file mode, where given.
pub(super) fn mode(errors: &mut ErrorList, path: &Path<'_>, source: &Value, field: &str) {
    if let Some(mode) = opt_int(source, field)
        && !(0..=0o777).contains(&mode)
    {
        errors.invalid(
            &path.child(field),
            mode,
            "must be a number between 0 and 0777 (octal), both inclusive",
        );
    }
}

fn files(errors: &mut ErrorList, path: &Path<'_>, source: &Value, name: &str) {
    required(errors, path, source, &[name]);
    mode(errors, path, source, "defaultMode");
    for (index, item) in items(source, "items").iter().enumerate() {
        key_to_path(errors, &path.child("items").index(index), item);
    }
}

/// One key and the file it goes to.
pub(super) fn key_to_path(errors: &mut ErrorList, path: &Path<'_>, item: &Value) {
    required(errors, path, item, &["key", "path"]);
    check::local_path(errors, &path.child("path"), text(item, "path"));
    mode(errors, path, item, "mode");
}

fn host_path(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    const KINDS: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if text(source, "path").is_empty() {
        errors.required(&path.child("path"), "");
        return;
    }
    check::no_backsteps(errors, &path.child("path"), text(source, "path"));
    if !KINDS.contains(&text(source, "type")) {
        unsupported(errors, &path.child("type"), text(source, "type"), &KINDS);
    }
}

fn csi(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    let driver = text(source, "driver");
    if driver.is_empty() {
        errors.required(&path.child("driver"), "");
    } else {
        if driver.len() > 63 {
            errors.too_long(&path.child("driver"), 63);
        }
        for message in check::subdomain_messages(&driver.to_lowercase()) {
            errors.invalid(&path.child("driver"), driver, message);
        }
    }
    if let Some(secret) = some(source, "nodePublishSecretRef") {
        if text(secret, "name").is_empty() {
            errors.required(&path.child("nodePublishSecretRef").child("name"), "");
        } else {
            check::dns_subdomain(errors, &path.child("name"), text(secret, "name"));
        }
    }
}
