//! Sheets of jobs and cron jobs.

use serde_json::{Value, json};

use super::cells::{NONE, UNSET, age, containers, find, is_true, items, name, number, selector, text};
use super::sheet::{Col, Sheet};
use crate::{age, meta};

const CONTAINERS: Col = Col::text("Containers", "Names of the template's containers.").wide();
const IMAGES: Col = Col::text("Images", "Images of the template's containers.").wide();
const SELECTOR: Col = Col::text("Selector", "Which pods are its own.").wide();

pub(super) const JOB: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Status", "Status of the job."),
        Col::text("Completions", "How many pods succeeded, of how many needed."),
        Col::text("Duration", "How long the job took, or has taken so far."),
        Col::AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now_s| {
        let [names, images] = containers(object, "/spec/template/spec");
        vec![
            name(object),
            status(object).into(),
            completions(object).into(),
            duration(object, now_s).into(),
            age(object, now_s),
            names,
            images,
            selector(object.pointer("/spec/selector")).into(),
        ]
    },
);

pub(super) const CRON_JOB: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Schedule", "When jobs are made, in cron format."),
        Col::text("Timezone", "The time zone of the schedule."),
        Col::of("boolean", "Suspend", "Whether no further jobs are made."),
        Col::integer("Active", "How many of its jobs run now."),
        Col::text("Last Schedule", "How long ago the last job was made."),
        Col::AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now_s| {
        let [names, images] = containers(object, "/spec/jobTemplate/spec/template/spec");
        let last = find(object, "/status/lastScheduleTime");
        vec![
            name(object),
            text(object, "/spec/schedule").into(),
            find(object, "/spec/timeZone").unwrap_or(NONE).into(),
            suspend(object).into(),
            json!(items(object, "/status/active").len()),
            last.map_or_else(|| NONE.into(), |time| age::since(Some(time), now_s)).into(),
            age(object, now_s),
            names,
            images,
            selector(object.pointer("/spec/jobTemplate/spec/selector")).into(),
        ]
    },
);

fn status(object: &Value) -> &'static str {
    const BEFORE_DELETION: [&str; 2] = ["Complete", "Failed"];
    const AFTER_DELETION: [&str; 3] = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
    let first = |conditions: &[&'static str]| conditions.iter().copied().find(|c| is_true(object, c));
    let deleting = || meta::deleting(object).then_some("Terminating");
    first(&BEFORE_DELETION).or_else(deleting).or_else(|| first(&AFTER_DELETION)).unwrap_or("Running")
}

fn completions(object: &Value) -> String {
    let succeeded = number(object, "/status/succeeded");
    let wanted = object.pointer("/spec/completions").and_then(Value::as_i64);
    match (wanted, number(object, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(object: &Value, now_s: i64) -> String {
    let Some(start) = age::seconds(find(object, "/status/startTime")) else { return String::new() };
    let end = age::seconds(find(object, "/status/completionTime")).unwrap_or(now_s);
    age::human(end.saturating_sub(start))
}

fn suspend(object: &Value) -> &'static str {
    match object.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    }
}
