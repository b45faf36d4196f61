//! LimitRanges and ResourceQuotas.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::read::{self, child, entries, field, items_mut, list, same, text};
use super::resources;
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::quantity::Quantity;
use crate::{meta, names};

const SPEC: Path<'static> = Path::new("spec");

/// The rules of LimitRanges.
pub struct LimitRange;

impl Rules for LimitRange {
    fn default(&self, object: &mut Value) {
        let Some(spec) = read::map_mut(object, "spec") else { return };
        for limit in items_mut(spec, "limits") {
            if limit.get("type").and_then(Value::as_str) != Some("Container") {
                continue;
            }
            fill(limit, "default", "max");
            fill(limit, "defaultRequest", "default");
            fill(limit, "defaultRequest", "min");
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = SPEC.child("limits");
        let limits = list(read::spec(object), "limits");
        for (at, limit) in limits.iter().enumerate() {
            let path = path.index(at);
            let ty = text(limit, "type");
            validate_limit_type(ty, &path.child("type"), &mut errors);
            if limits.iter().take(at).any(|l| text(l, "type") == ty) {
                errors.duplicate(&path.child("type"), ty);
            }
            validate_limit_names(limit, &path, &mut errors);
            validate_limit_values(limit, &path, &mut errors);
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}

/// Gives `to` what `from` has and it lacks.
fn fill(limit: &mut Map<String, Value>, to: &str, from: &str) {
    let Some(given) = limit.get(from).and_then(Value::as_object).filter(|m| !m.is_empty()).cloned() else {
        return;
    };
    let target = limit.entry(to).or_insert_with(|| Value::Object(Map::new()));
    if target.is_null() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (name, quantity) in given {
        target.entry(name).or_insert(quantity);
    }
}

fn validate_limit_type(ty: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let wrong = names::qualified_name(ty);
    if !wrong.is_empty() {
        return read::sentences(wrong, ty, path, errors);
    }
    if !ty.contains('/') && !matches!(ty, "Pod" | "Container" | "PersistentVolumeClaim") {
        errors.invalid(path, ty, "must be a standard limit type or fully qualified");
    }
}

fn validate_limit_names(limit: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let ty = text(limit, "type");
    let check = |name: &str, errors: &mut ErrorList| {
        let path = path.child(name);
        for (resource, _) in entries(limit, name) {
            match ty {
                "Pod" | "Container" => resources::validate_container(resource, &path.key(resource), errors),
                _ => resources::validate_any(resource, &path.key(resource), errors),
            }
        }
    };
    check("max", errors);
    check("min", errors);
    for name in ["default", "defaultRequest"] {
        if ty != "Pod" {
            check(name, errors);
        } else if entries(limit, name).next().is_some() {
            errors.forbidden(&path.child(name), "may not be specified when `type` is 'Pod'");
        }
    }
    let storage = |name| child(limit, name).get("storage").is_none();
    if ty == "PersistentVolumeClaim" && storage("min") && storage("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), detail);
    }
    check("maxLimitRequestRatio", errors);
}

fn validate_limit_values(limit: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let pod = text(limit, "type") == "Pod";
    let mut resources = BTreeSet::new();
    for name in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        resources.extend(entries(limit, name).map(|(resource, _)| resource.as_str()));
    }
    for resource in resources {
        let get = |name: &str| child(limit, name).get(resource).and_then(Quantity::from_value);
        let (min, max) = (get("min"), get("max"));
        let (default, request) = if pod { (None, None) } else { (get("default"), get("defaultRequest")) };
        // Where, the value shown, what is too much for what, and how the two are called.
        let rows = [
            ("min", min, min, max, "min value", "max value"),
            ("defaultRequest", request, min, request, "min value", "default request value"),
            ("defaultRequest", request, request, max, "default request value", "max value"),
            ("defaultRequest", request, request, default, "default request value", "default limit value"),
            ("default", min, min, default, "min value", "default value"),
            ("default", max, default, max, "default value", "max value"),
        ];
        for (name, shown, low, high, low_name, high_name) in rows {
            if let (Some(shown), Some(low), Some(high)) = (shown, low, high)
                && low > high
            {
                let detail = format!("{low_name} {low} is greater than {high_name} {high}");
                errors.invalid(&path.child(name).key(resource), shown.to_string(), detail);
            }
        }
        if let Some(ratio) = get("maxLimitRequestRatio") {
            validate_ratio(ratio, min, max, &path.child("maxLimitRequestRatio").key(resource), errors);
        }
        if let (Some(default), Some(request)) = (default, request)
            && !resources::overcommits(resource)
            && default != request
        {
            let detail =
                format!("default value {default} must equal to defaultRequest value {request} in {resource}");
            errors.invalid(&path.child("defaultRequest").key(resource), request.to_string(), detail);
        }
    }
}

fn validate_ratio(
    ratio: Quantity,
    min: Option<Quantity>,
    max: Option<Quantity>,
    path: &Path<'_>,
    errors: &mut ErrorList,
) {
    let milli = ratio.milli();
    if milli < 1000 {
        errors.invalid(path, ratio.to_string(), format!("ratio {ratio} is less than 1"));
    }
    if let (Some(min), Some(max)) = (min, max) {
        #[expect(clippy::cast_precision_loss, reason = "a ratio is shown to six digits")]
        let (limit, value) = (max.milli() as f64 / min.milli() as f64, milli as f64 / 1000.0);
        if value > limit {
            let detail = format!("ratio {ratio} is greater than max/min = {limit:.6}");
            errors.invalid(path, ratio.to_string(), detail);
        }
    }
}

/// The rules of ResourceQuotas.
pub struct ResourceQuota;

const ONLY_EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";

impl Rules for ResourceQuota {
    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = read::spec(object);
        validate_hard(child(spec, "hard"), &SPEC.child("hard"), &mut errors);
        validate_scopes(spec, &mut errors);
        if let Some(selector) = field(spec, "scopeSelector") {
            let path = SPEC.child("scopeSelector");
            validate_scope_selector(spec, selector, &path.child("matchExpressions"), &mut errors);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let set = |object| {
            let mut scopes: Vec<&str> =
                list(read::spec(object), "scopes").iter().filter_map(Value::as_str).collect();
            scopes.sort_unstable();
            scopes.dedup();
            scopes
        };
        if set(object) != set(old) {
            let scopes = child(read::spec(object), "scopes").clone();
            errors.invalid(&SPEC.child("scopes"), scopes, "field is immutable");
        }
        errors
    }

    fn validate_status(&self, object: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("status");
        for name in ["hard", "used"] {
            validate_hard(child(child(object, "status"), name), &path.child(name), &mut errors);
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let hard = child(read::spec(object), "hard");
        let get = |name: &str| Some((name.to_owned(), Quantity::from_value(hard.get(name)?)?));
        let mut warnings = Vec::new();
        for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
            let plain = matches!(resource, "cpu" | "memory").then_some(resource);
            let request = get(&format!("requests.{resource}")).or_else(|| get(plain?));
            if let (Some((request_name, request)), Some((limit_name, limit))) =
                (request, get(&format!("limits.{resource}")))
                && request > limit
            {
                warnings.push(format!(
                    "ResourceQuota {request_name} ({request}) should be less than {limit_name} ({limit})"
                ));
            }
        }
        warnings
    }
}

fn validate_hard(hard: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    for (name, value) in hard.as_object().into_iter().flatten() {
        let path = path.key(name);
        resources::validate_quota(name, &path, errors);
        if let Some(quantity) = Quantity::from_value(value) {
            resources::validate_quantity(name, quantity, &path, errors);
        }
    }
}

fn hard_names(spec: &Value) -> impl Iterator<Item = &str> {
    entries(spec, "hard").map(|(name, _)| name.as_str())
}

fn validate_scopes(spec: &Value, errors: &mut ErrorList) {
    let path = SPEC.child("scopes");
    let scopes = list(spec, "scopes");
    for scope in scopes.iter().map(|s| s.as_str().unwrap_or("")) {
        if !resources::is_scope(scope) {
            errors.invalid(&path, scopes.to_vec(), "unsupported scope");
        }
        for _ in hard_names(spec).filter(|n| !resources::scope_covers(scope, n)) {
            errors.invalid(&path, scopes.to_vec(), "unsupported scope applied to resource");
        }
    }
    validate_scope_pairs(|scope| scopes.iter().any(|s| s == scope), scopes, &path, errors);
}

fn validate_scope_pairs(
    has: impl Fn(&str) -> bool,
    shown: &[Value],
    path: &Path<'_>,
    errors: &mut ErrorList,
) {
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if has(one) && has(other) {
            let shown = if shown.is_empty() { Value::Null } else { shown.to_vec().into() };
            errors.invalid(path, shown, "conflicting scopes");
        }
    }
}

fn validate_scope_selector(spec: &Value, selector: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let expressions = list(selector, "matchExpressions");
    for expression in expressions {
        let (scope, operator) = (text(expression, "scopeName"), text(expression, "operator"));
        if !resources::is_scope(scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in hard_names(spec).filter(|n| !resources::scope_covers(scope, n)) {
            errors.invalid(path, selector.clone(), "unsupported scope applied to resource");
        }
        let plain = !matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if plain && resources::is_scope(scope) && operator != "Exists" {
            errors.invalid(&path.child("operator"), operator, ONLY_EXISTS);
        }
        let values = list(expression, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.required(
                &path.child("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.invalid(
                &path.child("values"),
                values.to_vec(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
        }
    }
    let has = |scope: &str| expressions.iter().any(|e| text(e, "scopeName") == scope);
    validate_scope_pairs(has, list(spec, "scopes"), path, errors);
}

/// The rules of PersistentVolumeClaims, light: simulated members only keep them.
pub struct Claim;

impl Rules for Claim {
    fn default(&self, object: &mut Value) {
        read::default_absent(meta::child_mut(object, "spec"), "volumeMode", "Filesystem");
        read::default_to(meta::child_mut(object, "status"), "phase", "Pending");
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = read::spec(object);
        let path = SPEC.child("accessModes");
        let modes = list(spec, "accessModes");
        let known = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
        if modes.is_empty() {
            errors.required(&path, "at least 1 access mode is required");
        }
        for mode in modes.iter().filter(|m| !m.as_str().is_some_and(|m| known.contains(&m))) {
            errors.not_supported(&path, mode.clone(), &known);
        }
        let alone = modes.iter().any(|m| m == "ReadWriteOncePod");
        let other = |m: &Value| m != "ReadWriteOncePod" && m.as_str().is_some_and(|m| known.contains(&m));
        if alone && modes.iter().any(other) {
            errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
        }
        if !matches!(text(spec, "volumeMode"), "Filesystem" | "Block") {
            let mode = text(spec, "volumeMode");
            errors.not_supported(&SPEC.child("volumeMode"), mode, &["Block", "Filesystem"]);
        }
        let path = SPEC.child("resources");
        let path = path.key("storage");
        match child(child(spec, "resources"), "requests").get("storage") {
            None => errors.required(&path, ""),
            Some(value) => {
                if let Some(quantity) = Quantity::from_value(value).filter(|q| q.signum() <= 0) {
                    errors.invalid(&path, quantity.to_string(), "must be greater than zero");
                }
            }
        }
        errors
    }

    /// Only a bound claim may ask for more; what changed is not shown, as Kubernetes does it.
    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let kept = |object: &Value| {
            let mut spec = read::spec(object).clone();
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("volumeAttributesClassName");
                if text(child(old, "status"), "phase") == "Bound" {
                    spec.remove("resources");
                }
            }
            spec
        };
        if !same(Some(&kept(object)), Some(&kept(old))) {
            let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
            errors.forbidden(&SPEC, detail);
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}
