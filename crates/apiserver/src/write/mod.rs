//! Writing: create, update, patch, delete. One road for all of them:
//!
//! ```text
//!   body ──► decode (strict?) ──► default ──► managedFields ──► prepare ──► hooks ──► validate ──► store
//! ```
//!
//! Everything up to the store is pure given the old object; the store's compare-and-set decides, and losing a race
//! means going through it again with the newer object.

pub mod body;
pub mod create;
pub mod delete;
pub mod hooks;
pub mod patch;
pub mod scale;
#[cfg(test)]
mod tests;
pub mod update;

use std::sync::Arc;

use landfall_api::{Kind, Status};
use landfall_store::Entry;
use serde_json::Value;

use crate::api::Api;
use crate::authn::User;
use crate::authz::{self, Attributes};
use crate::options::FieldValidation;
use crate::{convert, encode, managed};

/// Who writes, and how.
#[derive(Clone)]
pub struct By<'a> {
    /// The user that is charged with it.
    pub user: &'a User,
    /// The name recorded in managedFields.
    pub manager: &'a str,
    /// Nothing is stored.
    pub dry_run: bool,
    /// What becomes of unknown fields.
    pub validation: FieldValidation,
    /// The kind of the endpoint, where it is not the kind that is written.
    pub served: Option<&'a Kind>,
}

impl By<'_> {
    /// The writer as managedFields know it.
    fn writer<'a>(
        &'a self,
        kind: &'a Kind,
        subresource: &'a str,
        api_version: &'a str,
        now: &'a str,
    ) -> managed::Writer<'a> {
        let reset = managed::reset_fields(&kind.kind, subresource, !kind.strategic, kind.sub.status);
        managed::Writer { manager: self.manager, kind: &kind.kind, api_version, subresource, now, reset }
    }

    /// Gives what changed to the writer. Fields are owned in the shape of the endpoint they came through.
    fn track(&self, kind: &Kind, subresource: &str, old: Option<&Value>, new: &mut Value, now: &str) {
        let endpoint = self.served.unwrap_or(kind);
        let api_version = encode::api_version(&endpoint.group, &endpoint.version);
        let writer = self.writer(endpoint, subresource, &api_version, now);
        let schema = endpoint.schema.get();
        let Some(conversion) = convert::of(endpoint) else {
            return managed::track_update(schema, old, new, &writer);
        };
        let mut shown = (conversion.read)(new);
        managed::track_update(schema, old.map(conversion.read).as_ref(), &mut shown, &writer);
        let fields = shown.get_mut("metadata").and_then(|m| m.get_mut("managedFields")).map(Value::take);
        let metadata = landfall_api::meta::metadata_mut(new);
        match fields {
            Some(fields) => metadata.insert("managedFields".into(), fields),
            None => metadata.remove("managedFields"),
        };
    }

    /// 403 unless the writer may create: what an apply or update of something that is not there comes to.
    pub fn may_create(&self, api: &Api, kind: &Kind, namespace: &str, name: &str) -> Result<(), Status> {
        let asked = Attributes::resource(self.user, "create", &kind.group, &kind.plural, namespace, name);
        let verdict = api.authorize(&asked);
        if verdict.allowed() { Ok(()) } else { Err(authz::forbidden(&asked, verdict.reason())) }
    }
}

/// An object as a client wants it.
#[derive(Debug)]
pub struct Wanted {
    /// The object.
    pub object: Value,
    /// Whether server-side apply has settled its managedFields already.
    pub applied: bool,
    /// Warnings about what was sent.
    pub warnings: Vec<String>,
}

impl Wanted {
    /// An object whose fields become the writer's.
    pub const fn new(object: Value, warnings: Vec<String>) -> Self {
        Self { object, applied: false, warnings }
    }
}

/// What a write did.
#[derive(Debug)]
pub struct Written {
    /// The object as it is now; for a dry run, as it would be.
    pub entry: Arc<Entry>,
    /// What was done.
    pub deed: Deed,
    /// What the client is told besides.
    pub warnings: Vec<String>,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A new object.
    Created,
    /// A changed object, or one that needed no change.
    Updated,
    /// Deletion has begun; finalizers are left.
    Marked,
    /// Gone.
    Removed,
}

/// An entry that is not in the store: what a dry run answers with.
fn imagined(kind: &Kind, object: &Value, revision: u64) -> Arc<Entry> {
    Arc::new(Entry {
        key: landfall_api::meta::name(object).into(),
        value: encode::stored(kind, object),
        created: revision,
        revision,
        memo: landfall_store::Memo::default(),
    })
}
