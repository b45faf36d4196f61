//! Acting as another user: `Impersonate-User`, `-Group`, `-Uid` and `-Extra-*`, each allowed for itself.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use landfall_api::Status;

use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, serviceaccount};
use crate::authz::{Attributes, Policy, forbidden};

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA: &str = "impersonate-extra-";
/// The group of `uids` and `userextras`.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The user to go on as; none when no other is asked for.
pub fn impersonate(headers: &HeaderMap, user: &User, policy: &Policy) -> Result<Option<User>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let Some(asked) = Asked::read(headers)? else { return Ok(None) };
    asked.check(user, policy)?;
    Ok(Some(asked.into_user()))
}

/// What the headers ask for.
struct Asked {
    name: String,
    groups: Vec<String>,
    extra: Vec<(String, String)>,
    uid: String,
}

impl Asked {
    fn read(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        let text = |name: &HeaderName| headers.get(name).map(lossy).unwrap_or_default();
        let (name, uid) = (text(&USER), text(&UID));
        let groups: Vec<String> = headers.get_all(GROUP).iter().map(lossy).collect();
        let extra: Vec<(String, String)> = headers
            .iter()
            .filter_map(|(header, value)| {
                let key = header.as_str().strip_prefix(EXTRA)?;
                Some((unescape(key), lossy(value)))
            })
            .collect();
        let asked = Self { name, groups, extra, uid };
        if !asked.name.is_empty() {
            return Ok(Some(asked));
        }
        if asked.groups.is_empty() && asked.extra.is_empty() && asked.uid.is_empty() {
            return Ok(None);
        }
        let what = asked.references();
        Err(Status::bad_request(format!("requested [{what}] without impersonating a user")))
    }

    /// What is asked for, as Go prints the ObjectReferences it keeps it in.
    fn references(&self) -> String {
        let api = format!("{AUTHENTICATION}/v1");
        let groups = self.groups.iter().map(|name| format!("{{Group  {name}    }}"));
        let extra = self.extra.iter().map(|(key, value)| format!("{{UserExtra  {value}  {api}  {key}}}"));
        let uid = (!self.uid.is_empty()).then(|| format!("{{UID  {}  {api}  }}", self.uid));
        groups.chain(extra).chain(uid).collect::<Vec<_>>().join(" ")
    }

    fn check(&self, user: &User, policy: &Policy) -> Result<(), Status> {
        let allow = |asked: Attributes<'_>| {
            let verdict = policy.authorize(&asked);
            if verdict.allowed() { Ok(()) } else { Err(forbidden(&asked, verdict.reason())) }
        };
        let about = |group, resource, namespace, name| {
            Attributes::resource(user, "impersonate", group, resource, namespace, name)
        };
        match serviceaccount::split_username(&self.name) {
            Some((namespace, name)) => allow(about("", "serviceaccounts", namespace, name))?,
            None => allow(about("", "users", "", &self.name))?,
        }
        for group in &self.groups {
            allow(about("", "groups", "", group))?;
        }
        for (key, value) in &self.extra {
            let asked = about(AUTHENTICATION, "userextras", "", value);
            allow(Attributes { subresource: key, version: "v1", ..asked })?;
        }
        if !self.uid.is_empty() {
            allow(Attributes { version: "v1", ..about(AUTHENTICATION, "uids", "", &self.uid) })?;
        }
        Ok(())
    }

    fn into_user(self) -> User {
        let Self { name, mut groups, extra: pairs, uid } = self;
        if let (true, Some((namespace, _))) = (groups.is_empty(), serviceaccount::split_username(&name)) {
            groups = serviceaccount::groups(namespace);
        }
        let has = |group: &str| groups.iter().any(|g| g == group);
        if name == ANONYMOUS {
            if !has(UNAUTHENTICATED) {
                groups.push(UNAUTHENTICATED.into());
            }
        } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for (key, value) in pairs {
            extra.entry(key).or_default().push(value);
        }
        User { name, uid, groups, extra }
    }
}

fn lossy(value: &http::HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Undoes percent-encoding; a key that is not well encoded is kept as it is.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|b| char::from(*b).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return key.into() };
        bytes.push(u8::try_from(high * 16 + low).expect("two hex digits make a byte"));
        rest = after.get(2..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::policy::Item;
    use serde_json::json;

    fn policy() -> Policy {
        let role = json!({"metadata": {"name": "imp"}, "rules": [
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups", "serviceaccounts"]},
            {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes", "uids"]},
        ]});
        let binding = json!({"metadata": {"name": "imp"}, "roleRef": {"kind": "ClusterRole", "name": "imp"},
            "subjects": [{"kind": "User", "name": "alice"}]});
        let items = [Item::parse("clusterroles", &role), Item::parse("clusterrolebindings", &binding)]
            .map(|i| i.expect("an item"));
        Policy::compile(&items)
    }

    fn ask(pairs: &[(&'static str, &str)]) -> Result<Option<User>, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().expect("a header value"));
        }
        let alice = User { name: "alice".into(), ..User::default() };
        impersonate(&headers, &alice, &policy()).map_err(|s| s.message)
    }

    #[test]
    fn allowed_headers_swap_the_user() {
        let check = |pairs: &[(&'static str, &str)], name: &str, groups: &[&str]| {
            let user = ask(pairs).expect("allowed").expect("another user");
            assert_eq!(
                (user.name.as_str(), user.groups.as_slice()),
                (name, &*groups.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>())
            );
        };
        check(&[("impersonate-user", "bob")], "bob", &["system:authenticated"]);
        check(
            &[("impersonate-user", "bob"), ("impersonate-group", "a"), ("impersonate-group", "b")],
            "bob",
            &["a", "b", "system:authenticated"],
        );
        check(
            &[("impersonate-user", "system:serviceaccount:dev:x")],
            "system:serviceaccount:dev:x",
            &["system:serviceaccounts", "system:serviceaccounts:dev", "system:authenticated"],
        );
        check(
            &[("impersonate-user", "bob"), ("impersonate-group", "system:unauthenticated")],
            "bob",
            &["system:unauthenticated"],
        );
        let user =
            ask(&[("impersonate-user", "bob"), ("impersonate-extra-scopes", "x"), ("impersonate-uid", "7")]);
        let user = user.expect("allowed").expect("another user");
        assert_eq!((user.uid.as_str(), user.extra["scopes"].as_slice()), ("7", &["x".to_owned()][..]));
        assert_eq!(ask(&[("accept", "x")]), Ok(None));
    }

    #[test]
    fn each_header_needs_its_own_permission() {
        let check =
            |pairs: &[(&'static str, &str)], expected: &str| assert_eq!(ask(pairs), Err(expected.into()));
        check(
            &[("impersonate-user", "root")],
            r#"users "root" is forbidden: User "alice" cannot impersonate resource "users" in API group "" at the cluster scope"#,
        );
        check(
            &[("impersonate-user", "bob"), ("impersonate-extra-a%2fb", "v")],
            r#"userextras.authentication.k8s.io "v" is forbidden: User "alice" cannot impersonate resource "userextras/a/b" in API group "authentication.k8s.io" at the cluster scope"#,
        );
        check(&[("impersonate-group", "a")], "requested [{Group  a    }] without impersonating a user");
    }

    #[test]
    fn keys_are_unescaped_when_they_can_be() {
        for (key, expected) in
            [("a%2fb", "a/b"), ("a%2", "a%2"), ("%zz", "%zz"), ("%", "%"), ("plain", "plain")]
        {
            assert_eq!(unescape(key), expected);
        }
    }
}
