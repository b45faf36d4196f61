//! A compiled policy: roles and bindings indexed by subject, so that a question costs a few look-ups.

use std::collections::HashMap;
use std::sync::Arc;

use landfall_api::meta;
use serde_json::Value;

use super::{Attributes, GROUP, Rule, Verdict};
use crate::authn::{MASTERS, User, serviceaccount, text};

/// A role or binding, with what matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A Role, or a ClusterRole (no namespace).
    Role(Role),
    /// A RoleBinding, or a ClusterRoleBinding (no namespace).
    Binding(Binding),
}

/// A Role or ClusterRole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    namespace: String,
    name: String,
    rules: Arc<[Rule]>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    namespace: String,
    name: String,
    role_kind: String,
    role_name: String,
    subjects: Vec<Subject>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

/// Everything that is allowed, at one moment.
#[derive(Debug, Default)]
pub struct Policy {
    /// What ClusterRoleBindings grant, everywhere.
    cluster: Grants,
    /// What RoleBindings grant, each in its namespace.
    namespaces: HashMap<Box<str>, Grants>,
    /// Rules of roles by namespace (empty for ClusterRoles) and name.
    roles: HashMap<Box<str>, Roles>,
}

/// Roles of one namespace by name.
type Roles = HashMap<Box<str>, Arc<[Rule]>>;

#[derive(Debug, Default)]
struct Grants {
    users: HashMap<Box<str>, Vec<Grant>>,
    groups: HashMap<Box<str>, Vec<Grant>>,
}

/// One subject of one binding.
#[derive(Clone, Debug)]
struct Grant {
    /// Which binding of the scope; two subjects of one binding have the same.
    binding: usize,
    /// `RBAC: allowed by …`, or why the role cannot be had.
    said: Arc<str>,
    /// None when the role does not exist.
    rules: Option<Arc<[Rule]>>,
}

// === impl Item ===

impl Item {
    /// From an object of that resource; none for other resources.
    pub fn parse(plural: &str, object: &Value) -> Option<Self> {
        let (namespace, name) = (meta::namespace(object).to_owned(), meta::name(object).to_owned());
        match plural {
            "roles" | "clusterroles" => {
                Some(Self::Role(Role { namespace, name, rules: Rule::parse_all(object).into() }))
            }
            "rolebindings" | "clusterrolebindings" => {
                let none = Value::Null;
                let role = object.get("roleRef").unwrap_or(&none);
                let subjects = object.get("subjects").and_then(Value::as_array);
                Some(Self::Binding(Binding {
                    namespace,
                    name,
                    role_kind: text(role, "kind").into(),
                    role_name: text(role, "name").into(),
                    subjects: subjects.into_iter().flatten().map(Subject::parse).collect(),
                }))
            }
            _ => None,
        }
    }
}

impl Subject {
    fn parse(subject: &Value) -> Self {
        let own = |field: &str| text(subject, field).to_owned();
        Self { kind: own("kind"), namespace: own("namespace"), name: own("name") }
    }

    /// How reasons name it.
    fn describe(&self, binding_namespace: &str) -> String {
        let Self { kind, namespace, name } = self;
        if kind == "ServiceAccount" {
            let namespace = if namespace.is_empty() { binding_namespace } else { namespace };
            format!("{kind} {:?}", format!("{name}/{namespace}"))
        } else {
            format!("{kind} {name:?}")
        }
    }
}

impl Binding {
    /// `RoleBinding "name/namespace" of ClusterRole "edit" to User "x"`.
    fn describe(&self, subject: &Subject) -> String {
        let Self { namespace, name, role_kind, role_name, .. } = self;
        let subject = subject.describe(namespace);
        let head = if namespace.is_empty() {
            format!("ClusterRoleBinding {name:?}")
        } else {
            format!("RoleBinding {:?}", format!("{name}/{namespace}"))
        };
        format!("RBAC: allowed by {head} of {role_kind} {role_name:?} to {subject}")
    }
}

// === impl Policy ===

