//! The ReplicaSets of a Deployment: finding, making, annotating and cleaning them up.

use landfall_api::meta;
use serde_json::{Map, Value, json};

use super::progress::Progress;
use super::{Sets, max_surge, rollout};
use crate::controllers::Context;
use crate::controllers::action::{Action, Deed, Note, Plan, fnv, safe_number};
use crate::controllers::read::{controller_reference, counted, int, replicas, segment};
use crate::view::Known;

/// Counts the templates a Deployment has had.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
const HASH: &str = "pod-template-hash";

/// Annotations of a Deployment that its ReplicaSets do not get.
const NOT_COPIED: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// Whether the new ReplicaSet is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum New {
    /// It is.
    Settled,
    /// It is being made or annotated.
    Pending,
}

/// Whether a ReplicaSet was made from a template.
pub(super) fn same_template(template: &Value, set: &Value) -> bool {
    let theirs = set.pointer("/spec/template").unwrap_or(&Value::Null);
    without_hash(template) == without_hash(theirs)
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH);
    }
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
    template
}

/// Which template of its Deployment a ReplicaSet stands for, counted from 1.
pub(super) fn revision(object: &Value) -> i64 {
    meta::annotation(object, REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Makes the new ReplicaSet, or annotates the one there is.
pub(super) fn settle_new(
    context: &Context<'_>,
    sets: &Sets<'_>,
    progress: &mut Progress,
    plan: &mut Plan,
) -> New {
    let next = sets.old.iter().map(|set| revision(set)).max().unwrap_or(0).saturating_add(1);
    let Some(new) = sets.new else {
        create(context, sets, next, progress, plan);
        return New::Pending;
    };
    let mut changes = annotations(sets.deployment, new, next.max(revision(new)));
    let ready_s = int(sets.deployment, "/spec/minReadySeconds");
    if int(new, "/spec/minReadySeconds") != ready_s {
        changes.push(("/spec/minReadySeconds".into(), Some(ready_s.into())));
    }
    if !changes.is_empty() {
        plan.act(Action::on(Known::ReplicaSet, new, Deed::Set(changes), "as its Deployment says"));
        return New::Pending;
    }
    progress.note_found(new);
    New::Settled
}

fn create(context: &Context<'_>, sets: &Sets<'_>, next: i64, progress: &mut Progress, plan: &mut Plan) {
    let deployment = sets.deployment;
    let collisions = int(deployment, "/status/collisionCount");
    let template = deployment.pointer("/spec/template").cloned().unwrap_or_default();
    let hash = safe_number(hash(&without_hash(&template), collisions));
    let name = format!("{}-{hash}", meta::name(deployment));
    if context.view.get(Known::ReplicaSet, meta::namespace(deployment), &name).is_some() {
        // Somebody else's, or one with another template: the next name will do.
        progress.note_collision(collisions.saturating_add(1));
        return;
    }
    let count = rollout::new_size(sets, 0);
    let set = made(deployment, template, &name, &hash, count, next);
    let mut action = Action::create(Known::ReplicaSet, set, "a template without a ReplicaSet");
    if count > 0 {
        let message = format!("Scaled up replica set {name} from 0 to {count}");
        action = action.noting(Note::normal(deployment, "ScalingReplicaSet", message));
    }
    plan.act(action);
    progress.note_created(&name, next);
}

fn made(deployment: &Value, mut template: Value, name: &str, hash: &str, count: i64, next: i64) -> Value {
    let labels = meta::child_mut(meta_of(&mut template), "labels");
    labels.insert(HASH.into(), json!(hash));
    let labels = labels.clone();
    let mut selector = deployment.pointer("/spec/selector").cloned().unwrap_or_default();
    meta::child_mut(&mut selector, "matchLabels").insert(HASH.into(), json!(hash));
    let mut annotations: Map<String, Value> =
        copied(deployment).map(|(k, v)| (k.into(), v.clone())).collect();
    annotations.insert(REVISION.into(), json!(next.to_string()));
    for (key, value) in sizes(deployment) {
        annotations.insert(key.into(), json!(value));
    }
    let mut spec = json!({"replicas": count, "selector": selector, "template": template});
    let ready_s = int(deployment, "/spec/minReadySeconds");
    if ready_s > 0 {
        spec["minReadySeconds"] = json!(ready_s);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": name, "namespace": meta::namespace(deployment), "labels": labels,
            "annotations": annotations, "ownerReferences": [controller_reference(deployment)],
        },
        "spec": spec,
    })
}

