//! Killed in the middle of writes, again and again: every acknowledged write is there afterwards, whole.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinSet;

use super::hub::{Hub, secret};

const ROUNDS: u64 = 20;
const WRITERS: usize = 4;

/// What was acknowledged last of an object: its version, or that it is gone.
type Acknowledged = BTreeMap<String, Option<String>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_writes() {
    let directory = tempfile::tempdir().unwrap();
    let mut listen = "127.0.0.1:0".to_owned();
    let mut known = Acknowledged::new();
    let mut luck = 20_261_115_u64;
    for round in 0..ROUNDS {
        let hub = Hub::start(directory.path(), &listen);
        listen.clone_from(&hub.address);
        let api = hub.secrets().await;
        check(&api, &known, round).await;
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(api.clone(), format!("r{round:02}-w{writer}")));
        }
        luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(Duration::from_millis(50 + (luck >> 33) % 250)).await;
        hub.kill();
        known.extend(writers.join_all().await.into_iter().flatten());
    }
    assert!(
        known.len() > usize::try_from(ROUNDS).unwrap() * 2,
        "only {} objects: nothing was tried",
        known.len()
    );
    let hub = Hub::start(directory.path(), &listen);
    check(&hub.secrets().await, &known, ROUNDS).await;
    hub.stop();
}

/// Creates, changes and deletes until the hub is gone; what it acknowledged. A write without an answer may be either.
async fn write(api: Api<Secret>, prefix: String) -> Acknowledged {
    let mut known = Acknowledged::new();
    for index in 0.. {
        let name = format!("{prefix}-{index:04}");
        let version = |object: Secret| Some(object.resource_version().unwrap());
        let Ok(made) = api.create(&PostParams::default(), &secret(&name, &name)).await else { break };
        known.insert(name.clone(), version(made));
        if index % 2 == 0 {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"changed": "yes"}}}));
            let Ok(changed) = api.patch(&name, &PatchParams::default(), &patch).await else {
                known.remove(&name);
                break;
            };
            known.insert(name.clone(), version(changed));
        }
        if index % 3 == 0 {
            if api.delete(&name, &DeleteParams::default()).await.is_err() {
                known.remove(&name);
                break;
            }
            known.insert(name.clone(), None);
        }
    }
    known
}

async fn check(api: &Api<Secret>, known: &Acknowledged, round: u64) {
    let list = api.list(&ListParams::default()).await.unwrap();
    let mut found = BTreeMap::new();
    for object in list.items {
        let name = object.name_any();
        let text = object.data.as_ref().and_then(|data| data.get("text")).unwrap();
        assert_eq!(text.0, name.as_bytes(), "round {round}: {name} is not whole");
        found.insert(name, object.resource_version().unwrap());
    }
    for (name, version) in known {
        assert_eq!(found.get(name), version.as_ref(), "round {round}: {name}");
    }
}
