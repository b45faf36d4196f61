//! Names of resources that can be limited or counted, and their amounts.

use super::read;
use crate::field::{ErrorList, Path};
use crate::names;
use crate::quantity::Quantity;

/// What a quota can name without a prefix.
const QUOTA: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
/// What is counted in whole numbers.
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
/// What containers use.
const COMPUTE: [&str; 6] =
    ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const HUGE_PAGES: &str = "hugepages-";

fn is_quota_name(name: &str) -> bool {
    QUOTA.contains(&name) || name.starts_with(HUGE_PAGES) || name.starts_with("requests.hugepages-")
}

/// A name of Kubernetes' own: without a prefix, or with one of its.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether more of it may be promised than there is.
pub(super) fn overcommits(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Any resource. Returns nothing more to say when its form is wrong.
pub(super) fn validate_any(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let wrong = names::qualified_name(name);
    if !wrong.is_empty() {
        return read::sentences(wrong, name, path, errors);
    }
    if !name.contains('/') && name != "storage" && !is_quota_name(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
}

/// A resource that a container can ask for.
pub(super) fn validate_container(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    validate_any(name, path, errors);
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE_PAGES);
    if !name.contains('/') {
        if !standard {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// A resource that a quota can limit.
pub(super) fn validate_quota(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    validate_any(name, path, errors);
    if !name.contains('/') && !is_quota_name(name) {
        errors.invalid(path, name, "must be a standard resource for quota");
    }
}

/// An amount: not negative, and whole where things are counted.
pub(super) fn validate_quantity(name: &str, quantity: Quantity, path: &Path<'_>, errors: &mut ErrorList) {
    if quantity.signum() < 0 {
        errors.invalid(path, quantity.to_string(), "must be greater than or equal to 0");
    }
    if (COUNTED.contains(&name) || is_extended(name)) && quantity.milli() % 1000 != 0 {
        errors.invalid(path, quantity.to_string(), "must be an integer");
    }
}

/// Whether a quota knows the scope.
pub(super) fn is_scope(scope: &str) -> bool {
    matches!(
        scope,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "VolumeAttributesClass"
            | "CrossNamespacePodAffinity"
    )
}

/// Whether a scope makes sense for a resource; of resources with a prefix nothing is known.
pub(super) fn scope_covers(scope: &str, name: &str) -> bool {
    if !is_quota_name(name) {
        return true;
    }
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => name == "pods" || COMPUTE.contains(&name),
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}
