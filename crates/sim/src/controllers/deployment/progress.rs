//! What a Deployment's status says: counts, and the conditions Available and Progressing.

use landfall_api::meta;
use serde_json::{Value, json};

use super::replicasets::{REVISION, revision};
use super::{Sets, available, max_unavailable};
use crate::controllers::action::{Action, Deed, Plan};
use crate::controllers::conditions;
use crate::controllers::read::{
    Millis, count, int, items, omit_empty, parse_time, replicas, text, time_text,
};
use crate::view::Known;

/// The default of `progressDeadlineSeconds`, which the API fills in; this many mean for ever.
const NO_DEADLINE: i64 = i32::MAX as i64;

/// The status as it will be.
pub(super) struct Progress {
    now: Millis,
    conditions: Vec<Value>,
    collisions: i64,
    revision: Option<i64>,
    deadline_s: Option<i64>,
    due: Option<Millis>,
}

/// Whether every pod is new, available and counted.
pub(super) fn is_complete(sets: &Sets<'_>) -> bool {
    let wanted = replicas(sets.deployment);
    let counted = |pointer: &str| sets.all().map(|set| count(set, pointer)).sum::<i64>();
    sets.new.is_some_and(|new| count(new, "/status/replicas") == wanted)
        && counted("/status/replicas") == wanted
        && sets.all().map(available).sum::<i64>() == wanted
}

impl Progress {
    pub(super) fn of(sets: &Sets<'_>, now: Millis) -> Self {
        let deadline = sets.deployment.pointer("/spec/progressDeadlineSeconds").and_then(Value::as_i64);
        Self {
            now,
            conditions: items(sets.deployment, "/status/conditions").to_vec(),
            collisions: int(sets.deployment, "/status/collisionCount"),
            revision: None,
            deadline_s: deadline.filter(|seconds| *seconds != NO_DEADLINE),
            due: None,
        }
    }

    /// When progress is overdue, if it stays away.
    pub(super) fn deadline(&self) -> Option<Millis> {
        self.due
    }

    pub(super) fn note_paused(&mut self, paused: bool) {
        if self.deadline_s.is_none() {
            return;
        }
        let was = self.progressing().map(|c| text(c, "/reason").to_owned());
        match (paused, was.as_deref()) {
            // A rollout that failed stays failed, paused or not.
            (_, Some("ProgressDeadlineExceeded")) => {}
            (true, Some("DeploymentPaused")) => {}
            (true, _) => self.set("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused"),
            (false, Some("DeploymentPaused")) => {
                self.set("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed");
            }
            (false, _) => {}
        }
    }

    pub(super) fn note_collision(&mut self, collisions: i64) {
        self.collisions = collisions;
    }

    pub(super) fn note_created(&mut self, name: &str, revision: i64) {
        self.revision = Some(revision);
        if self.deadline_s.is_some() {
            let message = format!("Created new replica set {name:?}");
            self.set("Progressing", "True", "NewReplicaSetCreated", &message);
        }
    }

    pub(super) fn note_found(&mut self, new: &Value) {
        self.revision = Some(revision(new));
        if self.deadline_s.is_some() && self.progressing().is_none() {
            let message = format!("Found new replica set {:?}", meta::name(new));
            self.set("Progressing", "True", "FoundNewReplicaSet", &message);
        }
    }

    /// Whether the rollout is done, goes on, or is stuck.
    pub(super) fn observe(&mut self, sets: &Sets<'_>) {
        // First: a condition that changes goes behind the others, and users read them in that order.
        self.note_available(sets);
        let Some(deadline_s) = self.deadline_s else {
            self.conditions.retain(|c| text(c, "/type") != "Progressing");
            return;
        };
        let now = counts(sets);
        let reason = self.progressing().map_or("", |c| text(c, "/reason")).to_owned();
        if now.replicas == now.updated && reason == "NewReplicaSetAvailable" {
            return;
        }
        let what = match sets.new {
            Some(new) => format!("ReplicaSet {:?}", meta::name(new)),
            None => format!("Deployment {:?}", meta::name(sets.deployment)),
        };
        if is_complete(sets) {
            let message = format!("{what} has successfully progressed.");
            self.set("Progressing", "True", "NewReplicaSetAvailable", &message);
        } else if has_moved(sets.deployment, &now) {
            self.renew("Progressing", "True", "ReplicaSetUpdated", &format!("{what} is progressing."));
        } else if !matches!(reason.as_str(), "" | "NewReplicaSetAvailable" | "DeploymentPaused") {
            let last = self.progressing().map_or("", |c| text(c, "/lastUpdateTime"));
            let due = parse_time(last).unwrap_or(self.now).saturating_add(deadline_s.saturating_mul(1000));
            if reason == "ProgressDeadlineExceeded" {
                return;
            }
            if due < self.now {
                let message = format!("{what} has timed out progressing.");
                self.set("Progressing", "False", "ProgressDeadlineExceeded", &message);
            } else {
                self.due = Some(due.saturating_add(1000));
            }
        }
    }

