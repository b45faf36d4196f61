//! Edges as clients of the API: who they are, what they may do, how they come in and how they are shut out.
//!
//! ```text
//!   bootstrap token ──► CertificateSigningRequest ──► signer (decide) ──► Edge object (uid) + certificate (name, uid)
//!   certificate ──► [`admitted`]: an Edge of that name and uid exists ──► [`authorize`]: its own Edge, plans, its requests
//! ```
//!
//! An edge's certificate is as good as its `Edge` object: the certificate carries the object's uid, and is looked up with
//! every request. Deleting the object shuts the edge out at once, and ends its open watches. No list of revoked
//! certificates has to be kept, and a name that is given again is another object with another uid.
//!
//! Rights are an authorizer beside RBAC, as Kubernetes does it for nodes: RBAC has no way to say "its own", so there
//! would have to be a role and a binding for every edge, made and removed with it.
//!
//! Reading order: this file, [`decide`] (who gets a certificate; pure), [`signer`] (does it), [`sweep`] (removes what is over).

pub mod decide;
pub mod signer;
pub mod sweep;

use std::sync::Arc;

use landfall_api::landfall::{CERTIFICATES_NAMESPACE, EDGE_USER_PREFIX, EDGES_GROUP, GROUP, group_label};
use landfall_api::rules::read::{child, same, text};
use landfall_api::{Kind, Status, meta};
use landfall_store::{Entry, Event, Revision, Snapshot, Store};
use serde::Deserialize;
use serde_json::Value;

use crate::api::Api;
use crate::authn::User;
use crate::authz::{Attributes, Verdict};
use crate::{certificates, encode, keys};

/// The group of all edges.
pub const EDGES: &str = EDGES_GROUP;
/// How edges are called, before their name.
pub const USER_PREFIX: &str = EDGE_USER_PREFIX;
/// The group of those who may become edges.
pub const BOOTSTRAPPERS: &str = "system:bootstrappers:landfall:edges";
/// Who signs for edges.
pub const SIGNER: &str = "landfall.dev/edge";
/// The annotation of a request that says in which cluster the edge stands.
pub const CLUSTER_ANNOTATION: &str = "landfall.dev/cluster";
/// The annotation of a request that says to which group the edge belongs.
pub const GROUP_ANNOTATION: &str = "landfall.dev/ingress-replicaset";
/// The annotation of an `Edge` that says with which token it came in.
pub const TOKEN_ANNOTATION: &str = "landfall.dev/bootstrap-token";
/// The annotation of an `Edge` that says with which request it was made.
pub const REQUEST_ANNOTATION: &str = "landfall.dev/certificate-request";
/// The plural of `Edge`.
pub const PLURAL: &str = "edges";

/// What edges may read, in all namespaces.
const READABLE: [&str; 3] = ["trafficplans", "routeplans", "groupplans"];
/// How many changes are looked at at once.
const BATCH_MAX: usize = 64;

/// The name of the edge that a user is; none for everybody else.
pub fn name_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|name| !name.is_empty() && user.in_group(EDGES))
}

/// Whether a certificate still opens the door: it does for everybody but edges whose `Edge` is gone.
pub fn admitted(snapshot: &Snapshot, user: &User) -> bool {
    if !user.in_group(EDGES) && !user.name.starts_with(USER_PREFIX) {
        return true;
    }
    let Some(name) = name_of(user) else { return false };
    let entry = snapshot.get(&keys::object(GROUP, PLURAL, "", name));
    entry.is_some_and(|entry| is_edge(entry, &user.uid))
}

/// Whether an entry is the edge of that uid, and not on its way out.
fn is_edge(entry: &Entry, uid: &str) -> bool {
    /// What is looked at; the rest is passed over.
    #[derive(Deserialize)]
    struct Head {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        #[serde(default)]
        uid: String,
        deletion_timestamp: Option<String>,
    }
    let head: Option<Head> = serde_json::from_slice(&entry.value).ok();
    head.is_some_and(|Head { metadata }| {
        !uid.is_empty() && metadata.uid == uid && metadata.deletion_timestamp.is_none()
    })
}

/// The group that an entry's edge belongs to; empty for none.
fn group_of(entry: &Entry) -> String {
    let edge = encode::decode(entry).unwrap_or_default();
    text(child(&edge, "spec"), "ingressReplicaSet").to_owned()
}

