//! Wishes to be somebody else, granted and refused.

use super::*;
use crate::authz::policy::Item;
use serde_json::json;

/// `alice` has the plain verb on some; `carol` may list services as users and service accounts of some names.
fn policy() -> Policy {
    let plain = json!({"metadata": {"name": "plain"}, "rules": [
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob", "system:node:n1"]},
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups", "serviceaccounts"]},
        {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes", "uids"]},
    ]});
    let constrained = json!({"metadata": {"name": "constrained"}, "rules": [
        {"verbs": ["impersonate-on:user-info:list", "impersonate-on:serviceaccount:list", "impersonate-on:arbitrary-node:list",
            "impersonate-on:associated-node:list"], "apiGroups": [""], "resources": ["services"]},
        {"verbs": ["impersonate:user-info"], "apiGroups": ["authentication.k8s.io"], "resources": ["users", "groups", "userextras/a.b/c"]},
        {"verbs": ["impersonate:serviceaccount"], "apiGroups": ["authentication.k8s.io"], "resources": ["serviceaccounts"]},
        {"verbs": ["impersonate:associated-node"], "apiGroups": ["authentication.k8s.io"], "resources": ["nodes"]},
    ]});
    let bind = |role: &str, users: &[&str]| {
        let subjects: Vec<_> = users.iter().map(|u| json!({"kind": "User", "name": u})).collect();
        json!({"metadata": {"name": role}, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": subjects})
    };
    let objects = [
        ("clusterroles", plain),
        ("clusterroles", constrained),
        ("clusterrolebindings", bind("plain", &["alice"])),
        ("clusterrolebindings", bind("constrained", &["carol", "system:serviceaccount:sys:agent"])),
    ];
    let items: Vec<Item> = objects.iter().filter_map(|(p, o)| Item::parse(p, o)).collect();
    Policy::compile(&items)
}

fn ask(who: &str, verb: &str, pairs: &[(&'static str, &str)]) -> Result<Option<Impersonated>, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().expect("a header value"));
    }
    let mut user = User { name: who.into(), ..User::default() };
    if who == "root" {
        user.groups.push(MASTERS.into());
    }
    if who.starts_with("system:serviceaccount:") {
        user.extra.insert(NODE_NAME.into(), vec!["n1".into()]);
    }
    let request = Attributes::resource(&user, verb, "", "services", "dev", "");
    impersonate_for(&headers, &request, &policy()).map_err(|s| format!("{}: {}", s.reason.code(), s.message))
}

fn check(who: &str, pairs: &[(&'static str, &str)], name: &str, groups: &[&str], constraint: &str) {
    let got = ask(who, "list", pairs).expect("allowed").expect("another user");
    assert_eq!((got.user.name.as_str(), got.constraint), (name, constraint), "{who} {pairs:?}");
    assert_eq!(got.user.groups, groups, "{who} {pairs:?}");
}

#[test]
fn the_plain_verb_swaps_the_user() {
    check("alice", &[("impersonate-user", "bob")], "bob", &["system:authenticated"], "");
    check(
        "alice",
        &[("impersonate-user", "bob"), ("impersonate-group", "a"), ("impersonate-group", "b")],
        "bob",
        &["a", "b", "system:authenticated"],
        "",
    );
    check(
        "alice",
        &[("impersonate-user", "system:serviceaccount:dev:x")],
        "system:serviceaccount:dev:x",
        &["system:serviceaccounts", "system:serviceaccounts:dev", "system:authenticated"],
        "",
    );
    let unauthenticated = [("impersonate-user", "bob"), ("impersonate-group", "system:unauthenticated")];
    check("alice", &unauthenticated, "bob", &["system:unauthenticated"], "");
    check(
        "alice",
        &[("impersonate-user", "system:node:n1")],
        "system:node:n1",
        &["system:authenticated"],
        "",
    );
    let pairs = [("impersonate-user", "bob"), ("impersonate-extra-scopes", "x"), ("impersonate-uid", "7")];
    let got = ask("alice", "list", &pairs).expect("allowed").expect("another user").user;
    assert_eq!((got.uid.as_str(), got.extra["scopes"].as_slice()), ("7", &["x".to_owned()][..]));
    assert_eq!(ask("alice", "list", &[("accept", "x")]), Ok(None));
}

#[test]
fn constrained_verbs_swap_the_user_for_their_requests() {
    check("carol", &[("impersonate-user", "x")], "x", &["system:authenticated"], "impersonate:user-info");
    check(
        "carol",
        &[("impersonate-user", "system:serviceaccount:dev:x")],
        "system:serviceaccount:dev:x",
        &["system:serviceaccounts", "system:serviceaccounts:dev", "system:authenticated"],
        "impersonate:serviceaccount",
    );
    let agent = "system:serviceaccount:sys:agent";
    let node = [("impersonate-user", "system:node:n1")];
    check(
        agent,
        &node,
        "system:node:n1",
        &["system:nodes", "system:authenticated"],
        "impersonate:associated-node",
    );
    assert!(ask(agent, "list", &[("impersonate-user", "system:node:n2")]).is_err(), "another node");
    assert!(ask("carol", "list", &node).is_err(), "not on that node");
    check("root", &[("impersonate-user", "x")], "x", &["system:authenticated"], "impersonate:user-info");
    let masters = [("impersonate-user", "x"), ("impersonate-group", MASTERS)];
    check("root", &masters, "x", &[MASTERS, "system:authenticated"], "");
}

#[test]
fn the_first_refusal_is_shown() {
    let check = |who: &str, verb: &str, pairs: &[(&'static str, &str)], expected: &str| {
        assert_eq!(ask(who, verb, pairs), Err(expected.into()), "{pairs:?}");
    };
    check(
        "alice",
        "get",
        &[("impersonate-user", "root")],
        r#"403: services is forbidden: User "alice" cannot impersonate-on:user-info:get resource "services" in API group "" in the namespace "dev""#,
    );
    check(
        "carol",
        "list",
        &[("impersonate-user", "x"), ("impersonate-uid", "7")],
        r#"403: uids.authentication.k8s.io "7" is forbidden: User "carol" cannot impersonate:user-info resource "uids" in API group "authentication.k8s.io" at the cluster scope"#,
    );
    check(
        "carol",
        "list",
        &[("impersonate-user", "x"), ("impersonate-group", MASTERS)],
        r#"403: groups.authentication.k8s.io "system:masters" is forbidden: User "carol" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#,
    );
    check(
        "carol",
        "list",
        &[("impersonate-user", "x"), ("impersonate-extra-a.b%2fd", "v")],
        r#"403: userextras.authentication.k8s.io "v" is forbidden: User "carol" cannot impersonate:user-info resource "userextras/a.b/d" in API group "authentication.k8s.io" at the cluster scope"#,
    );
    check(
        "alice",
        "get",
        &[("impersonate-group", "a"), ("impersonate-uid", "1"), ("impersonate-extra-foo", "1")],
        r#"400: requested &user.DefaultInfo{Name:"", UID:"1", Groups:[]string{"a"}, Extra:map[string][]string{"foo":[]string{"1"}}} without impersonating a user name"#,
    );
}

#[test]
fn keys_are_unescaped_when_they_can_be() {
    for (key, expected) in [("a%2fb", "a/b"), ("a%2", "a%2"), ("%zz", "%zz"), ("%", "%"), ("plain", "plain")]
    {
        assert_eq!(unescape(key), expected);
    }
}
