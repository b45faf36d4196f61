//! Deleting: at once when nothing holds the object, otherwise by marking it for its finalizers.

use landfall_api::{Kind, Status, meta};
use landfall_store::Error;
use serde_json::{Value, json};

use super::create::kind_ttl;
use super::update::current;
use super::{By, Deed, Written, hooks, imagined};
use crate::api::Api;
use crate::options::Options;
use crate::{encode, errors, keys, read};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// How often a deletion is tried anew when the object changes under it.
const TRIES_MAX: u32 = 32;

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// As the kind does by default.
    Default,
    /// Dependents go after the owner.
    Background,
    /// Dependents go before the owner.
    Foreground,
    /// Dependents stay.
    Orphan,
}

/// `DeleteOptions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteOptions {
    /// What becomes of dependents.
    pub propagation: Propagation,
    /// The uid the object must have; empty for any.
    pub uid: String,
    /// The resourceVersion the object must have; empty for any.
    pub resource_version: String,
    /// Seconds a pod gets to end.
    pub grace_period_s: Option<i64>,
    /// Nothing is stored.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Background deletion of whatever is there.
    pub const BACKGROUND: Self = Self {
        propagation: Propagation::Background,
        uid: String::new(),
        resource_version: String::new(),
        grace_period_s: None,
        dry_run: false,
    };

    /// Reads a body (null for none) and, where it is silent, the query.
    pub fn parse(body: &Value, options: &Options<'_>) -> Result<Self, Status> {
        let policy = body.get("propagationPolicy").and_then(Value::as_str);
        let policy = policy.unwrap_or(&options.propagation_policy);
        let orphan = body.get("orphanDependents").and_then(Value::as_bool).or(options.orphan_dependents);
        let propagation = match (policy, orphan) {
            ("", Some(true)) => Propagation::Orphan,
            ("", Some(false)) => Propagation::Background,
            ("", None) => Propagation::Default,
            (_, Some(_)) => {
                return Err(refuse(
                    "Invalid value: orphanDependents and deletionPropagation cannot be both set",
                ));
            }
            ("Background", _) => Propagation::Background,
            ("Foreground", _) => Propagation::Foreground,
            ("Orphan", _) => Propagation::Orphan,
            (other, _) => {
                return Err(refuse(&format!(
                    "Unsupported value: {other:?}: supported values: \"Background\", \"Foreground\", \"Orphan\", \"nil\""
                )));
            }
        };
        let precondition = |field: &str| {
            let found = body.get("preconditions").and_then(|p| p.get(field)).and_then(Value::as_str);
            found.unwrap_or("").to_owned()
        };
        let grace = body.get("gracePeriodSeconds").and_then(Value::as_i64).or(options.grace_period_s);
        Ok(Self {
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            grace_period_s: grace,
            dry_run: options.dry_run || dry_run(body)?,
        })
    }
}

fn dry_run(body: &Value) -> Result<bool, Status> {
    let Some(list) = body.get("dryRun").and_then(Value::as_array) else { return Ok(false) };
    if let Some(other) = list.iter().find(|v| *v != "All") {
        return Err(refuse(&format!("Unsupported value: {other}: supported values: \"All\"")));
    }
    Ok(!list.is_empty())
}

fn refuse(what: &str) -> Status {
    let message = format!("DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: {what}");
    Status::new(landfall_api::Reason::Invalid, message).about("meta.k8s.io", "DeleteOptions", "")
}

/// Deletes one object.
pub async fn delete(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    by: &By<'_>,
) -> Result<Written, Status> {
    hooks::before_delete(kind, name)?;
    let key = keys::object(&kind.stored_as.0, &kind.stored_as.1, namespace, name);
    for _ in 0..TRIES_MAX {
        let entry = read::get::entry(&*api.store, kind, namespace, name, "").await?;
        let old = current(kind, &entry)?;
        check_preconditions(kind, name, options, &old)?;
        let mut new = old.clone();
        finalizers_for(kind, options.propagation, &mut new);
        if !meta::deleting(&old) {
            kind.rules.prepare_delete(&mut new, &api.now_text());
        }
        let must_wait = meta::finalizers(&new).next().is_some() || held(kind, &new);
        let written = |entry, deed| Written { entry, deed, warnings: Vec::new() };
        if options.dry_run || by.dry_run {
            let deed = if must_wait { Deed::Marked } else { Deed::Removed };
            return Ok(written(imagined(kind, &new, entry.revision), deed));
        }
        let (stored, deed) = if must_wait {
            mark(kind, options, &mut new, &api.now_text());
            if new == old {
                return Ok(written(entry, Deed::Marked));
            }
            let bytes = encode::stored(kind, &new);
            (api.store.update(&key, bytes, entry.revision, kind_ttl(kind)).await, Deed::Marked)
        } else {
            (api.store.delete(&key, entry.revision).await, Deed::Removed)
        };
        match stored {
            Ok(entry) => {
                hooks::after(api, kind, entry.revision).await;
                return Ok(written(entry, deed));
            }
            Err(Error::Conflict(Some(_))) => {}
            Err(error) => return Err(errors::of_object(&error, kind, name)),
        }
    }
    Err(errors::modified(kind, name))
}

