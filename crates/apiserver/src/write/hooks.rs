//! What must hold beyond one object's own rules: the short list of kinds whose writes concern the whole server.

use landfall_api::{Kind, Status};
use landfall_store::Revision;
use serde_json::Value;

use super::By;
use crate::api::Api;
use crate::{authz, definitions};

/// Namespaces that must not be deleted.
const KEPT_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public"];

/// Before a create is validated.
pub fn before_create(api: &Api, kind: &Kind, object: &Value, by: &By<'_>) -> Result<(), Status> {
    api.guard(kind, object, None, by)
}

/// Before an update is validated.
pub fn before_update(api: &Api, kind: &Kind, object: &Value, old: &Value, by: &By<'_>) -> Result<(), Status> {
    api.guard(kind, object, Some(old), by)
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
    if kind.group == definitions::GROUP {
        Box::pin(api.definition_written()).await;
    }
}
