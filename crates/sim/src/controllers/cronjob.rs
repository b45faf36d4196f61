//! CronJob: a Job whenever its schedule says.
//!
//! Reads:      CronJobs, Jobs
//! Writes:     Jobs, status; events SuccessfulCreate, SuccessfulDelete, TooManyMissedTimes, UnparseableSchedule,
//!             UnknownTimeZone, InvalidSchedule
//! Wakes on:   the next time of a schedule
//! Guarantees: at most one Job for each time (its name follows from the time); the newest missed time is made up for
//! Limits:     more than 100 missed times are told, as in Kubernetes. Absent: the events SawCompletedJob, MissingJob,
//!             JobAlreadyActive and MissSchedule

mod schedule;

use landfall_api::meta;
use serde_json::{Value, json};

use super::action::{Action, Deed, Note, Plan};
use super::read::{
    Millis, condition_true, controller_reference, created, is_true, parse_time, set, text, time_text,
};
use super::{Context, Controller};
use crate::view::Known;
use schedule::{Schedule, Unreadable};

/// Its row.
pub(super) const CONTROLLER: Controller =
    Controller { name: "cronjob-controller", reads: &[Known::CronJob, Known::Job], decide };

/// More missed times than this are told about.
const MISSED_MAX: i64 = 100;

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for cron in context.view.all(Known::CronJob).filter(|cron| !meta::deleting(cron)) {
        reconcile(context, cron, &mut plan);
    }
    plan
}

fn is_finished(job: &Value) -> bool {
    condition_true(job, "Complete") || condition_true(job, "Failed")
}

fn reconcile(context: &Context<'_>, cron: &Value, plan: &mut Plan) {
    let mut jobs: Vec<&Value> =
        context.view.owned_by(Known::Job, meta::uid(cron)).into_iter().map(|job| &**job).collect();
    jobs.sort_by_key(|job| (created(job), meta::name(job)));
    let active: Vec<&Value> = jobs.iter().copied().filter(|job| !is_finished(job)).collect();
    forget_old(cron, &jobs, plan);
    let mut last = parse_time(text(cron, "/status/lastScheduleTime"));
    if !is_true(cron, "/spec/suspend") {
        match Schedule::parse(text(cron, "/spec/schedule"), text(cron, "/spec/timeZone")) {
            Ok(schedule) => last = follow(context, cron, &schedule, &active, last, plan).or(last),
            Err(why) => unreadable(cron, &why, plan),
        }
    }
    let succeeded = jobs.iter().filter(|job| condition_true(job, "Complete"));
    let succeeded = succeeded.map(|job| text(job, "/status/completionTime")).max();
    let refer = |job: &&Value| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": meta::namespace(job),
            "name": meta::name(job), "uid": meta::uid(job), "resourceVersion": meta::resource_version(job)})
    };
    let same = super::read::items(cron, "/status/active").iter().map(|r| text(r, "/uid"));
    let mut status = json!({});
    if same.eq(active.iter().map(|job| meta::uid(job))) {
        status["active"] = cron["status"]["active"].clone();
    } else {
        status["active"] = active.iter().map(refer).collect();
    }
    status["lastScheduleTime"] = json!(last.map(time_text));
    status["lastSuccessfulTime"] =
        json!(succeeded.unwrap_or_else(|| text(cron, "/status/lastSuccessfulTime")));
    super::read::omit_empty(&mut status, &[]);
    plan.status(Known::CronJob, cron, status, "what is running");
}

/// Serves the newest time that has come and has not been served; gives it if it is served now. And says when to look
/// again.
fn follow(
    context: &Context<'_>,
    cron: &Value,
    schedule: &Schedule,
    active: &[&Value],
    last: Option<Millis>,
    plan: &mut Plan,
) -> Option<Millis> {
    let since = last.unwrap_or_else(|| created(cron));
    match schedule.next(schedule.last(since, context.now).unwrap_or(since)) {
        Some(next) => plan.again(next),
        None => {
            let why = "time difference between two schedules is less than 1 second";
            let message = format!("invalid schedule: {} : {why}", text(cron, "/spec/schedule"));
            tell(cron, "InvalidSchedule", message, plan);
            return None;
        }
    }
    let mut from = since;
    if let Some(deadline_s) = cron.pointer("/spec/startingDeadlineSeconds").and_then(Value::as_i64) {
        from = from.max(context.now.saturating_sub(deadline_s.saturating_mul(1000)));
    }
    let at = schedule.last(from, context.now)?;
    let served = begin(context, cron, active, at, plan)?;
    if schedule.count(from, context.now) > MISSED_MAX {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        tell(cron, "TooManyMissedTimes", message.into(), plan);
    }
    Some(served)
}

fn unreadable(cron: &Value, why: &Unreadable, plan: &mut Plan) {
    match why {
        Unreadable::Zone => {
            let zone = text(cron, "/spec/timeZone");
            let message = format!("invalid timeZone: {zone:?}: unknown time zone {zone}");
            tell(cron, "UnknownTimeZone", message, plan);
        }
        Unreadable::Schedule(why) => {
            let message = format!("unparseable schedule: {:?} : {why}", text(cron, "/spec/schedule"));
            tell(cron, "UnparseableSchedule", message, plan);
        }
    }
}

fn tell(cron: &Value, reason: &'static str, message: String, plan: &mut Plan) {
    let note = Note::warning(cron, reason, message);
    plan.act(Action::on(Known::CronJob, cron, Deed::Tell, "nobody else says it").noting(note));
}

