//! Amounts of resources that pods and containers ask for.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::super::check;
use super::super::read::{at, entries, has, items, some, text, unsupported};
use crate::field::{Error, ErrorList, ErrorType, Path};
use crate::names;
use crate::quantity::Quantity;

/// Resources without a prefix that Kubernetes knows.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Resources that are counted in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether more may be promised than there is.
fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge(name)
}

/// Rounds amounts finer than a thousandth up, as Kubernetes stores them.
pub(super) fn round_list(map: &mut Map<String, Value>, field: &str) {
    for value in map.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten().map(|(_, v)| v) {
        let fine = |text: &str| text.contains(['n', 'u', '.']) || text.contains("e-") || text.contains("E-");
        if !value.as_str().is_none_or(fine) {
            continue;
        }
        if let Some(amount) = Quantity::from_value(value) {
            *value = Value::String(amount.rounded_to_milli().to_string());
        }
    }
}

/// Whether an amount is there and below zero.
pub(super) fn is_negative(value: &Value) -> bool {
    Quantity::from_value(value).is_some_and(|amount| amount.signum() < 0)
}

/// An amount in its canonical form, unless it is absent or zero.
pub(super) fn nonzero(value: &Value) -> Option<String> {
    Quantity::from_value(value).filter(|amount| amount.signum() != 0).map(|amount| amount.to_string())
}

/// The storage a claim asks for.
pub(super) fn storage(errors: &mut ErrorList, path: &Path<'_>, value: &Value) {
    match Quantity::from_value(value) {
        None => errors.required(path, ""),
        Some(amount) if amount.signum() <= 0 => {
            errors.invalid(path, amount.to_string(), "must be greater than zero");
        }
        Some(_) => {}
    }
}

