//! What must be in a member before a shard can be there.

use std::sync::Arc;

use landfall_plan::{Reason, truth};
use serde_json::Value;

use super::sight::Sight;
use crate::federation::Federation;
use crate::kinds::{self, NAMESPACES};
use crate::shelf::Key;

/// What an object's shards need in every member; found once per look.
pub(super) struct Before {
    namespace: Option<Key>,
    secrets: Vec<Needed>,
}

/// A Secret that the hub has, and the members it is meant for.
struct Needed {
    key: Key,
    /// All of them when it is not told yet.
    meant: Option<Vec<String>>,
}

impl Before {
    /// Of this object: its namespace, and the Secrets that its TLS needs.
    pub(super) fn of(federation: &Arc<Federation>, key: &Key, object: &Value) -> Self {
        Self {
            namespace: namespace(federation, key),
            secrets: secrets(object).filter_map(|name| secret(federation, key, name)).collect(),
        }
    }

    /// Why a shard must wait in a member, if it must.
    pub(super) fn missing(&self, federation: &Arc<Federation>, sight: &Sight) -> Option<Reason> {
        let there = |key: &Key| sight.member.shelf(federation, key.kind).get(key);
        if self.namespace.as_ref().is_some_and(|key| there(key).is_none_or(|seen| seen.deleting)) {
            return Some(Reason::new("NamespaceFirst", "its namespace comes first"));
        }
        let meant = |needed: &Needed| {
            needed.meant.as_ref().is_none_or(|clusters| clusters.contains(&sight.member.name))
        };
        let missing = self.secrets.iter().find(|needed| meant(needed) && there(&needed.key).is_none())?;
        Some(Reason::new("SecretFirst", format!("the Secret {} comes first", missing.key.name)))
    }
}

/// The object's namespace, if it is federated: the others are the members' own affair.
fn namespace(federation: &Arc<Federation>, key: &Key) -> Option<Key> {
    if key.namespace.is_empty() {
        return None;
    }
    let namespace = Key { kind: NAMESPACES, namespace: "".into(), name: key.namespace.clone() };
    let here = federation.shelf(NAMESPACES).get(&namespace)?;
    kinds::eligible(&federation.kinds.get(NAMESPACES), &here.value()).then_some(namespace)
}

/// The Secrets that an Ingress names.
fn secrets(object: &Value) -> impl Iterator<Item = &str> {
    let ingress = object.get("kind").and_then(Value::as_str) == Some("Ingress");
    let tls = object.pointer("/spec/tls").and_then(Value::as_array).filter(|_| ingress);
    tls.into_iter().flatten().filter_map(|entry| entry.get("secretName").and_then(Value::as_str))
}

/// A Secret, unless the hub does not have it or does not federate it: then it is the members' own affair.
fn secret(federation: &Arc<Federation>, key: &Key, name: &str) -> Option<Needed> {
    let row = federation.kinds.find("", "Secret")?;
    let secret = Key { kind: row.id, namespace: key.namespace.clone(), name: name.into() };
    let object = federation.shelf(row.id).get(&secret).filter(|seen| !seen.deleting)?.value();
    let told = object
        .pointer("/metadata/annotations")
        .and_then(|all| all.get(truth::ANNOTATION))
        .and_then(Value::as_str)
        // What a Secret with a mistake is meant for is not known until it is mended.
        .filter(|text| truth::mistake(text).is_none());
    let meant = told.map(|text| truth::read(text).into_iter().map(|line| line.cluster).collect());
    kinds::eligible(&row, &object).then_some(Needed { key: secret, meant })
}
