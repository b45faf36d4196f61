//! Job: pods until enough have succeeded.
//!
//! Reads:      Jobs, Pods
//! Writes:     Pods, status; events SuccessfulCreate, SuccessfulDelete, Completed, BackoffLimitExceeded, DeadlineExceeded
//! Wakes on:   a deadline, a pause after failures, a finished Job's time to live
//! Guarantees: never more pods at once than parallelism by its own doing; a finished Job is left alone
//! Limits:     500 pods made at once. Counts come from the pods there are: finished pods that are deleted by hand count no
//!             more. Absent: pod failure policies, success policies

use std::collections::BTreeSet;

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::{Value, json};

use super::action::{Action, Deed, Note, Plan};
use super::read::{
    Millis, condition_true, created, int, is_true, items, omit_empty, parse_time, text, time_text,
};
use super::{Context, Controller, owned, pods};
use crate::view::Known;

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
    let of = |phase: &str| -> Vec<&Value> {
        claimed.iter().map(|pod| &***pod).filter(|pod| text(pod, "/status/phase") == phase).collect()
    };
    let counts = Counts {
        active: claimed.iter().map(|pod| &***pod).filter(|pod| pods::is_active(pod)).collect(),
        terminating: claimed.iter().filter(|pod| pods::is_terminating(pod)).count(),
        succeeded: of("Succeeded"),
        failed: of("Failed"),
    };
    let suspended = is_true(job, "/spec/suspend");
    let mut status = Status::of(context, job, &counts, suspended);
    if let Some((reason, message)) = failure(context, job, &counts, plan) {
        stop(job, &counts, "the Job failed", plan);
        status.fail(reason, &message, &counts);
    } else if is_done(job, &counts) {
        stop(job, &counts, "enough have succeeded", plan);
        status.complete(&counts);
    } else if suspended {
        stop(job, &counts, "the Job is suspended", plan);
    } else {
        fill(context, job, &counts, plan);
    }
    status.finish(plan);
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
        Some(wanted) => distinct(job, &counts.succeeded) >= wanted,
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
    let limit = int(job, "/spec/backoffLimit");
    let failed = i64::try_from(counts.failed.len()).unwrap_or(i64::MAX);
    let restarts: i64 = counts.active.iter().map(|pod| pods::restarts(pod)).sum();
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
        Some(completions) => parallelism.min(completions - distinct(job, &counts.succeeded)),
        None if counts.succeeded.is_empty() => parallelism,
        None => active.min(parallelism),
    };
    if active > wanted {
        let mut surplus = counts.active.clone();
        pods::sort_for_deletion(&mut surplus, &pods::by_node(counts.active.iter().copied()));
        let count = usize::try_from(active - wanted).unwrap_or(0);
        surplus.into_iter().take(count).for_each(|pod| delete(job, pod, "more than the parallelism", plan));
        return;
    }
    // By default a pod is replaced while it still ends.
    let replaced_late = text(job, "/spec/podReplacementPolicy") == "Failed";
    let busy = active + if replaced_late { i64::try_from(counts.terminating).unwrap_or(0) } else { 0 };
    let missing = (wanted - busy).min(BURST);
    if missing <= 0 {
        return;
    }
    if let Some(due) = pause_until(counts).filter(|due| *due > context.now) {
        plan.again(due);
        return;
    }
    let mut free: Vec<i64> = Vec::new();
    if let (true, Some(completions)) = (is_indexed(job), completions) {
        let (done, running) = (indexes(&counts.succeeded), indexes(&counts.active));
        free = (0..completions).filter(|i| !done.contains(i) && !running.contains(i)).collect();
    }
    for at in 0..usize::try_from(missing).unwrap_or(0) {
        let index = free.get(at).copied();
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
    let name = context.luck.name(&prefix);
    let note = Note::normal(job, "SuccessfulCreate", format!("Created pod: {name}"));
    let mut pod = pods::from_template(job, &job["spec"]["template"], &name, Some(&prefix));
    if let Some(index) = index {
        pod["metadata"]["annotations"][INDEX] = json!(index.to_string());
        pod["metadata"]["labels"][INDEX] = json!(index.to_string());
        pod["spec"]["hostname"] = json!(format!("{}-{index}", meta::name(job)));
        let path = format!("metadata.labels['{INDEX}']");
        let variable =
            json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}});
        for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
            let mut variables = items(container, "/env").to_vec();
            variables.push(variable.clone());
            container["env"] = json!(variables);
        }
    }
    plan.act(Action::create(Known::Pod, pod, format!("{active} of {wanted} pods")).noting(note));
}

