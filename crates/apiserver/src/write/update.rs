//! Changing an object: the one loop that every update, patch and mark goes through.

use std::sync::Arc;

use landfall_api::field::ErrorList;
use landfall_api::{Kind, Reason, Status, meta, objectmeta, rules};
use landfall_store::{Entry, Error};
use serde_json::{Value, json};

use super::create::{kind_ttl, refuse_invalid};
use super::{By, Deed, Wanted, Written, hooks, imagined};
use crate::api::Api;
use crate::managed;
use crate::{encode, errors, keys, read};

/// How often a change is tried anew when somebody else was faster.
const TRIES_MAX: u32 = 32;

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but status.
    Main,
    /// `/status`.
    Status,
    /// `/scale`: the main part, recorded under the subresource.
    Scale,
    /// `/finalize` of a namespace.
    Finalize,
    /// `/approval` of a request for a certificate.
    Approval,
    /// `/binding` of a pod: its node, once, and the conditions that say so.
    Binding,
}

impl Part {
    /// As managedFields name it.
    pub const fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
            Self::Approval => "approval",
            Self::Binding => "binding",
        }
    }
}

/// Changes an object. `change` turns the current one into the wanted one and may be called several times.
pub async fn update(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    name: &str,
    part: Part,
    by: &By<'_>,
    change: impl FnMut(&Value) -> Result<Wanted, Status> + Send,
) -> Result<Written, Status> {
    let written = update_quietly(api, kind, namespace, name, part, by, change).await?;
    if !by.dry_run {
        // Also when nothing changed: then there is nothing to do or wait for.
        hooks::after(api, kind, written.entry.revision).await;
    }
    Ok(written)
}

/// The same without what a write of some kinds is followed by.
pub async fn update_quietly(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    name: &str,
    part: Part,
    by: &By<'_>,
    mut change: impl FnMut(&Value) -> Result<Wanted, Status> + Send,
) -> Result<Written, Status> {
    let key = keys::object(&kind.stored_as.0, &kind.stored_as.1, namespace, name);
    for _ in 0..TRIES_MAX {
        let entry = read::get::entry(&*api.store, kind, namespace, name, "").await?;
        let old = current(kind, &entry)?;
        let changed = change(&old)?;
        let mut new = changed.object;
        check_same(kind, name, &old, &new)?;
        if meta::resource_version(&new).is_empty() {
            // A blind update is one of whatever is there.
            meta::metadata_mut(&mut new)
                .insert("resourceVersion".into(), json!(meta::resource_version(&old)));
        }
        settle(api, kind, part, &old, &mut new, changed.applied, by)?;
        let mut warnings = changed.warnings;
        warnings.extend(kind.rules.warnings(&new));
        let written = |entry, deed| Written { entry, deed, warnings };
        if managed::is_noop(&old, &new) {
            return Ok(written(entry, Deed::Updated));
        }
        let gone = finished(kind, &new);
        if by.dry_run {
            return Ok(written(imagined(kind, &new, entry.revision), Deed::Updated));
        }
        let stored = if gone {
            api.store.delete(&key, entry.revision).await
        } else {
            api.store.update(&key, encode::stored(kind, &new), entry.revision, kind_ttl(kind)).await
        };
        match stored {
            Ok(entry) => return Ok(written(entry, if gone { Deed::Removed } else { Deed::Updated })),
            Err(Error::Conflict(Some(_))) => {}
            Err(error) => return Err(errors::of_object(&error, kind, name)),
        }
    }
    Err(errors::modified(kind, name))
}

/// The stored object in the version this kind serves.
pub fn current(kind: &Kind, entry: &Entry) -> Result<Value, Status> {
    let mut old = encode::decode(entry).map_err(|e| errors::unreadable(kind, &entry.key, &e))?;
    // Always: a definition may have changed its storage version since the object was written.
    old["apiVersion"] = json!(encode::api_version(&kind.group, &kind.version));
    Ok(old)
}

