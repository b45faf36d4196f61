//! What a Job's status says: counts, and the conditions that tell how it goes or went.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Counts, failed, indexes, is_indexed, succeeded};
use crate::controllers::action::{Note, Plan};
use crate::controllers::read::{condition_true, items, omit_empty, text, time_text};
use crate::controllers::{Context, conditions, pods};
use crate::view::Known;

/// Why Jobs fail, as events say it.
const REASONS: [&str; 5] = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "PodFailurePolicy",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
];

/// A Job's status as it will be.
pub(super) struct Status<'a> {
    job: &'a Value,
    now: String,
    conditions: Vec<Value>,
    status: Value,
    note: Option<Note>,
}

impl<'a> Status<'a> {
    /// What was counted.
    pub(super) fn of(context: &Context<'_>, job: &'a Value, counts: &Counts<'_>, suspended: bool) -> Self {
        let now = time_text(context.now);
        let started = text(job, "/status/startTime");
        let mut status = json!({
            "active": counts.active.len(),
            "ready": counts.active.iter().filter(|pod| pods::is_ready(pod)).count(),
            "succeeded": succeeded(job, counts), "failed": failed(job, counts),
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
        match (suspended, condition_true(job, "Suspended")) {
            (true, false) => {
                this.set("Suspended", "True", "JobSuspended", "Job suspended");
                this.note = Some(Note::normal(job, "Suspended", "Job suspended"));
            }
            (false, true) => {
                this.set("Suspended", "False", "JobResumed", "Job resumed");
                this.note = Some(Note::normal(job, "Resumed", "Job resumed"));
            }
            (true, true) | (false, false) => {}
        }
        this
    }

    /// Enough have succeeded; the Job is complete when its other pods are gone.
    pub(super) fn complete(&mut self, counts: &Counts<'_>) {
        let (reason, message) = ("CompletionsReached", "Reached expected number of succeeded pods");
        self.set("SuccessCriteriaMet", "True", reason, message);
        if counts.active.is_empty() && counts.terminating == 0 {
            self.set("Complete", "True", reason, message);
            self.status["completionTime"] = json!(self.now);
            self.note = Some(Note::normal(self.job, "Completed", "Job completed"));
        }
    }

    /// The Job failed; it has ended when its other pods are gone.
    pub(super) fn fail(&mut self, reason: &str, message: &str, counts: &Counts<'_>) {
        self.set("FailureTarget", "True", reason, message);
        if counts.active.is_empty() && counts.terminating == 0 {
            self.set("Failed", "True", reason, message);
            let known = REASONS.into_iter().find(|known| *known == reason);
            self.note = Some(Note::warning(self.job, known.unwrap_or("Failed"), message));
        }
    }

    fn set(&mut self, ty: &str, status: &str, reason: &str, message: &str) {
        let same = |c: &Value| text(c, "/type") == ty && text(c, "/status") == status;
        if self.conditions.iter().any(same) {
            return;
        }
        let fresh = json!({
            "type": ty, "status": status, "reason": reason, "message": message,
            "lastProbeTime": self.now, "lastTransitionTime": self.now,
        });
        conditions::put_last(&mut self.conditions, fresh);
    }

    /// Writes it if it is not so already.
    pub(super) fn finish(mut self, plan: &mut Plan) {
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
pub(super) fn ranges(numbers: &BTreeSet<i64>) -> String {
    let mut parts: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some(last) if last.1.saturating_add(1) == *number => last.1 = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let text = |(from, to): (i64, i64)| match to.saturating_sub(from) {
        0 => from.to_string(),
        1 => format!("{from},{to}"),
        _ => format!("{from}-{to}"),
    };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}
