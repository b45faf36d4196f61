//! What a user may do: RBAC, as Kubernetes has it.
//!
//! ```text
//!   Roles, ClusterRoles, bindings ──compile──► Policy ──authorize(Attributes)──► Verdict
//!          (store, watched by live)              │
//!                                                └─ rules_for(user, namespace) ──► reviews, escalation
//! ```
//!
//! Reading order: this file (the question and the answer), [`rule`], [`policy`], [`live`] (keeps a policy current
//! from the store), [`aggregate`], [`bootstrap`] (what exists from the start), [`escalation`].

pub mod aggregate;
pub mod bootstrap;
pub mod escalation;
pub mod live;
pub mod policy;
pub mod rule;

use std::borrow::Cow;
use std::sync::Arc;

use landfall_api::Status;

use crate::authn::User;

pub use escalation::escalation_check;
pub use live::Rbac;
pub use policy::Policy;
pub use rule::Rule;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// `get`, `list`, `create`, …; the lower-case HTTP method for paths that are no resources.
    pub verb: &'a str,
    /// API group; empty for core.
    pub group: &'a str,
    /// API version; RBAC does not look at it.
    pub version: &'a str,
    /// Plural resource name.
    pub resource: &'a str,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: &'a str,
    /// Empty for cluster-scoped requests and lists over all namespaces.
    pub namespace: &'a str,
    /// Empty for lists and creates.
    pub name: &'a str,
    /// The path, for requests that are not about a resource.
    pub path: &'a str,
    /// Whether it is about a resource.
    pub is_resource: bool,
}

impl<'a> Attributes<'a> {
    /// A request for a path that is not a resource.
    pub const fn path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        Self { path, is_resource: false, ..Self::resource(user, verb, "", "", "", "") }
    }

    /// A request for a resource.
    pub const fn resource(
        user: &'a User,
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> Self {
        Self {
            user,
            verb,
            group,
            version: "*",
            resource,
            subresource: "",
            namespace,
            name,
            path: "",
            is_resource: true,
        }
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, and by which binding; none for members of `system:masters`, who need no binding.
    Allowed(Option<Arc<str>>),
    /// No rule allows it; the text is empty or says which bindings could not be followed.
    Denied(String),
}

impl Verdict {
    /// Whether it is yes.
    pub const fn allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Why, as reviews and audit events show it; often empty.
    pub fn reason(&self) -> &str {
        match self {
            Self::Allowed(binding) => binding.as_deref().unwrap_or_default(),
            Self::Denied(why) => why,
        }
    }
}

/// The 403 of Kubernetes; `reason` is [`Verdict::reason`].
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    let mut message = clean(&sentence(attributes)).into_owned();
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    Status::forbidden(attributes.group, attributes.resource, attributes.name, &message)
}

fn sentence(attributes: &Attributes<'_>) -> String {
    let Attributes { user, verb, group, resource, subresource, namespace, path, .. } = *attributes;
    let user = &user.name;
    if !attributes.is_resource {
        return format!("User {user:?} cannot {verb} path {path:?}");
    }
    let slash = if subresource.is_empty() { "" } else { "/" };
    let what = format!("{resource}{slash}{subresource}");
    let head = format!("User {user:?} cannot {verb} resource {what:?} in API group {group:?}");
    if namespace.is_empty() {
        format!("{head} at the cluster scope")
    } else {
        format!("{head} in the namespace {namespace:?}")
    }
}

/// Nothing that looks like HTML leaves in an error.
fn clean(text: &str) -> Cow<'_, str> {
    if text.contains(['&', '<', '>']) {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_in_kubernetes() {
        let user = User { name: "x".into(), ..User::default() };
        let check = |attributes: Attributes<'_>, reason: &str, expected: &str| {
            assert_eq!(forbidden(&attributes, reason).message, expected);
        };
        check(
            Attributes::resource(&user, "list", "", "services", "default", ""),
            "",
            r#"services is forbidden: User "x" cannot list resource "services" in API group "" in the namespace "default""#,
        );
        check(
            Attributes {
                subresource: "scale",
                ..Attributes::resource(&user, "patch", "apps", "deployments", "d", "web")
            },
            "",
            r#"deployments.apps "web" is forbidden: User "x" cannot patch resource "deployments/scale" in API group "apps" in the namespace "d""#,
        );
        check(
            Attributes::resource(&user, "list", "", "nodes", "", ""),
            "RBAC: clusterrole.rbac.authorization.k8s.io \"y\" not found",
            r#"nodes is forbidden: User "x" cannot list resource "nodes" in API group "" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "y" not found"#,
        );
        check(
            Attributes::path(&user, "get", "/metrics"),
            "",
            r#"forbidden: User "x" cannot get path "/metrics""#,
        );
        check(
            Attributes::path(&user, "get", "/<b>"),
            "",
            r#"forbidden: User "x" cannot get path "/&lt;b&gt;""#,
        );
    }
}
