//! Job: pods until enough have succeeded.
//!
//! Reads:      Jobs, Pods
//! Writes:     Pods, status; events SuccessfulCreate, SuccessfulDelete, Completed, BackoffLimitExceeded, DeadlineExceeded,
//!             PodFailurePolicy
//! Wakes on:   a deadline, a pause after failures, a finished Job's time to live
//! Guarantees: never more pods at once than parallelism by its own doing; a finished Job is left alone; one that has
//!             decided to fail or to complete (FailureTarget, SuccessCriteriaMet) makes no pods any more
//! Limits:     500 pods made at once. Counts come from the pods there are: finished pods that are deleted by hand count no
//!             more. Absent: success policies, limits per index (FailIndex counts as any failure)

mod policy;
mod status;

use std::collections::BTreeSet;

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::{Value, json};

use super::action::{Action, Deed, Note, Plan};
use super::read::{Millis, condition, condition_true, created, int, is_true, items, parse_time, set, text};
use super::{Context, Controller, owned, pods};
use crate::view::Known;
use status::Status;

/// Its row.
pub(super) const CONTROLLER: Controller =
    Controller { name: "job-controller", reads: &[Known::Job, Known::Pod], decide };

const BURST: i64 = 500;
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The pause after the first failure, and the longest.
const PAUSE_S: (i64, i64) = (10, 600);

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for job in context.view.all(Known::Job) {
        if condition_true(job, "Complete") || condition_true(job, "Failed") {
            expire(context, job, &mut plan);
        } else if !meta::deleting(job) {
            reconcile(context, job, &mut plan);
        }
    }
    plan
}

/// Deletes a finished Job when its time to live is over.
fn expire(context: &Context<'_>, job: &Value, plan: &mut Plan) {
    let Some(ttl_s) = job.pointer("/spec/ttlSecondsAfterFinished").and_then(Value::as_i64) else { return };
    let ends =
        items(job, "/status/conditions").iter().filter(|c| matches!(text(c, "/type"), "Complete" | "Failed"));
    let ended = ends.filter_map(|c| parse_time(text(c, "/lastTransitionTime"))).max().unwrap_or(context.now);
    let due = ended.saturating_add(ttl_s.saturating_mul(1000));
    if due > context.now {
        plan.again(due);
    } else if !meta::deleting(job) {
        plan.act(Action::on(Known::Job, job, Deed::Delete(None), "its time to live is over"));
    }
}

/// A Job's pods, counted.
struct Counts<'a> {
    active: Vec<&'a Value>,
    terminating: usize,
    succeeded: Vec<&'a Value>,
    failed: Vec<&'a Value>,
}

fn reconcile(context: &Context<'_>, job: &Value, plan: &mut Plan) {
    let selector =
        Selector::from_object(job.pointer("/spec/selector")).unwrap_or_else(|_| Selector::nothing());
    let claimed = owned::claim(context.view, Known::Pod, job, &selector, plan);
    let of = |which: fn(&Value) -> bool| -> Vec<&Value> {
        claimed.iter().map(|pod| &***pod).filter(|pod| which(pod)).collect()
    };
    let counts = Counts {
        active: of(pods::is_active),
        terminating: of(|pod| pods::is_terminating(pod) || was_cut_short(pod)).len(),
        succeeded: of(|pod| text(pod, "/status/phase") == "Succeeded" && !was_cut_short(pod)),
        failed: of(|pod| text(pod, "/status/phase") == "Failed"),
    };
    let suspended = is_true(job, "/spec/suspend");
    let mut status = Status::of(context, job, &counts, suspended);
    match outcome(context, job, &counts, plan) {
        Some(Outcome::Failed(reason, message)) => {
            stop(job, &counts, "the Job failed", plan);
            status.fail(&reason, &message, &counts);
        }
        Some(Outcome::Complete) => {
            stop(job, &counts, "enough have succeeded", plan);
            status.complete(&counts);
        }
        None if suspended => stop(job, &counts, "the Job is suspended", plan),
        None => fill(context, job, &counts, plan),
    }
    status.finish(plan);
}

