//! When a job counts as failed or succeeded, and when its pods are replaced.

use std::collections::HashSet;

use serde_json::Value;

use super::check;
use super::read::{at, has, int, items, nonnegative, opt_int, shown, some, text, too_many, unsupported};
use crate::field::{ErrorList, ErrorType, Path};

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const PATTERNS_MAX: usize = 20;
const INDEXES_LENGTH_MAX: usize = 64 * 1024;

/// The policies of a job's spec.
pub(super) fn validate(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    if let Some(policy) = some(spec, "podFailurePolicy") {
        failure(errors, &path.child("podFailurePolicy").child("rules"), spec, items(policy, "rules"));
    }
    if let Some(policy) = some(spec, "successPolicy") {
        let path = path.child("successPolicy");
        if text(spec, "completionMode") == "Indexed" {
            success(errors, &path.child("rules"), spec, items(policy, "rules"));
        } else {
            shown(ErrorType::Invalid, errors, &path, &go_success(policy), "requires indexed completion mode");
        }
    }
    replacement(errors, &path.child("podReplacementPolicy"), spec);
}

fn replacement(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let Some(policy) = some(spec, "podReplacementPolicy").and_then(Value::as_str) else { return };
    if has(spec, "podFailurePolicy") {
        if policy != "Failed" {
            unsupported(errors, path, policy, &["Failed"]);
        }
    } else if !matches!(policy, "Failed" | "TerminatingOrFailed") {
        unsupported(errors, path, policy, &["Failed", "TerminatingOrFailed"]);
    }
}

// === failure ===

