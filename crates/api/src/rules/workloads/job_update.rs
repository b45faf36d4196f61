//! What may change in a job, and what not.

use serde_json::{Map, Value};

use super::pod::go_form;
use super::read::{at, flag, int, is_zero, items, opt_int, same, selector_json, shown, text};
use crate::field::{ErrorList, ErrorType, Path};

const IMMUTABLE: &str = "field is immutable";

/// Everything wrong with a change of a job's spec.
pub(super) fn validate(object: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (new_spec, old_spec) = (at(object, "spec"), at(old, "spec"));
    let path = Path::new("spec");
    completions(&mut errors, &path.child("completions"), new_spec, old_spec);
    let (new, before) = (at(new_spec, "selector"), at(old_spec, "selector"));
    if !same(new, before) {
        let json = selector_json(new);
        shown(ErrorType::Invalid, &mut errors, &path.child("selector"), &json, IMMUTABLE);
    }
    template(&mut errors, &path, new_spec, old);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        let (new, before) = (at(new_spec, field), at(old_spec, field));
        if !same(new, before) {
            let json = go_form::write(field, new);
            shown(ErrorType::Invalid, &mut errors, &path.child(field), &json, IMMUTABLE);
        }
    }
    errors
}

/// Indexed jobs can be made longer or shorter, together with their parallelism.
fn completions(errors: &mut ErrorList, path: &Path<'_>, new: &Value, old: &Value) {
    let (now, before) = (at(new, "completions"), at(old, "completions"));
    if same(now, before) {
        return;
    }
    if text(new, "completionMode") != "Indexed" {
        errors.invalid(path, now.clone(), IMMUTABLE);
    } else if let Some(count) = opt_int(new, "completions").filter(|count| *count != int(new, "parallelism"))
    {
        errors.invalid(path, count, "can only be modified in tandem with spec.parallelism");
    }
}

/// While a job is suspended and has no pods, a scheduler may still say where they go and how much they get.
fn still_open(job: &Value) -> bool {
    let status = at(job, "status");
    let started = !text(status, "startTime").is_empty();
    let suspended = items(status, "conditions")
        .iter()
        .any(|c| text(c, "type") == "Suspended" && text(c, "status") == "True");
    flag(at(job, "spec"), "suspend") && (!started || suspended) && int(status, "active") == 0
}

fn template(errors: &mut ErrorList, path: &Path<'_>, new_spec: &Value, old: &Value) {
    let (new, before) = (at(new_spec, "template"), at(at(old, "spec"), "template"));
    if same(new, before) {
        return;
    }
    if !still_open(old) {
        let json = go_form::write("template", new);
        shown(ErrorType::Invalid, errors, &path.child("template"), &json, IMMUTABLE);
        return;
    }
    let mut allowed = at(before, "spec").clone();
    if let Some(allowed) = allowed.as_object_mut() {
        allow_directives(allowed, at(new, "spec"));
        allow_resources(allowed, at(new, "spec"));
    }
    if !same(at(new, "spec"), &allowed) {
        let json = go_form::write("podSpec", at(new, "spec"));
        shown(ErrorType::Invalid, errors, &path.child("template.spec"), &json, IMMUTABLE);
    }
}

fn take(to: &mut Map<String, Value>, from: &Value, field: &str) {
    to.insert(field.to_owned(), at(from, field).clone());
}

fn allow_directives(old: &mut Map<String, Value>, new: &Value) {
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        take(old, new, field);
    }
    let affinity = at(new, "affinity");
    let nodes = at(affinity, "nodeAffinity").clone();
    let entry = old.entry("affinity").or_insert(Value::Null);
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    if let Some(entry) = entry.as_object_mut() {
        entry.insert("nodeAffinity".into(), nodes);
        entry.retain(|_, value| !value.is_null());
    }
    if affinity.is_null() && old.get("affinity").is_some_and(is_zero) {
        old.remove("affinity");
    }
}

fn allow_resources(old: &mut Map<String, Value>, new: &Value) {
    for list in ["containers", "initContainers"] {
        let theirs = items(new, list);
        let Some(ours) = old.get_mut(list).and_then(Value::as_array_mut) else { continue };
        if ours.len() != theirs.len() {
            continue;
        }
        for (container, other) in ours.iter_mut().zip(theirs) {
            if text(container, "name") == text(other, "name")
                && let Some(container) = container.as_object_mut()
            {
                take(container, other, "resources");
            }
        }
    }
}