/// Whether a pod was told to go before it ended: that it then ended well says nothing about its work.
fn was_cut_short(pod: &Value) -> bool {
    let Some(gone) = parse_time(meta::string(pod, "deletionTimestamp")) else { return false };
    let grace_ms = int(pod, "/metadata/deletionGracePeriodSeconds").saturating_mul(1000);
    text(pod, "/status/phase") == "Succeeded" && ended(pod) >= gone.saturating_sub(grace_ms)
}

/// How a Job ends.
enum Outcome {
    /// Reason and message.
    Failed(String, String),
    Complete,
}

/// How a Job ends, if that is decided. It is decided once: what the decision was made from, such as the restarts of
/// its pods, is gone as soon as the pods are.
fn outcome(context: &Context<'_>, job: &Value, counts: &Counts<'_>, plan: &mut Plan) -> Option<Outcome> {
    if let Some(target) = condition(job, "FailureTarget").filter(|c| text(c, "/status") == "True") {
        return Some(Outcome::Failed(text(target, "/reason").into(), text(target, "/message").into()));
    }
    if condition_true(job, "SuccessCriteriaMet") {
        return Some(Outcome::Complete);
    }
    if let Some((reason, message)) = failure(context, job, counts, plan) {
        return Some(Outcome::Failed(reason.into(), message));
    }
    is_done(job, counts).then_some(Outcome::Complete)
}

/// How many have succeeded. A counter never goes back: what a pod did stays done when the pod is deleted.
fn succeeded(job: &Value, counts: &Counts<'_>) -> i64 {
    let now = distinct(job, &counts.succeeded);
    if is_indexed(job) { now } else { now.max(int(job, "/status/succeeded")) }
}

/// How many have failed, those that are gone included, without those that its policy ignores.
fn failed(job: &Value, counts: &Counts<'_>) -> i64 {
    i64::try_from(policy::counted(job, &counts.failed)).unwrap_or(i64::MAX).max(int(job, "/status/failed"))
}

fn distinct(job: &Value, done: &[&Value]) -> i64 {
    let count = if is_indexed(job) { indexes(done).len() } else { done.len() };
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn is_indexed(job: &Value) -> bool {
    text(job, "/spec/completionMode") == "Indexed"
}

fn indexes(pods: &[&Value]) -> BTreeSet<i64> {
    pods.iter().filter_map(|pod| meta::annotation(pod, INDEX)?.parse().ok()).collect()
}

fn is_done(job: &Value, counts: &Counts<'_>) -> bool {
    match job.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => succeeded(job, counts) >= wanted,
        None => !counts.succeeded.is_empty() && counts.active.is_empty() && counts.terminating == 0,
    }
}

/// Why a Job has failed.
fn failure(
    context: &Context<'_>,
    job: &Value,
    counts: &Counts<'_>,
    plan: &mut Plan,
) -> Option<(&'static str, String)> {
    if let Some(message) = policy::fails(job, &counts.failed) {
        return Some(("PodFailurePolicy", message));
    }
    let limit = int(job, "/spec/backoffLimit");
    let failed = failed(job, counts);
    let restarts = counts.active.iter().fold(0_i64, |sum, pod| sum.saturating_add(pods::restarts(pod)));
    let on_failure = text(job, "/spec/template/spec/restartPolicy") == "OnFailure";
    let restarted = on_failure && restarts > 0 && restarts >= limit;
    if failed > limit || restarted {
        return Some(("BackoffLimitExceeded", "Job has reached the specified backoff limit".into()));
    }
    let deadline_s = job.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64)?;
    let started = parse_time(text(job, "/status/startTime"))?;
    let due = started.saturating_add(deadline_s.saturating_mul(1000));
    if due > context.now {
        plan.again(due);
        return None;
    }
    Some(("DeadlineExceeded", "Job was active longer than specified deadline".into()))
}

fn stop(job: &Value, counts: &Counts<'_>, why: &str, plan: &mut Plan) {
    for pod in &counts.active {
        delete(job, pod, why, plan);
    }
}

fn delete(job: &Value, pod: &Value, why: &str, plan: &mut Plan) {
    let note = Note::normal(job, "SuccessfulDelete", format!("Deleted pod: {}", meta::name(pod)));
    plan.act(Action::on(Known::Pod, pod, Deed::Delete(None), why).noting(note));
}

