//! What kinds with replicas share: selectors, templates, percentages, counts in status.

use serde_json::{Map, Value};

use super::check;
use super::pod::spec::Options;
use super::pod::template;
use super::read::{
    at, has, int, is_zero, nonnegative, opt_int, same, selector_json, shown, text, unsupported,
};
use crate::field::{ErrorList, ErrorType, Path};
use crate::names;

/// The selector of an `apps/v1` kind: required, sensible, not empty, and selecting its own template.
/// `kind` is said of an empty one, `nonsense` of one that cannot be read. Returns whether it could be read.
pub(super) fn selector(
    errors: &mut ErrorList,
    path: &Path<'_>,
    spec: &Value,
    kind: &str,
    nonsense: &str,
) -> bool {
    let selector = at(spec, "selector");
    let here = path.child("selector");
    if selector.is_null() {
        errors.required(&here, "");
    } else {
        check::selector(errors, &here, selector);
        if is_zero(at(selector, "matchLabels")) && is_zero(at(selector, "matchExpressions")) {
            let why = format!("empty selector is invalid for {kind}");
            shown(ErrorType::Invalid, errors, &here, &selector_json(selector), &why);
        }
    }
    let labels = at(at(at(spec, "template"), "metadata"), "labels");
    match check::selects(selector, labels) {
        Some(true) => true,
        Some(false) => {
            unmatched(errors, &path.child("template"), labels);
            true
        }
        None => {
            // An empty reason leaves the sentence without its last part.
            let json = selector_json(selector);
            let text = if nonsense.is_empty() { json } else { format!("{json}: {nonsense}") };
            errors.add(ErrorType::Invalid, &here, None, text);
            false
        }
    }
}

/// The template has other labels than the selector wants.
pub(super) fn unmatched(errors: &mut ErrorList, template: &Path<'_>, labels: &Value) {
    errors.invalid(
        &template.child("metadata").child("labels"),
        labels.clone(),
        "`selector` does not match template `labels`",
    );
}

/// The template of a kind that restarts its pods for ever.
pub(super) fn always_template(
    errors: &mut ErrorList,
    path: &Path<'_>,
    template: &Value,
    kind: &str,
    options: &Options<'_>,
) {
    template::validate(errors, path, template, options);
    always(errors, path, template, kind);
}

/// Pods that are restarted for ever have no deadline.
pub(super) fn always(errors: &mut ErrorList, path: &Path<'_>, template: &Value, kind: &str) {
    let spec = at(template, "spec");
    if text(spec, "restartPolicy") != "Always" {
        let path = path.child("spec");
        unsupported(errors, &path.child("restartPolicy"), text(spec, "restartPolicy"), &["Always"]);
    }
    if has(spec, "activeDeadlineSeconds") {
        errors.forbidden(
            &path.child("spec").child("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

/// A selector that changed.
pub(super) fn immutable_selector(errors: &mut ErrorList, new: &Value, old: &Value) {
    let (new, old) = (at(at(new, "spec"), "selector"), at(at(old, "spec"), "selector"));
    if !same(new, old) {
        let path = Path::new("spec");
        let json = selector_json(new);
        shown(ErrorType::Invalid, errors, &path.child("selector"), &json, "field is immutable");
    }
}

// === numbers and percentages ===

/// A number that is not negative, or a percentage.
pub(super) fn int_or_percent(errors: &mut ErrorList, path: &Path<'_>, value: &Value) {
    match value.as_str() {
        Some(text) => {
            for sentence in names::percent(text) {
                errors.invalid(path, text, sentence);
            }
        }
        None => nonnegative(errors, path, value.as_i64().unwrap_or(0)),
    }
}

/// The number before `%`, if the value is a percentage.
pub(super) fn percent(value: &Value) -> Option<i64> {
    let text = value.as_str()?;
    names::percent(text).is_empty().then_some(())?;
    Some(text.strip_suffix('%')?.parse().unwrap_or(i64::MAX))
}

/// The number, or the number before `%`.
pub(super) fn amount(value: &Value) -> i64 {
    percent(value)
        .or_else(|| value.as_i64())
        .or_else(|| value.as_str().and_then(|text| text.parse().ok()))
        .unwrap_or(0)
}

/// A percentage is at most 100.
pub(super) fn at_most_all(errors: &mut ErrorList, path: &Path<'_>, value: &Value) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

// === status ===

/// Counts of a status: none negative.
pub(super) fn counts(errors: &mut ErrorList, path: &Path<'_>, status: &Value, fields: &[&str]) {
    for field in fields {
        if let Some(count) = opt_int(status, field) {
            nonnegative(errors, &path.child(field), count);
        }
    }
}

/// Counts of a status that cannot exceed another.
pub(super) fn no_more_than(
    errors: &mut ErrorList,
    path: &Path<'_>,
    status: &Value,
    fields: &[&str],
    most: &str,
    said: &str,
) {
    for field in fields {
        if int(status, field) > int(status, most) {
            errors.invalid(&path.child(field), int(status, field), format!("cannot be greater than {said}"));
        }
    }
}

/// `collisionCount` only rises.
pub(super) fn collisions(errors: &mut ErrorList, new: &Value, old: &Value) {
    let count = |of: &Value| opt_int(at(of, "status"), "collisionCount");
    let fell = match (count(new), count(old)) {
        (None, Some(_)) => true,
        (Some(new), Some(old)) => new < old,
        _ => false,
    };
    if fell {
        let path = Path::new("status");
        errors.invalid(&path.child("collisionCount"), count(new).unwrap_or(0), "cannot be decremented");
    }
}

/// Counts that Kubernetes writes even when they are zero.
pub(super) fn zero_status(object: &mut Value, fields: &[&str]) {
    let Some(status) = object.as_object_mut().and_then(|map| super::read::child_or_new(map, "status")) else {
        return;
    };
    zeros(status, fields);
}

fn zeros(status: &mut Map<String, Value>, fields: &[&str]) {
    for field in fields {
        super::read::fill(status, field, 0);
    }
}
