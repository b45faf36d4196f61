//! Roles and bindings that exist from the start, as Kubernetes has them, with our own kinds added.
//!
//! At every start [`reconcile`] adds what is missing and takes nothing away; an object annotated
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` is left alone.

mod table;

use std::collections::BTreeMap;

use landfall_api::meta;
use serde_json::{Value, json};

use super::{GROUP, Rule};
use table::{AGGREGATED, BINDINGS, ROLES};

/// The annotation that lets a start add what is missing.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// The label aggregated roles select by, before the role's name.
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// One object to write at start.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// `clusterroles` or `clusterrolebindings`.
    pub plural: &'static str,
    /// The whole object.
    pub object: Value,
    /// Whether it is new; otherwise it replaces the one that is there.
    pub create: bool,
}

/// What must be written, given what is there: `existing` finds an object by plural and name.
pub fn reconcile(existing: &dyn Fn(&str, &str) -> Option<Value>) -> Vec<Write> {
    objects()
        .into_iter()
        .filter_map(|(plural, expected)| {
            let Some(old) = existing(plural, meta::name(&expected)) else {
                return Some(Write { plural, object: expected, create: true });
            };
            if meta::annotation(&old, AUTO_UPDATE) == Some("false") {
                return None;
            }
            let object = merge(&old, &expected);
            (object != old).then_some(Write { plural, object, create: false })
        })
        .collect()
}

/// Everything that should exist, by plural; the rules of aggregated roles filled in.
pub fn objects() -> Vec<(&'static str, Value)> {
    let mut roles: Vec<Value> = ROLES
        .iter()
        .map(|row| {
            let mut role = object("ClusterRole", row.name, row.aggregate_to);
            let rules: Vec<Value> = row.rules.iter().map(|rule| rule.build().to_value()).collect();
            role["rules"] = json!(rules);
            role
        })
        .collect();
    for (name, aggregate_to) in AGGREGATED {
        let mut role = object("ClusterRole", name, *aggregate_to);
        let label = format!("{AGGREGATE_TO}{name}");
        role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        roles.push(role);
    }
    super::aggregate::aggregate_all(&mut roles);
    let bindings = BINDINGS.iter().map(|(role, groups)| {
        let mut binding = object("ClusterRoleBinding", role, None);
        binding["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": role});
        binding["subjects"] =
            groups.iter().map(|g| json!({"apiGroup": GROUP, "kind": "Group", "name": g})).collect();
        ("clusterrolebindings", binding)
    });
    roles.into_iter().map(|role| ("clusterroles", role)).chain(bindings).collect()
}

fn object(kind: &str, name: &str, aggregate_to: Option<&str>) -> Value {
    let mut labels = BTreeMap::from([("kubernetes.io/bootstrapping".to_owned(), "rbac-defaults")]);
    if let Some(role) = aggregate_to {
        labels.insert(format!("{AGGREGATE_TO}{role}"), "true");
    }
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {"name": name, "labels": labels, "annotations": {AUTO_UPDATE: "true"}},
    })
}

/// The old object with labels, annotations, rules, selectors and subjects it lacks; the old one's values win.
fn merge(old: &Value, expected: &Value) -> Value {
    let mut object = old.clone();
    for map in ["labels", "annotations"] {
        let Some(wanted) = expected["metadata"][map].as_object() else { continue };
        let have = meta::child_mut(&mut object, "metadata").entry(map).or_insert_with(|| json!({}));
        if have.is_null() {
            *have = json!({});
        }
        for (key, value) in wanted {
            if have.get(key).is_none() {
                have[key] = value.clone();
            }
        }
    }
    let own = Rule::parse_all(old);
    let parts = Rule::parse_all(expected).into_iter().flat_map(|rule| rule.break_down());
    let missing: Vec<Value> =
        parts.filter(|part| !own.iter().any(|rule| rule.covers(part))).map(|part| part.to_value()).collect();
    append(&mut object, &["rules"], missing);
    for path in [&["aggregationRule", "clusterRoleSelectors"][..], &["subjects"]] {
        let list = |of: &Value| {
            path.iter()
                .try_fold(of, |at, key| at.get(*key))
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let have = list(old);
        append(&mut object, path, list(expected).into_iter().filter(|item| !have.contains(item)).collect());
    }
    object
}

/// Appends to the list at a path, making what is missing on the way.
fn append(object: &mut Value, path: &[&str], items: Vec<Value>) {
    if items.is_empty() {
        return;
    }
    let mut at = object;
    for key in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[*key];
    }
    match at {
        Value::Array(list) => list.extend(items),
        other => *other = Value::Array(items),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::User;
    use crate::authz::policy::Item;
    use crate::authz::{Attributes, Policy};

    fn find(name: &str) -> Value {
        let found = objects().into_iter().find(|(_, o)| meta::name(o) == name);
        found.unwrap_or_else(|| panic!("no {name}")).1
    }

    fn with(objects: &[(&'static str, Value)]) -> Vec<Write> {
        reconcile(&|plural, name| {
            objects.iter().find(|(p, o)| *p == plural && meta::name(o) == name).map(|(_, o)| o.clone())
        })
    }

    #[test]
    fn the_first_start_creates_all_and_the_second_nothing() {
        let writes = with(&[]);
        assert_eq!(writes.len(), objects().len());
        assert!(writes.iter().all(|w| w.create));
        assert_eq!(with(&objects()), vec![]);
    }

    #[test]
    fn a_start_adds_what_is_missing_and_keeps_what_is_more() {
        let mut all = objects();
        let role = &mut all.iter_mut().find(|(_, o)| meta::name(o) == "system:basic-user").expect("a role").1;
        role["rules"] = json!([{"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "extra"]}]);
        role["metadata"]["labels"] = json!({"mine": "yes"});
        let binding = &mut all
            .iter_mut()
            .find(|(p, o)| *p == "clusterrolebindings" && meta::name(o) == "cluster-admin")
            .expect("a binding")
            .1;
        binding["subjects"] = json!([{"apiGroup": GROUP, "kind": "User", "name": "me"}]);
        let writes = with(&all);
        assert_eq!(writes.len(), 2, "{writes:?}");
        let role = &writes[0].object;
        assert_eq!(
            role["metadata"]["labels"],
            json!({"mine": "yes", "kubernetes.io/bootstrapping": "rbac-defaults"})
        );
        let rules = Rule::parse_all(role);
        assert_eq!((rules.len(), rules[0].resources.len()), (3, 2));
        assert_eq!(writes[1].object["subjects"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_protected_object_is_left_alone() {
        let mut all = objects();
        let role = &mut all.iter_mut().find(|(_, o)| meta::name(o) == "system:discovery").expect("a role").1;
        role["metadata"]["annotations"][AUTO_UPDATE] = json!("false");
        role["rules"] = json!([]);
        assert_eq!(with(&all), vec![]);
    }

    #[test]
    fn the_usual_users_can_do_the_usual_things() {
        let bind = |name: &str, role: &str, user: &str| {
            json!({"metadata": {"name": name, "namespace": "dev"}, "roleRef": {"kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": user}]})
        };
        let mut all: Vec<Item> = objects().iter().filter_map(|(p, o)| Item::parse(p, o)).collect();
        let ours = ["landfall-admin", "landfall-ingress-admin", "landfall-ingress-user"];
        for role in ["admin", "edit", "view"].into_iter().chain(ours) {
            all.extend(Item::parse("rolebindings", &bind(role, role, role)));
        }
        let policy = Policy::compile(&all);
        let check = |who: &str, verb: &str, group: &str, resource: &str, expected: bool| {
            let groups = vec!["system:authenticated".to_owned()];
            let user = User { name: who.into(), groups, ..User::default() };
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let asked =
                Attributes { subresource, ..Attributes::resource(&user, verb, group, resource, "dev", "x") };
            assert_eq!(policy.authorize(&asked).allowed(), expected, "{who} {verb} {group}/{resource}");
        };
        check("view", "list", "", "services", true);
        check("view", "get", "", "secrets", false);
        check("view", "update", "", "services", false);
        check("view", "get", "apps", "deployments/scale", true);
        check("view", "watch", "landfall.dev", "trafficplans", true);
        check("edit", "get", "", "secrets", true);
        check("edit", "patch", "apps", "deployments/scale", true);
        check("edit", "create", "landfall.dev", "trafficpolicies", true);
        check("edit", "update", "landfall.dev", "trafficplans", false);
        check("edit", "list", "", "services", true);
        check("edit", "create", GROUP, "roles", false);
        check("admin", "create", GROUP, "roles", true);
        check("admin", "list", "", "services", true);
        check("admin", "delete", "", "configmaps", true);
        for (user, claim, group, member) in [
            ("landfall-ingress-user", true, false, false),
            ("landfall-ingress-admin", true, true, false),
            ("landfall-admin", true, true, true),
            ("edit", true, false, false),
        ] {
            check(user, "create", "networking.k8s.io", "ingresses", true);
            check(user, "create", "landfall.dev", "ingressclaims", claim);
            check(user, "create", "landfall.dev", "ingressreplicasets", group);
            check(user, "create", "landfall.dev", "ingressvipranges", group);
            check(user, "create", "landfall.dev", "clusters", member);
            check(user, "update", "landfall.dev", "groupplans", false);
            check(user, "create", "", "secrets", user == "edit");
        }
        check("landfall-ingress-user", "list", "landfall.dev", "ingressreplicasets", true);
        check("anyone", "create", "authorization.k8s.io", "selfsubjectaccessreviews", true);
        check("anyone", "list", "", "services", false);
        let path = |groups: &[&str], path: &str, expected: bool| {
            let user = User { groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() };
            assert_eq!(policy.authorize(&Attributes::path(&user, "get", path)).allowed(), expected, "{path}");
        };
        path(&["system:unauthenticated"], "/healthz", true);
        path(&["system:unauthenticated"], "/api", false);
        path(&["system:authenticated"], "/openapi/v3", true);
        path(&["system:authenticated"], "/metrics", false);
        path(&["system:monitoring"], "/metrics", true);
        path(&["system:serviceaccounts"], "/openid/v1/jwks", true);
    }

    #[test]
    fn lists_are_sorted_as_kubernetes_writes_them() {
        let role = find("system:aggregate-to-view");
        assert_eq!(role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"], "true");
        for rule in Rule::parse_all(&role) {
            assert!(rule.resources.is_sorted() && rule.verbs.is_sorted(), "{rule:?}");
        }
    }
}