/// Makes the Job of a time, if the policy lets it; gives the time if it is served by that.
fn begin(
    context: &Context<'_>,
    cron: &Value,
    active: &[&Value],
    at: Millis,
    plan: &mut Plan,
) -> Option<Millis> {
    let name = format!("{}-{}", meta::name(cron), at.div_euclid(60_000));
    if context.view.get(Known::Job, meta::namespace(cron), &name).is_some() {
        return Some(at);
    }
    match text(cron, "/spec/concurrencyPolicy") {
        "Forbid" if !active.is_empty() => return None,
        "Replace" => {
            for job in active {
                let message = format!("Deleted job {}", meta::name(job));
                let note = Note::normal(cron, "SuccessfulDelete", message);
                plan.act(Action::on(Known::Job, job, Deed::Delete(None), "replaced").noting(note));
            }
        }
        _ => {}
    }
    let template = &cron["spec"]["jobTemplate"];
    let mut annotations = template.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    set(&mut annotations, &["batch.kubernetes.io/cronjob-scheduled-timestamp"], json!(time_text(at)));
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": meta::namespace(cron), "annotations": annotations,
            "ownerReferences": [controller_reference(cron)]},
        "spec": template["spec"],
    });
    if let Some(labels) = template.pointer("/metadata/labels") {
        job["metadata"]["labels"] = labels.clone();
    }
    let note = Note::normal(cron, "SuccessfulCreate", format!("Created job {name}"));
    plan.act(Action::create(Known::Job, job, "its time has come").noting(note));
    Some(at)
}

/// Deletes finished Jobs beyond the history that is kept, oldest first.
fn forget_old(cron: &Value, jobs: &[&Value], plan: &mut Plan) {
    for (field, condition, default) in
        [("successfulJobsHistoryLimit", "Complete", 3), ("failedJobsHistoryLimit", "Failed", 1)]
    {
        let limit = cron.pointer(&format!("/spec/{field}")).and_then(Value::as_i64).unwrap_or(default);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let ended: Vec<&&Value> =
            jobs.iter().filter(|job| condition_true(job, condition) && !meta::deleting(job)).collect();
        for job in ended.iter().take(ended.len().saturating_sub(limit)) {
            plan.act(Action::on(Known::Job, job, Deed::Delete(None), "beyond the history"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    fn jobs(bench: &Bench) -> usize {
        bench.view.all(Known::Job).count()
    }

    #[test]
    fn jobs_begin_on_time_and_old_ones_go() {
        let mut bench = Bench::default();
        bench.put(
            Known::CronJob,
            json!({"metadata": {"name": "c", "namespace": "a"}, "spec": {"schedule": "*/5 * * * *",
            "concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 1, "jobTemplate": {"spec": {}}}}),
        );
        bench.settle(&CONTROLLER);
        let next = bench.decide(&CONTROLLER).again.unwrap();
        assert!(jobs(&bench) == 0 && next > bench.now && next <= bench.now + 300_000);
        bench.now = next;
        bench.settle(&CONTROLLER);
        assert_eq!(jobs(&bench), 1);
        bench.now += 300_000;
        bench.settle(&CONTROLLER);
        assert_eq!(jobs(&bench), 1, "the first still runs");
        for _ in 0..2 {
            let running: Vec<Value> = bench.view.all(Known::Job).map(|job| (**job).clone()).collect();
            for mut job in running {
                let done = time_text(bench.now);
                job["status"] =
                    json!({"completionTime": done, "conditions": [{"type": "Complete", "status": "True"}]});
                bench.put(Known::Job, job);
            }
            bench.now += 300_000;
            bench.settle(&CONTROLLER);
        }
        assert_eq!(jobs(&bench), 2, "one that runs, one that is remembered");
        let cron = bench.view.get(Known::CronJob, "a", "c").unwrap();
        assert_eq!(cron["status"]["active"].as_array().map(Vec::len), Some(1));
        assert!(!text(cron, "/status/lastSuccessfulTime").is_empty());
    }

    /// What a CronJob's first decision tells and makes.
    #[track_caller]
    fn check(spec: &Value, slept_ms: Millis, expected: (&str, usize)) {
        let mut bench = Bench::default();
        let mut spec = spec.clone();
        spec["jobTemplate"] = json!({"spec": {}});
        bench.put(Known::CronJob, json!({"metadata": {"name": "c", "namespace": "a"}, "spec": spec}));
        bench.now += slept_ms;
        let plan = bench.decide(&CONTROLLER);
        let warnings =
            plan.actions.iter().filter_map(|action| action.note.as_ref()).filter(|note| note.warning);
        let told: Vec<String> = warnings.map(|note| format!("{}: {}", note.reason, note.message)).collect();
        bench.perform(plan);
        assert_eq!((told.join("; ").as_str(), jobs(&bench)), expected, "{spec}");
    }

    #[test]
    fn what_cannot_be_followed_is_told() {
        let year = 365 * 24 * 3_600_000;
        let many = "TooManyMissedTimes: too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        check(&json!({"schedule": "* * * * *"}), year, (many, 1));
        check(&json!({"schedule": "* * * * *", "startingDeadlineSeconds": 600}), year, ("", 1));
        check(&json!({"schedule": "@every 90s"}), 100_000, ("", 1));
        check(&json!({"schedule": "@every 90s"}), 80_000, ("", 0));
        let wrong = "UnparseableSchedule: unparseable schedule: \"* * *\" : expected exactly 5 fields, found 3: [* * *]";
        check(&json!({"schedule": "* * *"}), year, (wrong, 0));
        let nowhere = "UnknownTimeZone: invalid timeZone: \"Mars/Base\": unknown time zone Mars/Base";
        check(&json!({"schedule": "* * * * *", "timeZone": "Mars/Base"}), year, (nowhere, 0));
        let never = "InvalidSchedule: invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second";
        check(&json!({"schedule": "0 0 31 2 *"}), year, (never, 0));
    }
}
