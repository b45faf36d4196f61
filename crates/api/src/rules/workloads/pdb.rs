//! PodDisruptionBudgets.

use serde_json::Value;

use super::check;
use super::read::{at, has, selector_json, shown, some, unsupported};
use super::scale;
use crate::field::{ErrorList, ErrorType, Path};
use crate::kind::Rules;
use crate::names;

const COUNTS: [&str; 4] = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];

/// Rules of PodDisruptionBudgets.
pub(super) struct PodDisruptionBudget;

impl Rules for PodDisruptionBudget {
    fn prepare_create(&self, object: &mut Value) {
        scale::zero_status(object, &COUNTS);
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (spec, path) = (at(object, "spec"), Path::new("spec"));
        if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
            let why = "minAvailable and maxUnavailable cannot be both set";
            shown(ErrorType::Invalid, &mut errors, &path, &go_spec(spec), why);
        }
        for field in ["minAvailable", "maxUnavailable"] {
            if let Some(value) = some(spec, field) {
                scale::int_or_percent(&mut errors, &path.child(field), value);
                scale::at_most_all(&mut errors, &path.child(field), value);
            }
        }
        check::selector(&mut errors, &path.child("selector"), at(spec, "selector"));
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        let field = "unhealthyPodEvictionPolicy";
        if let Some(policy) = some(spec, field).and_then(Value::as_str).filter(|p| !policies.contains(p)) {
            unsupported(&mut errors, &path.child(field), policy, &policies);
        }
        errors
    }

    fn validate_status(&self, object: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        scale::counts(&mut errors, &Path::new("status"), at(object, "status"), &COUNTS);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}

/// A spec as Kubernetes prints its own form of it.
fn go_spec(spec: &Value) -> String {
    let value = |field| some(spec, field).map_or_else(|| "null".to_owned(), Value::to_string);
    format!(
        "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
        value("minAvailable"),
        selector_json(at(spec, "selector")),
        value("maxUnavailable"),
        value("unhealthyPodEvictionPolicy")
    )
}
