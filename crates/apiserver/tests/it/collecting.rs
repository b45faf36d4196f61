//! What the hub does on its own: garbage collection, the end of namespaces, kinds that users define.

use serde_json::{Value, json};

use crate::support::{Asker, Hub, SECRETS, secret, version};

async fn family(ask: &Asker, owner: &str) -> Value {
    let made = ask.post(SECRETS, &secret(owner, &json!({}))).await.ok();
    for child in ["x", "y"] {
        let mut object = secret(&format!("{owner}-{child}"), &json!({}));
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Secret", "name": owner, "uid": made["metadata"]["uid"],
            "blockOwnerDeletion": true,
        }]);
        ask.post(SECRETS, &object).await.ok();
    }
    made
}

fn policy(propagation: &str) -> Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_go_stay_or_go_first() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let one = |name: &str| format!("{SECRETS}/{name}");

    family(ask, "back").await;
    ask.delete_with(&one("back"), &policy("Background")).await.ok();
    ask.get(&one("back")).await.refused(404, "NotFound");
    ask.gone(&one("back-x")).await;
    ask.gone(&one("back-y")).await;

    let made = family(ask, "fore").await;
    // A dependent that is held keeps its owner.
    ask.patch("merge", &one("fore-y"), &json!({"metadata": {"finalizers": ["example.com/a"]}})).await.ok();
    let mut events = ask.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&made))).await;
    let marked = ask.delete_with(&one("fore"), &policy("Foreground")).await.ok();
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    ask.gone(&one("fore-x")).await;
    ask.get(&one("fore")).await.ok();
    ask.until(&one("fore-y"), "marked", |a| a.body["metadata"]["deletionTimestamp"].is_string()).await;
    ask.patch("json", &one("fore-y"), &json!([{"op": "remove", "path": "/metadata/finalizers"}])).await.ok();
    ask.gone(&one("fore")).await;
    let mut deleted = Vec::new();
    while deleted.last().is_none_or(|name| name != "DELETED fore") {
        let step = events.step().await;
        if step.starts_with("DELETED") {
            deleted.push(step);
        }
    }
    assert_eq!(deleted, ["DELETED fore-x", "DELETED fore-y", "DELETED fore"], "dependents first");

    family(ask, "orphan").await;
    ask.delete_with(&one("orphan"), &policy("Orphan")).await.ok();
    ask.gone(&one("orphan")).await;
    for child in ["orphan-x", "orphan-y"] {
        let left = ask.get(&one(child)).await.ok();
        assert_eq!(left["metadata"].get("ownerReferences"), None, "{left}");
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_owner_left_is_collected() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let mut lost = secret("lost", &json!({}));
    lost["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Secret", "name": "never", "uid": "11111111-2222-3333-4444-555555555555"}]);
    ask.post(SECRETS, &lost).await.ok();
    ask.gone(&format!("{SECRETS}/lost")).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_ends_with_all_that_is_in_it() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let (space, inside) = ("/api/v1/namespaces/doomed", "/api/v1/namespaces/doomed/secrets");
    let made = ask.post("/api/v1/namespaces", &json!({"metadata": {"name": "doomed"}})).await.ok();
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    ask.until("/api/v1/namespaces/doomed/serviceaccounts/default", "made", |a| a.code == 200).await;
    ask.until("/api/v1/namespaces/doomed/configmaps/kube-root-ca.crt", "made", |a| a.code == 200).await;
    ask.post(inside, &secret("free", &json!({}))).await.ok();
    let mut held = secret("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/a"]);
    ask.post(inside, &held).await.ok();

    let marked = ask.delete(space).await.ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    let said = ask.post(inside, &secret("late", &json!({}))).await;
    assert_eq!(said.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let said = said.refused(403, "Forbidden");
    assert!(
        said.contains("unable to create new content in namespace doomed because it is being terminated"),
        "{said}"
    );
    ask.gone(&format!("{inside}/free")).await;
    let waiting = |answer: &crate::support::Answer| {
        let conditions = answer.body["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter().any(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True")
        })
    };
    ask.until(space, "says what it waits for", waiting).await;
    ask.patch("merge", &format!("{inside}/held"), &json!({"metadata": {"finalizers": null}})).await.ok();
    ask.gone(space).await;
    assert!(ask.get(inside).await.names().is_empty());
    ask.delete("/api/v1/namespaces/default").await.refused(403, "Forbidden");
    hub.stop().await;
}

