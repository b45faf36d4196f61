//! What is particular about each built-in kind: defaults, what may be set, what is right, and Kubernetes' words when
//! it is not. One file per kind or group of kinds, one table of them.

use std::sync::Arc;

use serde_json::Value;

use crate::addresses::EndpointAddresses;
use crate::field::ErrorList;
use crate::kind::{Kind, Rules, Scope};
use crate::names::{self, NameRule};
use crate::rules::reviews::Review;
use crate::status::Status;
use crate::{meta, objectmeta};

pub mod certificates;
pub mod core;
pub mod endpoints;
pub mod events;
pub mod events_convert;
pub mod ingress;
pub mod lease;
pub mod networking;
pub mod quota;
pub mod rbac;
pub mod read;
mod resources;
pub mod reviews;
pub mod secret;
pub mod service;
pub mod workloads;

/// Makes the rules of one kind.
type Make = fn() -> Arc<dyn Rules>;

/// Group, kind, rules: one row per kind with rules of its own.
#[rustfmt::skip] // one row per line, whatever its length
const TABLE: &[(&str, &str, Make)] = &[
    ("", "ConfigMap", || Arc::new(core::ConfigMap)),
    ("", "Endpoints", || Arc::new(endpoints::Endpoints::REACHABLE)),
    ("", "Event", || Arc::new(events::Event { strict: false })),
    ("", "LimitRange", || Arc::new(quota::LimitRange)),
    ("", "Namespace", || Arc::new(core::Namespace)),
    ("", "PersistentVolumeClaim", || Arc::new(quota::Claim)),
    ("", "ResourceQuota", || Arc::new(quota::ResourceQuota)),
    ("", "Secret", || Arc::new(secret::Secret)),
    ("", "Service", || Arc::new(service::ServiceRules { allocates: false })),
    ("", "ServiceAccount", || Arc::new(core::ServiceAccount)),
    ("authentication.k8s.io", "SelfSubjectReview", || Arc::new(Review::Other)),
    ("authentication.k8s.io", "TokenReview", || Arc::new(Review::Other)),
    ("authorization.k8s.io", "LocalSubjectAccessReview", || Arc::new(Review::Local)),
    ("authorization.k8s.io", "SelfSubjectAccessReview", || Arc::new(Review::Own)),
    ("authorization.k8s.io", "SelfSubjectRulesReview", || Arc::new(Review::Other)),
    ("authorization.k8s.io", "SubjectAccessReview", || Arc::new(Review::Subject)),
    ("certificates.k8s.io", "CertificateSigningRequest", || Arc::new(certificates::Request::UNCHECKED)),
    ("coordination.k8s.io", "Lease", || Arc::new(lease::Lease)),
    ("discovery.k8s.io", "EndpointSlice", || Arc::new(endpoints::EndpointSlice::REACHABLE)),
    ("events.k8s.io", "Event", || Arc::new(events::Event { strict: true })),
    ("networking.k8s.io", "Ingress", || Arc::new(ingress::Ingress)),
    ("networking.k8s.io", "IngressClass", || Arc::new(networking::IngressClass)),
    ("networking.k8s.io", "NetworkPolicy", || Arc::new(networking::NetworkPolicy)),
    ("rbac.authorization.k8s.io", "ClusterRole", || Arc::new(rbac::Role { scope: Scope::Cluster })),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", || Arc::new(rbac::Binding { scope: Scope::Cluster })),
    ("rbac.authorization.k8s.io", "Role", || Arc::new(rbac::Role { scope: Scope::Namespaced })),
    ("rbac.authorization.k8s.io", "RoleBinding", || Arc::new(rbac::Binding { scope: Scope::Namespaced })),
    ("scheduling.k8s.io", "PriorityClass", || Arc::new(lease::PriorityClass)),
];

/// The rules of a built-in kind as the federation serves it. A kind without rules of its own has [`Plain`] ones.
pub fn rules(group: &str, kind: &str) -> Arc<dyn Rules> {
    if let Some(rules) = workloads::rules(group, kind) {
        return rules;
    }
    TABLE
        .iter()
        .find(|(g, k, _)| (*g, *k) == (group, kind))
        .map_or_else(|| Arc::new(Plain::SUBDOMAIN) as Arc<dyn Rules>, |(_, _, make)| make())
}

/// The rules of a built-in kind as a simulated member serves it: addresses are allocated, and loopback ones are fine.
pub fn member_rules(group: &str, kind: &str) -> Arc<dyn Rules> {
    let addresses = EndpointAddresses { allow_loopback: true };
    match (group, kind) {
        ("", "Service") => Arc::new(service::ServiceRules { allocates: true }),
        ("", "Endpoints") => Arc::new(endpoints::Endpoints { addresses }),
        ("discovery.k8s.io", "EndpointSlice") => Arc::new(endpoints::EndpointSlice { addresses }),
        _ => rules(group, kind),
    }
}

/// Everything wrong with a new object, in the order Kubernetes says it. Reviews have no `metadata` to speak of.
pub fn check_create(kind: &Kind, object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    // Old events have always been looked at first, and their metadata only when all else was right.
    let late = kind.kind == "Event" && kind.group.is_empty();
    if !kind.verbs.is_empty() && !late {
        errors.extend(objectmeta::validate_create(kind, object));
    }
    errors.extend(kind.rules.validate(object));
    errors.extend(kind.rules.validate_create(object));
    if late && errors.is_empty() {
        errors.extend(objectmeta::validate_create(kind, object));
    }
    errors
}

/// Everything wrong with a change, in the order Kubernetes says it.
pub fn check_update(kind: &Kind, object: &Value, old: &Value) -> ErrorList {
    let mut errors = objectmeta::validate_update(kind, object, old);
    let mut found = [kind.rules.validate_update(object, old), kind.rules.validate(object)];
    // These two look at the change last.
    if matches!((&*kind.group, &*kind.kind), ("apps", "Deployment" | "ReplicaSet")) {
        found.reverse();
    }
    found.into_iter().for_each(|part| errors.extend(part));
    errors
}

/// 422 with what is wrong. Kubernetes names the group an object is stored under, and of reviews not even the kind.
pub fn refuse(kind: &Kind, object: &Value, errors: &ErrorList) -> Status {
    let shown = if kind.verbs.is_empty() { "" } else { &kind.kind };
    Status::invalid(&kind.stored_as.0, shown, meta::name(object), errors)
}

/// Whether a PUT to a name that does not exist creates the object.
pub fn creates_on_update(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "Endpoints" | "Event" | "LimitRange" | "Service")
            | ("events.k8s.io" | "coordination.k8s.io" | "rbac.authorization.k8s.io", _)
    )
}

/// Whether an update without a resourceVersion overwrites whatever is there. Custom resources never do.
pub fn updates_unconditionally(group: &str, kind: &str) -> bool {
    !matches!((group, kind), ("coordination.k8s.io", "Lease") | ("policy", "PodDisruptionBudget"))
}

/// A kind whose objects are only checked for their names.
pub struct Plain {
    name: NameRule,
}

impl Plain {
    /// Names are DNS subdomains.
    pub const SUBDOMAIN: Self = Self { name: names::name_is_subdomain };
}

impl Rules for Plain {
    fn validate(&self, _object: &Value) -> ErrorList {
        ErrorList::new()
    }
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        (self.name)(name, prefix)
    }
}
