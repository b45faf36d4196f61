//! Two hubs on one etcd serve the same state, and an etcd that loses members loses nothing that was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::collecting::{define_widgets, widget_definition};
use crate::support::etcd::{self, Etcd};
use crate::support::{Answer, Asker, Hub, SECRETS, secret, version};

async fn hub(etcd: &Etcd, keys_of: Option<&Hub>, identity: &str) -> Hub {
    let files = tempfile::tempdir().unwrap();
    Hub::on(etcd.connect().await, files, keys_of.map(|other| &*other.directory), identity).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_through_one_hub_is_read_through_the_other() {
    let Some(etcd) = etcd::start(1) else { return };
    let a = hub(&etcd, None, "hub-a").await;
    let b = hub(&etcd, Some(&a), "hub-b").await;
    let janes = [a.with_token("jane-token").await, b.with_token("jane-token").await];
    let hubs = [&a.admin, &b.admin];
    for round in 0..20 {
        let (here, there) = (hubs[round % 2], hubs[(round + 1) % 2]);
        let name = format!("s{round:02}");
        let path = format!("{SECRETS}/{name}");
        let made = here.post(SECRETS, &secret(&name, &json!({}))).await.ok();
        assert_eq!(there.get(&path).await.ok(), made);
        let changed = there.patch("merge", &path, &json!({"data": {"b": "Mg=="}})).await.ok();
        assert_eq!(here.get(&path).await.ok(), changed);
        assert!(there.get(SECRETS).await.names().contains(&name));
        here.put(&path, &made).await.refused(409, "Conflict");
        here.delete(&path).await.ok();
        there.get(&path).await.refused(404, "NotFound");
        assert!(!there.get(SECRETS).await.names().contains(&name));

        let space = format!("/api/v1/namespaces/n{round}/secrets");
        here.post("/api/v1/namespaces", &json!({"metadata": {"name": format!("n{round}")}})).await.ok();
        there.post(&space, &secret("first", &json!({}))).await.ok();
        rights(here, &janes[(round + 1) % 2], round).await;
    }
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    define_widgets(&a.admin).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"x": 1}});
    b.admin.until(widgets, "served by the other hub", |answer| answer.code == 200).await;
    let made = b.admin.post(widgets, &widget).await.ok();
    assert_eq!(made["spec"], json!({"size": 3}), "with the definition's schema");
    let mut wider = widget_definition();
    wider["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"] =
        json!({"type": "integer"});
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    b.admin.patch("merge", definition, &json!({"spec": wider["spec"]})).await.ok();
    let wide = |answer: &Answer| answer.body["spec"].get("x").is_some();
    let again = || async {
        a.admin.post(&format!("{widgets}?dryRun=All"), &json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w2"}, "spec": {"x": 1},
    })).await
    };
    let until = async {
        while !wide(&again().await) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), until).await.expect("the new schema reaches both");
    b.stop().await;
    a.stop().await;
}

