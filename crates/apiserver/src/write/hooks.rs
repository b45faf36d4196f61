//! What must hold beyond one object's own rules: the short list of kinds whose writes concern the whole server.

use std::cmp::Reverse;

use landfall_api::{Kind, Status, meta};
use landfall_store::Revision;
use serde_json::Value;

use super::By;
use super::update::Part;
use crate::api::Api;
use crate::{authz, certificates, crd, encode, keys};

/// Namespaces that must not be deleted.
const KEPT_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public"];

/// Before a create is validated.
pub fn before_create(api: &Api, kind: &Kind, object: &mut Value, by: &By<'_>) -> Result<(), Status> {
    if kind.group == "networking.k8s.io" && kind.kind == "Ingress" {
        default_class(api, object);
    }
    if certificates::is_request(kind) {
        certificates::requested(object, by);
    }
    if let Some(admission) = &api.admission {
        admission.create(&api.store.snapshot(), kind, object)?;
    }
    api.guard(kind, object, None, by)
}

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

/// An Ingress that names no class gets the default one: the newest of those so marked, then the first by name.
fn default_class(api: &Api, ingress: &mut Value) {
    let annotated = annotation(ingress, CLASS_ANNOTATION).is_some();
    if annotated || ingress.pointer("/spec/ingressClassName").is_some_and(|class| !class.is_null()) {
        return;
    }
    let snapshot = api.store.snapshot();
    let prefix = keys::collection("networking.k8s.io", "ingressclasses");
    let classes = snapshot.range(&prefix, "").filter_map(|entry| encode::decode(entry).ok());
    let marked = classes.filter(|class| annotation(class, DEFAULT_CLASS) == Some("true"));
    let newest = marked.min_by_key(|class| {
        let made = meta::string(class, "creationTimestamp").to_owned();
        (Reverse(made), meta::name(class).to_owned())
    });
    if let Some(class) = newest {
        let name = meta::name(&class).into();
        meta::child_mut(ingress, "spec").insert("ingressClassName".into(), name);
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

/// Before an update is validated.
pub fn before_update(
    api: &Api,
    kind: &Kind,
    object: &mut Value,
    old: &Value,
    by: &By<'_>,
) -> Result<(), Status> {
    if let Some(admission) = &api.admission {
        admission.update(&api.store.snapshot(), kind, object, old)?;
    }
    api.guard(kind, object, Some(old), by)
}

/// Before a write of what was decided about an object, or seen of it.
pub fn before_decision(
    api: &Api,
    kind: &Kind,
    part: Part,
    object: &mut Value,
    old: &Value,
    by: &By<'_>,
) -> Result<(), Status> {
    if certificates::is_request(kind) {
        return certificates::decided(api, kind, part, object, old, by);
    }
    Ok(())
}

/// Before a delete.
pub fn before_delete(kind: &Kind, name: &str) -> Result<(), Status> {
    if kind.group.is_empty() && kind.kind == "Namespace" && KEPT_NAMESPACES.contains(&name) {
        return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// After a write was committed at `revision`, before it is acknowledged.
pub async fn after(api: &Api, kind: &Kind, revision: Revision) {
    if authz::live::concerns(&kind.group) {
        api.authz.caught_up(revision).await;
    }
    if kind.group == crd::GROUP {
        api.definition_written().await;
    }
}
