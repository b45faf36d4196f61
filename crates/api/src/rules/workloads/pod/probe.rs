//! Probes and hooks of containers.

use serde_json::Value;

use super::super::check;
use super::super::read::{at, int, items, nonnegative_field, opt_int, some, text, unsupported};
use super::spec::Whole;
use crate::field::{ErrorList, Path};

/// All three probes.
pub(super) fn probes(errors: &mut ErrorList, path: &Path<'_>, container: &Value, whole: &Whole<'_>) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = some(container, field) else { continue };
        let path = path.child(field);
        self::probe(errors, &path, probe, whole);
        let grace = "terminationGracePeriodSeconds";
        if field == "readinessProbe" {
            if let Some(value) = some(probe, grace) {
                errors.invalid(&path.child(grace), value.clone(), "must not be set for readinessProbes");
            }
        } else if int(probe, "successThreshold") != 1 {
            errors.invalid(&path.child("successThreshold"), int(probe, "successThreshold"), "must be 1");
        }
    }
}

fn probe(errors: &mut ErrorList, path: &Path<'_>, probe: &Value, whole: &Whole<'_>) {
    handler(errors, path, probe, &["exec", "httpGet", "tcpSocket", "grpc"], whole);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        nonnegative_field(errors, path, probe, field);
    }
    let grace = "terminationGracePeriodSeconds";
    if let Some(seconds) = opt_int(probe, grace).filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.child(grace), seconds, "must be greater than 0");
    }
}

/// Hooks after the start and before the stop.
pub(super) fn lifecycle(errors: &mut ErrorList, path: &Path<'_>, container: &Value, whole: &Whole<'_>) {
    let Some(lifecycle) = some(container, "lifecycle") else { return };
    for field in ["postStart", "preStop"] {
        if let Some(hook) = some(lifecycle, field) {
            handler(errors, &path.child(field), hook, &["exec", "httpGet", "tcpSocket", "sleep"], whole);
        }
    }
}

fn handler(errors: &mut ErrorList, path: &Path<'_>, handler: &Value, kinds: &[&str], whole: &Whole<'_>) {
    let mut found = false;
    for kind in kinds {
        let Some(action) = some(handler, kind) else { continue };
        let path = path.child(kind);
        if found {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        self::action(errors, &path, kind, action, whole);
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn action(errors: &mut ErrorList, path: &Path<'_>, kind: &str, action: &Value, whole: &Whole<'_>) {
    match kind {
        "exec" => {
            if items(action, "command").is_empty() {
                errors.required(&path.child("command"), "");
            }
        }
        "httpGet" => http_get(errors, path, action),
        "sleep" => {
            let seconds = int(action, "seconds");
            if let Some(grace) = whole.grace_s.filter(|grace| seconds < 0 || seconds > *grace) {
                let why =
                    format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                errors.invalid(path, seconds, why);
            }
        }
        _ => check::port(errors, &path.child("port"), at(action, "port")),
    }
}

fn http_get(errors: &mut ErrorList, path: &Path<'_>, action: &Value) {
    if text(action, "path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    check::port(errors, &path.child("port"), at(action, "port"));
    if !matches!(text(action, "scheme"), "HTTP" | "HTTPS") {
        unsupported(errors, &path.child("scheme"), text(action, "scheme"), &["HTTP", "HTTPS"]);
    }
    for header in items(action, "httpHeaders") {
        check::http_header(errors, &path.child("httpHeaders"), text(header, "name"));
    }
}
