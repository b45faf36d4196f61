//! What a job's status may say, and how it may change. A rule is applied only when what it is about changed.

use std::collections::HashSet;

use serde_json::Value;

use super::job_policy::{count_indexes, interval};
use super::read::{at, flag, has, int, items, opt_int, same, text};
use super::scale;
use crate::field::{ErrorList, ErrorType, Path};

/// A job's status, before and after.
struct Change<'a> {
    spec: &'a Value,
    new: &'a Value,
    old: &'a Value,
}

fn is_true(status: &Value, condition: &str) -> bool {
    items(status, "conditions").iter().any(|c| text(c, "type") == condition && text(c, "status") == "True")
}

fn is_finished(status: &Value) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

impl Change<'_> {
    fn now(&self, condition: &str) -> bool {
        is_true(self.new, condition)
    }
    fn flipped(&self, condition: &str) -> bool {
        is_true(self.new, condition) != is_true(self.old, condition)
    }
    fn changed(&self, field: &str) -> bool {
        !same(at(self.new, field), at(self.old, field))
    }
    fn finished_or(&self, field: &str) -> bool {
        is_finished(self.new) && (!is_finished(self.old) || self.changed(field))
    }
}

/// Everything wrong with a change of a job's status.
pub(super) fn validate(object: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let change = Change { spec: at(object, "spec"), new: at(object, "status"), old: at(old, "status") };
    let path = Path::new("status");
    let counts = ["active", "succeeded", "failed", "ready", "terminating"];
    scale::counts(&mut errors, &path, change.new, &counts);
    uncounted(&mut errors, &path.child("uncountedTerminatedPods"), change.new);
    conditions(&mut errors, &path.child("conditions"), &change);
    times(&mut errors, &path, &change);
    finished(&mut errors, &path, &change);
    indexes(&mut errors, &path, &change);
    transitions(&mut errors, &path, &change);
    errors
}

fn uncounted(errors: &mut ErrorList, path: &Path<'_>, status: &Value) {
    let mut seen = HashSet::new();
    let pods = at(status, "uncountedTerminatedPods");
    for list in ["succeeded", "failed"] {
        for (index, uid) in super::read::texts(pods, list).enumerate() {
            let path = path.child(list);
            let path = path.index(index);
            if uid.is_empty() {
                errors.invalid(&path, uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&path, uid);
            }
        }
    }
}

