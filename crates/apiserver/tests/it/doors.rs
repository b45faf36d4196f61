//! Who may come in and what they may do: certificates, tokens, anonymous, roles, impersonation, reviews.

use serde_json::json;

use crate::support::{Hub, SECRETS, secret};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doors_open_to_those_with_a_key() {
    let hub = Hub::start().await;
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let admin = hub.admin.post(who, &review).await.ok();
    assert_eq!(admin["status"]["userInfo"]["groups"], json!(["system:masters", "system:authenticated"]));
    let jane = hub.with_token("jane-token").await;
    let seen = jane.post(who, &review).await.ok();
    assert_eq!(seen["status"]["userInfo"]["username"], "jane");
    let nobody = hub.with_token("wrong").await;
    let said = nobody.get("/api/v1/namespaces").await.refused(401, "Unauthorized");
    assert_eq!(said, "Unauthorized");
    let said = jane.get(SECRETS).await.refused(403, "Forbidden");
    assert_eq!(
        said,
        "secrets is forbidden: User \"jane\" cannot list resource \"secrets\" in API group \"\" in the namespace \
         \"default\""
    );
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_give_what_they_say_at_once() {
    let hub = Hub::start().await;
    let (ask, jane) = (&hub.admin, hub.with_token("jane-token").await);
    ask.post(SECRETS, &secret("a", &json!({}))).await.ok();
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}],
    });
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    ask.post(&roles, &role).await.ok();
    let binding = json!({
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}],
    });
    ask.post(&bindings, &binding).await.ok();
    assert_eq!(jane.get(SECRETS).await.names(), ["a"]);
    jane.post(SECRETS, &secret("b", &json!({}))).await.refused(403, "Forbidden");
    jane.get("/api/v1/secrets").await.refused(403, "Forbidden");
    let mut events = jane.watch(&format!("{SECRETS}?watch=1")).await;
    events.expect(&["ADDED a"]).await;
    let can = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "secrets", "namespace": "default"}}});
    let review = jane.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &can).await.ok();
    assert_eq!(review["status"]["allowed"], true);

    // Nobody gives what they do not have.
    let rights = json!({
        "metadata": {"name": "binder"},
        "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}],
    });
    ask.post(&roles, &rights).await.ok();
    let mut second = binding.clone();
    second["metadata"]["name"] = json!("binders");
    second["roleRef"]["name"] = json!("binder");
    ask.post(&bindings, &second).await.ok();
    let more = json!({
        "metadata": {"name": "more"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]}],
    });
    let said = jane.post(&roles, &more).await.refused(403, "Forbidden");
    assert!(said.contains("is attempting to grant RBAC permissions not currently held"), "{said}");

    ask.delete(&format!("{bindings}/readers")).await.ok();
    // Taking away reaches a hub's policy with its watch, soon after.
    let refused = |answer: &crate::support::Answer| answer.code == 403;
    jane.until(SECRETS, "taken away", refused).await;
    hub.stop().await;
}