/// Makes pods up to the parallelism, after a pause if some have failed.
fn fill(context: &Context<'_>, job: &Value, counts: &Counts<'_>, plan: &mut Plan) {
    let active = i64::try_from(counts.active.len()).unwrap_or(i64::MAX);
    let parallelism = int(job, "/spec/parallelism");
    let completions = job.pointer("/spec/completions").and_then(Value::as_i64);
    let wanted = match completions {
        Some(completions) => parallelism.min(completions.saturating_sub(succeeded(job, counts))),
        None if counts.succeeded.is_empty() => parallelism,
        None => active.min(parallelism),
    };
    if active > wanted {
        let mut surplus = counts.active.clone();
        pods::sort_for_deletion(&mut surplus, &pods::by_node(counts.active.iter().copied()));
        let count = usize::try_from(active.saturating_sub(wanted.max(0))).unwrap_or(0);
        surplus.into_iter().take(count).for_each(|pod| delete(job, pod, "more than the parallelism", plan));
        return;
    }
    // By default a pod is replaced while it still ends.
    let replaced_late = text(job, "/spec/podReplacementPolicy") == "Failed";
    let ending = if replaced_late { i64::try_from(counts.terminating).unwrap_or(0) } else { 0 };
    let missing = wanted.saturating_sub(active).saturating_sub(ending).min(BURST);
    if missing <= 0 {
        return;
    }
    if let Some(due) = pause_until(counts).filter(|due| *due > context.now) {
        plan.again(due);
        return;
    }
    let (done, running) = (indexes(&counts.succeeded), indexes(&counts.active));
    let mut free =
        (0..completions.unwrap_or(0)).filter(|index| !done.contains(index) && !running.contains(index));
    for _ in 0..missing {
        let index = if is_indexed(job) { free.next() } else { None };
        if is_indexed(job) && index.is_none() {
            return;
        }
        create(context, job, index, active, wanted, plan);
    }
}

/// When the pause after the last failures ends.
fn pause_until(counts: &Counts<'_>) -> Option<Millis> {
    let succeeded_at = counts.succeeded.iter().map(|pod| ended(pod)).max().unwrap_or(0);
    let failures: Vec<Millis> =
        counts.failed.iter().map(|pod| ended(pod)).filter(|at| *at > succeeded_at).collect();
    let last = failures.iter().copied().max()?;
    let doublings = u32::try_from(failures.len() - 1).unwrap_or(u32::MAX).min(16);
    let pause_s = PAUSE_S.0.saturating_mul(1 << doublings).min(PAUSE_S.1);
    Some(last.saturating_add(pause_s * 1000))
}

/// When a pod ended.
fn ended(pod: &Value) -> Millis {
    let times = items(pod, "/status/containerStatuses").iter();
    let times = times.filter_map(|c| parse_time(text(c, "/state/terminated/finishedAt")));
    times.max().unwrap_or_else(|| created(pod))
}

fn create(context: &Context<'_>, job: &Value, index: Option<i64>, active: i64, wanted: i64, plan: &mut Plan) {
    let prefix = match index {
        Some(index) => format!("{}-{index}-", meta::name(job)),
        None => format!("{}-", meta::name(job)),
    };
    let name = context.settings.luck.name(meta::namespace(job), &prefix);
    let note = Note::normal(job, "SuccessfulCreate", format!("Created pod: {name}"));
    let mut pod = pods::from_template(job, &job["spec"]["template"], &name, Some(&prefix));
    if let Some(index) = index {
        set(&mut pod, &["metadata", "annotations", INDEX], json!(index.to_string()));
        set(&mut pod, &["metadata", "labels", INDEX], json!(index.to_string()));
        set(&mut pod, &["spec", "hostname"], json!(format!("{}-{index}", meta::name(job))));
        let path = format!("metadata.labels['{INDEX}']");
        let variable =
            json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}});
        for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
            let mut variables = items(container, "/env").to_vec();
            variables.push(variable.clone());
            set(container, &["env"], json!(variables));
        }
    }
    plan.act(Action::create(Known::Pod, pod, format!("{active} of {wanted} pods")).noting(note));
}

