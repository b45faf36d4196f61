//! Gives a Service the same node ports everywhere when an Ingress needs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use landfall_plan::nodeports::{self, ANNOTATION};
use serde_json::Value;

use super::sight::Sight;
use crate::federation::Federation;
use crate::hub::Update;
use crate::kinds::Row;
use crate::shelf::Key;

/// What a member says of a node port that somebody else has there.
const TAKEN: &str = "provided port is already allocated";

/// The change of a Service that must come before its shards, if one must.
pub(super) fn before(
    federation: &Arc<Federation>,
    key: &Key,
    row: &Row,
    (object, version): (&Value, &str),
    sights: &[Sight],
) -> Option<Update> {
    if row.kind != "Service" || !row.group.is_empty() {
        return None;
    }
    let note =
        object.pointer("/metadata/annotations").and_then(|all| all.get(ANNOTATION)).and_then(Value::as_str);
    let (choice, chosen) = nodeports::read_choice(note.unwrap_or(""));
    let refused = |sight: &&Sight| {
        let refused = sight.note.memory.refused.as_ref();
        sight.offline_since_ms.is_none() && refused.is_some_and(|refused| refused.message.contains(TAKEN))
    };
    // Only what was chosen here is chosen anew: a port that the user gave stays, and the refusal is told.
    let refusing: Vec<&Sight> = sights.iter().filter(|sight| choice > 0 && refused(sight)).collect();
    if refusing.is_empty() && !(nodeports::lacks(object) && needed(federation, key)) {
        return None;
    }
    let service = if refusing.is_empty() { object.clone() } else { nodeports::without(object, &chosen) };
    let ports = nodeports::choose(&key.path(), &service, &taken(federation, key), choice)?;
    for sight in refusing {
        // The next answer is about the next choice.
        sight.member.noting(key, |note| (note.memory.refused, note.pause, note.failures) = (None, None, 0));
    }
    let annotations = vec![(ANNOTATION, nodeports::write_choice(choice + 1, &service, &ports))];
    Some(Update { annotations, ports: Some((ports, version.to_owned())), ..Update::default() })
}

/// Whether an Ingress of the same namespace sends to the Service.
fn needed(federation: &Arc<Federation>, key: &Key) -> bool {
    let Some(row) = federation.kinds.find("networking.k8s.io", "Ingress") else { return false };
    let shelf = federation.shelf(row.id);
    let mut ingresses = shelf.keys().into_iter().filter(|other| other.namespace == key.namespace);
    ingresses.any(|other| {
        shelf.get(&other).is_some_and(|seen| nodeports::backends(&seen.value()).contains(&*key.name))
    })
}

/// The node ports of all other Services at the hub.
fn taken(federation: &Arc<Federation>, key: &Key) -> BTreeSet<u32> {
    let shelf = federation.shelf(key.kind);
    let others = shelf.keys().into_iter().filter(|other| other != key);
    others.filter_map(|other| shelf.get(&other)).flat_map(|seen| nodeports::used(&seen.value())).collect()
}
