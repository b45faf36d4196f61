//! Nodes of members: taints and amounts; what kubelets report is taken as it is.

use std::collections::HashSet;

use serde_json::Value;

use super::check;
use super::pod::taint_effect;
use super::read::{at, is_zero, items, same, text, texts};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::names;

/// Rules of Nodes.
pub(super) struct Node;

impl Rules for Node {
    fn default(&self, object: &mut Value) {
        let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
        let capacity = status.get("capacity").filter(|capacity| !is_zero(capacity)).cloned();
        if let Some(capacity) = capacity {
            super::read::fill(status, "allocatable", capacity);
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (spec, path) = (at(object, "spec"), Path::new("spec"));
        // Kubernetes says `metadata` here, though taints stand in the spec.
        taints(&mut errors, &Path::new("metadata").child("taints"), items(spec, "taints"));
        let blocks: Vec<&str> = texts(spec, "podCIDRs").collect();
        if blocks.len() > 2 {
            let why = "may specify no more than one CIDR for each IP family";
            errors.invalid(&path.child("podCIDRs"), at(spec, "podCIDRs").clone(), why);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let (new, old) = (at(object, "spec"), at(old, "spec"));
        // Blocks and the provider's name are set once.
        if !is_zero(at(old, "podCIDRs")) && !same(at(new, "podCIDRs"), at(old, "podCIDRs")) {
            let why = "node updates may not change podCIDR except from \"\" to valid";
            errors.forbidden(&path.child("podCIDRs"), why);
        }
        let before = text(old, "providerID");
        if !before.is_empty() && before != text(new, "providerID") {
            let why = "node updates may not change providerID except from \"\" to valid";
            errors.forbidden(&path.child("providerID"), why);
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}

fn taints(errors: &mut ErrorList, path: &Path<'_>, taints: &[Value]) {
    let mut seen = HashSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        check::label_name(errors, &path.child("key"), key);
        let wrong = check::label_value_messages(value);
        if !wrong.is_empty() {
            errors.invalid(&path.child("value"), value, wrong.join(";"));
        }
        if effect.is_empty() {
            errors.required(&path.child("effect"), "");
        } else {
            taint_effect(errors, &path.child("effect"), effect);
        }
        if !seen.insert((key, effect)) {
            let why = "taints must be unique by key and effect pair";
            errors.push(crate::field::Error {
                class: crate::field::ErrorType::Duplicate,
                field: path.to_string(),
                value: Some(taint.clone()),
                detail: why.into(),
            });
        }
    }
}