#[cfg(test)]
mod tests {
    use super::super::read::time_text;
    use super::super::testing::Bench;
    use super::status::ranges;
    use super::*;

    fn bench(spec: &Value) -> Bench {
        let mut bench = Bench::default();
        let mut object = json!({"metadata": {"name": "j", "namespace": "a"}, "spec": {
            "parallelism": 2, "completions": 3, "backoffLimit": 1, "selector": {"matchLabels": {"j": "j"}},
            "template": {"metadata": {"labels": {"j": "j"}}, "spec": {"containers": [{}]}}}});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        bench.put(Known::Job, object);
        bench.settle(&CONTROLLER);
        bench
    }

    fn end(bench: &mut Bench, count: usize, phase: &str) {
        let active: Vec<Value> =
            bench.view.all(Known::Pod).filter(|p| pods::is_active(p)).map(|p| (**p).clone()).collect();
        for mut pod in active.into_iter().take(count) {
            pod["status"] = json!({"phase": phase, "containerStatuses": [
                {"state": {"terminated": {"finishedAt": time_text(bench.now)}}}]});
            bench.put(Known::Pod, pod);
        }
        bench.settle(&CONTROLLER);
    }

    fn job(bench: &Bench) -> &Value {
        bench.view.get(Known::Job, "a", "j").unwrap()
    }

    fn active(bench: &Bench) -> usize {
        bench.view.all(Known::Pod).filter(|pod| pods::is_active(pod)).count()
    }

    #[test]
    fn a_job_runs_until_enough_have_succeeded() {
        let mut bench = bench(&json!({}));
        assert_eq!(active(&bench), 2);
        end(&mut bench, 2, "Succeeded");
        assert_eq!(active(&bench), 1, "one is left to do");
        end(&mut bench, 1, "Succeeded");
        assert!(condition_true(job(&bench), "Complete") && condition_true(job(&bench), "SuccessCriteriaMet"));
        assert_eq!(job(&bench)["status"]["succeeded"], json!(3));
        assert!(!text(job(&bench), "/status/completionTime").is_empty());
    }

    /// Every failure once counted, whatever the policy said of it.
    #[test]
    fn a_policy_says_what_a_failure_means() {
        let rule = |action: &str, code: i64| json!({"action": action, "onExitCodes": {"operator": "In", "values": [code]}});
        let policy = json!({"rules": [rule("FailJob", 42), rule("Ignore", 1)]});
        let mut bench = bench(&json!({"parallelism": 1, "backoffLimit": 0, "podFailurePolicy": policy}));
        let fail = |bench: &mut Bench, code: i64| {
            let pod = bench.view.all(Known::Pod).find(|p| pods::is_active(p)).unwrap();
            let mut pod = (**pod).clone();
            let ended = json!({"exitCode": code, "finishedAt": time_text(bench.now)});
            pod["status"] = json!({"phase": "Failed", "containerStatuses": [{"name": "c", "state": {"terminated": ended}}]});
            bench.put(Known::Pod, pod);
            bench.settle(&CONTROLLER);
            bench.now += 600_000;
            bench.settle(&CONTROLLER);
        };
        for _ in 0..3 {
            fail(&mut bench, 1);
            assert_eq!(
                (active(&bench), int(job(&bench), "/status/failed")),
                (1, 0),
                "ignored, and tried again"
            );
        }
        fail(&mut bench, 42);
        let failed = condition(job(&bench), "Failed").unwrap();
        assert_eq!((text(failed, "/status"), text(failed, "/reason")), ("True", "PodFailurePolicy"));
        let message = text(failed, "/message");
        assert!(message.ends_with("failed with exit code 42 matching FailJob rule at index 0"), "{message}");
        assert_eq!(active(&bench), 0);
    }

