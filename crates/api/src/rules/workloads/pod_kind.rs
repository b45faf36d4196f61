//! Pods, as members have them.

use serde_json::{Map, Value, json};

use super::pod::spec::{self, Options};
use super::pod::{defaults, resources, template, warnings};
use super::read::{at, items, opt_int, same, spec as spec_mut, text};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::names;

/// Rules of Pods.
pub(super) struct Pod;

impl Rules for Pod {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = spec_mut(object) {
            defaults::pod_only(spec);
            defaults::pod_spec(spec);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let class = resources::quality(at(object, "spec"));
        let gated = !items(at(object, "spec"), "schedulingGates").is_empty();
        let mut status = json!({ "phase": "Pending", "qosClass": class });
        if gated {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        if let Some(object) = object.as_object_mut() {
            object.insert("status".into(), status);
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (pod, metadata) = (at(object, "spec"), at(object, "metadata"));
        let path = Path::new("spec");
        template::annotations(&mut errors, &Path::new("metadata").child("annotations"), metadata, pod);
        let options = Options { is_pod: true, metadata: Some(metadata), ..Options::default() };
        spec::validate(&mut errors, &path, pod, &options);
        spec::tokens_without_account(&mut errors, &path, pod);
        spec::trimmed_images(&mut errors, &path, pod);
        if !text(pod, "nodeName").is_empty() && !items(pod, "schedulingGates").is_empty() {
            let why = "cannot be set until all schedulingGates have been cleared";
            errors.forbidden(&path.child("nodeName"), why);
        }
        template::profiles_match(&mut errors, &path, metadata, pod);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        update(&mut errors, at(object, "spec"), at(old, "spec"));
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut all = Vec::new();
        warnings::template(&mut all, &Path::ROOT, object);
        all
    }
}

/// A pod's spec changes only in a few places.
fn update(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::new("spec");
    for list in ["containers", "initContainers"] {
        if items(new, list).len() != items(old, list).len() {
            errors.forbidden(&path.child(list), "pod updates may not add or remove containers");
            return;
        }
    }
    let deadline = |of| opt_int(of, "activeDeadlineSeconds");
    let here = path.child("activeDeadlineSeconds");
    match (deadline(new), deadline(old)) {
        (Some(new), Some(old)) if old < new => {
            errors.invalid(&here, new, "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => {
            errors.invalid(&here, Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
    tolerations(errors, &path.child("tolerations"), new, old);
    for (index, gate) in items(new, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !items(old, "schedulingGates").iter().any(|before| text(before, "name") == name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.child("schedulingGates").index(index).child("name"), why);
        }
    }
    if same(new, old) {
        return;
    }
    let Some(mut allowed) = new.as_object().cloned() else { return };
    forget_allowed(&mut allowed, old);
    if !same(&Value::Object(allowed), old) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.forbidden(&path, why);
    }
}

fn tolerations(errors: &mut ErrorList, path: &Path<'_>, new: &Value, old: &Value) {
    let like = |a: &Value, b: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|field| text(a, field) == text(b, field))
    };
    let kept = |before: &Value| items(new, "tolerations").iter().any(|toleration| like(before, toleration));
    if !items(old, "tolerations").iter().all(kept) {
        errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
    }
}

/// Puts the old values back where changes are allowed.
fn forget_allowed(new: &mut Map<String, Value>, old: &Value) {
    for list in ["containers", "initContainers"] {
        let ours = new.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, before) in ours.zip(items(old, list)) {
            if let Some(container) = container.as_object_mut() {
                container.insert("image".into(), at(before, "image").clone());
            }
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        new.insert(field.into(), at(old, field).clone());
    }
    let grace = "terminationGracePeriodSeconds";
    let was_negative = opt_int(old, grace).is_some_and(|seconds| seconds < 0);
    if was_negative && new.get(grace).and_then(Value::as_i64) == Some(1) {
        new.insert(grace.into(), at(old, grace).clone());
    }
    // A gated pod may still be told more narrowly where to go.
    if !items(old, "schedulingGates").is_empty() {
        new.insert("nodeSelector".into(), at(old, "nodeSelector").clone());
        let nodes = at(at(old, "affinity"), "nodeAffinity").clone();
        if let Some(affinity) = new.get_mut("affinity").and_then(Value::as_object_mut) {
            affinity.insert("nodeAffinity".into(), nodes);
        } else if !nodes.is_null() {
            new.insert("affinity".into(), json!({ "nodeAffinity": nodes }));
        }
    }
}
