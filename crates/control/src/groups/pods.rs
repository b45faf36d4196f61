//! What runs groups in members: for each member that edges were installed in, a StatefulSet at the hub that is carried there as any
//! other federated object, and a Secret with the token that its pods come in with.
//!
//! Who may run there, and with which image, is said by whoever installed edges in the member (`landfall edge install`): its account in
//! the namespace `landfall-groups` there, and an entry of the ConfigMap `landfall-system/edge-pods` here. Members
//! without an entry run no pods of ours; edges of groups can still be run there by hand.

use std::collections::BTreeSet;
use std::sync::Arc;

use landfall_api::landfall::{EDGE_PODS, GROUPS_NAMESPACE, SYSTEM_NAMESPACE};
use landfall_api::rules::read::{child, text};
use landfall_plan::hash;
use landfall_plan::placement::{NAME_LABEL, SELECTOR_ANNOTATION};
use landfall_plan::vips::Remains;
use landfall_runtime::clock;
use serde::Deserialize;
use serde_json::{Value, json};

use super::gather::{Group, Scene};
use super::workload::{self, GROUP_LABEL};
use super::write::Write;
use crate::federation::{Federation, now_ms};
use crate::kinds::{EDGES, KindId};
use crate::shelf::Key;
use crate::traffic::Grouped;

/// The annotation that tells by which words an object was made.
const HASH_ANNOTATION: &str = "landfall.dev/made-of";
/// The annotation of a token that tells until when it is good, in seconds since 1970.
const UNTIL_ANNOTATION: &str = "landfall.dev/good-until";
/// How long tokens are good, and when they are replaced: pods that come later need one that still is.
const TOKEN_S: i64 = 86_400;
const RENEW_S: i64 = TOKEN_S / 2;

/// How long nothing is minted again for the same pods.
const MINT_PAUSE_MS: i64 = 30_000;

/// How pods of a member are run, as whoever installed edges there has said.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Installed {
    /// The image.
    pub image: String,
    /// The hub, as pods reach it.
    pub hub_url: String,
    /// The hash of the hub's authority.
    pub ca_hash: Option<String>,
}

/// What is written so that members run the edges of groups.
pub(super) fn writes(federation: &Arc<Federation>, scene: &Scene) -> Vec<Write> {
    let Some(mint) = federation.config.mint else { return Vec::new() };
    let id = |group: &str, kind: &str| federation.kinds.find(group, kind).expect("a built-in kind").id;
    let (sets, secrets) = (id("apps", "StatefulSet"), id("", "Secret"));
    let needed =
        |group: &Group| group.clusters.iter().any(|cluster| installed(federation, cluster).is_some());
    if scene.groups.values().any(needed)
        && let Some(first) = namespace(federation, id("", "Namespace"))
    {
        // The rest follows when it is there.
        federation.groups.wake();
        return vec![first];
    }
    let mut all = Vec::new();
    let mut kept: BTreeSet<Key> = BTreeSet::new();
    for (name, group) in &scene.groups {
        // One that is being deleted runs nowhere.
        for cluster in &group.clusters {
            let Some(installed) = installed(federation, cluster) else { continue };
            let own = workload::name(name, cluster);
            let (set, secret) = (key(sets, &own), key(secrets, &own));
            kept.extend([set.clone(), secret.clone()]);
            let object =
                dressed(workload::stateful_set(&own, group, cluster, &installed), name, group, cluster);
            all.extend(changed(federation, &set, object));
            let now_s = clock::epoch_s();
            if good_until(federation, &secret) < now_s.saturating_add(RENEW_S) && first(federation, &secret) {
                let until_s = now_s.saturating_add(TOKEN_S);
                let (token, bootstrap) = mint(cluster, name, until_s);
                let at = Key {
                    kind: secrets,
                    namespace: "kube-system".into(),
                    name: text(child(&bootstrap, "metadata"), "name").into(),
                };
                all.push(Write::create(&at, bootstrap));
                let object = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": {"token": token}});
                let mut object = dressed(object, name, group, cluster);
                object["metadata"]["name"] = own.clone().into();
                object["metadata"]["annotations"][UNTIL_ANNOTATION] = until_s.to_string().into();
                all.push(Write::apply(&secret, object));
            }
        }
    }
    // A member that the group has left; all of them when it is being deleted.
    for kind in [sets, secrets] {
        let shelf = federation.shelf(kind);
        let ours = |key: &Key| &*key.namespace == GROUPS_NAMESPACE && !kept.contains(key);
        for key in shelf.keys().into_iter().filter(ours) {
            let Some(seen) = shelf.get(&key).filter(|seen| !seen.deleting) else { continue };
            let object = seen.value();
            let group = text(child(child(&object, "metadata"), "annotations"), GROUP_LABEL);
            if scene.groups.contains_key(group) {
                all.push(Write::delete(&key, &seen.uid));
            }
        }
    }
    all
}