fn failure(errors: &mut ErrorList, path: &Path<'_>, spec: &Value, rules: &[Value]) {
    if rules.len() > RULES_MAX {
        too_many(errors, path, rules.len(), RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        failure_rule(errors, &path.index(index), spec, rule);
    }
}

fn failure_rule(errors: &mut ErrorList, path: &Path<'_>, spec: &Value, rule: &Value) {
    let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
    match text(rule, "action") {
        "" => errors.required(&path.child("action"), valid_values(&actions)),
        "FailIndex" => {
            if !has(spec, "backoffLimitPerIndex") {
                let why = "requires the backoffLimitPerIndex to be set";
                errors.invalid(&path.child("action"), "FailIndex", why);
            }
        }
        action if actions.contains(&action) => {}
        other => unsupported(errors, &path.child("action"), other, &actions),
    }
    let codes = some(rule, "onExitCodes");
    let conditions = items(rule, "onPodConditions");
    if let Some(codes) = codes {
        exit_codes(errors, &path.child("onExitCodes"), spec, codes);
    }
    if !conditions.is_empty() {
        pod_conditions(errors, &path.child("onPodConditions"), conditions);
    }
    let why = match (codes.is_some(), !conditions.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.add(ErrorType::Invalid, path, None, why);
}

/// Go's list of quoted texts.
fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn exit_codes(errors: &mut ErrorList, path: &Path<'_>, spec: &Value, codes: &Value) {
    let operator = text(codes, "operator");
    match operator {
        "" => errors.required(&path.child("operator"), valid_values(&["In", "NotIn"])),
        "In" | "NotIn" => {}
        other => unsupported(errors, &path.child("operator"), other, &["In", "NotIn"]),
    }
    if let Some(name) = some(codes, "containerName").and_then(Value::as_str) {
        let pod = at(at(spec, "template"), "spec");
        let mut known = items(pod, "containers").iter().chain(items(pod, "initContainers"));
        if !known.any(|container| text(container, "name") == name) {
            let why = "must be one of the container or initContainer names in the pod template";
            errors.invalid(&path.child("containerName"), name, why);
        }
    }
    let path = path.child("values");
    let values = items(codes, "values");
    if values.is_empty() {
        errors.invalid(&path, at(codes, "values").clone(), "at least one value is required");
    } else if values.len() > EXIT_CODES_MAX {
        too_many(errors, &path, values.len(), EXIT_CODES_MAX);
    }
    let mut seen = HashSet::new();
    let mut before = i64::MIN;
    let mut ordered = true;
    for (index, value) in values.iter().map(|v| v.as_i64().unwrap_or(0)).enumerate() {
        if operator == "In" && value == 0 {
            errors.invalid(&path.index(index), value, "must not be 0 for the In operator");
        }
        if !seen.insert(value) {
            errors.duplicate(&path.index(index), value);
        }
        ordered &= before <= value;
        before = value;
    }
    if !ordered {
        errors.invalid(&path, values.to_vec(), "must be ordered");
    }
}

fn pod_conditions(errors: &mut ErrorList, path: &Path<'_>, patterns: &[Value]) {
    let statuses = ["False", "True", "Unknown"];
    if patterns.len() > PATTERNS_MAX {
        too_many(errors, path, patterns.len(), PATTERNS_MAX);
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let path = path.index(index);
        check::qualified_name(errors, &path.child("type"), text(pattern, "type"));
        match text(pattern, "status") {
            "" => errors.required(&path.child("status"), valid_values(&statuses)),
            status if statuses.contains(&status) => {}
            other => unsupported(errors, &path.child("status"), other, &statuses),
        }
    }
}

// === success ===

/// A policy as Kubernetes prints its own form of it.
fn go_success(policy: &Value) -> String {
    let or_null = |rule, field| some(rule, field).map_or_else(|| "null".to_owned(), Value::to_string);
    let rules: Vec<String> = items(policy, "rules")
        .iter()
        .map(|rule| {
            let (indexes, count) = (or_null(rule, "succeededIndexes"), or_null(rule, "succeededCount"));
            format!("{{\"SucceededIndexes\":{indexes},\"SucceededCount\":{count}}}")
        })
        .collect();
    let list = if has(policy, "rules") { format!("[{}]", rules.join(",")) } else { "null".to_owned() };
    format!("{{\"Rules\":{list}}}")
}

fn success(errors: &mut ErrorList, path: &Path<'_>, spec: &Value, rules: &[Value]) {
    if rules.is_empty() {
        errors.required(path, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > RULES_MAX {
        too_many(errors, path, rules.len(), RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        success_rule(errors, &path.index(index), int(spec, "completions"), rule);
    }
}

fn success_rule(errors: &mut ErrorList, path: &Path<'_>, completions: i64, rule: &Value) {
    let indexes = some(rule, "succeededIndexes").and_then(Value::as_str);
    let count = opt_int(rule, "succeededCount");
    if indexes.is_none() && count.is_none() {
        errors.required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut total = 0;
    if let Some(indexes) = indexes {
        let path = path.child("succeededIndexes");
        if indexes.len() > INDEXES_LENGTH_MAX {
            errors.too_long(&path, INDEXES_LENGTH_MAX);
        }
        match count_indexes(indexes, completions) {
            Ok(count) => total = count,
            Err(why) => errors.invalid(&path, indexes, format!("error parsing succeededIndexes: {why}")),
        }
    }
    let Some(count) = count else { return };
    let path = path.child("succeededCount");
    nonnegative(errors, &path, count);
    if count > completions {
        let why =
            format!("must be less than or equal to {completions} (the number of specified completions)");
        errors.invalid(&path, count, why);
    }
    if indexes.is_some() && count > total {
        let why = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.invalid(&path, count, why);
    }
}

/// How many indexes a list such as `1,3-5` names; they rise and stay below `completions`.
pub(super) fn count_indexes(indexes: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0_i64;
    let mut last = None;
    for part in indexes.split(',').filter(|_| !indexes.is_empty()) {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total = total.saturating_add(end.saturating_sub(first)).saturating_add(1);
        last = Some(end);
    }
    Ok(total)
}

/// One index, or two with a dash.
pub(super) fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| -> Result<i64, String> {
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let mut limits = part.split('-');
    let (first, end, more) = (limits.next().unwrap_or(""), limits.next(), limits.next());
    if more.is_some() {
        return Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        ));
    }
    let first = index(first)?;
    let Some(end) = end else { return Ok((first, first)) };
    let end = index(end)?;
    if first >= end {
        return Err(format!("non-increasing order, previous: {first}, current: {end}"));
    }
    Ok((first, end))
}
