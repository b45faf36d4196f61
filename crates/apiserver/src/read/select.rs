//! Which objects a list or watch is about: namespace, label selector, field selector.

use std::collections::BTreeMap;

use landfall_api::selector::{FieldSelector, Selector};
use landfall_api::{Kind, Status};
use landfall_store::Entry;
use serde::Deserialize;
use serde_json::Value;

use crate::options::Options;
use crate::{convert, keys};

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
    /// Whether whatever is under the prefix satisfies `fields`.
    implied: bool,
    /// Keys that begin with this are not meant.
    except: Option<String>,
}

impl Selection {
    /// Reads the selectors of a request; 400 when one is malformed or names an unknown field.
    pub fn parse(kind: &Kind, namespace: &str, name: &str, options: &Options<'_>) -> Result<Self, Status> {
        let labels = Selector::parse(&options.label_selector).map_err(Status::bad_request)?;
        let fields = FieldSelector::parse(&options.field_selector).map_err(Status::bad_request)?;
        fields.check(kind).map_err(Status::bad_request)?;
        let fields = match convert::of(kind) {
            Some(conversion) => fields.renamed(conversion.name),
            None => fields,
        };
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
        let implied = fields.terms().iter().all(|term| {
            let known = match &*term.field {
                "metadata.name" => named.filter(|_| exact),
                "metadata.namespace" => Some(namespace).filter(|n| !n.is_empty()),
                _ => None,
            };
            term.equal && known == Some(&*term.value)
        });
        Ok(Self { prefix, exact, labels, fields, by_metadata, implied, except: None })
    }

    /// The same without what has keys that begin with a prefix.
    pub fn without(mut self, prefix: Option<String>) -> Self {
        // Where it could not be met anyway, the rest is as quick as before.
        self.except = prefix.filter(|p| p.starts_with(&self.prefix) || self.prefix.starts_with(p.as_str()));
        self
    }

    /// The same, but only what has a label.
    pub fn having(mut self, label: Option<String>) -> Self {
        if let Some(label) = label {
            self.labels = self.labels.having(&label);
        }
        self
    }

    /// Whether every object under the prefix is meant.
    pub fn is_everything(&self) -> bool {
        self.except.is_none() && self.labels.is_everything() && self.implied
    }

    /// Whether an entry is meant.
    pub fn matches(&self, entry: &Entry) -> bool {
        if self.exact && *entry.key != *self.prefix {
            return false;
        }
        if self.except.as_ref().is_some_and(|prefix| entry.key.starts_with(prefix.as_str())) {
            return false;
        }
        if self.labels.is_everything() && self.implied {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(group: &str, namespace: &str, fields: &str, everything: bool, matches: bool) {
        let kind =
            landfall_api::kinds::federation().into_iter().find(|k| k.kind == "Event" && k.group == group);
        let options = Options { field_selector: fields.into(), ..Options::default() };
        let selection = Selection::parse(&kind.unwrap(), namespace, "", &options).unwrap();
        assert_eq!(selection.is_everything(), everything, "{fields}");
        let stored = json!({
            "metadata": {"name": "e", "namespace": "dev"}, "involvedObject": {"kind": "Pod"},
            "reportingComponent": "c",
        });
        let entry = Entry {
            key: "core/events/dev/e".into(),
            value: stored.to_string().into(),
            created: 1,
            revision: 1,
            memo: landfall_store::Memo::default(),
        };
        assert_eq!(selection.matches(&entry), matches, "{fields}");
    }

    #[test]
    fn selectors_mean_the_served_shape() {
        check("", "", "", true, true);
        check("", "", "involvedObject.kind=Pod", false, true);
        check("events.k8s.io", "", "regarding.kind=Pod,reportingController=c", false, true);
        check("events.k8s.io", "", "regarding.kind=Node", false, false);
        check("events.k8s.io", "", "reportingController!=c", false, false);
    }

    #[test]
    fn no_term_is_ignored() {
        check("", "dev", "metadata.name=e", true, true);
        check("", "", "metadata.name=e", false, true);
        check("", "", "metadata.namespace=dev", true, true);
        check("", "dev", "metadata.name=e,metadata.name!=e", false, false);
        check("", "dev", "metadata.name=e,metadata.namespace=prod", false, false);
        check("", "dev", "metadata.name=e,reason=x", false, false);
    }
}
