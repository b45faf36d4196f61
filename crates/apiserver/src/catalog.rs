//! The kinds that are served right now: the built-in table and whatever custom resource definitions add.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use landfall_api::{Kind, Scope};

use crate::discovery::Discovery;
use crate::openapi::{CustomSchemas, OpenApi};

/// An immutable list of kinds with ways to find them. Replaced as a whole when a definition changes.
#[derive(Default)]
pub struct Catalog {
    order: Vec<Arc<Kind>>,
    by_plural: HashMap<Box<str>, Vec<Arc<Kind>>>,
    discovery: OnceLock<Discovery>,
    schemas: CustomSchemas,
    openapi: OnceLock<OpenApi>,
}

impl Catalog {
    /// A catalog of these kinds, in discovery order.
    pub fn new(kinds: impl IntoIterator<Item = Arc<Kind>>, schemas: CustomSchemas) -> Self {
        let mut catalog = Self { schemas, ..Self::default() };
        for kind in kinds {
            let same = catalog.by_plural.entry((*kind.plural).into()).or_default();
            same.push(kind.clone());
            catalog.order.push(kind);
        }
        catalog
    }

    /// The kind served at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.by_plural.get(plural)?.iter().find(|k| k.group == group && k.version == version)
    }

    /// The kind of an `apiVersion` and `kind`.
    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.order.iter().find(|k| k.kind == kind && k.group == group && k.version == version)
    }

    /// Any served version of a resource.
    pub fn find_resource(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.by_plural.get(plural)?.iter().find(|k| k.group == group)
    }

    /// Whether no kind has this plural.
    pub fn is_unknown(&self, plural: &str) -> bool {
        !self.by_plural.contains_key(plural)
    }

    /// The discovery documents, made on first use.
    pub fn discovery(&self) -> &Discovery {
        self.discovery.get_or_init(|| Discovery::new(&self.order, ""))
    }

    /// The OpenAPI documents, made on first use.
    pub fn openapi(&self) -> &OpenApi {
        self.openapi.get_or_init(|| OpenApi::new(&self.order, self.schemas.clone()))
    }

    /// Every kind, in discovery order.
    pub fn kinds(&self) -> &[Arc<Kind>] {
        &self.order
    }

    /// One kind per place in the store, so that every object is met once: the kind whose own group it is.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.order.iter().filter(|k| {
            k.group == k.stored_as.0
                && k.plural == k.stored_as.1
                && k.version == k.storage_version
                && !k.verbs.is_empty()
                && k.verbs != ["create"]
        })
    }

    /// Stored kinds whose objects live in namespaces.
    pub fn namespaced(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.stored().filter(|k| k.scope == Scope::Namespaced)
    }
}
