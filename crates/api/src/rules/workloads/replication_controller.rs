//! ReplicationControllers.

use serde_json::Value;

use super::pod::defaults;
use super::pod::spec::Options;
use super::read::{at, fill, is_zero, nonnegative, nonnegative_field, opt_int, some, spec};
use super::replicaset::{named_template, status};
use super::scale;
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{meta, names};

/// Rules of ReplicationControllers.
pub(super) struct ReplicationController;

impl Rules for ReplicationController {
    fn default(&self, object: &mut Value) {
        let Some(spec) = spec(object) else { return };
        fill(spec, "replicas", 1);
        // Unlike in newer kinds, the template may be absent.
        if spec.get("template").is_none_or(Value::is_null) {
            return;
        }
        defaults::template(spec);
        let template = spec.get("template").unwrap_or(&Value::Null);
        let labels = at(at(template, "metadata"), "labels").clone();
        if is_zero(&labels) {
            return;
        }
        if spec.get("selector").is_none_or(is_zero) {
            spec.insert("selector".into(), labels.clone());
        }
        let metadata = meta::metadata_mut(object);
        if metadata.get("labels").is_none_or(is_zero) {
            metadata.insert("labels".into(), labels);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        scale::zero_status(object, &["replicas"]);
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (spec, path) = (at(object, "spec"), Path::new("spec"));
        nonnegative_field(&mut errors, &path, spec, "minReadySeconds");
        if is_zero(at(spec, "selector")) {
            errors.required(&path.child("selector"), "");
        }
        match opt_int(spec, "replicas") {
            None => errors.required(&path.child("replicas"), ""),
            Some(replicas) => nonnegative(&mut errors, &path.child("replicas"), replicas),
        }
        let here = path.child("template");
        match some(spec, "template") {
            None => errors.required(&here, ""),
            Some(template) => {
                let labels = at(at(template, "metadata"), "labels");
                let wanted = at(spec, "selector").as_object();
                if wanted.into_iter().flatten().any(|(key, value)| labels.get(key) != Some(value)) {
                    scale::unmatched(&mut errors, &here, labels);
                }
                let options = Options::default();
                scale::always_template(&mut errors, &here, template, "ReplicationController", &options);
            }
        }
        errors
    }

    fn validate_status(&self, object: &Value, _old: &Value) -> ErrorList {
        status(object)
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        named_template(object)
    }
}
