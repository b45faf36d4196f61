//! Creates, updates, patches: names, dry runs, preconditions, ownership, subresources, both shapes of a kind.

use serde_json::{Value, json};

use crate::support::{Hub, JSON, SECRETS, secret, version};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_given_or_made() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let made = ask.post(SECRETS, &json!({"metadata": {"generateName": "job-"}})).await.ok();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.len() == 9 && name.starts_with("job-"), "{name}");
    let long = "x".repeat(70);
    let made = ask.post(SECRETS, &json!({"metadata": {"generateName": long}})).await.ok();
    assert_eq!(made["metadata"]["name"].as_str().unwrap().len(), 63);

    let both = ask.post(SECRETS, &json!({"metadata": {"name": "a", "generateName": "b-"}})).await.ok();
    assert_eq!(both["metadata"]["name"], "a");
    let again = ask.post(SECRETS, &secret("a", &json!({}))).await.refused(409, "AlreadyExists");
    assert_eq!(again, "secrets \"a\" already exists");
    let none = ask.post(SECRETS, &json!({"metadata": {}})).await.refused(422, "Invalid");
    assert!(none.contains("metadata.name: Required value: name or generateName is required"), "{none}");
    let bad = ask.post(SECRETS, &secret("A_b", &json!({}))).await.refused(422, "Invalid");
    assert!(bad.contains("metadata.name: Invalid value: \"A_b\""), "{bad}");
    let elsewhere = json!({"metadata": {"name": "x", "namespace": "kube-system"}});
    let said = ask.post(SECRETS, &elsewhere).await.refused(400, "BadRequest");
    assert!(said.contains("does not match the namespace"), "{said}");
    let nowhere = ask.post("/api/v1/namespaces/nope/secrets", &secret("x", &json!({}))).await;
    assert_eq!(nowhere.refused(404, "NotFound"), "namespaces \"nope\" not found");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_changes_nothing() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    ask.post(DEPLOYMENTS, &deployment("kept", 1)).await.ok();
    ask.post(SECRETS, &secret("kept", &json!({}))).await.ok();
    let kept = format!("{DEPLOYMENTS}/kept");
    let before = ask.get(&kept).await.ok();
    let one = |path: &str| format!("{path}?dryRun=All");

    let made = ask.post(&one(DEPLOYMENTS), &deployment("new", 2)).await;
    assert_eq!(made.code, 201);
    assert_eq!(made.body["spec"]["strategy"]["type"], "RollingUpdate", "defaults are shown");
    ask.post(&one(DEPLOYMENTS), &deployment("kept", 2)).await.refused(409, "AlreadyExists");
    let put = ask.put(&one(&kept), &deployment("kept", 5)).await.ok();
    assert_eq!((&put["spec"]["replicas"], &put["metadata"]["generation"]), (&json!(5), &json!(2)));
    for kind in ["merge", "strategic"] {
        let patched = ask.patch(kind, &one(&kept), &json!({"spec": {"replicas": 7}})).await.ok();
        assert_eq!(patched["spec"]["replicas"], 7);
    }
    let scaled = ask.patch("merge", &one(&format!("{kept}/scale")), &json!({"spec": {"replicas": 9}})).await;
    assert_eq!(scaled.ok()["spec"]["replicas"], 9);
    let applied = format!("{DEPLOYMENTS}/applied?dryRun=All&fieldManager=me");
    assert_eq!(ask.patch("apply", &applied, &deployment("applied", 1)).await.code, 201);
    ask.delete(&one(&kept)).await.ok();
    ask.delete_with(&kept, &json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}))
        .await
        .ok();
    ask.delete(&one(DEPLOYMENTS)).await.ok();
    ask.put(
        &one(&format!("{kept}/status")),
        &json!({"metadata": {"name": "kept"}, "status": {"replicas": 3}}),
    )
    .await
    .ok();
    assert_eq!(ask.get(&kept).await.ok(), before);
    assert_eq!(ask.get(DEPLOYMENTS).await.names(), ["kept"]);
    let said =
        ask.post(&format!("{SECRETS}?dryRun=Some"), &secret("x", &json!({}))).await.refused(422, "Invalid");
    assert!(said.contains("dryRun: Unsupported value: "), "{said}");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_on_top_of_something_newer_are_refused() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let path = &format!("{SECRETS}/a");
    let mut old = ask.post(SECRETS, &secret("a", &json!({}))).await.ok();
    let mut newer = old.clone();
    newer["data"]["a"] = json!("Mg==");
    let written = ask.put(path, &newer).await.ok();
    assert!(version(&written) > version(&old));

    old["data"]["a"] = json!("Mw==");
    let said = ask.put(path, &old).await.refused(409, "Conflict");
    assert_eq!(
        said,
        "Operation cannot be fulfilled on secrets \"a\": the object has been modified; please apply your changes \
         to the latest version and try again"
    );
    let stale = json!({"metadata": {"resourceVersion": version(&old).to_string()}, "data": {"b": "MQ=="}});
    ask.patch("merge", path, &stale).await.refused(409, "Conflict");
    let other = json!({"metadata": {"name": "a", "uid": "11111111-2222-3333-4444-555555555555"}});
    ask.put(path, &other).await.refused(409, "Conflict");
    // Without a version an update is unconditional, and one that changes nothing is not a write.
    let mut same = written.clone();
    same["metadata"]["resourceVersion"] = json!("");
    assert_eq!(version(&ask.put(path, &same).await.ok()), version(&written));
    let wrong = ask.put(path, &secret("b", &json!({}))).await.refused(400, "BadRequest");
    assert_eq!(wrong, "the name of the object (b) does not match the name on the URL (a)");
    ask.put(&format!("{SECRETS}/none"), &secret("none", &json!({}))).await.refused(404, "NotFound");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appliers_own_their_fields() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let path = |manager: &str| format!("{DEPLOYMENTS}/web?fieldManager={manager}");
    let first = ask.patch("apply", &path("one"), &deployment("web", 1)).await;
    assert_eq!(first.code, 201);
    let replicas = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3},
    });
    let conflict = ask.patch("apply", &path("two"), &replicas).await;
    assert_eq!(conflict.body["details"]["causes"][0]["field"], ".spec.replicas");
    let said = conflict.refused(409, "Conflict");
    assert_eq!(said, "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas");
    let forced = ask.patch("apply", &format!("{}&force=true", path("two")), &replicas).await.ok();
    assert_eq!(forced["spec"]["replicas"], 3);
    // The first applier lets go of the field, and it stays with the second.
    let mut without = deployment("web", 1);
    without["spec"].as_object_mut().unwrap().remove("replicas");
    let kept = ask.patch("apply", &path("one"), &without).await.ok();
    assert_eq!(kept["spec"]["replicas"], 3);
    let managers = kept["metadata"]["managedFields"].as_array().unwrap();
    let mut names: Vec<_> = managers.iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "two"]);
    let none = ask.patch("apply", &format!("{DEPLOYMENTS}/web"), &without).await;
    assert_eq!((none.code, none.body["reason"].as_str()), (422, Some("Invalid")), "a manager must be named");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_scale_are_apart() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let mut wanted = deployment("web", 1);
    wanted["status"] = json!({"replicas": 8});
    let made = ask.post(DEPLOYMENTS, &wanted).await.ok();
    assert_eq!((&made["status"]["replicas"], &made["metadata"]["generation"]), (&Value::Null, &json!(1)));
    let status = format!("{DEPLOYMENTS}/web/status");
    let mut reported = made.clone();
    reported["status"] = json!({"replicas": 1, "observedGeneration": 1});
    reported["spec"]["replicas"] = json!(50);
    let after = ask.put(&status, &reported).await.ok();
    assert_eq!((&after["spec"]["replicas"], &after["status"]["replicas"]), (&json!(1), &json!(1)));
    assert_eq!(after["metadata"]["generation"], 1);

    let scale = format!("{DEPLOYMENTS}/web/scale");
    let now = ask.get(&scale).await.ok();
    assert_eq!((&now["kind"], &now["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
    assert_eq!(now["status"]["selector"], "app=web");
    let mut more = now.clone();
    more["spec"]["replicas"] = json!(4);
    ask.put(&scale, &more).await.ok();
    ask.put(&scale, &more).await.refused(409, "Conflict");
    let scaled = ask.get(&format!("{DEPLOYMENTS}/web")).await.ok();
    assert_eq!((&scaled["spec"]["replicas"], &scaled["metadata"]["generation"]), (&json!(4), &json!(2)));
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_event_has_two_shapes() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let old = "/api/v1/namespaces/default/events";
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "e1"}, "type": "Normal", "reason": "Moved", "message": "to another cluster",
        "involvedObject": {"kind": "Secret", "namespace": "default", "name": "a"},
        "source": {"component": "hub"}, "count": 2,
    });
    ask.post(old, &event).await.ok();
    let seen = ask.get(&format!("{new}/e1")).await.ok();
    assert_eq!(seen["apiVersion"], "events.k8s.io/v1");
    assert_eq!((&seen["note"], &seen["regarding"]["name"]), (&json!("to another cluster"), &json!("a")));
    assert_eq!(
        (&seen["deprecatedCount"], &seen["deprecatedSource"]["component"]),
        (&json!(2), &json!("hub"))
    );

    let event = json!({
        "metadata": {"name": "e2"}, "type": "Warning", "reason": "Lost", "note": "no more", "action": "Watching",
        "regarding": {"kind": "Secret", "namespace": "default", "name": "b"}, "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "landfall.dev/hub", "reportingInstance": "hub-1",
    });
    ask.post(new, &event).await.ok();
    let seen = ask.get(&format!("{old}/e2")).await.ok();
    assert_eq!((&seen["message"], &seen["involvedObject"]["name"]), (&json!("no more"), &json!("b")));
    assert_eq!(
        (&seen["reportingComponent"], &seen["eventTime"]),
        (&json!("landfall.dev/hub"), &json!("2026-01-02T03:04:05.000006Z"))
    );
    assert_eq!(ask.get(&format!("{old}?fieldSelector=involvedObject.name%3Db")).await.names(), ["e2"]);
    assert_eq!(ask.get(&format!("{new}?fieldSelector=regarding.name%3Da")).await.names(), ["e1"]);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_autoscaler_has_two_versions() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let path =
        |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    let target = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
    let old = json!({
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 9, "targetCPUUtilizationPercentage": 70},
    });
    ask.post(&path("v1"), &old).await.ok();
    let new = ask.get(&format!("{}/web", path("v2"))).await.ok();
    let metric = &new["spec"]["metrics"][0];
    assert_eq!((&new["apiVersion"], &new["spec"]["minReplicas"]), (&json!("autoscaling/v2"), &json!(1)));
    assert_eq!(
        metric["resource"]["target"],
        json!({"type": "Utilization", "averageUtilization": 70}),
        "{new}"
    );
    let patch = json!({"spec": {"metrics": [{"type": "Resource", "resource": {
        "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}]}});
    ask.patch("merge", &format!("{}/web", path("v2")), &patch).await.ok();
    let seen = ask.get(&format!("{}/web", path("v1"))).await.ok();
    assert_eq!(seen["spec"].get("targetCPUUtilizationPercentage"), None, "{seen}");
    let kept = seen["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].as_str();
    assert!(kept.is_some_and(|text| text.contains("memory")), "{seen}");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_nobody_knows_are_warned_about_or_refused() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let odd = json!({"metadata": {"name": "odd"}, "daata": {}});
    let warned = ask.post(&format!("{SECRETS}?dryRun=All"), &odd).await;
    assert!(
        warned.warnings.iter().any(|w| w.contains("unknown field \\\"daata\\\"")),
        "{:?}",
        warned.warnings
    );
    assert_eq!(warned.ok().get("daata"), None);
    let said = ask.post(&format!("{SECRETS}?fieldValidation=Strict"), &odd).await.refused(400, "BadRequest");
    assert!(said.ends_with("strict decoding error: unknown field \"daata\""), "{said}");
    let quiet = ask.post(&format!("{SECRETS}?fieldValidation=Ignore"), &odd).await;
    assert!(quiet.warnings.is_empty() && quiet.code == 201);
    let twice = "{\"metadata\":{\"name\":\"x\"},\"type\":\"a\",\"type\":\"b\"}";
    let said = ask.send("POST", &format!("{SECRETS}?fieldValidation=Strict"), &[JSON], twice).await;
    assert!(said.refused(400, "BadRequest").contains("duplicate field \"type\""));
    hub.stop().await;
}