/// Forgets edges that were pods of ours and are gone: of groups that are gone or smaller, or have left the member.
pub(super) fn forgotten(scene: &Scene) -> Vec<Write> {
    let gone = |edge: &&Grouped| {
        let cluster = &edge.spec.cluster;
        let group = edge.spec.ingress_replica_set.as_deref().unwrap_or("");
        let own = format!("{}-", workload::name(group, cluster));
        let place = edge.name.strip_prefix(&own).and_then(|place| place.parse().ok());
        let runs = scene.groups.get(group).filter(|group| group.clusters.contains(cluster));
        let replicas = runs.map_or(0, |group| group.object.spec.replicas.unwrap_or(workload::REPLICAS));
        place.is_some_and(|place| {
            let may_hold = edge.status.group_revision.is_some() || !edge.status.vips.is_empty();
            Remains { alive: edge.alive, retired: edge.retired, may_hold, place, replicas }.forgettable()
        })
    };
    let one = |edge: &Grouped| Write::delete(&super::status::key(EDGES, &edge.name), &edge.uid);
    scene.pods.iter().filter(gone).map(one).collect()
}

fn key(kind: KindId, name: &str) -> Key {
    Key { kind, namespace: GROUPS_NAMESPACE.into(), name: name.into() }
}

/// How pods of a member are run, if edges were installed in it.
fn installed(federation: &Federation, cluster: &str) -> Option<Installed> {
    let kind = federation.groups.maps;
    let key = Key { kind, namespace: SYSTEM_NAMESPACE.into(), name: EDGE_PODS.into() };
    let map = federation.shelf(kind).get(&key)?.value();
    let entry = map.get("data")?.get(cluster)?.as_str()?;
    serde_json::from_str(entry).ok().filter(|installed: &Installed| !installed.image.is_empty())
}

/// Says whose an object is, and which member it is for.
fn dressed(mut object: Value, name: &str, group: &Group, cluster: &str) -> Value {
    let own = text(child(&object, "metadata"), "name").to_owned();
    object["metadata"] = json!({
        "name": own, "namespace": GROUPS_NAMESPACE,
        "annotations": {GROUP_LABEL: name, SELECTOR_ANNOTATION: format!("{NAME_LABEL} in ({cluster})")},
        "ownerReferences": [{
            "apiVersion": landfall_api::landfall::API_VERSION, "kind": "IngressReplicaSet", "name": name,
            "uid": group.object.metadata.uid,
        }],
    });
    object
}

/// What is different from what is there.
fn changed(federation: &Federation, key: &Key, mut object: Value) -> Option<Write> {
    let made_of = format!("{:016x}", hash::value(&object));
    let seen = federation.shelf(key.kind).get(key).map(|seen| seen.value());
    let notes = seen.as_ref().map(|seen| child(child(seen, "metadata"), "annotations"));
    if notes.is_some_and(|notes| text(notes, HASH_ANNOTATION) == made_of) {
        return None;
    }
    object["metadata"]["annotations"][HASH_ANNOTATION] = made_of.into();
    Some(Write::apply(key, object))
}

/// Whether no token was minted in the last moments.
fn first(federation: &Federation, key: &Key) -> bool {
    let mut minted = federation.groups.minted.lock();
    let now = now_ms();
    minted.retain(|_, at| now.saturating_sub(*at) < MINT_PAUSE_MS);
    let first = !minted.contains_key(key);
    if first {
        minted.insert(key.clone(), now);
    }
    first
}

/// Until when a token is good; long ago where there is none.
fn good_until(federation: &Federation, key: &Key) -> i64 {
    let seen = federation.shelf(key.kind).get(key).filter(|seen| !seen.deleting).map(|seen| seen.value());
    let until =
        seen.as_ref().map(|seen| text(child(child(seen, "metadata"), "annotations"), UNTIL_ANNOTATION));
    until.and_then(|until| until.parse().ok()).unwrap_or(0)
}

/// The namespace, whose pods may use their node's network.
fn namespace(federation: &Federation, kind: KindId) -> Option<Write> {
    let key = Key { kind, namespace: "".into(), name: GROUPS_NAMESPACE.into() };
    if federation.shelf(kind).get(&key).is_some() {
        return None;
    }
    let labels = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GROUPS_NAMESPACE, "labels": labels}});
    Some(Write::apply(&key, object))
}