/// Who may read all Secrets may not read the members' credentials: neither one by one, nor among all others, nor by writing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_of_members_are_not_given_out_by_roles() {
    let hub = Hub::start().await;
    let (ask, jane) = (&hub.admin, hub.with_token("jane-token").await);
    ask.post("/api/v1/namespaces", &json!({"metadata": {"name": "landfall-system"}})).await.ok();
    let inside = "/api/v1/namespaces/landfall-system/secrets";
    ask.post(inside, &secret("cluster-east", &json!({}))).await.ok();
    ask.post(SECRETS, &secret("a", &json!({}))).await.ok();
    let binding = json!({
        "metadata": {"name": "everything"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    ask.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.ok();
    let everywhere = |answer: &crate::support::Answer| answer.code == 200;
    jane.until(SECRETS, "she may", everywhere).await;

    let said = jane.get(&format!("{inside}/cluster-east")).await.refused(403, "Forbidden");
    assert_eq!(
        said,
        "secrets \"cluster-east\" is forbidden: User \"jane\" cannot get resource \"secrets\" in API group \"\" in the \
         namespace \"landfall-system\": the credentials of member clusters in landfall-system are read by the hub and by \
         the group system:masters only"
    );
    for path in [
        inside.to_owned(),
        format!("{inside}?watch=1"),
        format!("{inside}?fieldSelector=metadata.name%3Dcluster-east"),
    ] {
        jane.get(&path).await.refused(403, "Forbidden");
    }
    jane.get("/api/v1/watch/namespaces/landfall-system/secrets/cluster-east").await.refused(403, "Forbidden");
    jane.delete(inside).await.refused(403, "Forbidden");
    let merge = [("content-type", "application/merge-patch+json")];
    jane.send("PATCH", &format!("{inside}/cluster-east"), &merge, "{}").await.refused(403, "Forbidden");
    let can = json!({"spec": {"resourceAttributes": {
        "verb": "get", "resource": "secrets", "namespace": "landfall-system", "name": "cluster-east",
    }}});
    let review = jane.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &can).await.ok();
    assert_eq!(review["status"]["allowed"], false);

    // Among all Secrets they are not there, in whatever form, by whatever selector, and no event tells of them.
    let names = jane.get("/api/v1/secrets").await.names();
    assert!(names.contains(&"a".to_owned()) && !names.contains(&"cluster-east".to_owned()), "{names:?}");
    let selected = "/api/v1/secrets?fieldSelector=metadata.namespace%3Dlandfall-system";
    assert!(jane.get(selected).await.names().is_empty());
    assert_eq!(ask.get(selected).await.names(), ["cluster-east"]);
    let named = "fieldSelector=metadata.name%3Da";
    let mut events = jane.watch(&format!("/api/v1/secrets?watch=1&{named}")).await;
    let mut all = jane.watch("/api/v1/secrets?watch=1").await;
    events.expect(&["ADDED a"]).await;
    all.expect(&["ADDED a"]).await;

    // Blindly, roles let her write.
    let mut held = secret("cluster-west", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    jane.post(inside, &held).await.ok();
    let gone = jane.delete(&format!("{inside}/cluster-west")).await.ok();
    assert_eq!((&gone["kind"], &gone["data"]), (&json!("Status"), &json!(null)), "not even what is held");
    ask.post(SECRETS, &secret("b", &json!({}))).await.ok();
    all.expect(&["ADDED b"]).await;
    let seen = ask.get(&format!("{inside}/cluster-west")).await.ok();
    assert_eq!(seen["metadata"]["name"], "cluster-west", "administrators read it");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_may_act_as_another_if_allowed() {
    let hub = Hub::start().await;
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let acting = hub.acting(&[
        ("impersonate-user", "max"),
        ("impersonate-group", "auditors"),
        ("impersonate-extra-reason", "audit"),
    ]);
    let seen = acting.post(who, &review).await.ok();
    let user = &seen["status"]["userInfo"];
    assert_eq!(user["username"], "max");
    assert_eq!(user["groups"], json!(["auditors", "system:authenticated"]));
    assert_eq!(user["extra"]["reason"], json!(["audit"]));
    let said = acting.get(SECRETS).await.refused(403, "Forbidden");
    assert!(said.contains("User \"max\" cannot list"), "{said}");
    let jane = hub.with_token("jane-token").await;
    let said = jane.send("GET", SECRETS, &[("impersonate-user", "root")], "").await.refused(403, "Forbidden");
    assert!(said.contains("User \"jane\" cannot impersonate"), "{said}");
    let half = hub.acting(&[("impersonate-group", "auditors")]).get(SECRETS).await;
    assert_eq!(half.code, 400, "a group without a user: {}", half.body);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_accounts_have_tokens() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let made = ask.post(accounts, &json!({"metadata": {"name": "robot"}})).await.ok();
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600},
    });
    let token = ask.post(&format!("{accounts}/robot/token"), &request).await;
    assert_eq!(token.code, 201);
    let token = token.body["status"]["token"].as_str().unwrap().to_owned();

    let robot = hub.with_token(&token).await;
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let seen = robot.post(who, &json!({})).await.ok();
    let user = &seen["status"]["userInfo"];
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    assert_eq!(user["uid"], made["metadata"]["uid"]);
    assert_eq!(
        user["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let reviewed = ask.post(reviews, &json!({"spec": {"token": token}})).await.ok();
    assert_eq!(reviewed["status"]["authenticated"], true);
    assert_eq!(reviewed["status"]["user"]["username"], "system:serviceaccount:default:robot");
    let wrong = ask.post(reviews, &json!({"spec": {"token": format!("{token}x")}})).await.ok();
    assert_ne!(wrong["status"]["authenticated"], true);

    // A token dies with its account, also when another one of that name is made.
    ask.delete(&format!("{accounts}/robot")).await.ok();
    robot.get("/version").await.refused(401, "Unauthorized");
    ask.post(accounts, &json!({"metadata": {"name": "robot"}})).await.ok();
    robot.get("/version").await.refused(401, "Unauthorized");
    ask.post(&format!("{accounts}/none/token"), &request).await.refused(404, "NotFound");
    hub.stop().await;
}
