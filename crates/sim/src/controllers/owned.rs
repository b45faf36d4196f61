//! Adopting and releasing: an owner controls what its selector selects, and nothing else.

use std::sync::Arc;

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::{Value, json};

use super::action::{Action, Deed, Plan};
use super::read::controller_reference;
use crate::view::{Known, View};

/// The objects that an owner controls and its selector selects. Orphans that it selects are adopted, and what it no
/// longer selects is released: they count once that is done.
pub(super) fn claim<'a>(
    view: &'a View,
    known: Known,
    owner: &Value,
    selector: &Selector,
    plan: &mut Plan,
) -> Vec<&'a Arc<Value>> {
    let uid = meta::uid(owner);
    let (mine, others): (Vec<_>, Vec<_>) =
        view.owned_by(known, uid).into_iter().partition(|object| selector.matches_object(object));
    if meta::deleting(owner) {
        return mine;
    }
    for object in others.into_iter().filter(|object| !meta::deleting(object)) {
        plan.act(Action::on(known, object, Deed::Set(vec![without(object, uid)]), "no longer selected"));
    }
    if !selector.is_everything() {
        let orphans = view
            .orphans(known, meta::namespace(owner))
            .filter(|object| selector.matches_object(object) && !meta::deleting(object));
        for object in orphans {
            plan.act(Action::on(known, object, Deed::Set(vec![with(object, owner)]), "an orphan it selects"));
        }
    }
    mine
}

/// The object's references with the owner as its controller.
fn with(object: &Value, owner: &Value) -> (String, Option<Value>) {
    let mut references: Vec<Value> = references(object).cloned().collect();
    references.push(controller_reference(owner));
    ("/metadata/ownerReferences".into(), Some(json!(references)))
}

/// The object's references without the owner.
fn without(object: &Value, uid: &str) -> (String, Option<Value>) {
    let kept: Vec<Value> =
        references(object).filter(|r| r.get("uid").and_then(Value::as_str) != Some(uid)).cloned().collect();
    ("/metadata/ownerReferences".into(), (!kept.is_empty()).then(|| json!(kept)))
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}
