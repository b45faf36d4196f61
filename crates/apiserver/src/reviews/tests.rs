//! Reviews as Kubernetes 1.36 answers them.

use std::sync::Arc;

use super::*;
use crate::authn::jwt::SigningKey;
use crate::authn::{Found, ServiceAccounts, TokenFile};
use crate::authz::policy::Item;

const ISSUER: &str = "https://kubernetes.default.svc";
const NOW: i64 = 1_800_000_000;

struct World {
    policy: Policy,
    authenticator: Authenticator,
    alice: User,
}

fn world() -> World {
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["get"], "nonResourceURLs": ["/api"]},
    ]});
    let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "alice"}]});
    let items = [Item::parse("clusterroles", &role), Item::parse("clusterrolebindings", &binding)];
    let policy = Policy::compile(items.iter().flatten());
    let accounts = ServiceAccounts::new(ISSUER, &[], SigningKey::generate().expect("a key"), vec![]);
    let tokens = TokenFile::parse("alicetok,alice,2,dev").expect("a file");
    let authenticator = Authenticator::new(tokens, Arc::new(accounts), true);
    let alice = User { name: "alice".into(), uid: "2".into(), groups: vec!["dev".into()], ..User::default() };
    World { policy, authenticator, alice }
}

fn lookup(plural: &str, namespace: &str, name: &str) -> Option<Found> {
    let uid = match (plural, namespace, name) {
        ("serviceaccounts", "default", "sa") => "u1",
        ("secrets", "default", "lease") => "s1",
        _ => return None,
    };
    Some(Found { uid: uid.into(), ..Found::default() })
}

impl World {
    fn with_context<T>(&self, ask: impl FnOnce(&Context<'_>) -> T) -> T {
        ask(&Context {
            user: &self.alice,
            policy: &self.policy,
            authorize: &|asked| self.policy.authorize(asked),
            authenticator: &self.authenticator,
            lookup: &lookup,
            namespace: "default",
            now_s: NOW,
        })
    }

    fn ask(&self, kind: &str, body: Value) -> Result<Value, String> {
        let (.., answer) = REVIEWS.iter().find(|row| row.1 == kind).expect("a review");
        self.with_context(|context| answer(body, context))
            .map_err(|status| format!("{}: {}", status.reason.code(), status.message))
    }
}

#[test]
fn access_is_reviewed() {
    let world = world();
    let check = |kind: &str, spec: Value, expected: Value| {
        let answer = world.ask(kind, json!({"spec": spec})).expect("an answer");
        assert_eq!(answer["status"], expected, "{kind} {spec}");
    };
    let by = r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "alice""#;
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    check(
        "SelfSubjectAccessReview",
        json!({"resourceAttributes": pods}),
        json!({"allowed": true, "reason": by}),
    );
    check(
        "SelfSubjectAccessReview",
        json!({"resourceAttributes": {"verb": "delete", "resource": "pods"}}),
        json!({"allowed": false}),
    );
    check(
        "SelfSubjectAccessReview",
        json!({"nonResourceAttributes": {"verb": "get", "path": "/api"}}),
        json!({"allowed": true, "reason": by}),
    );
    check(
        "SubjectAccessReview",
        json!({"user": "bob", "resourceAttributes": pods}),
        json!({"allowed": false}),
    );
    check(
        "SubjectAccessReview",
        json!({"groups": ["system:masters"], "resourceAttributes": {"verb": "*", "resource": "*"}}),
        json!({"allowed": true}),
    );
    check(
        "LocalSubjectAccessReview",
        json!({"user": "alice", "resourceAttributes": pods}),
        json!({"allowed": true, "reason": by}),
    );
}

#[test]
fn reviews_that_are_not_valid_are_refused() {
    let world = world();
    let check = |kind: &str, body: Value, expected: &str| {
        assert_eq!(world.ask(kind, body), Err(expected.to_owned()), "{kind}");
    };
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "kube"});
    check(
        "SelfSubjectAccessReview",
        json!({}),
        r#"422: .authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#,
    );
    check(
        "SelfSubjectAccessReview",
        json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": pods}}),
        r#"422: .authorization.k8s.io "" is invalid: metadata: Invalid value: {"name":"x"}: must be empty"#,
    );
    check(
        "SelfSubjectAccessReview",
        json!({"spec": {"resourceAttributes": pods, "nonResourceAttributes": {"path": "/api", "verb": "get"}}}),
        r#"422: .authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/api","Verb":"get"}: cannot be specified in combination with resourceAttributes"#,
    );
    check(
        "SubjectAccessReview",
        json!({"spec": {"resourceAttributes": pods}}),
        r#"422: .authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified"#,
    );
    check(
        "LocalSubjectAccessReview",
        json!({"spec": {"user": "a", "resourceAttributes": pods}}),
        r#"422: .authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "kube": must match metadata.namespace"#,
    );
    check("SelfSubjectRulesReview", json!({"spec": {}}), "400: no namespace on request");
    check("TokenReview", json!({"spec": {}}), "400: token is required for TokenReview in authentication");
    for body in [json!(null), json!([]), json!({"spec": 1}), json!({"spec": {"resourceAttributes": []}})] {
        for (_, kind, _) in REVIEWS {
            let _ = world.ask(kind, if body.is_object() { body.clone() } else { json!({}) });
        }
    }
}

