//! Deployments.

use serde_json::Value;

use super::pod::defaults;
use super::pod::spec::Options;
use super::read::{
    at, child_or_new, fill, fill_text, has, int, nonnegative, nonnegative_field, opt_int, shown, some, spec,
    supported_list, text,
};
use super::replicaset::named_template;
use super::scale;
use crate::field::{ErrorList, ErrorType, Path};
use crate::kind::Rules;
use crate::names;

/// Rules of Deployments.
pub(super) struct Deployment;

impl Rules for Deployment {
    fn default(&self, object: &mut Value) {
        let Some(spec) = spec(object) else { return };
        fill(spec, "replicas", 1);
        fill(spec, "revisionHistoryLimit", 10);
        fill(spec, "progressDeadlineSeconds", 600);
        if let Some(strategy) = child_or_new(spec, "strategy") {
            fill_text(strategy, "type", "RollingUpdate");
            if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
                && let Some(rolling) = child_or_new(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", "25%");
                fill(rolling, "maxSurge", "25%");
            }
        }
        defaults::template(spec);
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (spec, path) = (at(object, "spec"), Path::new("spec"));
        nonnegative_field(&mut errors, &path, spec, "replicas");
        if scale::selector(&mut errors, &path, spec, "deployment", "invalid label selector") {
            let template = path.child("template");
            let options = Options::default();
            scale::always_template(&mut errors, &template, at(spec, "template"), "ReplicaSet", &options);
        }
        strategy(&mut errors, &path.child("strategy"), at(spec, "strategy"));
        nonnegative_field(&mut errors, &path, spec, "minReadySeconds");
        nonnegative_field(&mut errors, &path, spec, "revisionHistoryLimit");
        if let Some(deadline) = opt_int(spec, "progressDeadlineSeconds") {
            let path = path.child("progressDeadlineSeconds");
            nonnegative(&mut errors, &path, deadline);
            if deadline <= int(spec, "minReadySeconds") {
                errors.invalid(&path, deadline, "must be greater than minReadySeconds");
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        scale::immutable_selector(&mut errors, object, old);
        errors
    }

    fn validate_status(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (status, path) = (at(object, "status"), Path::new("status"));
        let counts = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ];
        scale::counts(&mut errors, &path, status, &counts);
        let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
        scale::no_more_than(&mut errors, &path, status, &parts, "replicas", "status.replicas");
        let part = ["availableReplicas"];
        scale::no_more_than(&mut errors, &path, status, &part, "readyReplicas", "readyReplicas");
        scale::collisions(&mut errors, object, old);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        named_template(object)
    }
}

fn strategy(errors: &mut ErrorList, path: &Path<'_>, strategy: &Value) {
    match text(strategy, "type") {
        "Recreate" => {
            if has(strategy, "rollingUpdate") {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                errors.forbidden(&path.child("rollingUpdate"), why);
            }
        }
        "RollingUpdate" => match some(strategy, "rollingUpdate") {
            None => {
                errors.required(&path.child("rollingUpdate"), "this should be defaulted and never be nil");
            }
            Some(rolling) => rolling_update(errors, &path.child("rollingUpdate"), rolling),
        },
        _ => {
            let supported = supported_list(&["Recreate", "RollingUpdate"]);
            shown(ErrorType::NotSupported, errors, path, &go_strategy(strategy), &supported);
        }
    }
}

/// A strategy as Kubernetes prints its own form of it.
fn go_strategy(strategy: &Value) -> String {
    let rolling = some(strategy, "rollingUpdate").map_or_else(
        || "null".to_owned(),
        |rolling| {
            let value = |field| some(rolling, field).map_or_else(|| "0".to_owned(), Value::to_string);
            format!("{{\"MaxUnavailable\":{},\"MaxSurge\":{}}}", value("maxUnavailable"), value("maxSurge"))
        },
    );
    format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(text(strategy, "type")))
}

fn rolling_update(errors: &mut ErrorList, path: &Path<'_>, rolling: &Value) {
    let (unavailable, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
    scale::int_or_percent(errors, &path.child("maxUnavailable"), unavailable);
    scale::int_or_percent(errors, &path.child("maxSurge"), surge);
    if scale::amount(unavailable) == 0 && scale::amount(surge) == 0 {
        let why = "may not be 0 when `maxSurge` is 0";
        errors.invalid(&path.child("maxUnavailable"), unavailable.clone(), why);
    }
    scale::at_most_all(errors, &path.child("maxUnavailable"), unavailable);
}