/// When a watch must end besides its own time: the server stops, or the edge that watches is shut out.
pub fn dismissed(api: &Arc<Api>, user: &User) -> impl Future<Output = ()> + Send + 'static {
    let stop = api.tasks.stopping();
    let edge = name_of(user).map(|name| (keys::object(GROUP, PLURAL, "", name), user.uid.clone()));
    let store = api.store.clone();
    async move {
        match edge {
            Some((key, uid)) => tokio::select! { () = stop => {}, () = gone(&*store, &key, &uid) => {} },
            None => stop.await,
        }
    }
}

/// Waits until an edge is there no longer, or belongs to another group and is shown something else. Whoever cannot tell says so too:
/// the watch is opened anew.
async fn gone(store: &dyn Store, key: &str, uid: &str) {
    let snapshot = store.snapshot();
    let Some(entry) = snapshot.get(key).filter(|entry| is_edge(entry, uid)) else { return };
    let group = group_of(entry);
    let Ok(mut watch) = store.watch(key, snapshot.revision()) else { return };
    let mut events = Vec::new();
    while watch.next_batch(&mut events, BATCH_MAX).await.is_ok() {
        for event in events.drain(..) {
            if let Event::Change(change) = event
                && *change.entry.key == *key
                && (change.removed || !is_edge(&change.entry, uid) || group_of(&change.entry) != group)
            {
                return;
            }
        }
    }
}

/// What edges and those who become edges may do; none when roles decide. `own_request` says whether a request for a
/// certificate is the user's own.
pub fn authorize(asked: &Attributes<'_>, own_request: &dyn Fn(&str) -> bool) -> Option<Verdict> {
    let edge = name_of(asked.user);
    if !asked.is_resource || edge.is_none() && !asked.user.in_group(BOOTSTRAPPERS) {
        return None;
    }
    let allowed = match (asked.group, asked.resource, asked.subresource, asked.verb) {
        (certificates::GROUP, certificates::PLURAL, "", "create") => true,
        (certificates::GROUP, certificates::PLURAL, "", "get") => own_request(asked.name),
        (GROUP, plural, "", "get" | "list" | "watch") if READABLE.contains(&plural) => edge.is_some(),
        ("", "secrets", "", "get" | "list" | "watch") => {
            edge.is_some() && asked.namespace == CERTIFICATES_NAMESPACE
        }
        (GROUP, PLURAL, "" | "status", "get" | "patch" | "update") => edge == Some(asked.name),
        _ => false,
    };
    allowed.then(|| Verdict::Allowed(Some("edges may read plans and keep their own Edge".into())))
}

/// An edge says where it is and what it sees; which member it stands in and what others know it by is not its to change.
pub fn guard(kind: &Kind, object: &Value, old: Option<&Value>, user: &User) -> Result<(), Status> {
    let (Some(_), true) = (name_of(user), kind.group == GROUP && kind.plural == PLURAL) else {
        return Ok(());
    };
    let refuse = |what: &str| {
        let why = format!("an edge may not change its {what}");
        Err(Status::forbidden(&kind.group, &kind.plural, meta::name(object), &why))
    };
    let Some(old) = old else { return refuse("existence") };
    if text(child(object, "spec"), "cluster") != text(child(old, "spec"), "cluster") {
        return refuse("cluster");
    }
    // It decides whose keys it is shown.
    if text(child(object, "spec"), "ingressReplicaSet") != text(child(old, "spec"), "ingressReplicaSet") {
        return refuse("group; revoke it, and let it come in anew");
    }
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let of = |object: &Value| object.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
        if !same(of(object).as_ref(), of(old).as_ref()) {
            return refuse(field);
        }
    }
    Ok(())
}

/// The label that Secrets and RoutePlans must have to be shown to a user: that of its group, for an edge; none for everybody else.
pub fn shown_label(snapshot: &Snapshot, kind: &Kind, user: &User) -> Option<String> {
    let of_groups = matches!((&*kind.group, &*kind.plural), ("", "secrets") | (GROUP, "routeplans"));
    let name = name_of(user).filter(|_| of_groups)?;
    let group = snapshot.get(&keys::object(GROUP, PLURAL, "", name)).map(|entry| group_of(entry));
    Some(group_label(group.as_deref().filter(|group| !group.is_empty())))
}

/// Whether a request for a certificate is this user's.
pub fn is_own_request(snapshot: &Snapshot, user: &User, name: &str) -> bool {
    let entry = snapshot.get(&keys::object(certificates::GROUP, certificates::PLURAL, "", name));
    let object = entry.and_then(|entry| encode::decode(entry).ok());
    object.is_some_and(|object| text(child(&object, "spec"), "username") == user.name)
}

