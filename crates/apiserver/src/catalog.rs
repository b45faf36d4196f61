//! The kinds that are served right now: the built-in table and whatever custom resource definitions add.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use landfall_api::{Kind, Scope};

use crate::discovery::Discovery;
use crate::openapi::{CustomSchemas, OpenApi};

/// An immutable list of kinds with ways to find them. Replaced as a whole when a definition changes.
#[derive(Default)]
pub struct Catalog {
    order: Vec<Arc<Kind>>,
    stored: Vec<Arc<Kind>>,
    by_plural: HashMap<Box<str>, Vec<Arc<Kind>>>,
    discovery: OnceLock<Discovery>,
    schemas: CustomSchemas,
    openapi: OnceLock<Arc<OpenApi>>,
    /// Documents made before, for what has not changed since.
    before: Option<Arc<OpenApi>>,
}

impl Catalog {
    /// A catalog of these kinds, in discovery order. `unserved`: versions that nobody can ask for, but in which
    /// objects are stored.
    pub fn new(kinds: Vec<Arc<Kind>>, unserved: &[Arc<Kind>], schemas: CustomSchemas) -> Self {
        let mut catalog = Self { schemas, ..Self::default() };
        catalog.stored = homes(kinds.iter().chain(unserved));
        for kind in kinds {
            let same = catalog.by_plural.entry((*kind.plural).into()).or_default();
            same.push(kind.clone());
            catalog.order.push(kind);
        }
        catalog
    }

    /// The same catalog, with documents of an earlier one where they still hold.
    #[must_use]
    pub fn keeping(self, earlier: &Self) -> Self {
        let before = earlier.openapi.get().or(earlier.before.as_ref()).cloned();
        Self { before, ..self }
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
        self.openapi
            .get_or_init(|| OpenApi::after(&self.order, self.schemas.clone(), self.before.as_deref()).into())
    }

    /// Every kind, in discovery order.
    pub fn kinds(&self) -> &[Arc<Kind>] {
        &self.order
    }

    /// One kind per place in the store, so that every object is met once; also kinds of which no version is served.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.stored.iter()
    }

    /// Stored kinds whose objects live in namespaces.
    pub fn namespaced(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.stored().filter(|k| k.scope == Scope::Namespaced)
    }
}

/// One kind per place in the store: of those whose own group and plural it is, the storage version if it is there.
fn homes<'a>(kinds: impl Iterator<Item = &'a Arc<Kind>>) -> Vec<Arc<Kind>> {
    let mut homes: Vec<Arc<Kind>> = Vec::new();
    let mut at: HashMap<(&str, &str), usize> = HashMap::new();
    for kind in kinds {
        let own = kind.group == kind.stored_as.0 && kind.plural == kind.stored_as.1;
        if !own || kind.verbs.is_empty() || kind.verbs == ["create"] {
            continue;
        }
        match at.entry((&kind.group, &kind.plural)) {
            Entry::Vacant(place) => {
                place.insert(homes.len());
                homes.push(kind.clone());
            }
            Entry::Occupied(place) if kind.version == kind.storage_version => {
                homes[*place.get()] = kind.clone();
            }
            Entry::Occupied(_) => {}
        }
    }
    homes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crd;

    /// A definition with `(version, served, storage)` rows: what is found by path, and where housekeeping looks.
    fn check(versions: &[(&str, bool, bool)], found: &[&str], home: &str) {
        let versions: Vec<_> = versions
            .iter()
            .map(|(name, served, storage)| json!({"name": name, "served": served, "storage": storage}))
            .collect();
        let definition = json!({"spec": {"group": "ex.dev", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "widgets", "kind": "Widget"}}});
        let served: Vec<Arc<Kind>> = crd::kinds(&definition).into_iter().map(Arc::new).collect();
        let unserved: Vec<Arc<Kind>> = crd::unserved(&definition).into_iter().map(Arc::new).collect();
        let catalog = Catalog::new(served, &unserved, CustomSchemas::new());
        let paths: Vec<&str> = ["v1", "v2"]
            .into_iter()
            .filter(|version| catalog.find("ex.dev", version, "widgets").is_some())
            .collect();
        assert_eq!(paths, found);
        assert_eq!(catalog.kinds().len(), found.len(), "discovery shows what is found");
        let homes: Vec<&str> = catalog.namespaced().map(|kind| &*kind.version).collect();
        assert_eq!(homes, [home]);
    }

    #[test]
    fn every_object_has_a_home_whatever_is_served() {
        check(&[("v1", true, true)], &["v1"], "v1");
        check(&[("v1", true, false), ("v2", true, true)], &["v1", "v2"], "v2");
        check(&[("v1", true, false), ("v2", false, true)], &["v1"], "v2");
        check(&[("v1", false, false), ("v2", false, true)], &[], "v2");
    }
}
