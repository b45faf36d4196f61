//! Deletes: preconditions, finalizers, whole collections.

use serde_json::json;

use crate::support::{Hub, SECRETS, secret, version};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preconditions_hold_or_nothing_is_deleted() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let path = &format!("{SECRETS}/a");
    let made = ask.post(SECRETS, &secret("a", &json!({}))).await.ok();
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let on =
        |preconditions| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});

    let said = ask.delete_with(path, &on(json!({"uid": "other"}))).await.refused(409, "Conflict");
    assert_eq!(
        said,
        format!(
            "Operation cannot be fulfilled on Secret \"a\": the UID in the precondition (other) does not match the \
             UID in record ({uid}). The object might have been deleted and then recreated"
        )
    );
    let said = ask.delete_with(path, &on(json!({"resourceVersion": "1"}))).await.refused(409, "Conflict");
    assert_eq!(
        said,
        format!(
            "Operation cannot be fulfilled on Secret \"a\": the ResourceVersion in the precondition (1) does not \
             match the ResourceVersion in record ({}). The object might have been modified",
            version(&made)
        )
    );
    let gone =
        ask.delete_with(path, &on(json!({"uid": uid, "resourceVersion": version(&made).to_string()}))).await;
    let status = gone.ok();
    assert_eq!((&status["status"], &status["details"]["uid"]), (&json!("Success"), &json!(uid)));
    ask.delete(path).await.refused(404, "NotFound");
    let odd = ask.delete_with(path, &json!({"propagationPolicy": "Sideways"})).await;
    assert_eq!(odd.code, 422, "{}", odd.body);
    let two = ask.delete_with(path, &json!({"propagationPolicy": "Orphan", "orphanDependents": true})).await;
    assert_eq!(two.code, 422, "{}", two.body);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finalizers_hold_an_object() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let path = &format!("{SECRETS}/held");
    let mut object = secret("held", &json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    let made = ask.post(SECRETS, &object).await.ok();
    let mut events = ask.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&made))).await;

    let marked = ask.delete(path).await.ok();
    assert_eq!(marked["kind"], "Secret", "the object itself is the answer");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    ask.post(SECRETS, &object).await.refused(409, "AlreadyExists");
    let again = ask.delete(path).await.ok();
    assert_eq!(again["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);

    // Neither can the mark be taken off, nor a finalizer added.
    let more = json!({"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}});
    let said = ask.patch("merge", path, &more).await.refused(422, "Invalid");
    assert!(said.contains("no new finalizers can be added if the object is being deleted"), "{said}");
    let unmarked = ask.patch("merge", path, &json!({"metadata": {"deletionTimestamp": null}})).await.ok();
    assert_eq!(unmarked["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);

    let one = json!({"metadata": {"finalizers": ["example.com/b"]}});
    ask.patch("merge", path, &one).await.ok();
    ask.patch("json", path, &json!([{"op": "remove", "path": "/metadata/finalizers"}])).await.ok();
    ask.get(path).await.refused(404, "NotFound");
    events.expect(&["MODIFIED held", "MODIFIED held", "DELETED held"]).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_is_deleted_as_selected() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    for (name, tier) in [("a", "web"), ("b", "db"), ("c", "web")] {
        ask.post(SECRETS, &secret(name, &json!({"tier": tier}))).await.ok();
    }
    let mut held = secret("held", &json!({"tier": "web"}));
    held["metadata"]["finalizers"] = json!(["example.com/a"]);
    ask.post(SECRETS, &held).await.ok();
    ask.delete(&format!("{SECRETS}?labelSelector=tier%3Dweb&dryRun=All")).await.ok();
    assert_eq!(ask.get(SECRETS).await.names(), ["a", "b", "c", "held"]);

    let gone = ask.delete(&format!("{SECRETS}?labelSelector=tier%3Dweb")).await.ok();
    assert_eq!(gone["kind"], "SecretList");
    assert_eq!(ask.get(SECRETS).await.names(), ["b", "held"]);
    ask.delete(&format!("{SECRETS}?fieldSelector=metadata.name%3Db")).await.ok();
    assert_eq!(ask.get(SECRETS).await.names(), ["held"]);
    // Across all namespaces there is no such verb.
    ask.delete("/api/v1/secrets").await.refused(405, "MethodNotAllowed");
    ask.delete("/api/v1/namespaces").await.refused(405, "MethodNotAllowed");
    hub.stop().await;
}
