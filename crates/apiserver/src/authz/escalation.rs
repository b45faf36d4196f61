//! Nobody grants more than they hold: checks on writes of roles and bindings.

use std::collections::BTreeMap;

use landfall_api::{Status, meta};
use serde_json::Value;

use super::{Attributes, GROUP, Policy, Rule};
use crate::authn::{MASTERS, User, text};

/// A write of a role or binding.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Who writes.
    pub user: &'a User,
    /// API group of the resource.
    pub group: &'a str,
    /// Plural of the resource.
    pub resource: &'a str,
    /// The namespace of the request; empty for cluster-scoped ones.
    pub namespace: &'a str,
    /// The object to be written.
    pub object: &'a Value,
    /// The object it replaces; none for a create.
    pub old: Option<&'a Value>,
}

/// Whether a write may go on; call it for every create and update, after admission and before validation.
pub fn escalation_check(policy: &Policy, write: &Write<'_>) -> Result<(), Status> {
    if write.group != GROUP || write.user.in_group(MASTERS) {
        return Ok(());
    }
    // The garbage collector must be able to let go of any object.
    if write.old.is_some_and(|old| stripped(old) == stripped(write.object)) {
        return Ok(());
    }
    match write.resource {
        "roles" | "clusterroles" => check_role(policy, write),
        "rolebindings" | "clusterrolebindings" => check_binding(policy, write),
        _ => Ok(()),
    }
}

fn check_role(policy: &Policy, write: &Write<'_>) -> Result<(), Status> {
    // As in Kubernetes, a create has no name in its request.
    let name = write.old.map(meta::name).unwrap_or_default();
    let Write { user, resource, namespace, .. } = *write;
    if policy.authorize(&Attributes::resource(user, "escalate", GROUP, resource, namespace, name)).allowed() {
        return Ok(());
    }
    confirm(policy, write, &Rule::parse_all(write.object))?;
    let aggregated = |role: &Value| {
        let selectors = role.get("aggregationRule").and_then(|rule| rule.get("clusterRoleSelectors"));
        selectors.and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    };
    let everything = [Rule::resources(&["*"], &["*"], &["*"]), Rule::urls(&["*"], &["*"])];
    let gathers =
        resource == "clusterroles" && (aggregated(write.object) || write.old.is_some_and(aggregated));
    if gathers && confirm(policy, write, &everything).is_err() {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        return Err(Status::forbidden(GROUP, resource, meta::name(write.object), why));
    }
    Ok(())
}

fn check_binding(policy: &Policy, write: &Write<'_>) -> Result<(), Status> {
    let none = Value::Null;
    let reference = write.object.get("roleRef").unwrap_or(&none);
    let (kind, name) = (text(reference, "kind"), text(reference, "name"));
    let namespace = if write.resource == "clusterrolebindings" { "" } else { write.namespace };
    let plural = match kind {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        // Validation will refuse it with a better message.
        _ => return Ok(()),
    };
    let asked = Attributes::resource(write.user, "bind", GROUP, plural, namespace, name);
    if policy.authorize(&asked).allowed() {
        return Ok(());
    }
    match policy.role_rules(kind, name, namespace) {
        Ok(rules) => confirm(policy, write, &rules),
        // Kubernetes names the resource of the request here, not the role's.
        Err(_) => Err(Status::not_found(GROUP, write.resource, name)),
    }
}

/// Whether the user holds all of these rules where the object is written.
fn confirm(policy: &Policy, write: &Write<'_>, rules: &[Rule]) -> Result<(), Status> {
    let (own, unresolved) = policy.rules_for(write.user, write.namespace);
    // Again by the resource of the request.
    let unresolved: Vec<String> = unresolved
        .iter()
        .map(|why| match why.split_once('.') {
            Some(("role" | "clusterrole", rest)) => format!("{}.{rest}", write.resource),
            _ => why.clone(),
        })
        .collect();
    let parts = rules.iter().flat_map(Rule::break_down);
    let missing: Vec<Rule> = parts.filter(|part| !own.iter().any(|rule| rule.covers(part))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = compact(missing).iter().map(describe).collect();
    lines.sort_unstable();
    lines.dedup();
    let User { name, groups, .. } = write.user;
    let mut why = format!(
        "user {name:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        go(groups),
        lines.join("\n")
    );
    match unresolved.as_slice() {
        [] => {}
        [one] => why.push_str(&format!("; resolution errors: [{one}]")),
        many => why.push_str(&format!("; resolution errors: [[{}]]", many.join(", "))),
    }
    Err(Status::forbidden(GROUP, write.resource, meta::name(write.object), &why))
}

/// Joins the verbs of broken-down rules about the same thing.
fn compact(parts: Vec<Rule>) -> Vec<Rule> {
    let mut joined = BTreeMap::<Rule, Vec<String>>::new();
    let mut plain = Vec::new();
    for part in parts {
        if part.urls.is_empty() {
            let about = Rule { verbs: Vec::new(), ..part };
            joined.entry(about).or_default().extend(part.verbs);
        } else {
            plain.push(part);
        }
    }
    plain.into_iter().chain(joined.into_iter().map(|(about, verbs)| Rule { verbs, ..about })).collect()
}

/// `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
fn describe(rule: &Rule) -> String {
    let fields = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ];
    let shown = fields.iter().filter(|(_, list)| !list.is_empty());
    let parts: Vec<String> = shown.map(|(name, list)| format!("{name}:{}", go(list))).collect();
    format!("{{{}}}", parts.join(", "))
}

