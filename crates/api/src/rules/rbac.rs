//! Roles, ClusterRoles and their bindings. Names are anything that can stand in a URL path.

use serde_json::Value;

use super::read::{self, child, default_to, field, items_mut, list, same, text, unsupported};
use crate::field::{ErrorList, Path};
use crate::kind::{Rules, Scope};
use crate::{labels, meta, names};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The rules of Roles and ClusterRoles.
pub struct Role {
    /// Where they live.
    pub scope: Scope,
}

impl Rules for Role {
    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("rules");
        for (at, rule) in list(object, "rules").iter().enumerate() {
            validate_rule(rule, self.scope, &path.index(at), &mut errors);
        }
        if let (Scope::Cluster, Some(rule)) = (self.scope, field(object, "aggregationRule")) {
            validate_aggregation(rule, &mut errors);
        }
        errors
    }

    fn validate_name(&self, name: &str, _prefix: bool) -> Vec<String> {
        names::path_segment(name, false)
    }
}

fn validate_rule(rule: &Value, scope: Scope, path: &Path<'_>, errors: &mut ErrorList) {
    let has = |name: &str| !list(rule, name).is_empty();
    if !has("verbs") {
        errors.required(&path.child("verbs"), "verbs must contain at least one value");
    }
    if has("nonResourceURLs") {
        let path = path.child("nonResourceURLs");
        let urls = || child(rule, "nonResourceURLs").clone();
        if scope == Scope::Namespaced {
            errors.invalid(&path, urls(), "namespaced rules cannot apply to non-resource URLs");
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(&path, urls(), detail);
        }
        return;
    }
    if !has("apiGroups") {
        errors.required(&path.child("apiGroups"), "resource rules must supply at least one api group");
    }
    if !has("resources") {
        errors.required(&path.child("resources"), "resource rules must supply at least one resource");
    }
}

fn validate_aggregation(rule: &Value, errors: &mut ErrorList) {
    let aggregation = Path::new("aggregationRule");
    let path = aggregation.child("clusterRoleSelectors");
    let selectors = list(rule, "clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.required(&path, detail);
    }
    for (at, selector) in selectors.iter().enumerate() {
        labels::validate_selector(Some(selector), &path.index(at), errors);
        if crate::selector::Selector::from_object(Some(selector)).is_err() {
            errors.invalid(&path.index(at), Value::Null, "invalid label selector.");
        }
    }
}

/// The rules of RoleBindings and ClusterRoleBindings.
pub struct Binding {
    /// Where they live.
    pub scope: Scope,
}

impl Rules for Binding {
    fn default(&self, object: &mut Value) {
        default_to(meta::child_mut(object, "roleRef"), "apiGroup", GROUP);
        let Some(object) = object.as_object_mut() else { return };
        for subject in items_mut(object, "subjects") {
            if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
                default_to(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("roleRef");
        let role = child(object, "roleRef");
        if text(role, "apiGroup") != GROUP {
            errors.not_supported(&path.child("apiGroup"), text(role, "apiGroup"), &[GROUP]);
        }
        let kinds: &[&str] = match self.scope {
            Scope::Namespaced => &["Role", "ClusterRole"],
            Scope::Cluster => &["ClusterRole"],
        };
        if !kinds.contains(&text(role, "kind")) {
            unsupported(&mut errors, &path.child("kind"), text(role, "kind"), kinds);
        }
        match text(role, "name") {
            "" => errors.required(&path.child("name"), ""),
            name => {
                read::sentences(names::path_segment(name, false), name, &path.child("name"), &mut errors);
            }
        }
        let path = Path::new("subjects");
        for (at, subject) in list(object, "subjects").iter().enumerate() {
            self.validate_subject(subject, &path.index(at), &mut errors);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if !same(object.get("roleRef"), old.get("roleRef")) {
            // Go shows its own struct here.
            let role = child(object, "roleRef");
            let shown = serde_json::json!({
                "APIGroup": text(role, "apiGroup"), "Kind": text(role, "kind"), "Name": text(role, "name"),
            });
            errors.invalid(&Path::new("roleRef"), shown, "cannot change roleRef");
        }
        errors
    }

    fn validate_name(&self, name: &str, _prefix: bool) -> Vec<String> {
        names::path_segment(name, false)
    }
}

impl Binding {
    fn validate_subject(&self, subject: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    read::sentences(names::dns1123_subdomain(name), name, &path.child("name"), errors);
                }
                if !group.is_empty() {
                    errors.not_supported(&path.child("apiGroup"), group, &[""]);
                }
                if self.scope == Scope::Cluster && text(subject, "namespace").is_empty() {
                    errors.required(&path.child("namespace"), "");
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    errors.not_supported(&path.child("apiGroup"), group, &[GROUP]);
                }
            }
            other => {
                unsupported(errors, &path.child("kind"), other, &["ServiceAccount", "User", "Group"]);
            }
        }
    }
}
