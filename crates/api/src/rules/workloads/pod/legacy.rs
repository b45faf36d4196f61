//! Sources of volumes that only old manifests name: their required fields, as a table, and a few rules.

use serde_json::Value;

use super::super::check;
use super::super::read::{at, entries, flag, has, int, items, text, unsupported};
use super::volume::required;
use crate::field::{ErrorList, Path};

/// Texts each source must have, in the order Kubernetes asks for them.
const REQUIRED: [(&str, &[&str]); 11] = [
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("cinder", &["volumeID"]),
    ("azureFile", &["secretName", "shareName"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
];

/// Everything wrong with a source of this name.
pub(super) fn validate(errors: &mut ErrorList, path: &Path<'_>, name: &str, source: &Value) {
    if let Some((_, fields)) = REQUIRED.iter().find(|(of, _)| *of == name) {
        required(errors, path, source, fields);
    }
    match name {
        "gitRepo" => check::descending_path(errors, &path.child("directory"), text(source, "directory")),
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = int(source, "partition");
            if !(0..=255).contains(&partition) {
                errors.invalid(&path.child("partition"), partition, "must be between 1 and 255, inclusive");
            }
        }
        "cinder" => secret_name(errors, path, source),
        "rbd" => {
            monitors(errors, path, source);
            required(errors, path, source, &["image"]);
        }
        "cephfs" => monitors(errors, path, source),
        "quobyte" => quobyte(errors, path, source),
        "flocker" => flocker(errors, path, source),
        "fc" => fibre_channel(errors, path, source),
        "flexVolume" => flex(errors, path, source),
        "azureDisk" => azure_disk(errors, path, source),
        "iscsi" => iscsi(errors, path, source),
        "storageos" => storage_os(errors, path, source),
        _ => {}
    }
}

fn monitors(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    if items(source, "monitors").is_empty() {
        errors.required(&path.child("monitors"), "");
    }
}

fn secret_name(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    if has(source, "secretRef") && text(at(source, "secretRef"), "name").is_empty() {
        errors.required(&path.child("secretRef").child("name"), "");
    }
}

fn quobyte(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    if registry.is_empty() {
        errors.required(&path.child("registry"), PAIRS);
    } else if text(source, "tenant").len() >= 65 {
        errors.required(&path.child("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|pair| pair.matches(':').count() != 1 && !pair.contains("]:")) {
            errors.invalid(&path.child("registry"), registry, PAIRS);
        }
    }
    required(errors, path, source, &["volume"]);
}

fn flocker(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    let (name, uuid) = (text(source, "datasetName"), text(source, "datasetUUID"));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            let why = "datasetName and datasetUUID can not be specified simultaneously";
            errors.invalid(path, "resource", why);
        }
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

fn fibre_channel(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    let (names, ids) = (items(source, "targetWWNs"), items(source, "wwids"));
    if names.is_empty() && ids.is_empty() {
        let why = "must specify either targetWWNs or wwids, but not both";
        errors.required(&path.child("targetWWNs"), why);
    }
    if !names.is_empty() && !ids.is_empty() {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&path.child("targetWWNs"), names.to_vec(), why);
    }
    if names.is_empty() {
        return;
    }
    if !has(source, "lun") {
        errors.required(&path.child("lun"), "lun is required if targetWWNs is specified");
    } else if !(0..=255).contains(&int(source, "lun")) {
        errors.invalid(&path.child("lun"), int(source, "lun"), "must be between 0 and 255, inclusive");
    }
}

fn flex(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    required(errors, path, source, &["driver"]);
    for (key, _) in entries(source, "options") {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let full = format!(".{}", namespace.to_lowercase());
        if full.ends_with(".kubernetes.io") || full.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&path.child("options").key(key), key, why);
        }
    }
}

fn azure_disk(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let modes = ["None", "ReadOnly", "ReadWrite"];
    if !modes.contains(&text(source, "cachingMode")) {
        unsupported(errors, &path.child("cachingMode"), text(source, "cachingMode"), &modes);
    }
    let kinds = ["Dedicated", "Managed", "Shared"];
    let kind = text(source, "kind");
    if !kinds.contains(&kind) {
        unsupported(errors, &path.child("kind"), kind, &kinds);
    }
    let uri = text(source, "diskURI");
    let (start, form) = if kind == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    if !uri.starts_with(start) {
        unsupported(errors, &path.child("diskURI"), uri, &[form]);
    }
}

fn iscsi(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    required(errors, path, source, &["targetPortal", "iqn"]);
    let name = text(source, "iqn");
    if !name.is_empty() {
        initiator(errors, &path.child("iqn"), name);
    }
    let lun = int(source, "lun");
    if !(0..=255).contains(&lun) {
        errors.invalid(&path.child("lun"), lun, "must be between 0 and 255, inclusive");
    }
    let chap = flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession");
    if chap && !has(source, "secretRef") {
        errors.required(&path.child("secretRef"), "");
    }
    if has(source, "initiatorName") {
        initiator(errors, &path.child("initiatorname"), text(source, "initiatorName"));
    }
}

fn initiator(errors: &mut ErrorList, path: &Path<'_>, name: &str) {
    let hexadecimal =
        |rest: &str, length| rest.len() == length && rest.bytes().all(|b| b.is_ascii_alphanumeric());
    let good = match name.get(..3) {
        Some("iqn") => good_iqn(name),
        Some("eui") => name.get(4..).is_some_and(|rest| hexadecimal(rest, 16)),
        Some("naa") => name.get(4..).is_some_and(|rest| hexadecimal(rest, 32)),
        _ => {
            errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa");
            return;
        }
    };
    if !good {
        errors.invalid(path, name, "must be valid format");
    }
}

/// `iqn.YYYY-MM.domain:name`.
fn good_iqn(name: &str) -> bool {
    let mut parts = name.splitn(3, '.');
    let (_, date, rest) = (parts.next(), parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let digits = |s: &str, length| s.len() == length && s.bytes().all(|b| b.is_ascii_digit());
    let dated = date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    let Some((domain, target)) = rest.split_once(':') else { return false };
    dated
        && !domain.is_empty()
        && domain.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        && !target.is_empty()
        && !target.contains([',', ';', '*', '&', '$', '|', ' '])
}

fn storage_os(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    required(errors, path, source, &["volumeName"]);
    for field in ["volumeName", "volumeNamespace"] {
        if !text(source, field).is_empty() {
            check::dns_label(errors, &path.child(field), text(source, field));
        }
    }
    secret_name(errors, path, source);
}
