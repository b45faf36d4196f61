//! DaemonSets.

use serde_json::Value;

use super::check;
use super::pod::spec::Options;
use super::pod::{defaults, template, warnings};
use super::read::{
    at, child_or_new, fill, fill_text, is_zero, nonnegative_field, same, selector_json, shown, some, spec,
    supported_list, text,
};
use super::scale;
use crate::field::{ErrorList, ErrorType, Path};
use crate::kind::Rules;
use crate::{meta, names};

/// Counts how often the template changed; a field in older versions of the kind.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

const STATUS: [&str; 4] =
    ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];

/// Rules of DaemonSets.
pub(super) struct DaemonSet;

impl Rules for DaemonSet {
    fn default(&self, object: &mut Value) {
        let Some(spec) = spec(object) else { return };
        fill(spec, "revisionHistoryLimit", 10);
        if let Some(strategy) = child_or_new(spec, "updateStrategy") {
            fill_text(strategy, "type", "RollingUpdate");
            if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
                && let Some(rolling) = child_or_new(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", 1);
                fill(rolling, "maxSurge", 0);
            }
        }
        defaults::template(spec);
    }

    fn prepare_create(&self, object: &mut Value) {
        scale::zero_status(object, &STATUS);
        let generation = template_generation(object).max(1);
        set_template_generation(object, generation);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let template = |of: &'_ Value| at(at(of, "spec"), "template").clone();
        let changed = !same(&template(object), &template(old));
        let generation = template_generation(old).saturating_add(i64::from(changed));
        set_template_generation(object, generation);
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (spec, path) = (at(object, "spec"), Path::new("spec"));
        let selector = at(spec, "selector");
        let here = path.child("selector");
        check::selector(&mut errors, &here, selector);
        let labels = at(at(at(spec, "template"), "metadata"), "labels");
        if check::selects(selector, labels) == Some(false) {
            scale::unmatched(&mut errors, &path.child("template"), labels);
        }
        if !selector.is_null()
            && is_zero(at(selector, "matchLabels"))
            && is_zero(at(selector, "matchExpressions"))
        {
            let why = "empty selector is invalid for daemonset";
            shown(ErrorType::Invalid, &mut errors, &here, &selector_json(selector), why);
        }
        let own = at(spec, "template");
        template::validate(&mut errors, &path.child("template"), own, &Options::default());
        scale::always(&mut errors, &path.child("template"), own, "DaemonSet");
        nonnegative_field(&mut errors, &path, spec, "minReadySeconds");
        strategy(&mut errors, &path.child("updateStrategy"), at(spec, "updateStrategy"));
        nonnegative_field(&mut errors, &path, spec, "revisionHistoryLimit");
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        scale::immutable_selector(&mut errors, object, old);
        errors
    }

    fn validate_status(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        scale::counts(&mut errors, &Path::new("status"), at(object, "status"), &counts);
        scale::collisions(&mut errors, object, old);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut all = Vec::new();
        let template = at(at(object, "spec"), "template");
        warnings::template(&mut all, &Path::new("spec").child("template"), template);
        all
    }
}

fn template_generation(object: &Value) -> i64 {
    meta::annotation(object, TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = child_or_new(meta::metadata_mut(object), "annotations") {
        annotations.insert(TEMPLATE_GENERATION.into(), Value::String(generation.to_string()));
    }
}

fn strategy(errors: &mut ErrorList, path: &Path<'_>, strategy: &Value) {
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => match some(strategy, "rollingUpdate") {
            None => errors.required(&path.child("rollingUpdate"), ""),
            Some(rolling) => rolling_update(errors, &path.child("rollingUpdate"), rolling),
        },
        other => {
            let go = format!(
                "{{\"Type\":{},\"RollingUpdate\":{}}}",
                Value::from(other),
                some(strategy, "rollingUpdate").map_or_else(|| "null".to_owned(), go_rolling)
            );
            let supported = supported_list(&["RollingUpdate", "OnDelete"]);
            shown(ErrorType::NotSupported, errors, path, &go, &supported);
        }
    }
}

fn go_rolling(rolling: &Value) -> String {
    let value = |field| some(rolling, field).map_or_else(|| "0".to_owned(), Value::to_string);
    format!("{{\"MaxUnavailable\":{},\"MaxSurge\":{}}}", value("maxUnavailable"), value("maxSurge"))
}

fn rolling_update(errors: &mut ErrorList, path: &Path<'_>, rolling: &Value) {
    let (unavailable, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
    let (first, second) = (path.child("maxUnavailable"), path.child("maxSurge"));
    scale::int_or_percent(errors, &first, unavailable);
    scale::int_or_percent(errors, &second, surge);
    scale::at_most_all(errors, &first, unavailable);
    scale::at_most_all(errors, &second, surge);
    match (scale::amount(unavailable) != 0, scale::amount(surge) != 0) {
        (true, true) => {
            errors.invalid(&second, surge.clone(), "may not be set when maxUnavailable is non-zero");
        }
        (false, false) => errors.required(&first, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}