#[test]
fn rules_and_self_are_listed() {
    let world = world();
    let rules =
        world.ask("SelfSubjectRulesReview", json!({"spec": {"namespace": "default"}})).expect("rules");
    assert_eq!(
        rules["status"],
        json!({
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/api"]}],
            "incomplete": false,
        })
    );
    let me = world.ask("SelfSubjectReview", json!({})).expect("me");
    assert_eq!(
        me,
        json!({"metadata": {"creationTimestamp": "2027-01-15T08:00:00Z"},
            "status": {"userInfo": {"username": "alice", "uid": "2", "groups": ["dev"]}}})
    );
}

#[test]
fn tokens_are_reviewed() {
    let world = world();
    let status =
        |spec: Value| world.ask("TokenReview", json!({"spec": spec})).expect("an answer")["status"].clone();
    assert_eq!(
        status(json!({"token": "alicetok"})),
        json!({"authenticated": true, "audiences": [ISSUER],
            "user": {"username": "alice", "uid": "2", "groups": ["dev", "system:authenticated"]}})
    );
    let refused = json!({"user": {}, "error": "invalid bearer token"});
    assert_eq!(status(json!({"token": "bad"})), refused);
    assert_eq!(status(json!({"token": "alicetok", "audiences": ["x"]})), refused);
}

fn account() -> Value {
    json!({"metadata": {"name": "sa", "namespace": "default", "uid": "u1"}})
}

#[test]
fn a_requested_token_opens_the_door() {
    let world = world();
    let body = json!({"spec": {"audiences": ["vault", ISSUER], "expirationSeconds": 600,
        "boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "lease"}}});
    let answer = world.with_context(|context| token_request(&account(), body, context)).expect("a token");
    assert_eq!(answer["kind"], "TokenRequest");
    assert_eq!(answer["metadata"]["uid"], "u1");
    assert_eq!(answer["status"]["expirationTimestamp"], "2027-01-15T08:10:00Z");
    let token = answer["status"]["token"].as_str().expect("a token");
    let review = world.ask("TokenReview", json!({"spec": {"token": token, "audiences": ["vault"]}}));
    let status = &review.expect("an answer")["status"];
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:sa");
    assert_eq!(status["audiences"], json!(["vault"]));
    let plain = world.with_context(|context| token_request(&account(), json!({}), context)).expect("a token");
    assert_eq!(
        plain["spec"],
        json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null})
    );
}

#[test]
fn bad_token_requests_are_refused() {
    let world = world();
    let check = |body: Value, expected: &str| {
        let status =
            world.with_context(|context| token_request(&account(), body, context)).expect_err("a refusal");
        assert_eq!(format!("{}: {}", status.reason.code(), status.message), expected);
    };
    let bound = |reference: Value| json!({"spec": {"boundObjectRef": reference}});
    check(
        json!({"spec": {"expirationSeconds": 60}}),
        r#"422: TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes"#,
    );
    check(
        json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
        r#"422: TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds"#,
    );
    check(
        bound(json!({"kind": "Secret", "apiVersion": "v1", "name": "none"})),
        r#"404: secrets "none" not found"#,
    );
    check(
        bound(json!({"kind": "ConfigMap", "apiVersion": "v1", "name": "none"})),
        "400: cannot bind token to object of type /v1, Kind=ConfigMap",
    );
    check(
        bound(json!({"kind": "Secret", "apiVersion": "v1", "name": "lease", "uid": "s0"})),
        r#"409: Operation cannot be fulfilled on Secret "lease": the UID in the bound object reference (s0) does not match the UID in record. The object might have been deleted and then recreated"#,
    );
    check(
        json!({"metadata": {"name": "other"}}),
        r#"422: TokenRequest.authentication.k8s.io "sa" is invalid: metadata.name: Invalid value: "other": must match the service account name if specified"#,
    );
    check(
        json!({"metadata": {"uid": "zzz"}}),
        r#"409: Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "sa": the UID in the token request (zzz) does not match the UID of the service account (u1)"#,
    );
}
