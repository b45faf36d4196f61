//! What must be in a member before a shard can be there.

use std::sync::Arc;

use landfall_plan::{Reason, truth};
use serde_json::Value;

use super::sight::Sight;
use crate::federation::Federation;
use crate::kinds::{self, NAMESPACES};
use crate::shelf::Key;

/// Why a shard must wait, if it must: for its namespace, or for the Secrets that its TLS needs.
pub(super) fn before_apply(
    federation: &Arc<Federation>,
    key: &Key,
    object: &Value,
    sight: &Sight,
) -> Option<Reason> {
    if !key.namespace.is_empty() {
        let namespace = Key { kind: NAMESPACES, namespace: "".into(), name: key.namespace.clone() };
        let here = federation.shelf(NAMESPACES).get(&namespace);
        let federated =
            here.is_some_and(|seen| kinds::eligible(&federation.kinds.get(NAMESPACES), &seen.value()));
        let there = sight.member.shelf(federation, NAMESPACES);
        if federated && there.get(&namespace).is_none_or(|seen| seen.deleting) {
            return Some(Reason::new("NamespaceFirst", "its namespace comes first"));
        }
    }
    let missing = secrets(object).find(|name| waits_for_secret(federation, key, name, sight))?;
    Some(Reason::new("SecretFirst", format!("the Secret {missing} comes first")))
}

/// The Secrets that an Ingress names.
fn secrets(object: &Value) -> impl Iterator<Item = &str> {
    let ingress = object.get("kind").and_then(Value::as_str) == Some("Ingress");
    let tls = object.pointer("/spec/tls").and_then(Value::as_array).filter(|_| ingress);
    tls.into_iter().flatten().filter_map(|entry| entry.get("secretName").and_then(Value::as_str))
}

fn waits_for_secret(federation: &Arc<Federation>, key: &Key, name: &str, sight: &Sight) -> bool {
    let Some(row) = federation.kinds.find("", "Secret") else { return false };
    let secret = Key { kind: row.id, namespace: key.namespace.clone(), name: name.into() };
    // One that the hub does not have is the members' own affair.
    let Some(here) = federation.shelf(row.id).get(&secret).filter(|seen| !seen.deleting) else {
        return false;
    };
    let object = here.value();
    // Nor is one that is not meant for this member.
    let told = object
        .pointer("/metadata/annotations")
        .and_then(|all| all.get(truth::ANNOTATION))
        .and_then(Value::as_str);
    let meant =
        told.is_none_or(|text| truth::read(text).iter().any(|line| line.cluster == sight.member.name));
    kinds::eligible(&row, &object) && meant && sight.member.shelf(federation, row.id).get(&secret).is_none()
}