/// All objects of a kind in a state, with their revisions.
fn objects(snapshot: &Snapshot, group: &str, plural: &str) -> Vec<(Value, Revision)> {
    let prefix = keys::collection(group, plural);
    let all = snapshot.range(&prefix, "");
    all.filter_map(|entry| Some((encode::decode(entry).ok()?, entry.revision))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn edge() -> User {
        User { name: format!("{USER_PREFIX}e1"), groups: vec![EDGES.into()], ..User::default() }
    }

    #[test]
    fn an_edge_has_its_own_and_nothing_else() {
        let bootstrapper = User {
            name: "system:bootstrap:abcdef".into(),
            groups: vec![BOOTSTRAPPERS.into()],
            ..User::default()
        };
        let check = |user: &User, verb: &str, what: &str, name: &str, allowed: bool| {
            let (group, resource) = what.split_once('/').expect("group/resource");
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let asked =
                Attributes { subresource, ..Attributes::resource(user, verb, group, resource, "any", name) };
            let got = authorize(&asked, &|name| name == "mine");
            assert_eq!(got.is_some(), allowed, "{verb} {what} {name:?}");
        };
        let e1 = edge();
        let (plans, edges, requests) = (
            "landfall.dev/trafficplans",
            "landfall.dev/edges",
            "certificates.k8s.io/certificatesigningrequests",
        );
        let (status, approval) = (format!("{edges}/status"), format!("{requests}/approval"));
        for verb in ["get", "list", "watch"] {
            check(&e1, verb, plans, "", true);
            check(&bootstrapper, verb, plans, "", false);
        }
        for verb in ["create", "update", "patch", "delete"] {
            check(&e1, verb, plans, "p", false);
        }
        for (name, own) in [("e1", true), ("e2", false), ("", false)] {
            for verb in ["get", "patch", "update"] {
                check(&e1, verb, edges, name, own);
                check(&e1, verb, &status, name, own);
                check(&bootstrapper, verb, edges, name, false);
            }
            for verb in ["create", "delete", "list", "watch", "deletecollection"] {
                check(&e1, verb, edges, name, false);
            }
        }
        for user in [&e1, &bootstrapper] {
            check(user, "create", requests, "", true);
            check(user, "get", requests, "mine", true);
            check(user, "get", requests, "theirs", false);
            check(user, "list", requests, "", false);
            check(user, "update", &approval, "mine", false);
            for what in ["/secrets", "/services", "landfall.dev/clusters", "rbac.authorization.k8s.io/roles"]
            {
                check(user, "get", what, "x", false);
            }
        }
        for verb in ["get", "list", "watch"] {
            check(&e1, verb, "landfall.dev/routeplans", "", true);
            check(&e1, verb, "landfall.dev/groupplans", "", true);
            check(&e1, verb, "landfall.dev/ingressreplicasets", "", false);
            check(&e1, verb, "/secrets", "s", false);
        }
        let alone = User { name: format!("{USER_PREFIX}e1"), ..User::default() };
        check(&alone, "get", plans, "p", false);
        for (user, verb, allowed) in
            [(&e1, "get", true), (&e1, "watch", true), (&e1, "update", false), (&bootstrapper, "get", false)]
        {
            let asked = Attributes::resource(user, verb, "", "secrets", CERTIFICATES_NAMESPACE, "s");
            assert_eq!(authorize(&asked, &|_| false).is_some(), allowed, "{verb} certificates");
        }
    }

    #[test]
    fn an_edge_cannot_move_or_dress_itself() {
        let kinds = landfall_api::landfall::definitions();
        let kind =
            kinds.iter().flat_map(crate::crd::kinds).find(|kind| kind.plural == PLURAL).expect("edges");
        let old = json!({"metadata": {"name": "e1", "annotations": {}}, "spec": {"cluster": "a"}});
        let check = |path: &str, value: Value, good: bool| {
            let mut new = old.clone();
            *new.pointer_mut(path).expect("a place") = value;
            assert_eq!(guard(&kind, &new, Some(&old), &edge()).is_ok(), good, "{path}");
            assert!(guard(&kind, &new, Some(&old), &User::default()).is_ok());
        };
        check("/spec", json!({"cluster": "a", "peerAddress": "x:1"}), true);
        check("/spec", json!({"cluster": "b"}), false);
        check("/spec", json!({"cluster": "a", "ingressReplicaSet": "blue"}), false);
        check("/metadata", json!({"name": "e1", "finalizers": ["x/y"]}), false);
        check("/metadata", json!({"name": "e1", "annotations": {"a": "b"}}), false);
        check("/metadata", json!({"name": "e1"}), true);
    }
}
