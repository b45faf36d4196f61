//! Writing: create, update, patch, delete. One road for all of them:
//!
//! ```text
//!   body ──► decode (strict?) ──► default ──► prepare ──► hooks ──► validate ──► managedFields ──► store
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
pub mod update;

use std::sync::Arc;

use landfall_api::Kind;
use landfall_store::Entry;

use crate::authn::User;
use crate::managed;
use crate::options::FieldValidation;

/// Who writes, and how.
#[derive(Clone, Debug)]
pub struct By<'a> {
    /// The user that is charged with it.
    pub user: &'a User,
    /// The name recorded in managedFields.
    pub manager: &'a str,
    /// Nothing is stored.
    pub dry_run: bool,
    /// What becomes of unknown fields.
    pub validation: FieldValidation,
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
}

/// An object as a client wants it.
#[derive(Debug)]
pub struct Wanted {
    /// The object.
    pub object: serde_json::Value,
    /// Whether server-side apply has settled its managedFields already.
    pub applied: bool,
    /// Warnings about what was sent.
    pub warnings: Vec<String>,
}

impl Wanted {
    /// An object whose fields become the writer's.
    pub const fn new(object: serde_json::Value, warnings: Vec<String>) -> Self {
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
fn imagined(kind: &Kind, object: &serde_json::Value, revision: u64) -> Arc<Entry> {
    Arc::new(Entry {
        key: landfall_api::meta::name(object).into(),
        value: crate::encode::stored(kind, object),
        created: revision,
        revision,
        memo: landfall_store::Memo::default(),
    })
}
