//! Writing what a look decided: at most so many at a time, and all before the next look.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use http::Method;
use landfall_api::rules::read::child;
use serde_json::{Value, json};

use super::{OURS, ingresses};
use crate::client::{Ask, Trouble, ask, ask_json};
use crate::events::{self, Happening};
use crate::federation::Federation;
use crate::shelf::{Key, Seen};

const WRITES_MAX: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);

/// One thing to write.
#[derive(Debug)]
pub(super) struct Write {
    key: Key,
    act: Act,
    happenings: Vec<(String, Happening)>,
}

#[derive(Debug)]
enum Act {
    Create(Value),
    Replace(Value),
    Patch(Value),
    /// As ours, whoever had it before.
    Apply(Value),
    /// On top of this resourceVersion.
    Status(Value, String),
    /// The object with this uid.
    Delete(String),
}

impl Write {
    /// Makes an object.
    pub(super) fn create(key: &Key, object: Value) -> Self {
        Self { key: key.clone(), act: Act::Create(object), happenings: Vec::new() }
    }

    /// Writes an object on top of the version that it has.
    pub(super) fn replace(key: &Key, object: Value) -> Self {
        Self { key: key.clone(), act: Act::Replace(object), happenings: Vec::new() }
    }

    /// Makes an object, or brings it in line.
    pub(super) fn apply(key: &Key, object: Value) -> Self {
        Self { key: key.clone(), act: Act::Apply(object), happenings: Vec::new() }
    }

    /// Changes some fields.
    pub(super) fn patch(key: &Key, patch: Value) -> Self {
        Self { key: key.clone(), act: Act::Patch(patch), happenings: Vec::new() }
    }

    /// Writes a status, if nobody has changed the object since this version.
    pub(super) fn status(key: &Key, status: Value, version: Option<&String>) -> Self {
        let version = version.cloned().unwrap_or_default();
        Self { key: key.clone(), act: Act::Status(status, version), happenings: Vec::new() }
    }

    /// Deletes the object with this uid.
    pub(super) fn delete(key: &Key, uid: &str) -> Self {
        Self { key: key.clone(), act: Act::Delete(uid.to_owned()), happenings: Vec::new() }
    }

    /// Tells of it.
    pub(super) fn telling(mut self, uid: &str, happenings: impl IntoIterator<Item = Happening>) -> Self {
        self.happenings.extend(happenings.into_iter().map(|one| (uid.to_owned(), one)));
        self
    }
}

/// Writes everything; gives what could not be written.
pub(super) async fn all(federation: &Arc<Federation>, writes: Vec<Write>) -> BTreeSet<Key> {
    let one = |write: Write| async move {
        let written = write_one(federation, &write).await;
        let trouble = written.err()?;
        // Who lost a race looks again.
        if trouble.passes() || matches!(trouble.code(), Some(404 | 409)) {
            tracing::debug!(object = write.key.path(), %trouble, "a group could not be written");
        } else {
            tracing::warn!(object = write.key.path(), %trouble, "a group was refused");
        }
        Some(write.key)
    };
    let done = futures::stream::iter(writes).map(one).buffer_unordered(WRITES_MAX);
    done.filter_map(|failed| async { failed }).collect().await
}

async fn write_one(federation: &Arc<Federation>, write: &Write) -> Result<(), Trouble> {
    let Write { key, act, happenings } = write;
    let client = &federation.client;
    let row = federation.kinds.get(key.kind);
    let path = row.path(&key.namespace, &key.name);
    let json = "application/json";
    match act {
        Act::Create(object) => {
            let collection = row.collection(&key.namespace);
            keep(
                federation,
                key,
                ask_json(client, Ask::with(Method::POST, &collection, json, object), TIMEOUT).await?,
            );
        }
        Act::Replace(object) => {
            keep(
                federation,
                key,
                ask_json(client, Ask::with(Method::PUT, &path, json, object), TIMEOUT).await?,
            );
        }
        Act::Patch(patch) => {
            let request = Ask::with(Method::PATCH, &path, "application/merge-patch+json", patch);
            keep(federation, key, ask_json(client, request, TIMEOUT).await?);
        }
        Act::Apply(object) => {
            let path = format!("{path}?fieldManager=landfall-groups&force=true");
            let request = Ask::with(Method::PATCH, &path, "application/apply-patch+yaml", object);
            ask(client, request, TIMEOUT).await?;
        }
        Act::Status(status, version) => {
            let mut patch = vec![json!({"op": "add", "path": "/status", "value": status})];
            if !version.is_empty() {
                patch.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
            }
            let path = format!("{path}/status");
            let request = Ask::with(Method::PATCH, &path, "application/json-patch+json", &patch.into());
            keep(federation, key, ask_json(client, request, TIMEOUT).await?);
        }
        Act::Delete(uid) => {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
            match ask(client, Ask::with(Method::DELETE, &path, json, &options), TIMEOUT).await {
                Err(trouble) if trouble.code() != Some(404) => return Err(trouble),
                Ok(_) | Err(_) => {}
            }
        }
    }
    for (uid, happening) in happenings {
        let (path, event) = events::event(&row, key, uid, happening);
        // What happened has happened, whether it can be told or not.
        let _ = ask(client, Ask::with(Method::POST, &path, json, &event), TIMEOUT).await;
    }
    Ok(())
}

/// Keeps what the hub answered, so that the next look sees it.
fn keep(federation: &Federation, key: &Key, object: Value) {
    if OURS.contains(&key.kind) {
        let shelf = federation.groups.shelf(key.kind);
        let metadata = child(&object, "metadata");
        let finalizers = child(metadata, "finalizers").as_array().is_some_and(|all| !all.is_empty());
        let gone = child(metadata, "deletionTimestamp").is_string() && !finalizers;
        let seen = Arc::new(Seen::new(&shelf.row, object));
        // The last finalizer was taken: that was the end of it, and the watch may have told so before.
        if gone {
            shelf.take(key, Some(&seen));
        } else {
            shelf.put(key, seen);
        }
    } else if key.kind == federation.groups.ingresses {
        ingresses::keep(federation, key, &object);
    }
}