pub(crate) fn widget_definition() -> Value {
    let schema = |extra: Value| {
        let mut properties = json!({
            "size": {"type": "integer", "minimum": 1, "default": 3}, "colour": {"type": "string"},
        });
        properties.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": properties},
            "status": {"type": "object", "properties": {"ready": {"type": "integer"}, "selector": {"type": "string"}}},
        }}})
    };
    let subresources = json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready", "labelSelectorPath": ".status.selector",
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema(json!({})), "subresources": subresources},
                {"name": "v1beta1", "served": true, "storage": false, "schema": schema(json!({"old": {"type": "string"}})),
                 "subresources": subresources},
            ],
        },
    })
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn established(answer: &crate::support::Answer) -> bool {
    let conditions = answer.body["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Established" && c["status"] == "True"))
}

/// Defines widgets and waits until they are served.
pub(crate) async fn define_widgets(ask: &Asker) {
    ask.post(DEFINITIONS, &widget_definition()).await.ok();
    ask.until(&format!("{DEFINITIONS}/widgets.example.com"), "established", established).await;
    ask.until("/apis/example.com/v1/widgets", "served", |answer| answer.code == 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_defined_kind_has_two_versions_and_an_end() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let path = |version: &str| format!("/apis/example.com/{version}/namespaces/default/widgets");
    assert_eq!(ask.get(&path("v1")).await.code, 404);
    define_widgets(ask).await;
    let widget = json!({
        "apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"colour": "red", "old": "x", "unknown": 1}, "status": {"ready": 9},
    });
    let made = ask.post(&path("v1beta1"), &widget).await.ok();
    assert_eq!(made["spec"], json!({"colour": "red", "old": "x", "size": 3}), "pruned and defaulted");
    assert_eq!((made.get("status"), &made["metadata"]["generation"]), (None, &json!(1)));

    let mut v1 = ask.watch(&format!("{}?watch=1", path("v1"))).await;
    let mut beta = ask.watch(&format!("{}?watch=1", path("v1beta1"))).await;
    for (events, version) in [(&mut v1, "example.com/v1"), (&mut beta, "example.com/v1beta1")] {
        let event = events.next().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["apiVersion"]), (&json!("ADDED"), &json!(version)));
    }
    let status = json!({"status": {"ready": 2, "selector": "a=b"}, "spec": {"size": 50}});
    let after = ask.patch("merge", &format!("{}/w/status", path("v1")), &status).await.ok();
    assert_eq!((&after["spec"]["size"], &after["status"]["ready"]), (&json!(3), &json!(2)));
    let scaled =
        ask.patch("merge", &format!("{}/w/scale", path("v1")), &json!({"spec": {"replicas": 5}})).await.ok();
    assert_eq!((&scaled["spec"]["replicas"], &scaled["status"]["replicas"]), (&json!(5), &json!(2)));
    let bad = json!({"spec": {"size": 0}});
    let said = ask.patch("merge", &format!("{}/w", path("v1")), &bad).await.refused(422, "Invalid");
    assert!(
        said.contains("spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        "{said}"
    );
    ask.patch("strategic", &format!("{}/w", path("v1")), &bad).await.refused(415, "UnsupportedMediaType");
    let applied = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w2"}, "spec": {"size": 7}});
    let applied = ask.patch("apply", &format!("{}/w2?fieldManager=me", path("v1")), &applied).await;
    assert_eq!(applied.code, 201);
    let no_version =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}});
    let said = ask.put(&format!("{}/w", path("v1")), &no_version).await.refused(422, "Invalid");
    assert!(
        said.contains("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        "{said}"
    );

    let group = ask.get("/apis/example.com").await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    ask.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    ask.gone(&format!("{DEFINITIONS}/widgets.example.com")).await;
    ask.gone(&path("v1")).await;
    define_widgets(ask).await;
    assert!(ask.get(&path("v1")).await.names().is_empty(), "its objects went with it");
    hub.stop().await;
}