fn meta_of(template: &mut Value) -> &mut Value {
    meta::metadata_mut(template);
    &mut template["metadata"]
}

fn copied(deployment: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = deployment.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    all.map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| !NOT_COPIED.contains(key))
}

fn sizes(deployment: &Value) -> [(&'static str, String); 2] {
    let wanted = replicas(deployment);
    [(DESIRED, wanted.to_string()), (MAX, (wanted + max_surge(deployment)).to_string())]
}

/// Annotations that a ReplicaSet lacks of its Deployment's, its revision and how large it may be.
fn annotations(deployment: &Value, set: &Value, next: i64) -> Vec<(String, Option<Value>)> {
    let differs = |key: &str, value: &str| meta::annotation(set, key) != Some(value);
    let mut values = Vec::new();
    for (key, value) in copied(deployment) {
        if value.as_str().is_some_and(|value| differs(key, value)) {
            values.push((pointer(key), Some(value.clone())));
        }
    }
    let had = revision(set);
    if next > had {
        if had > 0 {
            let before = meta::annotation(set, REVISION_HISTORY).unwrap_or("");
            let history = if before.is_empty() { had.to_string() } else { format!("{before},{had}") };
            values.push((pointer(REVISION_HISTORY), Some(json!(history))));
        }
        values.push((pointer(REVISION), Some(json!(next.to_string()))));
    }
    for (key, value) in sizes(deployment) {
        if meta::annotation(set, key).is_none() {
            values.push((pointer(key), Some(json!(value))));
        }
    }
    values
}

/// What the size annotations of a ReplicaSet should be, where they are not.
pub(super) fn size_annotations(deployment: &Value, set: &Value) -> Vec<(String, Option<Value>)> {
    let wrong =
        sizes(deployment).into_iter().filter(|(key, value)| meta::annotation(set, key) != Some(value));
    wrong.map(|(key, value)| (pointer(key), Some(json!(value)))).collect()
}

/// Whether a ReplicaSet was last sized for another number of replicas.
pub(super) fn sized_for_another(deployment: &Value, set: &Value) -> bool {
    let desired = meta::annotation(set, DESIRED).and_then(|text| text.parse::<i64>().ok());
    desired.is_some_and(|desired| desired != replicas(deployment))
}

/// How many pods all ReplicaSets might have had when this one was last sized.
pub(super) fn max_before(set: &Value) -> Option<i64> {
    meta::annotation(set, MAX).and_then(|text| text.parse().ok()).map(counted).filter(|max| *max != 0)
}

/// How many replicas this one was last sized for.
pub(super) fn desired(set: &Value) -> Option<i64> {
    meta::annotation(set, DESIRED).and_then(|text| text.parse().ok())
}

fn pointer(annotation: &str) -> String {
    format!("/metadata/annotations/{}", segment(annotation))
}

/// Deletes empty old ReplicaSets beyond the history that is kept, oldest revision first.
pub(super) fn clean_up(sets: &Sets<'_>, plan: &mut Plan) {
    let limit = sets.deployment.pointer("/spec/revisionHistoryLimit").and_then(Value::as_i64);
    let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or(usize::MAX);
    let mut old: Vec<&Value> = sets.old.iter().copied().filter(|set| !meta::deleting(set)).collect();
    old.sort_by_key(|set| revision(set));
    let surplus = old.len().saturating_sub(limit);
    let empty = |set: &&Value| {
        replicas(set) == 0
            && int(set, "/status/replicas") == 0
            && meta::generation(set) <= int(set, "/status/observedGeneration")
    };
    for set in old.into_iter().take(surplus).filter(empty) {
        plan.act(Action::on(Known::ReplicaSet, set, Deed::Delete(None), "beyond the revision history"));
    }
}

/// A number for a template; another one after each collision.
fn hash(template: &Value, collisions: i64) -> u32 {
    let text = if collisions > 0 { format!("{template}{collisions}") } else { template.to_string() };
    fnv(&text)
}