/// A binding made through one hub opens the other at once.
async fn rights(here: &Asker, jane: &Asker, round: usize) {
    let space = format!("n{round}");
    jane.get(&format!("/api/v1/namespaces/{space}/secrets")).await.refused(403, "Forbidden");
    let binding = json!({
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    here.post(&format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{space}/rolebindings"), &binding)
        .await
        .ok();
    assert_eq!(jane.get(&format!("/api/v1/namespaces/{space}/secrets")).await.names(), ["first"]);
}

/// Writes one Secret after another until told to stop; versions of what was acknowledged, by name.
async fn write_until(ask: Asker, prefix: &'static str, stop: Arc<AtomicBool>) -> BTreeMap<String, u64> {
    let mut acknowledged = BTreeMap::new();
    let mut refused = 0;
    for index in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("{prefix}-{index:05}");
        let answer = ask.post(SECRETS, &secret(&name, &json!({}))).await;
        match answer.code {
            201 => {
                acknowledged.insert(name, version(&answer.body));
            }
            // Not able to say whether it was written: clear, and worth another try.
            503 | 504 | 500 => {
                assert_eq!(answer.body["kind"], "Status", "{}", answer.body);
                assert_eq!(answer.code, 503, "{}", answer.body);
                refused += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            _ => panic!("{} {}", answer.code, answer.body),
        }
    }
    let _ = refused;
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_at_the_other_hub() {
    let Some(etcd) = etcd::start(1) else { return };
    let a = hub(&etcd, None, "hub-a").await;
    let b = hub(&etcd, Some(&a), "hub-b").await;
    let hubs = [&a.admin, &b.admin];
    let mut at = version(&a.admin.get(SECRETS).await.ok());
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    writers.spawn(write_until(a.admin.clone(), "a", stop.clone()));
    writers.spawn(write_until(b.admin.clone(), "b", stop.clone()));
    let mut seen = BTreeMap::new();
    for round in 0..20 {
        let path = format!("{SECRETS}?watch=1&resourceVersion={at}");
        let mut events = hubs[round % 2].watch(&path).await;
        for _ in 0..10 {
            at = note(&events.next().await.unwrap(), at, &mut seen);
        }
    }
    stop.store(true, Ordering::SeqCst);
    let acknowledged: BTreeMap<_, _> = writers.join_all().await.into_iter().flatten().collect();
    let last = acknowledged.values().max().copied().unwrap();
    let mut events = b.admin.watch(&format!("{SECRETS}?watch=1&resourceVersion={at}")).await;
    while at < last {
        at = note(&events.next().await.unwrap(), at, &mut seen);
    }
    assert_eq!(seen, acknowledged, "every write once, at its revision");
    b.stop().await;
    a.stop().await;
}

/// Notes an event that must be newer than all before.
fn note(event: &Value, after: u64, seen: &mut BTreeMap<String, u64>) -> u64 {
    assert_eq!(event["type"], "ADDED", "{event}");
    let at = version(&event["object"]);
    assert!(at > after, "{at} after {after}");
    let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(seen.insert(name, at), None, "seen twice: {event}");
    at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_hub_leads_when_the_leader_stops() {
    let Some(etcd) = etcd::start(1) else { return };
    let a = hub(&etcd, None, "hub-a").await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/landfall-hub";
    let held_by = |name: &'static str| {
        move |answer: &Answer| {
            let holder = answer.body["spec"]["holderIdentity"].as_str();
            holder.is_some_and(|holder| holder.starts_with(name))
        }
    };
    a.admin.until(lease, "the first hub leads", held_by("hub-a")).await;
    let b = hub(&etcd, Some(&a), "hub-b").await;
    a.stop().await;
    let moved = b.admin.until(lease, "the second hub leads", held_by("hub-b")).await;
    assert_eq!(moved.body["spec"]["leaseTransitions"], 1, "{}", moved.body);
    // Leading is keeping house.
    b.admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "after"}})).await.ok();
    b.admin.until("/api/v1/namespaces/after/serviceaccounts/default", "made", |a| a.code == 200).await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_loses_members_and_nothing_else() {
    let Some(mut etcd) = etcd::start(3) else { return };
    let hub = hub(&etcd, None, "hub-a").await;
    let ask = &hub.admin;
    let start = version(&ask.get(SECRETS).await.ok());
    let mut events = ask.watch(&format!("{SECRETS}?watch=1&resourceVersion={start}")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    writers.spawn(write_until(ask.clone(), "w", stop.clone()));

    // The leader goes: after an election writes go on.
    let leader = etcd.leader();
    etcd.kill(leader);
    let probe = |name: &str| secret(&format!("probe-{name}"), &json!({}));
    let works = |name: &'static str| async move {
        loop {
            let answer = ask.post(SECRETS, &probe(name)).await;
            match answer.code {
                // A write that was refused as unavailable may have been done.
                201 | 409 => return,
                503 => tokio::time::sleep(Duration::from_millis(50)).await,
                _ => panic!("{} {}", answer.code, answer.body),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), works("election")).await.expect("writes after an election");

    // The quorum goes: writes are refused clearly, and so are reads that must be of now; others go on.
    let second = (leader + 1) % 3;
    etcd.kill(second);
    let said = ask.post(SECRETS, &probe("no-quorum")).await.refused(503, "ServiceUnavailable");
    assert!(said.starts_with("the store is unavailable"), "{said}");
    ask.get(SECRETS).await.refused(503, "ServiceUnavailable");
    assert!(!ask.get(&format!("{SECRETS}?resourceVersion=0")).await.names().is_empty());
    assert_eq!(ask.get("/livez").await.code, 200);
    assert_eq!(ask.get("/readyz").await.code, 500);

    // It comes back: everything goes on, with nothing lost and nothing seen twice.
    etcd.revive(leader);
    etcd.revive(second);
    tokio::time::timeout(Duration::from_secs(60), works("back")).await.expect("writes with a quorum again");
    ask.until("/readyz", "ready again", |answer| answer.code == 200).await;
    stop.store(true, Ordering::SeqCst);
    let acknowledged = writers.join_all().await.pop().unwrap();
    let listed = ask.get(SECRETS).await.ok();
    let mut now = BTreeMap::new();
    for item in listed["items"].as_array().unwrap() {
        now.insert(item["metadata"]["name"].as_str().unwrap().to_owned(), version(item));
    }
    for (name, at) in &acknowledged {
        assert_eq!(now.get(name), Some(at), "{name} was acknowledged");
    }
    let (mut seen, mut at) = (BTreeMap::new(), start);
    while seen.len() < now.len() {
        at = note(&events.next().await.expect("the watch goes on"), at, &mut seen);
    }
    assert_eq!(seen, now, "the watch saw all of it");
    hub.stop().await;
}
