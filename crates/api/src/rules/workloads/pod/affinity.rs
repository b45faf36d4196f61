//! Which nodes and neighbours a pod wants.

use std::collections::HashSet;

use serde_json::Value;

use super::super::check;
use super::super::read::{at, has, int, items, some, text, texts};
use crate::field::{ErrorList, Path};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Everything wrong with a pod's affinity.
pub(super) fn validate(errors: &mut ErrorList, path: &Path<'_>, affinity: &Value) {
    if let Some(nodes) = some(affinity, "nodeAffinity") {
        node_affinity(errors, &path.child("nodeAffinity"), nodes);
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        if let Some(pods) = some(affinity, field) {
            pod_affinity(errors, &path.child(field), pods);
        }
    }
}

fn node_affinity(errors: &mut ErrorList, path: &Path<'_>, affinity: &Value) {
    if let Some(selector) = some(affinity, REQUIRED) {
        let path = path.child(REQUIRED);
        let path = path.child("nodeSelectorTerms");
        let terms = items(selector, "nodeSelectorTerms");
        if terms.is_empty() {
            errors.required(&path, "must have at least one node selector term");
        }
        for (index, term) in terms.iter().enumerate() {
            node_term(errors, &path.index(index), term, true);
        }
    }
    for (index, term) in items(affinity, PREFERRED).iter().enumerate() {
        let path = path.child(PREFERRED);
        let path = path.index(index);
        weight(errors, &path, term);
        node_term(errors, &path.child("preference"), at(term, "preference"), false);
    }
}

fn weight(errors: &mut ErrorList, path: &Path<'_>, term: &Value) {
    let weight = int(term, "weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn node_term(errors: &mut ErrorList, path: &Path<'_>, term: &Value, check_values: bool) {
    for (index, requirement) in items(term, "matchExpressions").iter().enumerate() {
        node_label(errors, &path.child("matchExpressions").index(index), requirement, check_values);
    }
    for (index, requirement) in items(term, "matchFields").iter().enumerate() {
        node_field(errors, &path.child("matchFields").index(index), requirement);
    }
}

fn node_label(errors: &mut ErrorList, path: &Path<'_>, requirement: &Value, check_values: bool) {
    let values = items(requirement, "values");
    let at_values = path.child("values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at_values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&at_values, why);
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(&at_values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    check::label_name(errors, &path.child("key"), text(requirement, "key"));
    if check_values {
        for (index, value) in texts(requirement, "values").enumerate() {
            check::label_value(errors, &at_values.index(index), value);
        }
    }
}

fn node_field(errors: &mut ErrorList, path: &Path<'_>, requirement: &Value) {
    match text(requirement, "operator") {
        "In" | "NotIn" => {
            if items(requirement, "values").len() != 1 {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(&path.child("values"), why);
            }
        }
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        errors.invalid(&path.child("key"), key, "not a valid field selector key");
        return;
    }
    for (index, value) in texts(requirement, "values").enumerate() {
        check::dns_subdomain(errors, &path.child("values").index(index), value);
    }
}

fn pod_affinity(errors: &mut ErrorList, path: &Path<'_>, affinity: &Value) {
    for (index, term) in items(affinity, REQUIRED).iter().enumerate() {
        pod_term(errors, &path.child(REQUIRED).index(index), term);
    }
    for (index, term) in items(affinity, PREFERRED).iter().enumerate() {
        let path = path.child(PREFERRED);
        let path = path.index(index);
        weight(errors, &path, term);
        pod_term(errors, &path.child("podAffinityTerm"), at(term, "podAffinityTerm"));
    }
}

fn pod_term(errors: &mut ErrorList, path: &Path<'_>, term: &Value) {
    for field in ["labelSelector", "namespaceSelector"] {
        if has(term, field) {
            check::selector(errors, &path.child(field), at(term, field));
        }
    }
    for name in texts(term, "namespaces") {
        check::dns_label(errors, &path.child("namespace"), name);
    }
    label_keys(errors, path, term);
    let topology = text(term, "topologyKey");
    if topology.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    check::label_name(errors, &path.child("topologyKey"), topology);
}

/// `matchLabelKeys` and `mismatchLabelKeys` of a term or of a spread constraint.
pub(super) fn label_keys(errors: &mut ErrorList, path: &Path<'_>, term: &Value) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let path = path.child(field);
        if items(term, field).is_empty() {
            continue;
        }
        if !has(term, "labelSelector") {
            errors.forbidden(&path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in texts(term, field).enumerate() {
            check::label_name(errors, &path.index(index), key);
        }
    }
    let selector = at(term, "labelSelector");
    let mut selected: HashSet<&str> =
        at(selector, "matchLabels").as_object().into_iter().flatten().map(|(k, _)| k.as_str()).collect();
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        // Kubernetes adds the keys to the selector; one that was there before is a mistake.
        let listed = texts(term, "matchLabelKeys").enumerate().filter(|(_, k)| *k == key).last();
        if let Some((index, _)) = listed.filter(|_| selected.contains(key)) {
            errors.invalid(&path.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
        selected.insert(key);
    }
    for (index, key) in texts(term, "matchLabelKeys").enumerate() {
        if texts(term, "mismatchLabelKeys").any(|other| other == key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&path.child("matchLabelKeys").index(index), key, why);
        }
    }
}
