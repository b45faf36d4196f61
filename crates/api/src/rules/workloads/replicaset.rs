//! ReplicaSets.

use serde_json::Value;

use super::pod::spec::Options;
use super::pod::{defaults, warnings};
use super::read::{at, fill, nonnegative_field, spec};
use super::scale;
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{meta, names};

/// Rules of ReplicaSets.
pub(super) struct ReplicaSet;

impl Rules for ReplicaSet {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = spec(object) {
            fill(spec, "replicas", 1);
            defaults::template(spec);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        scale::zero_status(object, &["replicas"]);
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (spec, path) = (at(object, "spec"), Path::new("spec"));
        nonnegative_field(&mut errors, &path, spec, "replicas");
        nonnegative_field(&mut errors, &path, spec, "minReadySeconds");
        // Kubernetes says "deployment" of ReplicaSets too.
        if scale::selector(&mut errors, &path, spec, "deployment", "invalid label selector") {
            let template = path.child("template");
            let options = Options::default();
            scale::always_template(&mut errors, &template, at(spec, "template"), "ReplicaSet", &options);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        scale::immutable_selector(&mut errors, object, old);
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

/// The status of ReplicaSets and of ReplicationControllers.
pub(super) fn status(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (status, path) = (at(object, "status"), Path::new("status"));
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    scale::counts(&mut errors, &path, status, &counts);
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    scale::no_more_than(&mut errors, &path, status, &parts, "replicas", "status.replicas");
    let part = ["availableReplicas"];
    scale::no_more_than(&mut errors, &path, status, &part, "readyReplicas", "readyReplicas");
    errors
}

/// Warnings of a kind whose name goes into its pods' names.
pub(super) fn named_template(object: &Value) -> Vec<String> {
    let mut all = Vec::new();
    warnings::host_name(&mut all, meta::name(object));
    let template = at(at(object, "spec"), "template");
    warnings::template(&mut all, &Path::new("spec").child("template"), template);
    all
}
