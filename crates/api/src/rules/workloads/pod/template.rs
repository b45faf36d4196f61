//! Templates of pods: labels, annotations and the spec.

use serde_json::{Map, Value};

use super::super::check;
use super::super::read::{at, entries, has, items, some, text};
use super::spec::{self, Options};
use crate::field::{ErrorList, Path};

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Everything wrong with a template, whoever owns it.
pub(in super::super) fn validate(
    errors: &mut ErrorList,
    path: &Path<'_>,
    template: &Value,
    options: &Options<'_>,
) {
    let metadata = at(template, "metadata");
    let pod = at(template, "spec");
    check::labels(errors, &path.child("labels"), at(metadata, "labels"));
    check::annotations(errors, &path.child("annotations"), at(metadata, "annotations"));
    annotations(errors, &path.child("annotations"), metadata, pod);
    spec::validate(errors, &path.child("spec"), pod, options);
    profiles_match(errors, &path.child("spec"), metadata, pod);
    if !items(pod, "ephemeralContainers").is_empty() {
        errors.forbidden(
            &path.child("spec").child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

/// Annotations that mean something to pods.
pub(in super::super) fn annotations(errors: &mut ErrorList, path: &Path<'_>, metadata: &Value, pod: &Value) {
    let all = at(metadata, "annotations");
    if all.as_object().is_none_or(Map::is_empty) {
        return;
    }
    if let Some(value) = some(all, MIRROR)
        && text(pod, "nodeName").is_empty()
    {
        errors.invalid(
            &path.key(MIRROR),
            value.clone(),
            "must set spec.nodeName if mirror pod annotation is set",
        );
    }
    if has(all, DELETION_COST) && !good_cost(text(all, DELETION_COST)) {
        errors.invalid(&path.key(DELETION_COST), text(all, DELETION_COST), "must be a 32bit integer");
    }
    for (key, value) in entries(metadata, "annotations") {
        let value = value.as_str().unwrap_or("");
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp_name(errors, &path.child(key), value);
        }
    }
    for (key, value) in entries(metadata, "annotations") {
        let Some(name) = key.strip_prefix(APP_ARMOR) else { continue };
        let value = value.as_str().unwrap_or("");
        if !spec::containers(pod).any(|(_, _, container)| text(container, "name") == name) {
            errors.invalid(&path.key(key), name, "container not found");
        }
        let known = matches!(value, "" | "runtime/default" | "unconfined") || value.starts_with("localhost/");
        if !known {
            errors.invalid(&path.key(key), value, format!("invalid AppArmor profile name: {value:?}"));
        }
    }
}

fn good_cost(cost: &str) -> bool {
    let first = cost.bytes().next();
    let starts_well = cost == "0" || matches!(first, Some(b'-' | b'1'..=b'9'));
    starts_well && cost.parse::<i32>().is_ok()
}

fn seccomp_name(errors: &mut ErrorList, path: &Path<'_>, profile: &str) {
    match profile {
        "runtime/default" | "docker/default" | "unconfined" => {}
        _ => match profile.strip_prefix("localhost/") {
            Some(file) => check::descending_path(errors, path, file),
            None => errors.invalid(path, profile, "must be a valid seccomp profile"),
        },
    }
}

/// Old annotations and new fields must agree.
pub(in super::super) fn profiles_match(
    errors: &mut ErrorList,
    path: &Path<'_>,
    metadata: &Value,
    pod: &Value,
) {
    let all = at(metadata, "annotations");
    if all.as_object().is_none_or(Map::is_empty) {
        return;
    }
    let of_pod = at(pod, "securityContext");
    if let (Some(profile), Some(annotation)) = (some(of_pod, "seccompProfile"), some(all, SECCOMP_POD)) {
        let at = path.child("securityContext");
        seccomp_match(errors, &at.child("seccompProfile"), profile, annotation);
    }
    for (list, index, container) in spec::containers(pod) {
        let profile = some(at(container, "securityContext"), "seccompProfile");
        let annotation = all.get(format!("{SECCOMP_CONTAINER}{}", text(container, "name")));
        if let (Some(profile), Some(annotation)) = (profile, annotation) {
            let (list, item) = (path.child(list), index);
            let at = list.index(item);
            seccomp_match(errors, &at.child("securityContext").child("seccompProfile"), profile, annotation);
        }
    }
    if text(at(pod, "os"), "name") == "windows" {
        return;
    }
    for (list, index, container) in spec::containers(pod) {
        let own = some(at(container, "securityContext"), "appArmorProfile");
        let profile = own.or_else(|| some(of_pod, "appArmorProfile"));
        let annotation = all.get(format!("{APP_ARMOR}{}", text(container, "name")));
        if let (Some(profile), Some(annotation)) = (profile, annotation.and_then(Value::as_str)) {
            let list = path.child(list);
            let at = list.index(index);
            let context = at.child("securityContext");
            app_armor_match(errors, &context.child("appArmorProfile"), profile, annotation);
        }
    }
}

fn seccomp_match(errors: &mut ErrorList, path: &Path<'_>, profile: &Value, annotation: &Value) {
    let annotation = annotation.as_str().unwrap_or("");
    let (kind, file) = (text(profile, "type"), text(profile, "localhostProfile"));
    let agree = match kind {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => matches!(annotation, "runtime/default" | "docker/default"),
        "Localhost" => match annotation.strip_prefix("localhost/") {
            None => false,
            Some(name) if name == file => true,
            Some(_) => {
                errors.forbidden(
                    &path.child("localhostProfile"),
                    "seccomp profile in annotation and field must match",
                );
                true
            }
        },
        _ => true,
    };
    if !agree {
        errors.forbidden(&path.child("type"), "seccomp type in annotation and field must match");
    }
}

fn app_armor_match(errors: &mut ErrorList, path: &Path<'_>, profile: &Value, annotation: &str) {
    let agree = match text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default",
        "Localhost" => match annotation.strip_prefix("localhost/") {
            None => false,
            Some(name) => {
                if name != text(profile, "localhostProfile") {
                    errors.forbidden(
                        &path.child("localhostProfile"),
                        "apparmor profile in annotation and field must match",
                    );
                }
                true
            }
        },
        _ => true,
    };
    if !agree {
        errors.forbidden(&path.child("type"), "apparmor type in annotation and field must match");
    }
}