    #[test]
    fn failures_pause_and_too_many_end_it() {
        let mut bench = bench(&json!({"parallelism": 1}));
        end(&mut bench, 1, "Failed");
        assert_eq!(active(&bench), 0, "a pause");
        assert_eq!(bench.decide(&CONTROLLER).again, Some(bench.now + 10_000));
        bench.now += 10_000;
        bench.settle(&CONTROLLER);
        assert_eq!(active(&bench), 1);
        end(&mut bench, 1, "Failed");
        assert!(condition_true(job(&bench), "Failed"));
        assert_eq!(job(&bench)["status"]["failed"], json!(2));
    }

    #[test]
    fn indexes_are_done_once_each_and_shown_as_ranges() {
        let mut bench = bench(&json!({"completionMode": "Indexed", "parallelism": 3}));
        let all: Vec<&Value> = bench.view.all(Known::Pod).map(|pod| &**pod).collect();
        assert_eq!(indexes(&all), BTreeSet::from([0, 1, 2]));
        end(&mut bench, 3, "Succeeded");
        assert_eq!(job(&bench)["status"]["completedIndexes"], json!("0-2"));
        assert_eq!(ranges(&BTreeSet::from([0, 1, 3, 5, 6, 7])), "0,1,3,5-7");
    }

    #[test]
    fn deadlines_suspension_and_time_to_live() {
        let mut late = bench(&json!({"activeDeadlineSeconds": 5}));
        late.now += 5000;
        late.settle(&CONTROLLER);
        assert!(condition_true(job(&late), "Failed") && active(&late) == 0);
        let paused = bench(&json!({"suspend": true}));
        assert!(condition_true(job(&paused), "Suspended") && active(&paused) == 0);
        let mut brief = bench(&json!({"ttlSecondsAfterFinished": 1, "completions": 1}));
        end(&mut brief, 1, "Succeeded");
        brief.now += 1000;
        brief.settle(&CONTROLLER);
        assert_eq!(brief.view.all(Known::Job).count(), 0);
    }

    /// `exit 3` with restartPolicy OnFailure ran for ever: the limit was computed from the pods' restarts, which were
    /// gone with the pods that the Job deleted because of it.
    #[test]
    fn what_was_decided_stays_decided() {
        let mut failing = bench(&json!({"template": {"metadata": {"labels": {"j": "j"}},
            "spec": {"restartPolicy": "OnFailure", "containers": [{}]}}}));
        let pods: Vec<Value> = failing.view.all(Known::Pod).map(|pod| (**pod).clone()).collect();
        for mut pod in pods {
            pod["status"] = json!({"phase": "Running", "containerStatuses": [{"restartCount": 1}]});
            failing.put(Known::Pod, pod);
        }
        failing.settle(&CONTROLLER);
        assert!(condition_true(job(&failing), "Failed") && active(&failing) == 0);
        assert_eq!(condition(job(&failing), "Failed").unwrap()["reason"], json!("BackoffLimitExceeded"));

        let mut done = bench(&json!({"completions": 1, "parallelism": 2}));
        assert_eq!(active(&done), 1);
        let mut object = job(&done).clone();
        object["status"]["conditions"] = json!([{"type": "SuccessCriteriaMet", "status": "True"}]);
        done.put(Known::Job, object);
        done.settle(&CONTROLLER);
        assert!(condition_true(job(&done), "Complete") && active(&done) == 0);
    }

    #[test]
    fn a_pod_that_was_told_to_go_has_not_succeeded() {
        let mut bench = bench(&json!({"completions": 1}));
        let mut pod = (**bench.view.all(Known::Pod).next().unwrap()).clone();
        pod["metadata"]["deletionTimestamp"] = json!(time_text(bench.now + 30_000));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        let ended = |at: Millis| {
            json!({"phase": "Succeeded", "containerStatuses": [
            {"state": {"terminated": {"finishedAt": time_text(at)}}}]})
        };
        pod["status"] = ended(bench.now + 1000);
        bench.put(Known::Pod, pod.clone());
        bench.settle(&CONTROLLER);
        assert!(!condition_true(job(&bench), "SuccessCriteriaMet") && active(&bench) == 1, "it is replaced");
        pod["status"] = ended(bench.now - 1000);
        bench.put(Known::Pod, pod);
        bench.settle(&CONTROLLER);
        assert!(condition_true(job(&bench), "Complete"), "it had ended before");
    }
}
