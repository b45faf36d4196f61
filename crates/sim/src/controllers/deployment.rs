//! Deployment: rolls pods from one template to the next through ReplicaSets.
//!
//! Reads:      Deployments, ReplicaSets, Pods (only whether any are left, for Recreate)
//! Decides:    here and in `rollout` (how many), `progress` (what to say about it)
//! Writes:     ReplicaSets; the Deployment's status and its revision; events ScalingReplicaSet
//! Guarantees: never fewer available pods than maxUnavailable allows by its own doing, never more pods than maxSurge
//! Limits:     revisionHistoryLimit old ReplicaSets are kept

mod progress;
mod replicasets;
mod rollout;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::Value;

use super::action::{Action, Deed, Plan};
use super::read::{count, created, is_true, replicas, text};
use super::{Context, Controller, owned, pods};
use crate::view::Known;

/// Its row.
pub const CONTROLLER: Controller = Controller {
    name: "deployment-controller",
    reads: &[Known::Deployment, Known::ReplicaSet, Known::Pod],
    decide,
};

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for deployment in context.subjects(Known::Deployment) {
        reconcile(context, deployment, &mut plan);
    }
    plan
}

/// A Deployment with its ReplicaSets.
struct Sets<'a> {
    deployment: &'a Value,
    /// The one with the Deployment's template.
    new: Option<&'a Value>,
    /// The others, oldest first.
    old: Vec<&'a Value>,
}

impl<'a> Sets<'a> {
    fn of(deployment: &'a Value, mut all: Vec<&'a Value>) -> Self {
        all.sort_by_key(|set| (created(set), meta::name(set)));
        let template = deployment.pointer("/spec/template").unwrap_or(&Value::Null);
        let new = all.iter().copied().find(|set| replicasets::same_template(template, set));
        let old = all.into_iter().filter(|set| !new.is_some_and(|new| std::ptr::eq(*set, new))).collect();
        Self { deployment, new, old }
    }

    fn all(&self) -> impl Iterator<Item = &'a Value> {
        self.old.iter().copied().chain(self.new)
    }

    fn active(&self) -> impl Iterator<Item = &'a Value> {
        self.all().filter(|set| replicas(set) > 0)
    }
}

fn reconcile(context: &Context<'_>, deployment: &Arc<Value>, plan: &mut Plan) {
    let selector =
        Selector::from_object(deployment.pointer("/spec/selector")).unwrap_or_else(|_| Selector::nothing());
    if selector.is_everything() {
        return;
    }
    let claimed = owned::claim(context.view, Known::ReplicaSet, deployment, &selector, plan);
    let sets = Sets::of(deployment, claimed.into_iter().map(|set| &**set).collect());
    let paused = is_true(deployment, "/spec/paused");
    let mut progress = progress::Progress::of(&sets, context.now);
    if meta::deleting(deployment) {
        progress.finish(&sets, plan);
        return;
    }
    progress.note_paused(paused);
    if paused || rollout::is_scaling(&sets) {
        rollout::scale(&sets, plan);
        if paused {
            replicasets::clean_up(&sets, plan);
        }
        progress.finish(&sets, plan);
        return;
    }
    // To recreate is to end what was before anything else is begun.
    let ending = is_recreate(deployment) && rollout::end_old(&sets, &|set| pods_left(context, set), plan);
    // Until the new ReplicaSet is as it should be there is nothing to roll; and what follows counts with it.
    if !ending && replicasets::settle_new(context, &sets, &mut progress, plan) == replicasets::New::Settled {
        roll(&sets, plan);
    }
    progress.observe(&sets);
    if let Some(at) = progress.deadline() {
        plan.again(at);
    }
    progress.finish(&sets, plan);
}

fn is_recreate(deployment: &Value) -> bool {
    text(deployment, "/spec/strategy/type") == "Recreate"
}

fn roll(sets: &Sets<'_>, plan: &mut Plan) {
    let before = plan.actions.len();
    rollout::roll(sets, plan);
    if plan.actions.len() == before && progress::is_complete(sets) {
        replicasets::clean_up(sets, plan);
    }
}

/// Whether pods of a ReplicaSet have not ended, those that are being deleted included.
fn pods_left(context: &Context<'_>, set: &Value) -> bool {
    context.view.owned_by(Known::Pod, meta::uid(set)).iter().any(|pod| !pods::is_finished(pod))
}

/// Changes how many pods a ReplicaSet has, and tells.
fn scale_set(sets: &Sets<'_>, set: &Value, wanted: i64, plan: &mut Plan) {
    let (had, deployment) = (replicas(set), sets.deployment);
    let mut values = replicasets::size_annotations(deployment, set);
    if had == wanted && values.is_empty() {
        return;
    }
    let why = format!("{had} replicas, {wanted} wanted");
    if had != wanted {
        values.insert(0, ("/spec/replicas".into(), Some(wanted.into())));
    }
    let mut action = Action::on(Known::ReplicaSet, set, Deed::Set(values), why);
    if had != wanted {
        let direction = if had < wanted { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {} from {had} to {wanted}", meta::name(set));
        action = action.noting(super::action::Note::normal(deployment, "ScalingReplicaSet", message));
    }
    plan.act(action);
}

/// `maxSurge` in pods; 0 unless pods are rolled.
fn max_surge(deployment: &Value) -> i64 {
    bounds(deployment).0
}

/// `maxUnavailable` in pods, at most all of them.
fn max_unavailable(deployment: &Value) -> i64 {
    bounds(deployment).1.min(replicas(deployment))
}

/// `maxSurge` and `maxUnavailable` in pods; they are never both 0.
fn bounds(deployment: &Value) -> (i64, i64) {
    let total = replicas(deployment);
    if is_recreate(deployment) || total == 0 {
        return (0, 0);
    }
    let at = |field: &str| deployment.pointer(&format!("/spec/strategy/rollingUpdate/{field}"));
    let surge = super::read::scaled(at("maxSurge"), total, true);
    let unavailable = super::read::scaled(at("maxUnavailable"), total, false);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

fn available(set: &Value) -> i64 {
    count(set, "/status/availableReplicas")
}