impl Policy {
    /// Compiles roles and bindings.
    pub fn compile<'a>(items: impl IntoIterator<Item = &'a Item>) -> Self {
        let mut policy = Self::default();
        let mut bindings = Vec::new();
        for item in items {
            match item {
                Item::Role(role) => {
                    let of = policy.roles.entry(role.namespace.as_str().into()).or_default();
                    of.insert(role.name.as_str().into(), Arc::clone(&role.rules));
                }
                Item::Binding(binding) => bindings.push(binding),
            }
        }
        for (at, binding) in bindings.into_iter().enumerate() {
            policy.grant(at, binding);
        }
        policy
    }

    fn grant(&mut self, at: usize, binding: &Binding) {
        let rules = self.role_rules(&binding.role_kind, &binding.role_name, &binding.namespace);
        let grants = if binding.namespace.is_empty() {
            &mut self.cluster
        } else {
            self.namespaces.entry(binding.namespace.as_str().into()).or_default()
        };
        for subject in &binding.subjects {
            let (map, key) = match subject.kind.as_str() {
                "User" => (&mut grants.users, subject.name.clone()),
                "Group" => (&mut grants.groups, subject.name.clone()),
                "ServiceAccount" => {
                    let own = &subject.namespace;
                    let namespace = if own.is_empty() { &binding.namespace } else { own };
                    if namespace.is_empty() {
                        continue;
                    }
                    (&mut grants.users, serviceaccount::username(namespace, &subject.name))
                }
                _ => continue,
            };
            let said = match &rules {
                Ok(_) => binding.describe(subject),
                Err(why) => why.clone(),
            };
            let grant = Grant { binding: at, said: said.into(), rules: rules.clone().ok() };
            map.entry(key.into()).or_default().push(grant);
        }
    }

    /// The rules of the role a binding in `namespace` refers to, or why there are none.
    pub fn role_rules(&self, kind: &str, name: &str, namespace: &str) -> Result<Arc<[Rule]>, String> {
        let (namespace, kind_shown) = match kind {
            "ClusterRole" => ("", "clusterrole"),
            "Role" if !namespace.is_empty() => (namespace, "role"),
            "Role" => return Err(format!("role.{GROUP} {name:?} not found")),
            _ => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        let rules = self.roles.get(namespace).and_then(|of| of.get(name)).cloned();
        rules.ok_or_else(|| format!("{kind_shown}.{GROUP} {name:?} not found"))
    }

    /// Whether it is allowed. Allocates nothing unless it is not.
    pub fn authorize(&self, asked: &Attributes<'_>) -> Verdict {
        if asked.user.in_group(MASTERS) {
            return Verdict::Allowed(None);
        }
        for grant in self.grants_of(asked.user, asked.namespace) {
            if grant.rules.as_ref().is_some_and(|rules| rules.iter().any(|rule| rule.allows(asked))) {
                return Verdict::Allowed(Some(Arc::clone(&grant.said)));
            }
        }
        let mut missing: Vec<&str> = Vec::new();
        for grant in self.grants_of(asked.user, asked.namespace).filter(|g| g.rules.is_none()) {
            if !missing.contains(&&*grant.said) {
                missing.push(&grant.said);
            }
        }
        Verdict::Denied(match missing.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        })
    }

    /// Every rule a user has in a namespace, and why some could not be had; each binding counts once.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut missing, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        for grant in self.grants_of(user, namespace) {
            if seen.contains(&grant.binding) {
                continue;
            }
            seen.push(grant.binding);
            match &grant.rules {
                Some(own) => rules.extend(own.iter().cloned()),
                None => missing.push(grant.said.to_string()),
            }
        }
        (rules, missing)
    }

    fn grants_of<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let local = if namespace.is_empty() { None } else { self.namespaces.get(namespace) };
        [Some(&self.cluster), local].into_iter().flatten().flat_map(|grants| {
            let named = grants.users.get(user.name.as_str());
            let grouped = user.groups.iter().filter_map(|group| grants.groups.get(group.as_str()));
            named.into_iter().chain(grouped).flatten()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy() -> Policy {
        let role = |ns: &str, name: &str, rules: Value| json!({"metadata": {"namespace": ns, "name": name}, "rules": rules});
        let binding = |ns: &str, name: &str, kind: &str, role: &str, subjects: Value| {
            json!({"metadata": {"namespace": ns, "name": name},
                "roleRef": {"kind": kind, "name": role}, "subjects": subjects})
        };
        let read = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["services"]}]);
        let objects = [
            ("clusterroles", role("", "reader", read.clone())),
            (
                "clusterroles",
                role("", "prober", json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}])),
            ),
            (
                "roles",
                role(
                    "dev",
                    "secretive",
                    json!([{"verbs": ["get"], "apiGroups": [""],
                "resources": ["secrets"], "resourceNames": ["one"]}]),
                ),
            ),
            (
                "clusterrolebindings",
                binding(
                    "",
                    "readers",
                    "ClusterRole",
                    "reader",
                    json!([{"kind": "User", "name": "alice"}, {"kind": "Group", "name": "ops"}]),
                ),
            ),
            (
                "clusterrolebindings",
                binding(
                    "",
                    "probers",
                    "ClusterRole",
                    "prober",
                    json!([{"kind": "ServiceAccount", "namespace": "sys", "name": "probe"},
                    {"kind": "ServiceAccount", "name": "homeless"}]),
                ),
            ),
            (
                "rolebindings",
                binding(
                    "dev",
                    "local",
                    "ClusterRole",
                    "reader",
                    json!([{"kind": "ServiceAccount", "name": "builder"}]),
                ),
            ),
            (
                "rolebindings",
                binding("dev", "secrets", "Role", "secretive", json!([{"kind": "User", "name": "bob"}])),
            ),
            (
                "rolebindings",
                binding("dev", "broken", "ClusterRole", "nowhere", json!([{"kind": "User", "name": "bob"}])),
            ),
        ];
        let items: Vec<Item> = objects.iter().filter_map(|(plural, o)| Item::parse(plural, o)).collect();
        assert_eq!(items.len(), objects.len());
        Policy::compile(&items)
    }

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|g| (*g).to_owned()).collect();
        User { name: name.into(), groups, ..User::default() }
    }

    #[test]
    fn bindings_allow_their_subjects() {
        let policy = policy();
        let check =
            |who: (&str, &[&str]), verb: &str, what: (&str, &str, &str), expected: Result<&str, &str>| {
                let user = user(who.0, who.1);
                let (resource, namespace, name) = what;
                let verdict =
                    policy.authorize(&Attributes::resource(&user, verb, "", resource, namespace, name));
                let got = if verdict.allowed() { Ok(verdict.reason()) } else { Err(verdict.reason()) };
                assert_eq!(got, expected, "{who:?} {verb} {what:?}");
            };
        let by_user =
            r#"RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "alice""#;
        let by_group =
            r#"RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "ops""#;
        let by_account = r#"RBAC: allowed by RoleBinding "local/dev" of ClusterRole "reader" to ServiceAccount "builder/dev""#;
        let broken = r#"RBAC: clusterrole.rbac.authorization.k8s.io "nowhere" not found"#;
        check(("alice", &[]), "list", ("services", "", ""), Ok(by_user));
        check(("alice", &[]), "list", ("services", "any", ""), Ok(by_user));
        check(("alice", &[]), "delete", ("services", "any", "x"), Err(""));
        check(("carol", &["ops"]), "get", ("services", "any", "x"), Ok(by_group));
        check(("ops", &["alice"]), "get", ("services", "any", "x"), Err(""));
        let builder = "system:serviceaccount:dev:builder";
        check((builder, &[]), "get", ("services", "dev", "x"), Ok(by_account));
        check((builder, &[]), "get", ("services", "prod", "x"), Err(""));
        check((builder, &[]), "list", ("services", "", ""), Err(""));
        check(("bob", &[]), "get", ("secrets", "dev", "two"), Err(broken));
        check(
            ("bob", &[]),
            "get",
            ("secrets", "dev", "one"),
            Ok(r#"RBAC: allowed by RoleBinding "secrets/dev" of Role "secretive" to User "bob""#),
        );
        check(("root", &[MASTERS]), "anything", ("at", "all", ""), Ok(""));
    }

    #[test]
    fn paths_are_allowed_by_cluster_bindings() {
        let policy = policy();
        let check = |name: &str, path: &str, expected: bool| {
            let user = user(name, &[]);
            assert_eq!(policy.authorize(&Attributes::path(&user, "get", path)).allowed(), expected, "{name}");
        };
        check("system:serviceaccount:sys:probe", "/healthz", true);
        check("system:serviceaccount:sys:probe", "/metrics", false);
        check("system:serviceaccount::homeless", "/healthz", false);
    }

    #[test]
    fn rules_are_listed_once_per_binding() {
        let policy = policy();
        assert_eq!(policy.rules_for(&user("alice", &["ops"]), "dev").0.len(), 1);
        let (rules, missing) = policy.rules_for(&user("bob", &[]), "dev");
        assert_eq!((rules.len(), missing.len()), (1, 1));
    }

    #[test]
    fn objects_of_any_shape_do_no_harm() {
        for object in
            [json!(null), json!({"rules": [1, {"verbs": {}}], "subjects": [null, 1], "roleRef": []})]
        {
            for plural in ["roles", "clusterroles", "rolebindings", "clusterrolebindings", "pods"] {
                let item = Item::parse(plural, &object);
                Policy::compile(item.as_slice());
            }
        }
    }
}
