//! Jobs and CronJobs.
//!
//! A Job is complete when every shard is, and has failed when one has: the completions were divided, so nobody else will
//! do that part. Until the others have come to rest it only says that it will fail. A finished Job says nothing new, for
//! Kubernetes' rules about a Job's status, which hold at the federation too, allow no way back.

use landfall_api::rules::read::{child, flag, int, list, text};
use serde_json::{Map, Value};

use super::conditions::{Conditions, Said, quote, with};
use super::counts::{Count, How, Written, add_up, count};
use super::{Picture, Seen, set, time};

const JOB: &[Count] = &[
    count("active", How::All, Written::NotZero),
    count("ready", How::Live, Written::IfGiven).within("active"),
    count("terminating", How::All, Written::IfGiven),
    count("succeeded", How::All, Written::NotZero),
    count("failed", How::All, Written::NotZero),
];

/// Most references that `active` of a CronJob holds.
const ACTIVE_MAX: usize = 200;

/// The status of a Job.
pub(super) fn job(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    let mut conditions = Conditions::of(picture);
    if conditions.holds("Complete") || conditions.holds("Failed") {
        return;
    }
    add_up(picture, JOB, status);
    // What was counted stays counted, though the member that counted it may have left.
    for field in ["succeeded", "failed"] {
        let before = int(picture.before(), field);
        let now = status.get(field).and_then(Value::as_i64).unwrap_or(0);
        set(status, field, Some(before.max(now)).filter(|count| *count > 0));
    }
    start(picture, status);
    indexes(picture, status);
    suspended(picture, &mut conditions);
    finish(picture, status, &mut conditions);
    conditions.reachable("what it last reported is counted, but no pod as ready");
    conditions.write(status);
}

/// The status of a CronJob: the newest times, and what runs anywhere. It has no conditions.
pub(super) fn cron_job(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    for field in ["lastScheduleTime", "lastSuccessfulTime"] {
        let newest = picture.shards.iter().filter_map(|shard| time(shard.status, field)).max();
        let before = time(picture.before(), field);
        set(status, field, newest.max(before));
    }
    let active = picture.live().flat_map(|shard| list(shard.status, "active").iter().cloned());
    let active: Vec<Value> = active.filter(Value::is_object).take(ACTIVE_MAX).collect();
    set(status, "active", (!active.is_empty()).then_some(active));
}

/// When the first shard started. Once said it stays, except for a suspended Job.
fn start(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    let suspended = flag(child(picture.federated.object, "spec"), "suspend");
    if suspended || time(picture.before(), "startTime").is_none() {
        let first = picture.shards.iter().filter_map(|shard| time(shard.status, "startTime")).min();
        set(status, "startTime", first);
    }
}

/// Indexes are those of one member's Job; those of several cannot be told apart.
fn indexes(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    let [only] = picture.shards.as_slice() else { return };
    for field in ["completedIndexes", "failedIndexes"] {
        set(status, field, child(only.status, field).as_str());
    }
}

fn suspended(picture: &Picture<'_>, conditions: &mut Conditions<'_>) {
    let said = |shard: &Seen<'_>| text(shard.condition("Suspended"), "status") == "True";
    if picture.live().next().is_some() && picture.live().all(said) {
        conditions.put("Suspended", Some(Said::new("True", "JobSuspended", "Job suspended")));
    } else if conditions.has("Suspended") {
        conditions.put("Suspended", Some(Said::new("False", "JobResumed", "Job resumed")));
    }
}

fn finish(picture: &Picture<'_>, status: &mut Map<String, Value>, conditions: &mut Conditions<'_>) {
    let count = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
    let at_rest = count("active") == 0 && count("terminating") == 0;
    let all = |kinds: &[&str]| {
        let one = |shard: &Seen<'_>| kinds.iter().any(|kind| text(shard.condition(kind), "status") == "True");
        !picture.shards.is_empty() && picture.shards.iter().all(one)
    };
    // The member where it failed may have left since; it has failed all the same.
    let failing = failing(picture).or_else(|| conditions.said("FailureTarget"));
    if let Some(said) = failing.filter(|_| !conditions.holds("SuccessCriteriaMet")) {
        conditions.put("FailureTarget", Some(said.clone()));
        if at_rest && all(&["Failed", "Complete"]) {
            conditions.put("Failed", Some(said));
            finished(picture, status);
        }
        return;
    }
    let everywhere = format!("Completed in {}", clusters(picture.shards.len()));
    if all(&["SuccessCriteriaMet", "Complete"]) {
        let said = Said::new("True", "CompletionsReached", everywhere.clone());
        conditions.put("SuccessCriteriaMet", Some(said));
    }
    if conditions.holds("SuccessCriteriaMet") && all(&["Complete"]) && at_rest {
        conditions.put("Complete", Some(Said::new("True", "CompletionsReached", everywhere)));
        finished(picture, status);
        let end = picture.shards.iter().filter_map(|shard| time(shard.status, "completionTime")).max();
        let end = end.unwrap_or(picture.federated.now).to_owned();
        let start = status.get("startTime").and_then(Value::as_str).unwrap_or("");
        let end = if end.as_str() < start { start.to_owned() } else { end };
        status.insert("completionTime".into(), end.into());
    }
}

/// A finished Job has started some time, even if nobody said when.
fn finished(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    if !status.contains_key("startTime") {
        status.insert("startTime".into(), picture.federated.now.into());
    }
}

/// Which shards have failed, or are about to; also those of members that are offline now, for it was final.
fn failing(picture: &Picture<'_>) -> Option<Said> {
    let failed = |shard: &&Seen<'_>| {
        ["Failed", "FailureTarget"].iter().any(|kind| text(shard.condition(kind), "status") == "True")
    };
    let shards: Vec<&Seen<'_>> = picture.shards.iter().filter(failed).collect();
    let kind = if with(picture, "Failed", "True").is_empty() { "FailureTarget" } else { "Failed" };
    let reason = super::conditions::reason(&shards, kind).unwrap_or("BackoffLimitExceeded");
    (!shards.is_empty()).then(|| Said::new("True", reason, quote(&shards, kind)))
}

fn clusters(count: usize) -> String {
    if count == 1 { "1 cluster".to_owned() } else { format!("{count} clusters") }
}
