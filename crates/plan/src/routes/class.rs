//! Which Ingresses are ours to carry.
//!
//! An Ingress that names a class is ours if that class is one of our controller's, or if it is called [`CLASS`] and nobody
//! defined it otherwise. One that names none is ours if the default class is, and in a federation that has no classes at
//! all: there is nobody else whom its author could mean. Members get their shards either way.

use std::collections::BTreeSet;

use landfall_api::rules::read::{child, entries, text};
use serde_json::Value;

/// The controller of our classes.
pub const CONTROLLER: &str = "landfall.dev/edge";
/// The class that is ours though nobody defines it.
pub const CLASS: &str = "landfall";

const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
/// How a class was named before it had a field.
const OLD_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// All IngressClasses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    ours: BTreeSet<String>,
    others: BTreeSet<String>,
    /// One of ours is the default.
    by_default: bool,
}

impl Classes {
    /// Reads all there are.
    pub fn new<'a>(objects: impl Iterator<Item = &'a Value>) -> Self {
        let mut classes = Self::default();
        for object in objects {
            let metadata = child(object, "metadata");
            let name = text(metadata, "name").to_owned();
            if text(child(object, "spec"), "controller") == CONTROLLER {
                let default = entries(metadata, "annotations")
                    .any(|(key, value)| key == DEFAULT_ANNOTATION && value.as_str() == Some("true"));
                classes.by_default |= default;
                classes.ours.insert(name);
            } else {
                classes.others.insert(name);
            }
        }
        classes
    }

    /// Whether an Ingress is ours to carry.
    pub fn carry(&self, ingress: &Value) -> bool {
        let old = child(child(child(ingress, "metadata"), "annotations"), OLD_ANNOTATION).as_str();
        let named = child(child(ingress, "spec"), "ingressClassName").as_str().or(old);
        match named.filter(|name| !name.is_empty()) {
            Some(name) => self.ours.contains(name) || name == CLASS && !self.others.contains(name),
            None => self.by_default || self.ours.is_empty() && self.others.is_empty(),
        }
    }
}
