//! Ingresses: what they ask for, and what is written to them: what they are bound to, and why.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_api::landfall::{BINDING_ANNOTATION, BOUND_ANNOTATION};
use landfall_api::rules::read::{child, text};
use landfall_plan::binding::{self, Ask, Bound, Want};
use serde_json::{Map, Value, json};

use super::gather::Scene;
use super::write::Write;
use crate::events::Happening;
use crate::federation::{Federation, now_ms};
use crate::kinds;
use crate::shelf::Key;

/// What an Ingress asks for, as it was last seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// Its resourceVersion.
    pub version: u64,
    /// Its uid.
    pub uid: String,
    /// When it was made.
    pub created: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it asks for.
    pub ask: Ask,
    /// What it is bound to.
    pub bound: Vec<String>,
    /// Why, as it was told.
    pub told: String,
}

/// All Ingresses that are ours to bind.
pub(super) fn all(federation: &Arc<Federation>) -> Vec<(Key, Asked)> {
    let shelf = federation.shelf(federation.groups.ingresses);
    let row = federation.kinds.get(federation.groups.ingresses);
    let mut known = federation.groups.asked.lock();
    let mut keys = shelf.keys();
    keys.sort();
    known.retain(|key, _| keys.binary_search(key).is_ok());
    let mut all = Vec::with_capacity(keys.len());
    for key in keys {
        let Some(seen) = shelf.get(&key).filter(|seen| !seen.deleting) else { continue };
        let version = seen.version.parse().unwrap_or(0);
        // What we wrote may be newer than what the watch has told.
        let current =
            known.get(&key).is_some_and(|asked| asked.version >= version && *asked.uid == *seen.uid);
        if !current {
            let object = seen.value();
            if !kinds::eligible(&row, &object) {
                continue;
            }
            known.insert(key.clone(), read(&object, version));
        }
        if let Some(asked) = known.get(&key) {
            all.push((key, asked.clone()));
        }
    }
    all
}

/// Reads an Ingress.
fn read(object: &Value, version: u64) -> Asked {
    let metadata = child(object, "metadata");
    let labels = child(metadata, "labels").as_object().into_iter().flatten();
    Asked {
        version,
        uid: text(metadata, "uid").to_owned(),
        created: text(metadata, "creationTimestamp").to_owned(),
        labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
        ask: binding::asks(object),
        bound: super::bound_to(object),
        told: text(child(metadata, "annotations"), BINDING_ANNOTATION).to_owned(),
    }
}

/// Keeps what the hub answered: the next look must see it. The shelf is left to the watch, which tells others.
pub(super) fn keep(federation: &Federation, key: &Key, object: &Value) {
    let version = text(child(object, "metadata"), "resourceVersion").parse().unwrap_or(0);
    federation.groups.asked.lock().insert(key.clone(), read(object, version));
}

/// What is written to Ingresses.
pub(super) fn writes(federation: &Federation, scene: &Scene, wants: &[Want], bound: &[Bound]) -> Vec<Write> {
    let mut all = Vec::new();
    let each = scene.ingresses.iter().zip(wants).zip(bound);
    for (((key, asked), want), bound) in each {
        let same = asked.bound == bound.groups;
        let told = match (&want.ask, &bound.reason) {
            (Ask::Nothing, _) => String::new(),
            (_, Some(reason)) => words(&bound.groups, reason),
            (_, None) => asked.told.clone(),
        };
        if same && told == asked.told {
            continue;
        }
        let mut notes = Map::new();
        let note = |text: String| if text.is_empty() { Value::Null } else { text.into() };
        notes.insert(BOUND_ANNOTATION.into(), note(bound.groups.join(",")));
        notes.insert(BINDING_ANNOTATION.into(), note(told.clone()));
        let patch = json!({"metadata": {"annotations": notes, "uid": asked.uid}});
        let happening = happening(asked, want, bound, &told);
        if bound.relieved {
            federation.groups.moves.lock().push_back(now_ms());
        }
        all.push(Write::patch(key, patch).telling(&asked.uid, happening));
    }
    all
}

/// Why, in words.
fn words(groups: &[String], reason: &landfall_plan::Reason) -> String {
    match groups {
        [] => format!("not bound ({}): {}", reason.code, reason.message),
        groups => format!("{} ({}): {}", groups.join(", "), reason.code, reason.message),
    }
}

fn happening(asked: &Asked, want: &Want, bound: &Bound, told: &str) -> Option<Happening> {
    let (warning, reason) = match (asked.bound.is_empty(), bound.groups.is_empty()) {
        _ if matches!(want.ask, Ask::Nothing) => (false, "Unbound"),
        (_, true) => (true, "NotBound"),
        (true, false) => (false, "Bound"),
        (false, false) if asked.bound == bound.groups => return None,
        (false, false) => (false, "Rebound"),
    };
    let message = if told.is_empty() { "it asks for no group any more".to_owned() } else { told.to_owned() };
    Some(Happening { warning, reason, message })
}
