//! ControllerRevisions: states that controllers keep to come back to.

use serde_json::Value;

use super::read::{at, nonnegative_field, same};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::names;

/// Rules of ControllerRevisions.
pub(super) struct ControllerRevision;

impl Rules for ControllerRevision {
    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        nonnegative_field(&mut errors, &Path::ROOT, object, "revision");
        match at(object, "data") {
            Value::Object(_) => {}
            Value::Null => errors.required(&Path::new("data"), "data is mandatory"),
            _ => errors.required(&Path::new("data"), "data must be a valid JSON object"),
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if !same(at(object, "data"), at(old, "data")) {
            errors.invalid(&Path::new("data"), at(object, "data").clone(), "field is immutable");
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}