fn conditions(errors: &mut ErrorList, path: &Path<'_>, change: &Change<'_>) {
    let now = |condition| change.now(condition);
    let flipped = |a, b| change.flipped(a) || change.flipped(b);
    let rules = [
        (
            flipped("Complete", "Failed") && now("Complete") && now("Failed"),
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            flipped("Complete", "FailureTarget") && now("Complete") && now("FailureTarget"),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            (change.flipped("Failed") || change.changed("failedIndexes"))
                && now("Failed")
                && !now("FailureTarget"),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            flipped("Complete", "SuccessCriteriaMet") && now("Complete") && !now("SuccessCriteriaMet"),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            now("SuccessCriteriaMet") && now("Failed"),
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            now("SuccessCriteriaMet") && now("FailureTarget"),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            has(change.spec, "successPolicy") && !now("SuccessCriteriaMet") && now("Complete"),
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ];
    for (broken, why) in rules {
        if broken {
            errors.add(ErrorType::Invalid, path, None, why);
        }
    }
}

fn times(errors: &mut ErrorList, path: &Path<'_>, change: &Change<'_>) {
    let (start, end) = (text(change.new, "startTime"), text(change.new, "completionTime"));
    let path = path.child("completionTime");
    if change.flipped("Complete") || change.changed("completionTime") {
        if !end.is_empty() && !change.now("Complete") {
            let why = "cannot set completionTime when there is no Complete=True condition";
            errors.invalid(&path, end, why);
        }
        if end.is_empty() && change.now("Complete") {
            errors.required(&path, "completionTime is required for Complete jobs");
        }
    }
    // Times are written in one form, so their order as texts is their order.
    let moved = change.changed("startTime") || change.changed("completionTime");
    if moved && !start.is_empty() && !end.is_empty() && end < start {
        errors.invalid(&path, end, "must be equal to or after `startTime`");
    }
}

fn finished(errors: &mut ErrorList, path: &Path<'_>, change: &Change<'_>) {
    let status = change.new;
    if change.finished_or("active") && int(status, "active") > 0 {
        let why = "active>0 is invalid for finished job";
        errors.invalid(&path.child("active"), int(status, "active"), why);
    }
    let never_ran = flag(change.spec, "suspend") && opt_int(change.spec, "completions") == Some(0);
    if change.finished_or("startTime") && !never_ran && text(status, "startTime").is_empty() {
        errors.required(&path.child("startTime"), "startTime is required for finished job");
    }
    let pods = at(status, "uncountedTerminatedPods");
    let any = !items(pods, "succeeded").is_empty() || !items(pods, "failed").is_empty();
    if change.finished_or("uncountedTerminatedPods") && any {
        let go = format!("{{\"Succeeded\":{},\"Failed\":{}}}", at(pods, "succeeded"), at(pods, "failed"));
        let path = path.child("uncountedTerminatedPods");
        super::read::shown(ErrorType::Invalid, errors, &path, &go, "must be empty for finished job");
    }
    if change.finished_or("terminating") && int(status, "terminating") > 0 {
        let why = "terminating>0 is invalid for finished job";
        errors.invalid(&path.child("terminating"), int(status, "terminating"), why);
    }
    let moved = change.changed("ready") || change.changed("active");
    if moved && int(status, "ready") > int(status, "active") {
        let why = "cannot set more ready pods than active";
        errors.invalid(&path.child("ready"), int(status, "ready"), why);
    }
}

fn indexes(errors: &mut ErrorList, path: &Path<'_>, change: &Change<'_>) {
    let (spec, status) = (change.spec, change.new);
    let (done, failed) = (text(status, "completedIndexes"), text(status, "failedIndexes"));
    let completions = opt_int(spec, "completions");
    if change.changed("completedIndexes") {
        let path = path.child("completedIndexes");
        if let Some(Err(why)) = completions.map(|most| count_indexes(done, most)) {
            errors.invalid(&path, done, format!("error parsing completedIndexes: {why}"));
        }
        if !done.is_empty() && text(spec, "completionMode") != "Indexed" {
            let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.invalid(&path, done, why);
        }
    }
    let limited = has(spec, "backoffLimitPerIndex");
    let here = path.child("failedIndexes");
    if change.changed("failedIndexes") && has(status, "failedIndexes") {
        if let Some(Err(why)) = completions.filter(|_| limited).map(|most| count_indexes(failed, most)) {
            errors.invalid(&here, failed, format!("error parsing failedIndexes: {why}"));
        }
        if !limited {
            let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.invalid(&here, failed, why);
        }
    }
    let moved = change.changed("failedIndexes") || change.changed("completedIndexes");
    if let Some(index) = completions.filter(|_| moved).and_then(|most| overlap(done, failed, most)) {
        let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(&here, failed, why);
    }
}

/// The first index in both lists; parts that cannot be read are passed over.
fn overlap(done: &str, failed: &str, completions: i64) -> Option<i64> {
    let parts = |text: &'_ str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (done, failed) = (parts(done), parts(failed));
    let (mut d, mut f) = (done.iter().peekable(), failed.iter().peekable());
    while let (Some((a, b)), Some((x, y))) = (d.peek(), f.peek()) {
        if a <= y && x <= b {
            return Some(*a.max(x));
        }
        if a <= x {
            d.next();
        } else {
            f.next();
        }
    }
    None
}

fn transitions(errors: &mut ErrorList, path: &Path<'_>, change: &Change<'_>) {
    let (spec, new, old) = (change.spec, change.new, change.old);
    let at_conditions = path.child("conditions");
    let mut refuse = |why: String| errors.add(ErrorType::Invalid, &at_conditions, None, why);
    for condition in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, condition) && !is_true(new, condition) {
            refuse(format!("cannot disable the terminal {condition}=True condition"));
        }
    }
    for (field, kept) in [("failed", true), ("succeeded", keeps_successes(spec))] {
        if kept && int(new, field) < int(old, field) {
            let why = format!("cannot decrease the {field} counter");
            errors.invalid(&path.child(field), int(new, field), why);
        }
    }
    if has(new, "completionTime") && has(old, "completionTime") && change.changed("completionTime") {
        errors.invalid(&path.child("completionTime"), text(new, "completionTime"), "field is immutable");
    }
    let resuming = is_true(old, "Suspended")
        && items(new, "conditions")
            .iter()
            .any(|c| text(c, "type") == "Suspended" && text(c, "status") == "False");
    if change.changed("startTime") && has(old, "startTime") && !resuming && !flag(spec, "suspend") {
        let why = "field is immutable for unsuspended job once set";
        errors.invalid(&path.child("startTime"), at(new, "startTime").clone(), why);
    }
    let mut refuse = |why: &str| errors.add(ErrorType::Invalid, &at_conditions, None, why);
    if is_true(old, "SuccessCriteriaMet") && !is_true(new, "SuccessCriteriaMet") {
        refuse("cannot disable the SuccessCriteriaMet=True condition");
    }
    let late = is_true(old, "Complete") && !is_true(old, "SuccessCriteriaMet");
    if late && is_true(new, "SuccessCriteriaMet") {
        refuse("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
    }
}

/// An indexed job whose parallelism equals its completions can be made shorter; its successes then fall.
fn keeps_successes(spec: &Value) -> bool {
    text(spec, "completionMode") != "Indexed" || !same(at(spec, "completions"), at(spec, "parallelism"))
}
