//! Watches: selections that objects enter and leave, where a watch begins, bookmarks, streamed lists, ends.

use serde_json::{Value, json};

use crate::support::{Asker, Hub, SECRETS, secret, version};

async fn create(ask: &Asker, name: &str, labels: &Value) -> Value {
    ask.post(SECRETS, &secret(name, labels)).await.ok()
}

async fn relabel(ask: &Asker, name: &str, labels: &Value) -> Value {
    ask.patch("merge", &format!("{SECRETS}/{name}"), &json!({"metadata": {"labels": labels}})).await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_enter_and_leave_a_selection() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    create(ask, "in", &json!({"tier": "web"})).await;
    create(ask, "out", &json!({"tier": "db"})).await;
    let mut web = ask.watch(&format!("{SECRETS}?watch=1&labelSelector=tier%3Dweb")).await;
    web.expect(&["ADDED in"]).await;

    relabel(ask, "out", &json!({"tier": "web"})).await;
    relabel(ask, "out", &json!({"more": "x"})).await;
    web.expect(&["ADDED out", "MODIFIED out"]).await;
    let left = relabel(ask, "out", &json!({"tier": "db"})).await;
    let event = web.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["labels"]["tier"]),
        (&json!("DELETED"), &json!("web"))
    );
    assert_eq!(version(&event["object"]), version(&left), "at the revision of its leaving");

    // What happens outside of the selection is not seen, and a deletion inside is.
    ask.delete(&format!("{SECRETS}/out")).await.ok();
    let gone = ask.delete(&format!("{SECRETS}/in")).await;
    gone.ok();
    web.expect(&["DELETED in"]).await;
    create(ask, "last", &json!({"tier": "web"})).await;
    web.expect(&["ADDED last"]).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_object_is_watched_by_its_name() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let made = create(ask, "a", &json!({})).await;
    create(ask, "ab", &json!({})).await;
    let after = version(&made);
    let mut by_field = ask
        .watch(&format!("{SECRETS}?watch=1&fieldSelector=metadata.name%3Da&resourceVersion={after}"))
        .await;
    let mut old_style =
        ask.watch(&format!("/api/v1/watch/namespaces/default/secrets/a?resourceVersion={after}")).await;
    relabel(ask, "ab", &json!({"x": "y"})).await;
    relabel(ask, "a", &json!({"x": "y"})).await;
    for events in [&mut by_field, &mut old_style] {
        events.expect(&["MODIFIED a"]).await;
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_begins_where_it_is_told() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let first = create(ask, "a", &json!({})).await;
    create(ask, "b", &json!({})).await;
    ask.delete(&format!("{SECRETS}/a")).await.ok();

    // From a revision: everything after it, deletions included.
    let mut from = ask.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&first))).await;
    from.expect(&["ADDED b", "DELETED a"]).await;
    // From nothing, or 0: the state as it is.
    for begin in ["", "&resourceVersion=0"] {
        let mut now = ask.watch(&format!("{SECRETS}?watch=1{begin}")).await;
        now.expect(&["ADDED b"]).await;
    }
    // Far ahead there is nothing yet; nonsense is nonsense.
    let mut ahead = ask.watch(&format!("{SECRETS}?watch=1&resourceVersion=999999999&timeoutSeconds=1")).await;
    assert_eq!(ahead.next().await, None);
    let odd = ask.get(&format!("{SECRETS}?watch=1&resourceVersion=x")).await.refused(400, "BadRequest");
    assert!(odd.contains("resourceVersion: Invalid value: \"x\""), "{odd}");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_list_ends_with_its_bookmark() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    create(ask, "a", &json!({"tier": "web"})).await;
    create(ask, "b", &json!({})).await;
    let newest = version(&create(ask, "c", &json!({"tier": "web"})).await);
    let stream = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut list = ask.watch(&format!("{SECRETS}?{stream}&labelSelector=tier%3Dweb")).await;
    list.expect(&["ADDED a", "ADDED c"]).await;
    let mark = list.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["kind"], "Secret");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert!(version(&mark["object"]) >= newest, "{mark}");
    create(ask, "d", &json!({"tier": "web"})).await;
    list.expect(&["ADDED d"]).await;

    // An empty collection is a bookmark alone, of the kind that was asked for.
    let mut none = ask.watch(&format!("/apis/apps/v1/deployments?{stream}&resourceVersion=0")).await;
    let mark = none.next().await.unwrap();
    assert_eq!((&mark["type"], &mark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Deployment")));

    for (query, cause) in [
        ("sendInitialEvents=true", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (
            "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        let said = ask.get(&format!("{SECRETS}?watch=1&{query}")).await.refused(422, "Invalid");
        assert!(said.contains(cause), "{query}: {said}");
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_end_in_time_and_with_the_server() {
    let hub = Hub::start().await;
    let mut short = hub.admin.watch(&format!("{SECRETS}?watch=1&timeoutSeconds=1")).await;
    assert_eq!(short.next().await, None, "ended by its own timeout");
    let mut long = hub.admin.watch(&format!("{SECRETS}?watch=1")).await;
    create(&hub.admin, "a", &json!({})).await;
    long.expect(&["ADDED a"]).await;
    hub.stop().await;
    assert_eq!(long.next().await, None, "ended in good order when the server stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_a_forgotten_past_says_so() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    let first = version(&create(ask, "a", &json!({})).await);
    relabel(ask, "a", &json!({"x": "y"})).await;
    let last = version(&relabel(ask, "a", &json!({"x": "z"})).await);
    hub.store.compact(last).await.unwrap();
    let mut late = ask.watch(&format!("{SECRETS}?watch=1&resourceVersion={first}")).await;
    let event = late.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["reason"]), (&json!("ERROR"), &json!("Expired")), "{event}");
    assert_eq!(event["object"]["code"], 410);
    assert_eq!(late.next().await, None, "and the watch ends");
    let mut current = ask.watch(&format!("{SECRETS}?watch=1&resourceVersion={last}")).await;
    create(ask, "b", &json!({})).await;
    current.expect(&["ADDED b"]).await;
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_and_metadata_are_watched_too() {
    let hub = Hub::start().await;
    let ask = &hub.admin;
    create(ask, "a", &json!({})).await;
    let accept = |form: &str| [("accept", format!("application/json;as={form};v=v1;g=meta.k8s.io"))];
    let path = format!("{SECRETS}?watch=1&timeoutSeconds=1");
    for (form, kind, name) in [
        ("Table", "Table", "/object/rows/0/cells/0"),
        ("PartialObjectMetadata", "PartialObjectMetadata", "/object/metadata/name"),
    ] {
        let accept = accept(form);
        let headers: Vec<_> = accept.iter().map(|(name, value)| (*name, value.as_str())).collect();
        // One event and the end: the answer is one document.
        let event = ask.send("GET", &path, &headers, "").await.ok();
        assert_eq!(event["object"]["kind"], kind, "{event}");
        assert_eq!(event.pointer(name), Some(&json!("a")), "{event}");
        assert_eq!(event.pointer("/object/data"), None);
    }
    hub.stop().await;
}
