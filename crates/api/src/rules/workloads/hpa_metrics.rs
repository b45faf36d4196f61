//! What a HorizontalPodAutoscaler measures.

use serde_json::Value;

use super::read::{at, has, items, opt_int, some, text, unsupported};
use super::{check, hpa, pod};
use crate::field::{ErrorList, Path};
use crate::quantity::Quantity;

/// Types of metrics in the order they are supported, and the field each has.
const TYPES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// The order in which Kubernetes looks for sources.
const SOURCES: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];

/// Everything wrong with the metrics.
pub(super) fn validate(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let metrics = items(spec, "metrics");
    for (index, metric) in metrics.iter().enumerate() {
        validate_one(errors, &path.index(index), metric);
    }
    let from_outside = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if opt_int(spec, "minReplicas") == Some(0) && !metrics.iter().any(from_outside) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(path, why);
    }
}

fn validate_one(errors: &mut ErrorList, path: &Path<'_>, metric: &Value) {
    let kind = text(metric, "type");
    let expected = TYPES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    let not_supported = |errors: &mut ErrorList| {
        let names = TYPES.map(|(name, _)| name);
        unsupported(errors, &path.child("type"), kind, &names);
    };
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric source type");
    }
    if expected.is_none() {
        not_supported(errors);
    }
    let present: Vec<&str> = SOURCES.into_iter().filter(|source| has(metric, source)).collect();
    if let Some(first) = present.first() {
        source(errors, &path.child(first), first, at(metric, first));
    }
    match expected {
        Some(field) if !has(metric, field) => {
            let why = "must populate information for the given metric source";
            errors.required(&path.child(field), why);
        }
        Some(_) => {}
        None => not_supported(errors),
    }
    if present.len() != 1 {
        for other in present.into_iter().filter(|field| Some(*field) != expected) {
            errors.forbidden(&path.child(other), "must populate the given metric source only");
        }
    }
}

fn source(errors: &mut ErrorList, path: &Path<'_>, kind: &str, source: &Value) {
    match kind {
        "object" => {
            hpa::reference(errors, &path.child("describedObject"), at(source, "describedObject"), true);
            identifier(errors, path, source);
        }
        "external" | "pods" => identifier(errors, path, source),
        "resource" => {
            if text(source, "name").is_empty() {
                errors.required(&path.child("name"), "must specify a resource name");
            }
        }
        _ => container_resource(errors, path, source),
    }
    let goal = at(source, "target");
    let here = path.child("target");
    target(errors, &here, goal);
    let (value, average) = (has(goal, "value"), has(goal, "averageValue"));
    let utilization = has(goal, "averageUtilization");
    match kind {
        "object" if !value && !average => {
            errors.required(&here.child("averageValue"), "must set either a target value or averageValue");
        }
        "external" if !value && !average => {
            let why = "must set either a target value for metric or a per-pod target";
            errors.required(&here.child("averageValue"), why);
        }
        "external" if value && average => {
            let why = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&here.child("value"), why);
        }
        "pods" if !average => {
            errors.required(&here.child("averageValue"), "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !utilization && !average => {
            let why = "must set either a target raw value or a target utilization";
            errors.required(&here.child("averageUtilization"), why);
        }
        "resource" | "containerResource" if utilization && average => {
            let why = "may not set both a target raw value and a target utilization";
            errors.forbidden(&here.child("averageValue"), why);
        }
        _ => {}
    }
}

fn container_resource(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    if text(source, "name").is_empty() {
        errors.required(&path.child("name"), "must specify a resource name");
    } else {
        pod::resources::container_resource(errors, &path.child("name"), text(source, "name"));
    }
    if text(source, "container").is_empty() {
        errors.required(&path.child("container"), "must specify a container");
    } else {
        check::dns_label(errors, &path.child("container"), text(source, "container"));
    }
}

fn identifier(errors: &mut ErrorList, path: &Path<'_>, source: &Value) {
    let path = path.child("metric");
    let name = text(at(source, "metric"), "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "must specify a metric name");
    } else {
        check::path_segment(errors, &path.child("name"), name);
    }
}

fn target(errors: &mut ErrorList, path: &Path<'_>, target: &Value) {
    let kind = text(target, "type");
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(&path.child("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        if let Some(amount) = some(target, field).and_then(Quantity::from_value)
            && amount.signum() <= 0
        {
            errors.invalid(&path.child(field), amount.to_string(), "must be positive");
        }
    }
    if let Some(percent) = opt_int(target, "averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(&path.child("averageUtilization"), percent, "must be greater than 0");
    }
}
