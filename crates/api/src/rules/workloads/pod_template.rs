//! PodTemplates: templates that stand alone.

use serde_json::Value;

use super::pod::spec::Options;
use super::pod::{defaults, template, warnings};
use super::read::at;
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::names;

/// Rules of PodTemplates.
pub(super) struct PodTemplate;

impl Rules for PodTemplate {
    fn default(&self, object: &mut Value) {
        if let Some(object) = object.as_object_mut() {
            defaults::template(object);
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let own = at(object, "template");
        template::validate(&mut errors, &Path::new("template"), own, &Options::default());
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut all = Vec::new();
        warnings::template(&mut all, &Path::new("template"), at(object, "template"));
        all
    }
}