/// A Job's status as it will be.
struct Status<'a> {
    job: &'a Value,
    now: String,
    conditions: Vec<Value>,
    status: Value,
    note: Option<Note>,
}

impl<'a> Status<'a> {
    fn of(context: &Context<'_>, job: &'a Value, counts: &Counts<'_>, suspended: bool) -> Self {
        let now = time_text(context.now);
        let started = text(job, "/status/startTime");
        let mut status = json!({
            "active": counts.active.len(),
            "ready": counts.active.iter().filter(|pod| pods::is_ready(pod)).count(),
            "succeeded": distinct(job, &counts.succeeded), "failed": counts.failed.len(),
            "terminating": counts.terminating,
        });
        if !suspended {
            status["startTime"] = json!(if started.is_empty() { &now } else { started });
        }
        if is_indexed(job) {
            status["completedIndexes"] = json!(ranges(&indexes(&counts.succeeded)));
        }
        let conditions = items(job, "/status/conditions").to_vec();
        let mut this = Self { job, now, conditions, status, note: None };
        if suspended {
            this.set("Suspended", "True", "JobSuspended", "Job suspended");
        } else if condition_true(job, "Suspended") {
            this.set("Suspended", "False", "JobResumed", "Job resumed");
        }
        this
    }

    fn complete(&mut self, counts: &Counts<'_>) {
        let (reason, message) = ("CompletionsReached", "Reached expected number of succeeded pods");
        self.set("SuccessCriteriaMet", "True", reason, message);
        if counts.active.is_empty() && counts.terminating == 0 {
            self.set("Complete", "True", reason, message);
            self.status["completionTime"] = json!(self.now);
            self.note = Some(Note::normal(self.job, "Completed", "Job completed"));
        }
    }

    fn fail(&mut self, reason: &'static str, message: &str, counts: &Counts<'_>) {
        self.set("FailureTarget", "True", reason, message);
        if counts.active.is_empty() && counts.terminating == 0 {
            self.set("Failed", "True", reason, message);
            self.note = Some(Note::warning(self.job, reason, message));
        }
    }

    fn set(&mut self, ty: &str, status: &str, reason: &str, message: &str) {
        let same = |c: &Value| text(c, "/type") == ty && text(c, "/status") == status;
        if self.conditions.iter().any(same) {
            return;
        }
        self.conditions.retain(|c| text(c, "/type") != ty);
        self.conditions.push(json!({
            "type": ty, "status": status, "reason": reason, "message": message,
            "lastProbeTime": self.now, "lastTransitionTime": self.now,
        }));
    }

    fn finish(mut self, plan: &mut Plan) {
        self.status["conditions"] = json!(self.conditions);
        omit_empty(&mut self.status, &["ready", "terminating"]);
        self.status["uncountedTerminatedPods"] = json!({});
        let before = plan.actions.len();
        plan.status(Known::Job, self.job, self.status, "what was counted");
        if let (Some(note), Some(action)) = (self.note, plan.actions.get_mut(before)) {
            action.note = Some(note);
        }
    }
}

/// Numbers as Kubernetes writes them: `0,2-4`.
fn ranges(numbers: &BTreeSet<i64>) -> String {
    let mut parts: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some(last) if last.1 + 1 == *number => last.1 = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let text = |(from, to): (i64, i64)| match to - from {
        0 => from.to_string(),
        1 => format!("{from},{to}"),
        _ => format!("{from}-{to}"),
    };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
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
}
