//! Which objects a list or watch is about: namespace, label selector, field selector.

use std::collections::BTreeMap;

use landfall_api::selector::{FieldSelector, Selector};
use landfall_api::{Kind, Status};
use landfall_store::Entry;
use serde::Deserialize;
use serde_json::Value;

use crate::keys;
use crate::options::Options;

/// A parsed selection.
#[derive(Debug)]
pub struct Selection {
    /// Keys begin with this; a whole key when the selection names one object.
    pub prefix: String,
    /// Whether `prefix` is a whole key.
    pub exact: bool,
    labels: Selector,
    fields: FieldSelector,
    /// Whether only metadata is needed to decide.
    by_metadata: bool,
}

impl Selection {
    /// Reads the selectors of a request; 400 when one is malformed or names an unknown field.
    pub fn parse(kind: &Kind, namespace: &str, name: &str, options: &Options<'_>) -> Result<Self, Status> {
        let labels = Selector::parse(&options.label_selector).map_err(Status::bad_request)?;
        let fields = FieldSelector::parse(&options.field_selector).map_err(Status::bad_request)?;
        fields.check(kind).map_err(Status::bad_request)?;
        let (group, plural) = (&kind.stored_as.0, &kind.stored_as.1);
        let in_namespace =
            fields.exact("metadata.namespace").filter(|_| namespace.is_empty()).map(str::to_owned);
        let namespace = in_namespace.as_deref().unwrap_or(namespace);
        let mut prefix = keys::namespace(group, plural, namespace);
        // One named object is a key, not a range.
        let scoped = kind.scope == landfall_api::Scope::Cluster || !namespace.is_empty();
        let mut exact = false;
        let named = if name.is_empty() { fields.exact("metadata.name") } else { Some(name) };
        if let (true, Some(name)) = (scoped, named) {
            prefix.push_str(name);
            exact = true;
        }
        let by_metadata =
            fields.terms().iter().all(|t| matches!(&*t.field, "metadata.name" | "metadata.namespace"));
        Ok(Self { prefix, exact, labels, fields, by_metadata })
    }

    /// Whether every object under the prefix is meant.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && (self.fields.is_everything() || self.exact && self.by_metadata)
    }

    /// Whether an entry is meant.
    pub fn matches(&self, entry: &Entry) -> bool {
        if self.exact && *entry.key != *self.prefix {
            return false;
        }
        if self.labels.is_everything() && self.fields.is_everything() {
            return true;
        }
        if self.by_metadata {
            let head = derived(entry);
            return self.labels.matches_with(|key| head.labels.get(key).map(String::as_str))
                && self.fields.terms().iter().all(|t| (head.field(&t.field) == &*t.value) == t.equal);
        }
        let Ok(object) = serde_json::from_slice::<Value>(&entry.value) else { return false };
        let labels = object.get("metadata").and_then(|m| m.get("labels"));
        self.labels.matches(labels) && self.fields.matches(&object)
    }
}

/// What selectors ask about most, read once per stored object and kept with it.
#[derive(Debug, Default, Deserialize)]
pub struct Derived {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl Derived {
    fn field(&self, name: &str) -> &str {
        if name == "metadata.name" { &self.name } else { &self.namespace }
    }
}

#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default)]
    metadata: Derived,
}

fn derived(entry: &Entry) -> &Derived {
    entry.memo.get_or_init(|| {
        serde_json::from_slice::<OnlyMetadata>(&entry.value).map(|o| o.metadata).unwrap_or_default()
    })
}
