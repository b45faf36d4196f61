//! CronJobs.

use serde_json::Value;

use super::read::{
    at, child_or_new, fill, fill_text, flag, nonnegative_field, one_of, selector_json, shown, some, spec,
    supported_list, text,
};
use super::{cron, job};
use crate::field::{ErrorList, ErrorType, Path};
use crate::kind::Rules;
use crate::{meta, names};

/// A job's name is the CronJob's with eleven characters more.
const NAME_LENGTH_MAX: usize = 52;

/// Rules of CronJobs.
pub(super) struct CronJob;

impl Rules for CronJob {
    fn default(&self, object: &mut Value) {
        let Some(spec) = spec(object) else { return };
        fill_text(spec, "concurrencyPolicy", "Allow");
        fill(spec, "suspend", false);
        fill(spec, "successfulJobsHistoryLimit", 3);
        fill(spec, "failedJobsHistoryLimit", 1);
        if let Some(template) = child_or_new(spec, "jobTemplate") {
            fill(template, "metadata", Value::Object(serde_json::Map::new()));
            if let Some(job) = child_or_new(template, "spec") {
                job::default_parts(job);
            }
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (spec, path) = (at(object, "spec"), Path::new("spec"));
        schedule(&mut errors, &path.child("schedule"), text(spec, "schedule"));
        nonnegative_field(&mut errors, &path, spec, "startingDeadlineSeconds");
        time_zone(&mut errors, &path.child("timeZone"), spec);
        let policies = ["Allow", "Forbid", "Replace"];
        let here = path.child("concurrencyPolicy");
        one_of(&mut errors, &here, text(spec, "concurrencyPolicy"), &policies);
        job_template(&mut errors, &path.child("jobTemplate").child("spec"), at(spec, "jobTemplate"));
        nonnegative_field(&mut errors, &path, spec, "successfulJobsHistoryLimit");
        nonnegative_field(&mut errors, &path, spec, "failedJobsHistoryLimit");
        let name = meta::name(object);
        if name.len() > NAME_LENGTH_MAX {
            let why = "must be no more than 52 characters";
            errors.invalid(&Path::new("metadata").child("name"), name, why);
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut all = Vec::new();
        super::pod::warnings::host_name(&mut all, meta::name(object));
        let path = Path::new("spec");
        let path = path.child("jobTemplate");
        job::spec_warnings(&mut all, &path.child("spec"), at(at(at(object, "spec"), "jobTemplate"), "spec"));
        all
    }
}

fn schedule(errors: &mut ErrorList, path: &Path<'_>, schedule: &str) {
    if schedule.is_empty() {
        errors.required(path, "");
        return;
    }
    if let Err(why) = cron::check(schedule) {
        errors.invalid(path, schedule, why);
    }
    if schedule.contains("TZ") {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(path, schedule, why);
    }
}

fn time_zone(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let Some(zone) = some(spec, "timeZone").and_then(Value::as_str) else { return };
    if zone.is_empty() {
        errors.invalid(path, zone, "timeZone must be nil or non-empty string");
        return;
    }
    if !zone.split('/').all(good_zone_part) {
        errors.invalid(path, zone, format!("unknown time zone {zone}"));
        return;
    }
    if zone.eq_ignore_ascii_case("Local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, why);
    }
    if !cron::known_zone(zone) && zone != "Local" {
        errors.invalid(path, zone, format!("unknown time zone {zone}"));
    }
}

fn good_zone_part(part: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b".-_+".contains(&b);
    !matches!(part, "." | "..")
        && !part.starts_with('-')
        && (1..=14).contains(&part.len())
        && part.bytes().all(good)
}

fn job_template(errors: &mut ErrorList, path: &Path<'_>, template: &Value) {
    let spec = at(template, "spec");
    job::validate_spec(errors, path, spec);
    if let Some(selector) = some(spec, "selector") {
        let json = selector_json(selector);
        let why = "`selector` will be auto-generated";
        shown(ErrorType::Invalid, errors, &path.child("selector"), &json, why);
    }
    if flag(spec, "manualSelector") {
        let supported = supported_list(&["nil", "false"]);
        shown(ErrorType::NotSupported, errors, &path.child("manualSelector"), "true", &supported);
    }
}
