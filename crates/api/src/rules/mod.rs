//! What is particular about each built-in kind: defaults, what may be set, what is right, and Kubernetes' words when
//! it is not. One file per kind or group of kinds, one table of them.

use std::sync::Arc;

use serde_json::Value;

use crate::field::ErrorList;
use crate::kind::Rules;
use crate::names::{self, NameRule};

pub mod read;
pub mod workloads;

/// Makes the rules of one kind.
type Make = fn() -> Arc<dyn Rules>;

/// Group, kind, rules: one row per kind with rules of its own.
const TABLE: &[(&str, &str, Make)] = &[];

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
