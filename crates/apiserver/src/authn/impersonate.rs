//! Acting as another user: `Impersonate-User`, `-Group`, `-Uid` and `-Extra-*`.
//!
//! Kubernetes knows several modes and takes the first that is allowed. The constrained ones ask twice: may the user
//! make *this* request as somebody (`impersonate-on:<mode>:<verb>`), and may they be that somebody
//! (`impersonate:<mode>`). The plain one, `impersonate`, asks only the second. When none is allowed, the first mode's
//! refusal is shown.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use landfall_api::Status;

use super::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, serviceaccount};
use crate::authz::{Attributes, Policy, forbidden};

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA: &str = "impersonate-extra-";
/// The API group of `uids`, `userextras` and, when constrained, of users and groups.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// What nodes' user names begin with, and the group they are in.
const NODE: (&str, &str) = ("system:node:", "system:nodes");
/// Where a service account's token says which node it is on.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From so many groups or extra values on, one question about all of them is asked first.
const MANY: usize = 4;

/// Somebody to go on as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated {
    /// Who.
    pub user: User,
    /// The verb that allowed it, for the audit log; empty for the plain one.
    pub constraint: &'static str,
}

/// One way to be allowed.
struct Mode {
    /// Its name; empty for the plain one.
    name: &'static str,
    /// The verb on users, groups and the rest.
    verb: &'static str,
    /// Whether it is for this wish of this user.
    applies: fn(&Asked, &User) -> bool,
}

/// The modes, in the order they are tried.
const MODES: [Mode; 5] = [
    Mode { name: "associated-node", verb: "impersonate:associated-node", applies: own_node },
    Mode {
        name: "arbitrary-node",
        verb: "impersonate:arbitrary-node",
        applies: |asked, _| asked.only_name() && asked.node().is_some(),
    },
    Mode {
        name: "serviceaccount",
        verb: "impersonate:serviceaccount",
        applies: |asked, _| asked.only_name() && asked.account().is_some(),
    },
    Mode {
        name: "user-info",
        verb: "impersonate:user-info",
        applies: |asked, _| asked.node().is_none() && asked.account().is_none(),
    },
    PLAIN,
];

const PLAIN: Mode = Mode { name: "", verb: "impersonate", applies: |_, _| true };