    fn note_available(&mut self, sets: &Sets<'_>) {
        let deployment = sets.deployment;
        if counts(sets).available >= replicas(deployment) - max_unavailable(deployment) {
            let message = "Deployment has minimum availability.";
            self.set("Available", "True", "MinimumReplicasAvailable", message);
        } else {
            let message = "Deployment does not have minimum availability.";
            self.set("Available", "False", "MinimumReplicasUnavailable", message);
        }
    }

    /// Writes the status if it is not so already.
    pub(super) fn finish(mut self, sets: &Sets<'_>, plan: &mut Plan) {
        self.note_available(sets);
        let deployment = sets.deployment;
        let now = counts(sets);
        let mut status = json!({
            "observedGeneration": meta::generation(deployment),
            "replicas": now.replicas,
            "updatedReplicas": now.updated,
            "readyReplicas": now.ready,
            "availableReplicas": now.available,
            "unavailableReplicas": (now.wanted - now.available).max(0),
            "conditions": self.conditions,
        });
        omit_empty(&mut status, &[]);
        status["terminatingReplicas"] = json!(now.terminating);
        if self.collisions > 0 {
            status["collisionCount"] = json!(self.collisions);
        }
        let noted = self.revision.filter(|number| revision(deployment) != *number);
        match noted {
            Some(number) => {
                let notes = vec![(REVISION.to_owned(), number.to_string())];
                plan.act(Action::on(Known::Deployment, deployment, Deed::Noted(status, notes), "a revision"));
            }
            None => plan.status(Known::Deployment, deployment, status, "what was counted"),
        }
    }

    fn progressing(&self) -> Option<&Value> {
        self.conditions.iter().find(|c| text(c, "/type") == "Progressing")
    }

    /// Sets a condition. One that says the same already is left alone, times included.
    fn set(&mut self, ty: &str, status: &str, reason: &str, message: &str) {
        let same = |c: &Value| {
            text(c, "/type") == ty && text(c, "/status") == status && text(c, "/reason") == reason
        };
        if !self.conditions.iter().any(same) {
            self.renew(ty, status, reason, message);
        }
    }

    /// Sets a condition, which is news whatever it says.
    fn renew(&mut self, ty: &str, status: &str, reason: &str, message: &str) {
        let now = time_text(self.now);
        let fresh = json!({
            "type": ty, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now, "lastUpdateTime": now,
        });
        conditions::put_last(&mut self.conditions, fresh);
    }
}

/// What the ReplicaSets say, summed up.
struct Counts {
    wanted: i64,
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
    terminating: i64,
}

fn counts(sets: &Sets<'_>) -> Counts {
    let sum = |pointer: &str| sets.all().map(|set| count(set, pointer)).sum();
    Counts {
        wanted: sets.all().map(replicas).sum(),
        replicas: sum("/status/replicas"),
        updated: sets.new.map_or(0, |new| count(new, "/status/replicas")),
        ready: sum("/status/readyReplicas"),
        available: sum("/status/availableReplicas"),
        terminating: sum("/status/terminatingReplicas"),
    }
}

/// Whether more is new, ready or available, or less is old, than the status says.
fn has_moved(deployment: &Value, now: &Counts) -> bool {
    let was = |field: &str| count(deployment, &format!("/status/{field}"));
    let old = was("replicas") - was("updatedReplicas");
    now.updated > was("updatedReplicas")
        || now.replicas - now.updated < old
        || now.ready > was("readyReplicas")
        || now.available > was("availableReplicas")
}
