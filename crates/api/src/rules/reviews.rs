//! Reviews: questions that are answered and not kept, so their `metadata` stays empty.

use serde_json::{Value, json};

use super::read::{self, child, field, list, text};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::meta;

/// Which question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// May this user do that? (SubjectAccessReview)
    Subject,
    /// May this user do that in this namespace? (LocalSubjectAccessReview)
    Local,
    /// May I do that? (SelfSubjectAccessReview)
    Own,
    /// Anything that is not checked here.
    Other,
}

impl Rules for Review {
    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if *self == Self::Other {
            return errors;
        }
        self.validate_access(object, &mut errors);
        self.validate_metadata(object, &mut errors);
        if *self == Self::Local {
            validate_local(object, &mut errors);
        }
        errors
    }

    fn validate_name(&self, _name: &str, _prefix: bool) -> Vec<String> {
        Vec::new()
    }
}

impl Review {
    fn validate_access(self, object: &Value, errors: &mut ErrorList) {
        let path = Path::new("spec");
        let spec = read::spec(object);
        match (field(spec, "resourceAttributes"), field(spec, "nonResourceAttributes")) {
            (Some(_), Some(other)) => errors.invalid(
                &path.child("nonResourceAttributes"),
                // Go shows its own struct here.
                json!({"Path": text(other, "path"), "Verb": text(other, "verb")}),
                "cannot be specified in combination with resourceAttributes",
            ),
            (None, None) => errors.invalid(
                &path.child("resourceAttributes"),
                Value::Null,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ),
            _ => {}
        }
        if self != Self::Own && text(spec, "user").is_empty() && list(spec, "groups").is_empty() {
            errors.invalid(&path.child("user"), "", "at least one of user or group must be specified");
        }
    }

    fn validate_metadata(self, object: &Value, errors: &mut ErrorList) {
        let allowed = |key: &str| key == "managedFields" || (self == Self::Local && key == "namespace");
        let mut entries = read::entries(object, "metadata");
        if entries.any(|(key, value)| !allowed(key) && !read::is_empty(value)) {
            let detail =
                if self == Self::Local { "must be empty except for namespace" } else { "must be empty" };
            errors.invalid(&Path::new("metadata"), child(object, "metadata").clone(), detail);
        }
    }
}

fn validate_local(object: &Value, errors: &mut ErrorList) {
    let spec = read::spec(object);
    if let Some(attributes) = field(spec, "resourceAttributes") {
        let namespace = text(attributes, "namespace");
        if namespace != meta::namespace(object) {
            let path = Path::new("spec.resourceAttributes.namespace");
            errors.invalid(&path, namespace, "must match metadata.namespace");
        }
    }
    if let Some(attributes) = field(spec, "nonResourceAttributes") {
        let path = Path::new("spec.nonResourceAttributes");
        errors.invalid(&path, attributes.clone(), "disallowed on this kind of request");
    }
}
