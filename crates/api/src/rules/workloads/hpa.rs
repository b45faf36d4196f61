//! HorizontalPodAutoscalers, in the form of `autoscaling/v2`; objects of `v1` are converted before they are judged.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::read::{
    at, child, fill, int, is_zero, items, nonnegative_field, opt_int, some, spec, text, unsupported,
};
use super::{check, hpa_convert, hpa_metrics};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::names;
use crate::quantity::Quantity;

const PERIOD_S_MAX: i64 = 1800;
const WINDOW_S_MAX: i64 = 3600;

/// Rules of HorizontalPodAutoscalers.
pub(super) struct HorizontalPodAutoscaler;

fn is_v1(object: &Value) -> bool {
    text(object, "apiVersion") == "autoscaling/v1"
}

/// The object in the form of `v2`.
fn as_v2(object: &Value) -> Cow<'_, Value> {
    if is_v1(object) { Cow::Owned(hpa_convert::to_v2(object)) } else { Cow::Borrowed(object) }
}

impl Rules for HorizontalPodAutoscaler {
    fn default(&self, object: &mut Value) {
        let (older, listed) = (is_v1(object), hpa_convert::lists_metrics(object));
        let Some(spec) = spec(object) else { return };
        fill(spec, "minReplicas", 1);
        if older {
            // Metrics in the annotation take the place of the usual target.
            if !listed {
                fill(spec, "targetCPUUtilizationPercentage", hpa_convert::CPU_PERCENT);
            }
            return;
        }
        if spec.get("metrics").is_none_or(is_zero) {
            spec.insert("metrics".into(), json!([hpa_convert::cpu_metric(hpa_convert::CPU_PERCENT)]));
        }
        if let Some(behavior) = child(spec, "behavior") {
            let up = json!([
                { "type": "Pods", "value": 4, "periodSeconds": 15 },
                { "type": "Percent", "value": 100, "periodSeconds": 15 },
            ]);
            scaling_rules(behavior, "scaleUp", Some(0), up);
            let down = json!([{ "type": "Percent", "value": 100, "periodSeconds": 15 }]);
            scaling_rules(behavior, "scaleDown", None, down);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let v2 = !is_v1(object);
        let map = object.as_object_mut();
        if let Some(status) = map.and_then(|map| super::read::child_or_new(map, "status")) {
            fill(status, "desiredReplicas", 0);
            if v2 {
                status.entry("currentMetrics").or_insert(Value::Null);
            } else {
                fill(status, "currentReplicas", 0);
            }
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let object = as_v2(object);
        let (spec, path) = (at(&object, "spec"), Path::new("spec"));
        replicas(&mut errors, &path, spec);
        reference(&mut errors, &path.child("scaleTargetRef"), at(spec, "scaleTargetRef"), false);
        hpa_metrics::validate(&mut errors, &path.child("metrics"), spec);
        if let Some(behavior) = some(spec, "behavior") {
            let path = path.child("behavior");
            for field in ["scaleUp", "scaleDown"] {
                if let Some(rules) = some(behavior, field) {
                    validate_rules(&mut errors, &path.child(field), rules);
                }
            }
        }
        errors
    }

    fn validate_status(&self, object: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (status, path) = (at(object, "status"), Path::new("status"));
        nonnegative_field(&mut errors, &path, status, "currentReplicas");
        nonnegative_field(&mut errors, &path, status, "desiredReplicas");
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}

fn scaling_rules(behavior: &mut Map<String, Value>, field: &str, window_s: Option<i64>, policies: Value) {
    let Some(rules) = super::read::child_or_new(behavior, field) else { return };
    if let Some(seconds) = window_s {
        fill(rules, "stabilizationWindowSeconds", seconds);
    }
    fill(rules, "selectPolicy", "Max");
    fill(rules, "policies", policies);
}

fn replicas(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let (least, most) = (opt_int(spec, "minReplicas"), int(spec, "maxReplicas"));
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.invalid(&path.child("minReplicas"), least, "must be greater than or equal to 1");
    }
    let here = path.child("maxReplicas");
    if most == 0 {
        errors.required(&here, "must be set and greater than 0");
    } else if most < 0 {
        errors.invalid(&here, most, "must be greater than or equal to 1");
    }
    if least.is_some_and(|least| most < least) {
        errors.invalid(&here, most, "must be greater than or equal to `minReplicas`");
    }
}

/// What is scaled, or what a metric is about. Of the first, only core kinds have no group.
pub(super) fn reference(errors: &mut ErrorList, path: &Path<'_>, reference: &Value, any_group: bool) {
    for field in ["kind", "name"] {
        if text(reference, field).is_empty() {
            errors.required(&path.child(field), "");
        } else {
            check::path_segment(errors, &path.child(field), text(reference, field));
        }
    }
    let core = any_group || text(reference, "kind") == "ReplicationController";
    let why = match check::api_group(reference) {
        Err(why) => why,
        Ok("") if !core => "apiVersion must specify API group".into(),
        Ok(_) => return,
    };
    errors.invalid(&path.child("apiVersion"), text(reference, "apiVersion"), why);
}

fn validate_rules(errors: &mut ErrorList, path: &Path<'_>, rules: &Value) {
    const SELECT: [&str; 3] = ["Disabled", "Max", "Min"];
    let here = path.child("stabilizationWindowSeconds");
    match opt_int(rules, "stabilizationWindowSeconds") {
        Some(seconds) if seconds < 0 => {
            errors.invalid(&here, seconds, "must be greater than or equal to zero");
        }
        Some(seconds) if seconds > WINDOW_S_MAX => {
            errors.invalid(&here, seconds, format!("must be less than or equal to {WINDOW_S_MAX}"));
        }
        _ => {}
    }
    if let Some(select) = some(rules, "selectPolicy").and_then(Value::as_str)
        && !SELECT.contains(&select)
    {
        unsupported(errors, &path.child("selectPolicy"), select, &SELECT);
    }
    let policies = items(rules, "policies");
    let here = path.child("policies");
    if policies.is_empty() {
        errors.required(&here, "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        validate_policy(errors, &here.index(index), policy);
    }
    if let Some(tolerance) = some(rules, "tolerance").and_then(Quantity::from_value)
        && tolerance.signum() < 0
    {
        let why = "must be greater than or equal to 0";
        errors.invalid(&path.child("tolerance"), tolerance.to_string(), why);
    }
}

fn validate_policy(errors: &mut ErrorList, path: &Path<'_>, policy: &Value) {
    let kind = text(policy, "type");
    if !matches!(kind, "Pods" | "Percent") {
        unsupported(errors, &path.child("type"), kind, &["Percent", "Pods"]);
    }
    if int(policy, "value") <= 0 {
        errors.invalid(&path.child("value"), int(policy, "value"), "must be greater than zero");
    }
    let (here, seconds) = (path.child("periodSeconds"), int(policy, "periodSeconds"));
    if seconds <= 0 {
        errors.invalid(&here, seconds, "must be greater than zero");
    }
    if seconds > PERIOD_S_MAX {
        errors.invalid(&here, seconds, format!("must be less than or equal to {PERIOD_S_MAX}"));
    }
}
