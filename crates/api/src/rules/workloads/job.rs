//! Jobs.

use serde_json::{Map, Value};

use super::check;
use super::job_policy;
use super::pod::spec::Options;
use super::pod::{defaults, template, warnings};
use super::read::{
    at, child_or_new, fill, fill_text, flag, has, int, is_zero, maps, nonnegative_field, opt_flag, opt_int,
    selector_json, shown, some, spec, text, unsupported,
};
use super::{job_status, job_update, scale};
use crate::field::{ErrorList, ErrorType, Path};
use crate::kind::Rules;
use crate::selector::Selector;
use crate::{meta, names};

const NAME: &str = "batch.kubernetes.io/job-name";
const UID: &str = "batch.kubernetes.io/controller-uid";
const OLD_NAME: &str = "job-name";
const OLD_UID: &str = "controller-uid";

const INDEXED_PARALLELISM_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const MANY_COMPLETIONS_MAX: i64 = 10_000;
const MANAGER_LENGTH_MAX: usize = 63;

/// Rules of Jobs.
pub(super) struct Job;

impl Rules for Job {
    fn default(&self, object: &mut Value) {
        let Some(spec) = spec(object) else { return };
        let absent = |spec: &Map<String, Value>, field| spec.get(field).is_none_or(Value::is_null);
        if absent(spec, "completions") && absent(spec, "parallelism") {
            fill(spec, "completions", 1);
        }
        fill(spec, "parallelism", 1);
        let limit = if absent(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX };
        fill(spec, "backoffLimit", limit);
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        let replace = if absent(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
        fill(spec, "podReplacementPolicy", replace);
        fill(spec, "manualSelector", false);
        default_parts(spec);
        default_labels(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        if opt_flag(at(object, "spec"), "manualSelector") != Some(true) {
            generate_selector(object);
            default_labels(object);
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (spec, path) = (at(object, "spec"), Path::new("spec"));
        generated_selector(&mut errors, object);
        validate_spec(&mut errors, &path, spec);
        let selector = at(spec, "selector");
        if selector.is_null() {
            errors.required(&path.child("selector"), "");
        } else {
            check::selector(&mut errors, &path.child("selector"), selector);
        }
        let labels = at(at(at(spec, "template"), "metadata"), "labels");
        if check::selects(selector, labels) == Some(false) {
            scale::unmatched(&mut errors, &path.child("template"), labels);
        }
        host_names(&mut errors, object);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        job_update::validate(object, old)
    }

    fn validate_status(&self, object: &Value, old: &Value) -> ErrorList {
        job_status::validate(object, old)
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut all = Vec::new();
        warnings::host_name(&mut all, meta::name(object));
        spec_warnings(&mut all, &Path::new("spec"), at(object, "spec"));
        all
    }
}

/// What jobs and the templates of CronJobs get.
pub(super) fn default_parts(spec: &mut Map<String, Value>) {
    defaults::template(spec);
    if let Some(policy) = super::read::child(spec, "podFailurePolicy") {
        for rule in maps(policy, "rules") {
            for pattern in maps(rule, "onPodConditions") {
                fill_text(pattern, "status", "True");
            }
        }
    }
}

/// A job without labels takes those of its template.
fn default_labels(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").filter(|l| !is_zero(l)).cloned();
    let metadata = meta::metadata_mut(object);
    if let (Some(labels), true) = (labels, metadata.get("labels").is_none_or(is_zero)) {
        metadata.insert("labels".into(), labels);
    }
}

/// The selector and labels that make a job's pods its own.
fn generate_selector(object: &mut Value) {
    let (name, uid) = (meta::name(object).to_owned(), meta::uid(object).to_owned());
    let Some(spec) = spec(object) else { return };
    let template = child_or_new(spec, "template").and_then(|t| child_or_new(t, "metadata"));
    if let Some(labels) = template.and_then(|metadata| child_or_new(metadata, "labels")) {
        for (key, value) in [(OLD_NAME, &name), (NAME, &name), (OLD_UID, &uid), (UID, &uid)] {
            labels.entry(key).or_insert_with(|| Value::String(value.clone()));
        }
    }
    let selector = child_or_new(spec, "selector").and_then(|s| child_or_new(s, "matchLabels"));
    if let Some(wanted) = selector {
        wanted.entry(UID).or_insert_with(|| Value::String(uid));
    }
}

/// A generated selector is as it was generated.
fn generated_selector(errors: &mut ErrorList, object: &Value) {
    let spec = at(object, "spec");
    let Some(selector) = some(spec, "selector").filter(|_| !flag(spec, "manualSelector")) else { return };
    let (name, uid) = (meta::name(object), meta::uid(object));
    if uid.is_empty() {
        errors.required(&Path::new("metadata").child("uid"), "");
    }
    let labels = at(at(at(spec, "template"), "metadata"), "labels");
    let wanted = [(OLD_UID, uid), (OLD_NAME, name), (UID, uid), (NAME, name)];
    let path = Path::new("spec");
    let path = path.child("template");
    let path = path.child("metadata");
    let path = path.child("labels");
    for (key, value) in wanted {
        match some(labels, key).and_then(Value::as_str) {
            None => errors.required(&path.key(key), format!("must be '{value}'")),
            Some(own) if own != value => {
                errors.invalid(&path.key(key), labels.clone(), format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let lookup = |key: &str| wanted.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
    if Selector::from_object(Some(selector)).is_ok_and(|selector| !selector.matches_with(lookup)) {
        let path = Path::new("spec");
        let json = selector_json(selector);
        shown(ErrorType::Invalid, errors, &path.child("selector"), &json, "`selector` not auto-generated");
    }
}

/// Pods of an indexed job are named after it and their index.
fn host_names(errors: &mut ErrorList, object: &Value) {
    let spec = at(object, "spec");
    let completions = int(spec, "completions");
    if text(spec, "completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let longest = format!("{}-{}", meta::name(object), completions.saturating_sub(1));
    if !names::dns1123_label(&longest).is_empty() {
        errors.invalid(
            &Path::new("metadata").child("name"),
            meta::name(object),
            format!("will not able to create pod with invalid DNS label: {longest}"),
        );
    }
}

/// What jobs and the templates of CronJobs must be.
pub(super) fn validate_spec(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        nonnegative_field(errors, path, spec, field);
    }
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = some(spec, "managedBy").and_then(Value::as_str) {
        let path = path.child("managedBy");
        check::domain_path(errors, &path, manager);
        if manager.len() > MANAGER_LENGTH_MAX {
            errors.too_long(&path, MANAGER_LENGTH_MAX);
        }
    }
    completion_mode(errors, path, spec);
    job_policy::validate(errors, path, spec);
    template::validate(errors, &path.child("template"), at(spec, "template"), &Options::default());
    restart_policy(errors, &path.child("template"), spec);
}

fn completion_mode(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let mode = some(spec, "completionMode").and_then(Value::as_str);
    if let Some(mode) = mode.filter(|mode| !matches!(*mode, "NonIndexed" | "Indexed")) {
        unsupported(errors, &path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    if mode == Some("Indexed") {
        indexed(errors, path, spec);
    } else if mode.is_none() || mode == Some("NonIndexed") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = opt_int(spec, field) {
                errors.invalid(&path.child(field), value, "requires indexed completion mode");
            }
        }
    }
}

fn indexed(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let (completions, parallelism) = (opt_int(spec, "completions"), int(spec, "parallelism"));
    let failed = opt_int(spec, "maxFailedIndexes");
    if completions.is_none() {
        errors.required(&path.child("completions"), "when completion mode is Indexed");
    }
    if parallelism > INDEXED_PARALLELISM_MAX {
        let why = format!(
            "must be less than or equal to {INDEXED_PARALLELISM_MAX} when completion mode is Indexed"
        );
        errors.invalid(&path.child("parallelism"), parallelism, why);
    }
    if let (Some(completions), Some(failed)) = (completions, failed)
        && failed > completions
    {
        errors.invalid(&path.child("maxFailedIndexes"), failed, "must be less than or equal to completions");
    }
    if let Some(failed) = failed.filter(|failed| *failed > FAILED_INDEXES_MAX) {
        let why = format!("must be less than or equal to {FAILED_INDEXES_MAX}");
        errors.invalid(&path.child("maxFailedIndexes"), failed, why);
    }
    if completions.is_none_or(|c| c <= MANY_COMPLETIONS) || !has(spec, "backoffLimitPerIndex") {
        return;
    }
    let why = format!(
        "must be less than or equal to {MANY_COMPLETIONS_MAX} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
    );
    if failed.is_none() {
        let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        errors.required(&path.child("maxFailedIndexes"), why);
    }
    if parallelism > MANY_COMPLETIONS_MAX {
        errors.invalid(&path.child("parallelism"), parallelism, why.as_str());
    }
    if let Some(failed) = failed.filter(|failed| *failed > MANY_COMPLETIONS_MAX) {
        errors.invalid(&path.child("maxFailedIndexes"), failed, why);
    }
}

fn restart_policy(errors: &mut ErrorList, template: &Path<'_>, spec: &Value) {
    let path = template.child("spec");
    let path = path.child("restartPolicy");
    match text(at(at(spec, "template"), "spec"), "restartPolicy") {
        "Always" | "" => errors.required(&path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" => {
            if has(spec, "podFailurePolicy") {
                let why = "only \"Never\" is supported when podFailurePolicy is specified";
                errors.invalid(&path, "OnFailure", why);
            }
        }
        other => unsupported(errors, &path, other, &["OnFailure", "Never"]),
    }
}

/// Warnings of jobs and of the templates of CronJobs.
pub(super) fn spec_warnings(all: &mut Vec<String>, path: &Path<'_>, spec: &Value) {
    let many = int(spec, "completions") > MANY_COMPLETIONS && int(spec, "parallelism") > MANY_COMPLETIONS_MAX;
    if text(spec, "completionMode") == "Indexed" && many {
        all.push(format!("{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"));
    }
    warnings::template(all, &path.child("template"), at(spec, "template"));
}
