//! StatefulSets.

use serde_json::Value;

use super::check;
use super::pod::spec::Options;
use super::pod::{claim, defaults, template, warnings};
use super::read::{
    at, child_or_new, fill, fill_text, has, int, items, maps, nonnegative, nonnegative_field, opt_int, same,
    shown, some, spec, text, unsupported,
};
use super::scale;
use crate::field::{ErrorList, ErrorType, Path};
use crate::kind::Rules;
use crate::names;

/// Fields of the spec that may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// Rules of StatefulSets.
pub(super) struct StatefulSet;

impl Rules for StatefulSet {
    fn default(&self, object: &mut Value) {
        let Some(spec) = spec(object) else { return };
        fill_text(spec, "podManagementPolicy", "OrderedReady");
        fill(spec, "serviceName", "");
        fill(spec, "replicas", 1);
        fill(spec, "revisionHistoryLimit", 10);
        if let Some(strategy) = child_or_new(spec, "updateStrategy") {
            if strategy.get("type").and_then(Value::as_str).unwrap_or("").is_empty() {
                strategy.insert("type".into(), "RollingUpdate".into());
                child_or_new(strategy, "rollingUpdate");
            }
            let rolls = strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate");
            if let Some(rolling) = super::read::child(strategy, "rollingUpdate").filter(|_| rolls) {
                fill(rolling, "partition", 0);
            }
        }
        if let Some(policy) = child_or_new(spec, "persistentVolumeClaimRetentionPolicy") {
            fill_text(policy, "whenDeleted", "Retain");
            fill_text(policy, "whenScaled", "Retain");
        }
        defaults::template(spec);
        for claim in maps(spec, "volumeClaimTemplates") {
            fill_text(claim, "apiVersion", "v1");
            fill_text(claim, "kind", "PersistentVolumeClaim");
            fill(claim, "metadata", Value::Object(serde_json::Map::new()));
            defaults::claim_spec(claim);
            if let Some(status) = child_or_new(claim, "status") {
                fill_text(status, "phase", "Pending");
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        scale::zero_status(object, &["replicas", "availableReplicas"]);
        drop_max_unavailable(object, None);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        drop_max_unavailable(object, Some(old));
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        validate_spec(&mut errors, &Path::new("spec"), at(object, "spec"));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (new, old) = (at(object, "spec"), at(old, "spec"));
        let fields =
            |of: &'_ Value| of.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
        let mut all: Vec<String> = fields(new);
        all.extend(fields(old));
        if all.iter().any(|field| !MUTABLE.contains(&field.as_str()) && !same(at(new, field), at(old, field)))
        {
            let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.forbidden(&Path::new("spec"), why);
        }
        errors
    }

    fn validate_status(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (status, path) = (at(object, "status"), Path::new("status"));
        let counts = [
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ];
        scale::counts(&mut errors, &path, status, &counts);
        let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        scale::no_more_than(&mut errors, &path, status, &parts, "replicas", "status.replicas");
        let part = ["availableReplicas"];
        scale::no_more_than(&mut errors, &path, status, &part, "readyReplicas", "status.readyReplicas");
        scale::collisions(&mut errors, object, old);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_label(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut all = Vec::new();
        let spec = at(object, "spec");
        warnings::template(&mut all, &Path::new("spec").child("template"), at(spec, "template"));
        if opt_int(spec, "revisionHistoryLimit").is_some_and(|limit| limit < 0) {
            all.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".into());
        }
        all
    }
}

/// `maxUnavailable` is behind a switch that is off by default: kept only where it was.
fn drop_max_unavailable(object: &mut Value, old: Option<&Value>) {
    let used = |of: &Value| has(at(at(at(of, "spec"), "updateStrategy"), "rollingUpdate"), "maxUnavailable");
    if old.is_some_and(used) {
        return;
    }
    let rolling = object.pointer_mut("/spec/updateStrategy/rollingUpdate").and_then(Value::as_object_mut);
    if let Some(rolling) = rolling {
        rolling.remove("maxUnavailable");
    }
}

fn validate_spec(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    match text(spec, "podManagementPolicy") {
        "" => errors.required(&path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            let why = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(&path.child("podManagementPolicy"), other, why);
        }
    }
    strategy(errors, &path.child("updateStrategy"), at(spec, "updateStrategy"));
    if let Some(policy) = some(spec, "persistentVolumeClaimRetentionPolicy") {
        let path = path.child("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            if !matches!(text(policy, field), "Retain" | "Delete") {
                unsupported(errors, &path.child(field), text(policy, field), &["Retain", "Delete"]);
            }
        }
    }
    let claims = items(spec, "volumeClaimTemplates");
    for (index, each) in claims.iter().enumerate() {
        let path = path.child("volumeClaimTemplates");
        claim::validate(errors, &path.index(index).child("spec"), at(each, "spec"));
    }
    nonnegative_field(errors, path, spec, "replicas");
    nonnegative_field(errors, path, spec, "minReadySeconds");
    nonnegative(errors, &path.child("ordinals.start"), int(at(spec, "ordinals"), "start"));
    if !text(spec, "serviceName").is_empty() {
        check::dns_label(errors, &path.child("serviceName"), text(spec, "serviceName"));
    }
    let own = at(spec, "template");
    let here = path.child("template");
    if scale::selector(errors, path, spec, "statefulset", "") {
        let options = Options { stateful: true, claims, ..Options::default() };
        template::validate(errors, &here, own, &options);
        // Kubernetes checks these twice; so the causes it lists, though not its message, hold them twice.
        let metadata = at(own, "metadata");
        check::labels(errors, &here.child("labels"), at(metadata, "labels"));
        check::annotations(errors, &here.child("annotations"), at(metadata, "annotations"));
        template::annotations(errors, &here.child("annotations"), metadata, at(own, "spec"));
    }
    scale::always(errors, &here, own, "StatefulSet");
}

fn strategy(errors: &mut ErrorList, path: &Path<'_>, strategy: &Value) {
    let rolling = some(strategy, "rollingUpdate");
    let here = path.child("rollingUpdate");
    match text(strategy, "type") {
        "" => errors.required(path, ""),
        "OnDelete" => {
            if let Some(rolling) = rolling {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                shown(ErrorType::Invalid, errors, &here, &go_rolling(rolling), why);
            }
        }
        "RollingUpdate" => {
            if let Some(rolling) = rolling {
                nonnegative_field(errors, &here, rolling, "partition");
                if let Some(most) = some(rolling, "maxUnavailable") {
                    let path = here.child("maxUnavailable");
                    scale::int_or_percent(errors, &path, most);
                    if scale::amount(most) == 0 {
                        errors.invalid(&path, most.clone(), "cannot be 0");
                    }
                    scale::at_most_all(errors, &path, most);
                }
            }
        }
        other => {
            let rolling = rolling.map_or_else(|| "null".to_owned(), go_rolling);
            let go = format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(other));
            shown(ErrorType::Invalid, errors, path, &go, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn go_rolling(rolling: &Value) -> String {
    let most = some(rolling, "maxUnavailable").map_or_else(|| "null".to_owned(), Value::to_string);
    format!("{{\"Partition\":{},\"MaxUnavailable\":{most}}}", int(rolling, "partition"))
}
