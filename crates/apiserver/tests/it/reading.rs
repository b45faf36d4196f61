//! Lists: chunks, what remains, which revision, selectors; and what a client is told when it asks for the past.

use serde_json::{Value, json};

use crate::support::{Asker, Hub, SECRETS, secret, version};

async fn fill(ask: &Asker, count: usize) -> Value {
    for index in 0..count {
        let labels = json!({"odd": (index % 2 == 1).to_string()});
        ask.post(SECRETS, &secret(&format!("m{index:02}"), &labels)).await.ok();
    }
    ask.get(SECRETS).await.ok()
}

fn token(list: &Value) -> &str {
    list["metadata"]["continue"].as_str().unwrap_or("")
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_are_of_one_moment() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let before = fill(ask, 7).await;
    let total = names(&before).len();
    let first = ask.get(&format!("{SECRETS}?limit=3")).await.ok();
    assert_eq!(names(&first), names(&before)[..3]);
    assert_eq!(first["metadata"]["remainingItemCount"], json!(total - 3));

    // Whatever happens between chunks is not in them.
    ask.delete(&format!("{SECRETS}/m06")).await.ok();
    ask.post(SECRETS, &secret("m99", &json!({}))).await.ok();
    let mut seen: Vec<String> = names(&first).into_iter().map(str::to_owned).collect();
    let mut chunk = first.clone();
    while !token(&chunk).is_empty() {
        chunk = ask.get(&format!("{SECRETS}?limit=3&continue={}", token(&chunk))).await.ok();
        assert_eq!(version(&chunk), version(&first));
        seen.extend(names(&chunk).into_iter().map(str::to_owned));
    }
    assert_eq!(seen, names(&before));
    assert_eq!(chunk["metadata"].get("remainingItemCount"), None);

    // With a selector nobody counts what remains.
    let odd = ask.get(&format!("{SECRETS}?limit=1&labelSelector=odd%3Dtrue")).await.ok();
    assert_eq!((names(&odd), odd["metadata"].get("remainingItemCount")), (vec!["m01"], None));
    let next = format!("{SECRETS}?limit=5&labelSelector=odd%3Dtrue&continue={}", token(&odd));
    assert_eq!(ask.get(&next).await.names(), ["m03", "m05"]);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_chunk_goes_on_inconsistently_if_the_client_wants() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    fill(ask, 5).await;
    let first = ask.get(&format!("{SECRETS}?limit=3")).await.ok();
    ask.delete(&format!("{SECRETS}/m04")).await.ok();
    let last = ask.post(SECRETS, &secret("m77", &json!({}))).await.ok();
    hub.store.compact(version(&last)).await.unwrap();

    let old = ask.get(&format!("{SECRETS}?limit=3&continue={}", token(&first))).await;
    let offered = token(&old.body).to_owned();
    let said = old.refused(410, "Expired");
    assert!(said.starts_with("The provided continue parameter is too old"), "{said}");
    assert!(!offered.is_empty());
    let rest = ask.get(&format!("{SECRETS}?limit=30&continue={offered}")).await.ok();
    let skipped = names(&first).len();
    let now = ask.get(SECRETS).await.ok();
    assert_eq!(names(&rest), names(&now)[skipped..], "the rest as it is now");

    let past =
        ask.get(&format!("{SECRETS}?resourceVersion={}&resourceVersionMatch=Exact", version(&first))).await;
    past.refused(410, "Expired");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_say_which_moment_they_mean() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let then = fill(ask, 2).await;
    ask.post(SECRETS, &secret("later", &json!({}))).await.ok();
    let at = version(&then);

    let exact = ask.get(&format!("{SECRETS}?resourceVersion={at}&resourceVersionMatch=Exact")).await.ok();
    assert_eq!((names(&exact), version(&exact)), (names(&then), at));
    for query in [
        String::new(),
        "resourceVersion=0".into(),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan".into(),
        format!("resourceVersion={at}"),
        format!("resourceVersion={at}&resourceVersionMatch=NotOlderThan"),
    ] {
        assert_eq!(
            ask.get(&format!("{SECRETS}?{query}")).await.names().len(),
            names(&then).len() + 1,
            "{query}"
        );
    }
    let chunk = ask.get(&format!("{SECRETS}?limit=1")).await.ok();
    let go_on = token(&chunk);
    for (query, code, reason, said) in [
        ("resourceVersionMatch=Exact".into(), 422, "Invalid", "forbidden unless resourceVersion is provided"),
        (
            "resourceVersion=0&resourceVersionMatch=Exact".into(),
            422,
            "Invalid",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        (
            format!("resourceVersion={at}&resourceVersionMatch=Fuzzy"),
            422,
            "Invalid",
            "Unsupported value: \"Fuzzy\"",
        ),
        (
            format!("resourceVersion={at}&resourceVersionMatch=Exact&continue={go_on}"),
            422,
            "Invalid",
            "resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            format!("resourceVersion={at}&continue={go_on}"),
            400,
            "BadRequest",
            "specifying resource version is not allowed when using continue",
        ),
        ("sendInitialEvents=true".into(), 422, "Invalid", "sendInitialEvents is forbidden for list"),
        (
            "resourceVersion=99999999".into(),
            504,
            "Timeout",
            "Too large resource version: 99999999, current: ",
        ),
    ] {
        let message = ask.get(&format!("{SECRETS}?{query}")).await.refused(code, reason);
        assert!(message.contains(said), "{query}: {message}");
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_select() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    for (name, labels) in [
        ("a", json!({"tier": "web", "env": "prod"})),
        ("b", json!({"tier": "web"})),
        ("c", json!({"tier": "db", "env": ""})),
    ] {
        ask.post(SECRETS, &secret(name, &labels)).await.ok();
    }
    let ours = "tier";
    for (query, want) in [
        ("labelSelector=tier%3Dweb", vec!["a", "b"]),
        ("labelSelector=tier%3D%3Ddb", vec!["c"]),
        ("labelSelector=tier,tier!%3Dweb", vec!["c"]),
        ("labelSelector=tier+in+(web,db),!env", vec!["b"]),
        ("labelSelector=tier+notin+(web),tier", vec!["c"]),
        ("labelSelector=env%3D", vec!["c"]),
        ("labelSelector=tier&fieldSelector=metadata.name!%3Da", vec!["b", "c"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name%3Db,metadata.namespace%3Ddefault", vec!["b"]),
        ("fieldSelector=metadata.name%3Db,metadata.namespace%3Dother", vec![]),
    ] {
        assert_eq!(ask.get(&format!("{SECRETS}?{query}")).await.names(), want, "{query}");
        let everywhere = ask.get(&format!("/api/v1/secrets?{query}")).await.names();
        assert_eq!(everywhere, want, "everywhere: {query}");
    }
    let all = ask.get(&format!("/api/v1/secrets?labelSelector={ours}&limit=2")).await.ok();
    let rest = ask.get(&format!("/api/v1/secrets?labelSelector={ours}&continue={}", token(&all))).await;
    assert_eq!((names(&all), rest.names()), (vec!["a", "b"], vec!["c".to_owned()]));
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_kinds_select() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let secrets = SECRETS;
    for (name, kind) in [("plain", "Opaque"), ("pair", "example.com/pair")] {
        ask.post(secrets, &json!({"metadata": {"name": name}, "type": kind})).await.ok();
    }
    assert_eq!(ask.get(&format!("{secrets}?fieldSelector=type%3DOpaque")).await.names(), ["plain"]);
    let said = ask.get(&format!("{secrets}?fieldSelector=spec.x%3Dy")).await.refused(400, "BadRequest");
    assert!(said.contains("field label not supported: spec.x"), "{said}");
    assert_eq!(
        ask.get("/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name%3Ddefault")
            .await
            .names(),
        ["default"]
    );
    hub.stop().await;
}