/// The name of a resource of a container.
pub(in super::super) fn container_resource(errors: &mut ErrorList, path: &Path<'_>, name: &str) {
    known_resource(errors, path, name);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn known_resource(errors: &mut ErrorList, path: &Path<'_>, name: &str) {
    let before = errors.len();
    check::qualified_name(errors, path, name);
    let quota_page = name.starts_with("requests.hugepages-");
    let standard = STANDARD.contains(&name) || is_huge(name) || quota_page;
    if errors.len() == before && !name.contains('/') && !standard {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
}

fn pod_resource(errors: &mut ErrorList, path: &Path<'_>, name: &str) {
    let before = errors.len();
    known_resource(errors, path, name);
    if errors.len() == before && !matches!(name, "cpu" | "memory") && !is_huge(name) {
        unsupported(errors, path, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// The checks of an amount of a resource.
fn amount(errors: &mut ErrorList, path: &Path<'_>, name: &str, amount: Quantity) {
    if amount.signum() < 0 {
        errors.invalid(path, amount.to_string(), "must be greater than or equal to 0");
    }
    let counted = COUNTED.contains(&name) || is_extended(name);
    if counted && amount.milli() % 1000 != 0 {
        errors.invalid(path, amount.to_string(), "must be an integer");
    }
}

fn whole_pages(errors: &mut ErrorList, path: &Path<'_>, name: &str, amount: Quantity) {
    let page = name.strip_prefix("hugepages-").and_then(Quantity::parse);
    let divisible =
        page.is_some_and(|page| page.signum() > 0 && page.is_whole() && amount.whole() % page.whole() == 0);
    if !divisible {
        let why = format!("{amount} is not positive integer multiple of {name}");
        errors.invalid(path, amount.to_string(), why);
    }
}

type NameRule = fn(&mut ErrorList, &Path<'_>, &str);

fn requirements(errors: &mut ErrorList, path: &Path<'_>, of: &Value, name_rule: NameRule) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    let mut huge = false;
    let mut plain = false;
    for (name, value) in entries(of, "limits") {
        let Some(limit) = Quantity::from_value(value) else { continue };
        let path = limits.key(name);
        name_rule(errors, &path, name);
        amount(errors, &path, name, limit);
        if is_huge(name) {
            huge = true;
            whole_pages(errors, &path, name, limit);
        }
        plain |= matches!(name, "cpu" | "memory");
    }
    for (name, value) in entries(of, "requests") {
        let Some(request) = Quantity::from_value(value) else { continue };
        let path = requests.key(name);
        name_rule(errors, &path, name);
        amount(errors, &path, name, request);
        let limit = Quantity::from_value(at(at(of, "limits"), name));
        under_limit(errors, &requests, &limits, name, request, limit);
        if is_huge(name) {
            huge = true;
            whole_pages(errors, &path, name, request);
        }
        plain |= matches!(name, "cpu" | "memory");
    }
    if huge && !plain {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

fn under_limit(
    errors: &mut ErrorList,
    requests: &Path<'_>,
    limits: &Path<'_>,
    name: &str,
    request: Quantity,
    limit: Option<Quantity>,
) {
    match limit {
        Some(limit) if request != limit && !may_overcommit(name) => {
            let why = format!("must be equal to {name} limit of {limit}");
            errors.invalid(requests, request.to_string(), why);
        }
        Some(limit) if request > limit => {
            let why = format!("must be less than or equal to {name} limit of {limit}");
            errors.invalid(requests, request.to_string(), why);
        }
        None if !may_overcommit(name) => {
            errors.required(limits, "Limit must be set for non overcommitable resources");
        }
        _ => {}
    }
}

/// `resources` of a container.
pub(super) fn validate_container(errors: &mut ErrorList, path: &Path<'_>, container: &Value, spec: &Value) {
    let Some(resources) = some(container, "resources") else { return };
    requirements(errors, path, resources, container_resource);
    claims(errors, &path.child("claims"), resources, spec);
}

fn claims(errors: &mut ErrorList, path: &Path<'_>, resources: &Value, spec: &Value) {
    let mut seen = HashSet::<String>::new();
    for (index, claim) in items(resources, "claims").iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if seen.contains(name) {
            errors.duplicate(&path, name);
        } else {
            if !request.is_empty() {
                check::dns_label(errors, &path.child("request"), request);
            }
            let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
            let part = |other: &String| other.split_once('/').is_some_and(|(of, _)| of == name);
            if seen.contains(&key) || (request.is_empty() && seen.iter().any(part)) {
                errors.duplicate(&path, key.as_str());
            }
            seen.insert(key);
        }
        let mut known: Vec<&str> = items(spec, "resourceClaims").iter().map(|c| text(c, "name")).collect();
        known.retain(|name| !name.is_empty());
        if !known.contains(&name) {
            known.sort_unstable();
            known.dedup();
            let rest =
                if known.is_empty() { " which is empty".into() } else { format!(": {}", known.join(", ")) };
            errors.push(Error {
                class: ErrorType::NotFound,
                field: path.to_string(),
                value: Some(name.into()),
                detail: format!("must be one of the names in pod.spec.resourceClaims{rest}"),
            });
        }
    }
}

/// How a pod is treated when its node runs short: by what it asks for and what it is limited to.
pub(in super::super) fn quality(spec: &Value) -> &'static str {
    let positive =
        |list: &Value, name| Quantity::from_value(at(list, name)).filter(|amount| amount.signum() > 0);
    let holders: Vec<&Value> = match some(spec, "resources") {
        Some(pod) => vec![pod],
        None => ["containers", "initContainers"]
            .iter()
            .flat_map(|list| items(spec, list))
            .map(|container| at(container, "resources"))
            .collect(),
    };
    let mut any = false;
    let mut all = true;
    for resources in holders {
        for name in ["cpu", "memory"] {
            let limit = positive(at(resources, "limits"), name);
            let request = positive(at(resources, "requests"), name);
            any |= limit.is_some() || request.is_some();
            all &= limit.is_some() && limit == request;
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// `overhead`: checked as limits.
pub(super) fn validate_overhead(errors: &mut ErrorList, path: &Path<'_>, overhead: &Value) {
    let of = serde_json::json!({ "limits": overhead });
    requirements(errors, path, &of, container_resource);
}

/// `resources` of the pod as a whole.
pub(super) fn validate_pod(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let Some(resources) = some(spec, "resources") else { return };
    let path = path.child("resources");
    if text(at(spec, "os"), "name") == "windows" {
        errors.forbidden(&path, "may not be set for a windows pod");
        return;
    }
    if has(resources, "claims") {
        errors.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    requirements(errors, &path, resources, pod_resource);
    for (index, container) in items(spec, "containers").iter().enumerate() {
        for (name, value) in entries(at(container, "resources"), "limits") {
            let own = Quantity::from_value(value);
            let pod = Quantity::from_value(at(at(resources, "limits"), name));
            if let (Some(own), Some(pod)) = (own, pod)
                && own > pod
            {
                let path = path.child("containers");
                let path = path.index(index);
                let why = format!("must be less than or equal to pod limits of {pod}");
                errors.invalid(&path.key(name).child("limits"), own.to_string(), why);
            }
        }
    }
}
