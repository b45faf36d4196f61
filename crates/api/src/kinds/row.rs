//! How a row of the table is written: a group makes rows with the usual values, and each row says what differs.

use std::borrow::Cow;

use crate::kind::{Kind, ScalePaths, Scope, Subresources, Text};
use crate::printers;
use crate::rules;
use crate::schema::StructRef;

/// Everything a stored object can be asked for.
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// What can only be looked at.
pub(super) const READ: &[&str] = &["get", "list", "watch"];
/// Namespaces are deleted one by one.
pub(super) const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// One API group in one version.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// Its name; empty for core.
    pub(super) name: &'static str,
    /// The version.
    pub(super) version: &'static str,
    /// Where its structs are, such as `io.k8s.api.apps.v1`.
    pub(super) schema: &'static str,
}

impl Group {
    /// A kind whose objects live in namespaces.
    pub(super) fn namespaced(&self, kind: &'static str, plural: &'static str) -> Kind {
        self.kind(kind, plural, Scope::Namespaced)
    }

    /// A kind whose objects live outside namespaces.
    pub(super) fn cluster(&self, kind: &'static str, plural: &'static str) -> Kind {
        self.kind(kind, plural, Scope::Cluster)
    }

    /// A kind that is a question: it is created, answered and forgotten.
    pub(super) fn review(&self, kind: &'static str, plural: &'static str, scope: Scope) -> Kind {
        Kind { verbs: &[], ..self.kind(kind, plural, scope) }
    }

    fn kind(&self, kind: &'static str, plural: &'static str, scope: Scope) -> Kind {
        Kind {
            group: self.name.into(),
            version: self.version.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List").into(),
            plural: plural.into(),
            singular: kind.to_ascii_lowercase().into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            scope,
            verbs: ALL,
            sub: Subresources::default(),
            stored_as: (self.name.into(), plural.into()),
            storage_version: self.version.into(),
            schema: StructRef::named(&format!("{}.{kind}", self.schema)),
            has_generation: false,
            strategic: true,
            selectable: Vec::new(),
            ttl_s: 0,
            rules: rules::rules(self.name, kind),
            printer: printers::printer(self.name, kind),
        }
    }
}

impl Kind {
    /// Its short names.
    pub(super) fn short(self, names: &[&'static str]) -> Self {
        Self { short_names: texts(names), ..self }
    }
    /// Shown by `kubectl get all`.
    pub(super) fn in_all(self) -> Self {
        self.category("all")
    }
    /// In this category.
    pub(super) fn category(self, name: &'static str) -> Self {
        Self { categories: texts(&[name]), ..self }
    }
    /// Serves these verbs and no others.
    pub(super) fn verbs(self, verbs: &'static [&'static str]) -> Self {
        Self { verbs, ..self }
    }
    /// Keeps `metadata.generation`.
    pub(super) fn generation(self) -> Self {
        Self { has_generation: true, ..self }
    }
    /// Has `/status`.
    pub(super) fn status(mut self) -> Self {
        self.sub.status = true;
        self
    }
    /// Has `/scale`, with replicas and selector where every workload of Kubernetes has them.
    pub(super) fn scale(mut self) -> Self {
        self.sub.scale = Some(ScalePaths {
            spec: Cow::Borrowed("/spec/replicas"),
            status: Cow::Borrowed("/status/replicas"),
            selector: Cow::Borrowed("/spec/selector"),
        });
        self
    }
    /// Has `/finalize`.
    pub(super) fn finalize(mut self) -> Self {
        self.sub.finalize = true;
        self
    }
    /// Has `/binding` and `/eviction`.
    pub(super) fn eviction(mut self) -> Self {
        self.sub.eviction = true;
        self
    }
    /// Has `/approval`.
    pub(super) fn approval(mut self) -> Self {
        self.sub.approval = true;
        self
    }
    /// Has `/token`.
    pub(super) fn token(mut self) -> Self {
        self.sub.token = true;
        self
    }
    /// Fields a field selector may name.
    pub(super) fn select(self, fields: &[&'static str]) -> Self {
        Self { selectable: texts(fields), ..self }
    }
    /// Its objects vanish after so many seconds.
    pub(super) fn ttl(self, ttl_s: u32) -> Self {
        Self { ttl_s, ..self }
    }
    /// Stored as the same resource of another group or version.
    pub(super) fn stored_as(self, group: &'static str, version: &'static str) -> Self {
        let plural = self.plural.clone();
        Self { stored_as: (group.into(), plural), storage_version: version.into(), ..self }
    }
}

fn texts(names: &[&'static str]) -> Vec<Text> {
    names.iter().map(|name| Cow::Borrowed(*name)).collect()
}
