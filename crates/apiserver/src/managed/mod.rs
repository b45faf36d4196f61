//! Who owns which fields: server-side apply and the tracking of every other write.
//!
//! ```text
//!   create/update/patch ──► track_update ──► compare (what changed) ──► entries (who owns it now)
//!   apply ──► apply ──► merge ─► remove (what is no longer applied) ─► compare ─► conflicts or entries
//! ```
//!
//! Reading order: [`element`], [`set`] and [`fields`] (paths, sets of them, their JSON); [`shape`] (the schema as
//! ownership sees it); `compare`, `merge`, `remove`, `walk`, `named` (functions of objects, schemas and sets);
//! `entries` (managedFields); `update` and `apply` (the two ways to write).
//!
//! The rules are those of structured-merge-diff v6, as kube-apiserver 1.36 uses it. Absent: conversion
//! between versions. Entries in another version of the same group are read with the same schema.

mod apply;
mod compare;
mod conflict;
pub mod element;
mod entries;
pub mod fields;
mod last_applied;
mod merge;
mod named;
mod noop;
mod remove;
pub mod reset;
pub mod set;
pub mod shape;
#[cfg(test)]
mod tests;
mod update;
mod walk;

use std::sync::OnceLock;

pub use apply::apply;
pub use entries::Operation;
pub use noop::{is_noop, keep_times};
pub(crate) use remove::drop_nulls;
pub use reset::reset_fields;
pub use set::Set;
pub use update::track_update;

/// Who writes, through which endpoint, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager; an empty name is written as `unknown`.
    pub manager: &'a str,
    /// The kind of the endpoint.
    pub kind: &'a str,
    /// The version of the endpoint, such as `apps/v1`.
    pub api_version: &'a str,
    /// The subresource of the endpoint, or nothing.
    pub subresource: &'a str,
    /// The time of the write: RFC 3339, UTC, whole seconds.
    pub now: &'a str,
    /// Fields that this endpoint does not write; see [`reset_fields`].
    pub reset: &'a Set,
}

impl Writer<'_> {
    fn owner(&self, operation: Operation) -> entries::Owner {
        let manager = if self.manager.is_empty() { "unknown" } else { self.manager };
        entries::Owner {
            manager: manager.into(),
            operation,
            api_version: self.api_version.into(),
            subresource: self.subresource.into(),
        }
    }
}

/// Fields that nobody owns: the server writes them, or they say what the object is.
fn strip_set() -> &'static Set {
    static SET: OnceLock<Set> = OnceLock::new();
    SET.get_or_init(|| {
        let metadata = [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ];
        let mut set = Set::of_fields(&[&["apiVersion"], &["kind"], &["metadata"]]);
        for name in metadata {
            set.insert(["metadata", name].map(element::Element::field));
        }
        set
    })
}