/// A list as Go's `%q` prints it.
fn go(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|s| format!("{s:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// An object without what the garbage collector may change.
fn stripped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["ownerReferences", "finalizers", "managedFields"] {
            metadata.remove(field);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::policy::Item;
    use serde_json::json;

    const PODS: &str = r#"{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}"#;

    fn policy() -> Policy {
        let rule = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let escalate = json!({"verbs": ["escalate", "bind"], "apiGroups": [GROUP], "resources": ["roles", "clusterroles"]});
        let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
        let binding = |user: &str, role: &str| {
            json!({"metadata": {"name": user, "namespace": "dev"}, "roleRef": {"kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": user}]})
        };
        let objects = [
            ("clusterroles", role("pods", json!([rule(PODS)]))),
            (
                "clusterroles",
                role("secrets", json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["secrets"]}])),
            ),
            ("clusterroles", role("escalate", json!([escalate]))),
            ("rolebindings", binding("alice", "pods")),
            ("rolebindings", binding("escalator", "escalate")),
            ("rolebindings", binding("broken", "nowhere")),
        ];
        let items: Vec<Item> = objects.iter().filter_map(|(p, o)| Item::parse(p, o)).collect();
        Policy::compile(&items)
    }

    fn check(user: &str, resource: &str, object: &Value, old: Option<&Value>, expected: Result<(), &str>) {
        let groups = vec!["g1".to_owned(), "g2".to_owned()];
        let user = User { name: user.into(), groups, ..User::default() };
        let namespace = if resource.starts_with("cluster") { "" } else { "dev" };
        let write = Write { user: &user, group: GROUP, resource, namespace, object, old };
        let got = escalation_check(&policy(), &write).map_err(|status| status.message);
        assert_eq!(got, expected.map_err(str::to_owned));
    }

    fn role(rules: &Value) -> Value {
        json!({"metadata": {"name": "r"}, "rules": rules})
    }

    fn binding(kind: &str, name: &str) -> Value {
        json!({"metadata": {"name": "b"}, "roleRef": {"kind": kind, "name": name}, "subjects": []})
    }

    #[test]
    fn roles_need_what_they_grant() {
        let held = role(&json!([serde_json::from_str::<Value>(PODS).expect("JSON")]));
        let more = role(
            &json!([{"verbs": ["list", "delete", "create"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["x"]}]),
        );
        check("alice", "roles", &held, None, Ok(()));
        check(
            "alice",
            "roles",
            &more,
            None,
            Err(
                "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"alice\" (groups=[\"g1\" \"g2\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"create\"]}\n{APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"x\"], Verbs:[\"get\"]}",
            ),
        );
        check("escalator", "roles", &more, None, Ok(()));
        check(
            "broken",
            "roles",
            &role(&json!([{"verbs": ["get", "put"], "nonResourceURLs": ["/x"]}])),
            None,
            Err(
                "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"broken\" (groups=[\"g1\" \"g2\"]) is attempting to grant RBAC permissions not currently held:\n{NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/x\"], Verbs:[\"put\"]}; resolution errors: [roles.rbac.authorization.k8s.io \"nowhere\" not found]",
            ),
        );
        let mut collected = more.clone();
        collected["metadata"]["finalizers"] = json!(["x"]);
        check("alice", "roles", &collected, Some(&more), Ok(()));
    }

    #[test]
    fn bindings_need_what_their_role_grants() {
        check("alice", "rolebindings", &binding("ClusterRole", "pods"), None, Ok(()));
        check(
            "alice",
            "rolebindings",
            &binding("ClusterRole", "secrets"),
            None,
            Err(
                "rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user \"alice\" (groups=[\"g1\" \"g2\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"*\"]}",
            ),
        );
        check("escalator", "rolebindings", &binding("ClusterRole", "secrets"), None, Ok(()));
        check(
            "alice",
            "rolebindings",
            &binding("Role", "none"),
            None,
            Err("rolebindings.rbac.authorization.k8s.io \"none\" not found"),
        );
    }

    #[test]
    fn aggregation_needs_everything_and_masters_need_nothing() {
        let mut role = role(&json!([]));
        role["aggregationRule"] = json!({"clusterRoleSelectors": [{}]});
        check(
            "alice",
            "clusterroles",
            &role,
            None,
            Err(
                "clusterroles.rbac.authorization.k8s.io \"r\" is forbidden: must have cluster-admin privileges to use the aggregationRule",
            ),
        );
        let masters = User { groups: vec![MASTERS.into()], ..User::default() };
        let write = Write {
            user: &masters,
            group: GROUP,
            resource: "clusterroles",
            namespace: "",
            object: &role,
            old: None,
        };
        assert_eq!(escalation_check(&policy(), &write), Ok(()));
    }
}
