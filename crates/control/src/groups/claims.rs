//! Claims: what is written of them, and of their groups.

use landfall_api::landfall::{IngressClaim, IngressClaimStatus, IngressReplicaSet, ReclaimPolicy};
use landfall_plan::claims::{
    CLAIM_ANNOTATION, CLAIM_UID_ANNOTATION, FINALIZER, Outcome, RELEASED_LABEL, Step,
};
use serde_json::{Value, json};

use super::gather::Scene;
use super::status::{condition, key};
use super::write::Write;
use crate::events::Happening;
use crate::kinds::GROUPS;
use crate::shelf::Key;

/// What is written of claims; `outcomes` are in the scene's order.
pub(super) fn writes(scene: &Scene, outcomes: &[Outcome]) -> Vec<Write> {
    let mut all = Vec::new();
    for ((at, claim), outcome) in scene.claim_objects.iter().zip(outcomes) {
        all.extend(step(scene, at, claim, &outcome.step));
        // One that is let go is gone.
        if outcome.step != Step::RemoveFinalizer {
            all.extend(status(at, claim, outcome));
        }
    }
    all
}

fn step(scene: &Scene, at: &Key, claim: &IngressClaim, step: &Step) -> Option<Write> {
    let uid = claim.metadata.uid.as_deref().unwrap_or("");
    let known = |name: &String| scene.groups.get(name).map(|group| &group.object);
    match step {
        Step::Nothing => None,
        Step::AddFinalizer | Step::RemoveFinalizer => {
            let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
            finalizers.retain(|one| one != FINALIZER);
            if *step == Step::AddFinalizer {
                finalizers.push(FINALIZER.to_owned());
            }
            let version = &claim.metadata.resource_version;
            Some(Write::patch(
                at,
                json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}}),
            ))
        }
        Step::Make { group } => {
            let made = IngressReplicaSet {
                spec: claim.spec.ingress_replica_set_spec.clone(),
                ..IngressReplicaSet::default()
            };
            let mut object = serde_json::to_value(made).unwrap_or_default();
            object["metadata"] = json!({
                "name": group, "annotations": {CLAIM_ANNOTATION: at.path(), CLAIM_UID_ANNOTATION: uid},
            });
            Some(Write::create(&key(GROUPS, group), object))
        }
        Step::Take { group } | Step::Resume { group } => {
            let notes = json!({CLAIM_ANNOTATION: at.path(), CLAIM_UID_ANNOTATION: uid});
            Some(relabel(group, known(group)?, &json!({RELEASED_LABEL: null}), &notes))
        }
        Step::Release { group, policy } => {
            let object = known(group)?;
            Some(match policy {
                ReclaimPolicy::Delete => {
                    Write::delete(&key(GROUPS, group), object.metadata.uid.as_deref().unwrap_or(""))
                }
                ReclaimPolicy::Retain => {
                    relabel(group, object, &json!({RELEASED_LABEL: "Retained"}), &json!({}))
                }
                ReclaimPolicy::Recycle => {
                    relabel(group, object, &json!({RELEASED_LABEL: "Recycled"}), &json!({}))
                }
            })
        }
    }
}

/// Changes labels and annotations of a group, if nobody else has changed it.
fn relabel(name: &str, group: &IngressReplicaSet, labels: &Value, notes: &Value) -> Write {
    let version = &group.metadata.resource_version;
    let metadata = json!({"labels": labels, "annotations": notes, "resourceVersion": version});
    Write::patch(&key(GROUPS, name), json!({ "metadata": metadata }))
}

fn status(at: &Key, claim: &IngressClaim, outcome: &Outcome) -> Option<Write> {
    let before = claim.status.clone().unwrap_or_default();
    let generation = claim.metadata.generation;
    let one = |kind: &str, (holds, reason): &(bool, landfall_plan::Reason)| {
        condition(&before.conditions, (kind, *holds), reason, generation)
    };
    let now = IngressClaimStatus {
        phase: Some(outcome.phase),
        ingress_replica_set_name: outcome.group.clone(),
        vip: outcome.vip.clone(),
        ingresses: outcome.serves.clone(),
        conditions: vec![one("Provisioned", &outcome.provisioned), one("IngressesBound", &outcome.own)],
    };
    if now == before {
        return None;
    }
    let mut happenings = Vec::new();
    let told = |status: &IngressClaimStatus| {
        status.conditions.iter().map(|one| (one.reason.clone(), one.message.clone())).collect::<Vec<_>>()
    };
    if before.phase != now.phase {
        let reason = phase_word(outcome);
        let warning = reason == "Failed";
        happenings.push(Happening { warning, reason, message: outcome.provisioned.1.message.to_string() });
    } else if told(&before) != told(&now) && outcome.own.1.code == "ClaimedElsewhere" {
        let message = outcome.own.1.message.to_string();
        happenings.push(Happening { warning: true, reason: "ClaimedElsewhere", message });
    }
    let value = serde_json::to_value(&now).unwrap_or_default();
    let uid = claim.metadata.uid.as_deref().unwrap_or("");
    Some(Write::status(at, value, None).telling(uid, happenings))
}

fn phase_word(outcome: &Outcome) -> &'static str {
    use landfall_api::landfall::ClaimPhase;
    match outcome.phase {
        ClaimPhase::Pending => "Pending",
        ClaimPhase::Bound => "Bound",
        ClaimPhase::Released => "Released",
        ClaimPhase::Failed => "Failed",
    }
}