/// The wanted object must be the current one: same name, same uid and, if it says one, same resourceVersion.
fn check_same(kind: &Kind, name: &str, old: &Value, new: &Value) -> Result<(), Status> {
    if meta::name(new) != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            meta::name(new)
        )));
    }
    if meta::namespace(new) != meta::namespace(old) {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let version = meta::resource_version(new);
    if !version.is_empty() && version != meta::resource_version(old) {
        return Err(errors::modified(kind, name));
    }
    check_uid(kind, name, meta::uid(new), meta::uid(old))
}

/// 409 when a precondition names another object of the same name.
fn check_uid(kind: &Kind, name: &str, wanted: &str, found: &str) -> Result<(), Status> {
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
    Err(Status::conflict(&kind.group, &kind.plural, name, &why))
}

/// Everything between the wanted object and storing it.
fn settle(
    api: &Api,
    kind: &Kind,
    part: Part,
    old: &Value,
    new: &mut Value,
    applied: bool,
    by: &By<'_>,
) -> Result<(), Status> {
    if matches!(part, Part::Main | Part::Scale) {
        kind.rules.default(new);
    }
    // What the server itself changes from here on is nobody's.
    if !applied {
        by.track(kind, part.subresource(), Some(old), new, &api.now_text());
    }
    match part {
        Part::Main | Part::Scale => main_part(kind, old, new),
        Part::Status => status_part(kind, old, new),
        Part::Finalize => finalize_part(old, new),
        Part::Approval => approval_part(old, new),
        Part::Binding => binding_part(kind, old, new)?,
    }
    if matches!(part, Part::Status | Part::Approval) {
        hooks::before_decision(api, kind, part, new, old, by)?;
    }
    carry_over(kind, old, new);
    if matches!(part, Part::Status | Part::Binding) && kind.has_generation {
        // What is seen of an object, or where it runs, is no change of what is wanted.
        meta::metadata_mut(new).insert("generation".into(), json!(meta::generation(old)));
    }
    if part == Part::Main || part == Part::Scale {
        hooks::before_update(api, kind, new, old, by)?;
    }
    refuse_invalid(kind, new, &wrong_with(kind, part, old, new))?;
    landfall_api::schema::complete(kind.schema.get(), new);
    Ok(())
}

fn wrong_with(kind: &Kind, part: Part, old: &Value, new: &Value) -> ErrorList {
    if matches!(part, Part::Main | Part::Scale) && !kind.rules.update_alone() {
        return rules::check_update(kind, new, old);
    }
    let mut found = objectmeta::validate_update(kind, new, old);
    match part {
        Part::Main | Part::Scale => found.extend(kind.rules.validate_update(new, old)),
        Part::Status => found.extend(kind.rules.validate_status(new, old)),
        Part::Approval => found.extend(kind.rules.validate_approval(new, old)),
        Part::Finalize | Part::Binding => {}
    }
    found
}

fn main_part(kind: &Kind, old: &Value, new: &mut Value) {
    if kind.sub.status {
        keep(old, new, "status");
    }
    kind.rules.prepare_update(new, old);
}

/// A status write changes status alone; managedFields come along because the caller may reset them.
///
/// Of Deployments, annotations come along too: their controller notes the revision there.
fn status_part(kind: &Kind, old: &Value, new: &mut Value) {
    let notes = (kind.group == "apps" && kind.kind == "Deployment")
        .then(|| new.pointer("/metadata/annotations").cloned())
        .flatten();
    let status = new.get("status").cloned();
    let fields = new.get("metadata").and_then(|m| m.get("managedFields")).cloned();
    *new = old.clone();
    set(new, "status", status);
    if let Some(notes) = notes {
        meta::metadata_mut(new).insert("annotations".into(), notes);
    }
    if let Some(fields) = fields {
        meta::metadata_mut(new).insert("managedFields".into(), fields);
    }
}

fn finalize_part(old: &Value, new: &mut Value) {
    let finalizers = new.get("spec").and_then(|s| s.get("finalizers")).cloned();
    *new = old.clone();
    let spec = meta::child_mut(new, "spec");
    match finalizers {
        Some(list) => spec.insert("finalizers".into(), list),
        None => spec.remove("finalizers"),
    };
}