/// The user to go on as for a request (`request.user` is who makes it); none when no other is asked for.
pub fn impersonate_for(
    headers: &HeaderMap,
    request: &Attributes<'_>,
    policy: &Policy,
) -> Result<Option<Impersonated>, Status> {
    let Some(asked) = Asked::read(headers)? else { return Ok(None) };
    let mut refused = None;
    for mode in MODES.iter().filter(|mode| (mode.applies)(&asked, request.user)) {
        match mode.check(&asked, request, policy) {
            Ok(()) => {
                let constraint = if mode.name.is_empty() { "" } else { mode.verb };
                return Ok(Some(Impersonated { user: asked.into_user(mode), constraint }));
            }
            Err(status) => refused = refused.or(Some(status)),
        }
    }
    Err(refused.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

/// As [`impersonate_for`], by the plain mode alone, which needs no request.
pub fn impersonate(headers: &HeaderMap, user: &User, policy: &Policy) -> Result<Option<User>, Status> {
    let Some(asked) = Asked::read(headers)? else { return Ok(None) };
    PLAIN.check(&asked, &Attributes::path(user, "", ""), policy)?;
    Ok(Some(asked.into_user(&PLAIN)))
}

fn own_node(asked: &Asked, user: &User) -> bool {
    let on = user.extra.get(NODE_NAME).map(Vec::as_slice);
    let account = serviceaccount::split_username(&user.name).is_some();
    account && asked.only_name() && asked.node().is_some_and(|node| on == Some(&[node.to_owned()][..]))
}

// === impl Mode ===

impl Mode {
    fn check(&self, asked: &Asked, request: &Attributes<'_>, policy: &Policy) -> Result<(), Status> {
        let allow = |asked: Attributes<'_>| {
            let verdict = policy.authorize(&asked);
            if verdict.allowed() { Ok(()) } else { Err(forbidden(&asked, verdict.reason())) }
        };
        let constrained = !self.name.is_empty();
        if constrained {
            let verb = format!("impersonate-on:{}:{}", self.name, request.verb);
            allow(Attributes { verb: &verb, ..*request })?;
        }
        let about = |group, resource, name| Attributes {
            version: "v1",
            ..Attributes::resource(request.user, self.verb, group, resource, "", name)
        };
        let group = if constrained { AUTHENTICATION } else { "" };
        allow(self.who(asked, about(group, "users", asked.name.as_str())))?;
        if !asked.uid.is_empty() {
            allow(about(AUTHENTICATION, "uids", asked.uid.as_str()))?;
        }
        let groups = about(group, "groups", "");
        if constrained {
            asked.check_groups(&groups)?;
        }
        let all_groups = constrained && asked.groups.len() >= MANY;
        if !(all_groups && allow(Attributes { name: "*", ..groups }).is_ok()) {
            asked.groups.iter().try_for_each(|name| allow(Attributes { name, ..groups }))?;
        }
        let extras = about(AUTHENTICATION, "userextras", "");
        if constrained {
            asked.check_extra(&extras)?;
        }
        let all_extra = constrained && asked.extra.len() >= MANY;
        if !(all_extra && allow(Attributes { subresource: "*", name: "*", ..extras }).is_ok()) {
            let mut each = asked.extra.iter();
            each.try_for_each(|(key, name)| allow(Attributes { subresource: key, name, ..extras }))?;
        }
        Ok(())
    }

    /// The question about the name itself.
    fn who<'a>(&self, asked: &'a Asked, user: Attributes<'a>) -> Attributes<'a> {
        if let Some((namespace, name)) = asked.account() {
            return Attributes { resource: "serviceaccounts", namespace, name, ..user };
        }
        match asked.node() {
            Some(_) if self.name == "associated-node" => Attributes { resource: "nodes", name: "*", ..user },
            Some(name) if !self.name.is_empty() => Attributes { resource: "nodes", name, ..user },
            _ => user,
        }
    }
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
        if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            return Ok(None);
        }
        let text = |name: &HeaderName| headers.get(name).map(lossy).unwrap_or_default();
        let (name, uid) = (text(&USER), text(&UID));
        let groups: Vec<String> = headers.get_all(GROUP).iter().map(lossy).collect();
        let extra = headers.iter().filter_map(|(header, value)| {
            let key = header.as_str().strip_prefix(EXTRA)?;
            Some((unescape(key), lossy(value)))
        });
        let asked = Self { name, groups, extra: extra.collect(), uid };
        if !asked.name.is_empty() {
            return Ok(Some(asked));
        }
        if asked.groups.is_empty() && asked.extra.is_empty() && asked.uid.is_empty() {
            return Ok(None);
        }
        let what = asked.shown();
        Err(Status::bad_request(format!("requested {what} without impersonating a user name")))
    }

    /// As Go prints the user it keeps the wish in.
    fn shown(&self) -> String {
        let list = |items: &[String]| {
            let quoted: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            format!("[]string{{{}}}", quoted.join(", "))
        };
        let groups = if self.groups.is_empty() { "[]string(nil)".into() } else { list(&self.groups) };
        let mut extra = String::from("map[string][]string(nil)");
        if !self.extra.is_empty() {
            let pairs: Vec<String> =
                self.extra_map().iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
            extra = format!("map[string][]string{{{}}}", pairs.join(", "));
        }
        let uid = &self.uid;
        format!("&user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:{groups}, Extra:{extra}}}")
    }

    fn extra_map(&self) -> BTreeMap<String, Vec<String>> {
        let mut map = BTreeMap::<String, Vec<String>>::new();
        for (key, value) in &self.extra {
            map.entry(key.clone()).or_default().push(value.clone());
        }
        map
    }

    const fn only_name(&self) -> bool {
        self.groups.is_empty() && self.extra.is_empty() && self.uid.is_empty()
    }

    fn account(&self) -> Option<(&str, &str)> {
        serviceaccount::split_username(&self.name)
    }

    fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE.0).filter(|name| serviceaccount::is_subdomain(name))
    }

    /// What the constrained modes never allow.
    fn check_groups(&self, about: &Attributes<'_>) -> Result<(), Status> {
        if self.groups.iter().any(String::is_empty) {
            return Err(forbidden(about, "impersonating the empty string group is not allowed"));
        }
        if self.groups.iter().any(|group| group == MASTERS) {
            let about = Attributes { name: MASTERS, ..*about };
            return Err(forbidden(&about, "impersonating the system:masters group is not allowed"));
        }
        Ok(())
    }

    fn check_extra(&self, about: &Attributes<'_>) -> Result<(), Status> {
        for (key, value) in &self.extra {
            let prefixed = key
                .split_once('/')
                .is_some_and(|(domain, path)| serviceaccount::is_subdomain(domain) && !path.is_empty());
            if key.is_empty() {
                return Err(forbidden(about, "impersonating the empty string key in extra is not allowed"));
            }
            if !prefixed {
                let why = format!(
                    "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {key:?}: must be a domain-prefixed path (such as \"acme.io/foo\")"
                );
                return Err(forbidden(about, &why));
            }
            if value.is_empty() {
                return Err(forbidden(about, "impersonating the empty string value in extra is not allowed"));
            }
        }
        Ok(())
    }

    fn into_user(self, mode: &Mode) -> User {
        let extra = self.extra_map();
        let mut groups = match (self.account(), self.node()) {
            (Some((namespace, _)), _) if self.groups.is_empty() => serviceaccount::groups(namespace),
            (_, Some(_)) if !mode.name.is_empty() => vec![NODE.1.into()],
            _ => self.groups.clone(),
        };
        let has = |group: &str| groups.iter().any(|g| g == group);
        if self.name == ANONYMOUS {
            if !has(UNAUTHENTICATED) {
                groups.push(UNAUTHENTICATED.into());
            }
        } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        User { name: self.name, uid: self.uid, groups, extra }
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
#[path = "impersonate_tests.rs"]
mod tests;