fn check_preconditions(kind: &Kind, name: &str, options: &DeleteOptions, old: &Value) -> Result<(), Status> {
    let conditions = [
        ("UID", &options.uid, meta::uid(old), "deleted and then recreated"),
        ("ResourceVersion", &options.resource_version, meta::resource_version(old), "modified"),
    ];
    for (what, wanted, found, happened) in conditions {
        if !wanted.is_empty() && wanted != found {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                 The object might have been {happened}"
            );
            // Kubernetes names the kind here, not the resource.
            return Err(Status::conflict(&kind.group, &kind.kind, name, &why));
        }
    }
    Ok(())
}

/// The two finalizers of garbage collection follow from the propagation asked for last.
fn finalizers_for(kind: &Kind, propagation: Propagation, object: &mut Value) {
    let propagation = match propagation {
        Propagation::Default if orphans_by_default(kind) => Propagation::Orphan,
        // A deletion that says nothing leaves what an earlier one asked for.
        Propagation::Default => return,
        said => said,
    };
    let mut list: Vec<Value> =
        meta::finalizers(object).filter(|f| !matches!(*f, FOREGROUND | ORPHAN)).map(|f| json!(f)).collect();
    match propagation {
        Propagation::Foreground => list.push(json!(FOREGROUND)),
        Propagation::Orphan => list.push(json!(ORPHAN)),
        _ => {}
    }
    let metadata = meta::metadata_mut(object);
    if list.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), list.into());
    }
}

/// Kinds that keep their dependents unless told otherwise, for reasons of history.
fn orphans_by_default(kind: &Kind) -> bool {
    matches!((&*kind.group, &*kind.kind), ("", "ReplicationController") | ("batch", "Job"))
}

/// Whether something besides `metadata.finalizers` holds an object: a namespace's own finalizers, a pod's node.
pub(super) fn held(kind: &Kind, object: &Value) -> bool {
    match (&*kind.group, &*kind.kind) {
        ("", "Namespace") => object
            .get("spec")
            .and_then(|s| s.get("finalizers"))
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty()),
        ("", "Pod") => {
            let grace = object.get("metadata").and_then(|m| m.get("deletionGracePeriodSeconds"));
            let scheduled = object.get("spec").and_then(|s| s.get("nodeName")).is_some();
            scheduled && grace.and_then(Value::as_i64) != Some(0)
        }
        _ => false,
    }
}

/// Marks an object as being deleted. A second deletion can only shorten the time.
fn mark(kind: &Kind, options: &DeleteOptions, object: &mut Value, now: &str) {
    let grace = match &*kind.kind {
        "Pod" => options.grace_period_s.or_else(|| pod_grace(object)).unwrap_or(30).max(0),
        _ => 0,
    };
    let already = meta::deleting(object);
    let generation = meta::generation(object);
    let begun = meta::string(object, "deletionTimestamp").to_owned();
    let metadata = meta::metadata_mut(object);
    if !already {
        // When it will be gone, as Kubernetes has it.
        metadata.insert("deletionTimestamp".into(), json!(later(now, grace)));
        if generation > 0 {
            metadata.insert("generation".into(), json!(generation + 1));
        }
    }
    if kind.group.is_empty() && kind.kind == "Namespace" {
        meta::child_mut(object, "status").insert("phase".into(), json!("Terminating"));
        return;
    }
    let before = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    if let Some(before) = before.filter(|before| grace < *before) {
        metadata.insert("deletionTimestamp".into(), json!(later(&begun, grace - before)));
    }
    if before.is_none_or(|seconds| grace < seconds) {
        metadata.insert("deletionGracePeriodSeconds".into(), json!(grace));
    }
}

/// A time so many seconds later, or earlier.
fn later(time: &str, seconds: i64) -> String {
    let moved = time
        .parse::<jiff::Timestamp>()
        .ok()
        .and_then(|at| at.checked_add(jiff::SignedDuration::from_secs(seconds)).ok());
    moved.map_or_else(|| time.to_owned(), |at| at.to_string())
}

fn pod_grace(object: &Value) -> Option<i64> {
    object.get("spec")?.get("terminationGracePeriodSeconds")?.as_i64()
}