/// An approval changes conditions alone.
fn approval_part(old: &Value, new: &mut Value) {
    let conditions = new.pointer("/status/conditions").cloned();
    let fields = new.get("metadata").and_then(|m| m.get("managedFields")).cloned();
    *new = old.clone();
    let status = meta::child_mut(new, "status");
    match conditions {
        Some(conditions) => status.insert("conditions".into(), conditions),
        None => status.remove("conditions"),
    };
    if let Some(fields) = fields {
        meta::metadata_mut(new).insert("managedFields".into(), fields);
    }
}

/// A pod gets a node once.
fn binding_part(kind: &Kind, old: &Value, new: &mut Value) -> Result<(), Status> {
    let node = |pod: &Value| pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("").to_owned();
    let (before, wanted) = (node(old), node(new));
    let refuse = |why: String| Err(Status::conflict(&kind.group, "pods/binding", meta::name(old), &why));
    if meta::deleting(old) {
        return refuse(format!("pod {} is being deleted, cannot be assigned to a host", meta::name(old)));
    }
    if !before.is_empty() {
        return refuse(format!("pod {} is already assigned to node {before:?}", meta::name(old)));
    }
    let conditions = new.pointer("/status/conditions").cloned();
    // Where a pod is, its labels say too.
    let labels = new.pointer("/metadata/labels").cloned();
    *new = old.clone();
    if let Some(labels) = labels {
        meta::metadata_mut(new).insert("labels".into(), labels);
    }
    meta::child_mut(new, "spec").insert("nodeName".into(), json!(wanted));
    if let Some(conditions) = conditions {
        meta::child_mut(new, "status").insert("conditions".into(), conditions);
    }
    Ok(())
}

/// What no client may change, taken from the old object; and the generation, raised when the intent changed.
fn carry_over(kind: &Kind, old: &Value, new: &mut Value) {
    new["apiVersion"] = json!(encode::api_version(&kind.group, &kind.version));
    new["kind"] = json!(&*kind.kind);
    let raised = kind.has_generation && intent_differs(kind, old, new);
    objectmeta::carry_over(new, old);
    let metadata = meta::metadata_mut(new);
    metadata.remove("generation");
    if kind.has_generation {
        let generation = meta::generation(old) + i64::from(raised);
        metadata.insert("generation".into(), json!(generation.max(1)));
    }
}

/// Whether anything but metadata and status differs. Of Deployments, annotations are part of the intent too.
fn intent_differs(kind: &Kind, old: &Value, new: &Value) -> bool {
    // What the hub tells about shards is no intent, wherever it stands.
    let notes = |object: &Value| {
        let all = object.pointer("/metadata/annotations").and_then(Value::as_object);
        let own = |(name, _): &(&String, &Value)| *name != landfall_api::landfall::CLUSTERS_ANNOTATION;
        all.into_iter()
            .flatten()
            .filter(own)
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect::<Vec<_>>()
    };
    if kind.group == "apps" && kind.kind == "Deployment" && notes(old) != notes(new) {
        return true;
    }
    let intent = |key: &&String| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind");
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return true };
    let changed = |(key, value): (&String, &Value)| intent(&key) && old.get(key) != Some(value);
    new.iter().any(changed) || old.keys().filter(intent).any(|key| !new.contains_key(key))
}

/// Whether deletion has begun and nothing holds the object any more.
pub fn finished(kind: &Kind, object: &Value) -> bool {
    meta::deleting(object) && meta::finalizers(object).next().is_none() && !super::delete::held(kind, object)
}

fn keep(old: &Value, new: &mut Value, field: &str) {
    set(new, field, old.get(field).cloned());
}

fn set(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(map) = object.as_object_mut() else { return };
    match value {
        Some(value) => map.insert(field.into(), value),
        None => map.remove(field),
    };
}

/// 404 turned into what a create-on-update needs: none when the object does not exist.
pub async fn existing(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<Entry>>, Status> {
    match read::get::entry(&*api.store, kind, namespace, name, "").await {
        Ok(entry) => Ok(Some(entry)),
        Err(status) if status.reason == Reason::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
