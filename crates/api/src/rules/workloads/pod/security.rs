//! Security contexts of pods and containers.

use std::collections::HashSet;

use serde_json::Value;

use super::super::check;
use super::super::read::{at, flag, has, items, opt_flag, opt_int, shown, some, text, texts, unsupported};
use super::go_form;
use super::spec::Whole;
use crate::field::{ErrorList, ErrorType, Path};

const ID_RANGE: std::ops::RangeInclusive<i64> = 0..=2_147_483_647;

fn id(errors: &mut ErrorList, path: &Path<'_>, id: Option<i64>) {
    if let Some(id) = id.filter(|id| !ID_RANGE.contains(id)) {
        errors.invalid(path, id, "must be between 0 and 2147483647, inclusive");
    }
}

/// The pod's context; `path` is the spec's.
pub(super) fn validate_pod(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let Some(context) = some(spec, "securityContext") else { return };
    let path = path.child("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(errors, &path.child(field), opt_int(context, field));
    }
    for (index, group) in items(context, "supplementalGroups").iter().enumerate() {
        id(errors, &path.child("supplementalGroups").index(index), group.as_i64());
    }
    if flag(spec, "hostPID") && flag(spec, "shareProcessNamespace") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), true, why);
    }
    sysctls(errors, &path.child("sysctls"), context, spec);
    choice(errors, &path, context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"]);
    seccomp(errors, &path.child("seccompProfile"), context);
    app_armor(errors, &path.child("appArmorProfile"), context);
    choice(errors, &path, context, "supplementalGroupsPolicy", &["Merge", "Strict"]);
    choice(errors, &path, context, "seLinuxChangePolicy", &["MountOption", "Recursive"]);
}

fn choice(errors: &mut ErrorList, path: &Path<'_>, of: &Value, field: &str, allowed: &[&str]) {
    if let Some(value) = some(of, field).and_then(Value::as_str).filter(|v| !allowed.contains(v)) {
        unsupported(errors, &path.child(field), value, allowed);
    }
}

fn sysctls(errors: &mut ErrorList, path: &Path<'_>, context: &Value, spec: &Value) {
    const FORM: &str = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen = HashSet::new();
    for (index, setting) in items(context, "sysctls").iter().enumerate() {
        let item = path.index(index);
        let path = item.child("name");
        let name = text(setting, "name");
        if name.is_empty() {
            errors.required(&path, "");
        } else if !good_sysctl(name) {
            errors.invalid(&path, name, FORM);
        } else if seen.contains(name) {
            errors.duplicate(&path, name);
        }
        let dotted = name.replace('/', ".");
        let ipc = ["kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue."];
        if flag(spec, "hostNetwork") && dotted.starts_with("net.") {
            errors.invalid(&path, name, "may not be specified when 'hostNetwork' is true");
        } else if flag(spec, "hostIPC") && ipc.iter().any(|start| dotted.starts_with(start)) {
            errors.invalid(&path, name, "may not be specified when 'hostIPC' is true");
        }
        seen.insert(name);
    }
}

fn good_sysctl(name: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let segment = |s: &str| {
        let bytes = s.as_bytes();
        bytes.first().is_some_and(|b| edge(*b))
            && bytes.last().is_some_and(|b| edge(*b))
            && bytes.iter().all(|b| edge(*b) || *b == b'-' || *b == b'_')
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

fn seccomp(errors: &mut ErrorList, path: &Path<'_>, context: &Value) {
    let Some(profile) = some(context, "seccompProfile") else { return };
    let allowed = ["Localhost", "RuntimeDefault", "Unconfined"];
    let kind = text(profile, "type");
    if kind.is_empty() {
        errors.required(&path.child("type"), "type is required when seccompProfile is set");
    } else if !allowed.contains(&kind) {
        unsupported(errors, &path.child("type"), kind, &allowed);
    }
    let path = path.child("localhostProfile");
    match (kind == "Localhost", some(profile, "localhostProfile")) {
        (true, None) => errors.required(&path, "must be set when seccomp type is Localhost"),
        (true, Some(file)) => check::descending_path(errors, &path, file.as_str().unwrap_or("")),
        (false, Some(_)) => {
            let why = "can only be set when seccomp type is Localhost";
            let go = go_form::write("SeccompProfile", profile);
            shown(ErrorType::Invalid, errors, &path, &go, why);
        }
        (false, None) => {}
    }
}

fn app_armor(errors: &mut ErrorList, path: &Path<'_>, context: &Value) {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    let Some(profile) = some(context, "appArmorProfile") else { return };
    let file = some(profile, "localhostProfile").and_then(Value::as_str);
    let at_file = path.child("localhostProfile");
    match (text(profile, "type"), file) {
        ("Localhost", None | Some("")) => errors.required(&at_file, NEEDED),
        ("Localhost", Some(file)) => {
            if file.trim() != file {
                errors.invalid(&at_file, file, "must not be padded with whitespace");
            }
            if file.len() > 4095 {
                errors.too_long(&at_file, 4095);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            errors.invalid(&at_file, file, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => errors.required(&path.child("type"), "type is required when appArmorProfile is set"),
        (other, _) => {
            let allowed = ["Localhost", "RuntimeDefault", "Unconfined"];
            unsupported(errors, &path.child("type"), other, &allowed);
        }
    }
}

/// A container's context.
pub(super) fn validate_container(
    errors: &mut ErrorList,
    path: &Path<'_>,
    container: &Value,
    whole: &Whole<'_>,
) {
    let Some(context) = some(container, "securityContext") else { return };
    for field in ["runAsUser", "runAsGroup"] {
        id(errors, &path.child(field), opt_int(context, field));
    }
    if has(context, "procMount") {
        let mount = text(context, "procMount");
        let allowed = ["Default", "Unmasked"];
        if !allowed.contains(&mount) {
            unsupported(errors, &path.child("procMount"), mount, &allowed);
        }
        if whole.host_users && mount == "Unmasked" {
            let why = "`hostUsers` must be false to use `Unmasked`";
            errors.invalid(&path.child("procMount"), mount, why);
        }
    }
    seccomp(errors, &path.child("seccompProfile"), context);
    if opt_flag(context, "allowPrivilegeEscalation") == Some(false) {
        let mut refuse = |why: &str| {
            shown(ErrorType::Invalid, errors, path, &go_form::write("SecurityContext", context), why);
        };
        if flag(context, "privileged") {
            refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        for _ in texts(at(context, "capabilities"), "add").filter(|c| *c == "CAP_SYS_ADMIN") {
            refuse("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    app_armor(errors, &path.child("appArmorProfile"), context);
}
