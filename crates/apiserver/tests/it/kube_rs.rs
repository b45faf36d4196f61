//! kube-rs: reflectors in both ways of listing run while objects are written, and end with the state of a list.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::reflector::{self, Lookup, store::Writer};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::JoinSet;

use crate::collecting::define_widgets;
use crate::support::{Hub, PATIENCE, run_for};

const SPACE: &str = "kube-rs";

/// Versions by name: what two views of a collection are compared by.
type View = BTreeMap<String, String>;

fn view<'a, K: Resource + 'a>(objects: impl IntoIterator<Item = &'a K>) -> View {
    objects
        .into_iter()
        .map(|o| (o.name_any(), ResourceExt::resource_version(o).unwrap_or_default()))
        .collect()
}

/// A collection that reflectors follow.
struct Followed<K: Lookup + Clone + 'static>
where
    K::DynamicType: std::hash::Hash + Eq + Clone,
{
    api: Api<K>,
    stores: Vec<reflector::Store<K>>,
}

impl<K> Followed<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: std::hash::Hash + Eq + Clone + Send + Sync,
{
    fn start(api: Api<K>, kind: &K::DynamicType, running: &mut JoinSet<()>) -> Self {
        let ways = [
            watcher::Config::default().page_size(7),
            watcher::Config::default().streaming_lists(),
            // Short watches, so that they resume many times.
            watcher::Config::default().streaming_lists().timeout(2),
            watcher::Config::default().any_semantic().timeout(3),
        ];
        let mut stores = Vec::new();
        for way in ways {
            let writer = Writer::new(kind.clone());
            stores.push(writer.as_reader());
            let events = watcher(api.clone(), way).default_backoff().reflect(writer);
            running.spawn(events.for_each(|_| async {}));
        }
        Self { api, stores }
    }

    async fn ready(&self) {
        for store in &self.stores {
            tokio::time::timeout(PATIENCE, store.wait_until_ready()).await.expect("in time").unwrap();
        }
    }

    /// Waits until every store shows what a list shows.
    async fn agrees(&self) {
        let list = self.api.list(&ListParams::default()).await.unwrap();
        let want = view(&list.items);
        for (way, store) in self.stores.iter().enumerate() {
            let have = || view(store.state().iter().map(|object| &**object));
            let same = async {
                while have() != want {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let agreed = tokio::time::timeout(PATIENCE, same).await;
            assert!(agreed.is_ok(), "way {way}: {:?}, listed {want:?}", have());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflectors_agree_with_lists_under_writes() {
    let hub = Hub::start().await;
    hub.admin.post("/api/v1/namespaces", &json!({"metadata": {"name": SPACE}})).await.ok();
    define_widgets(&hub.admin).await;
    let widget = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let client = &hub.client;
    let mut running = JoinSet::new();
    let maps = Followed::<ConfigMap>::start(Api::namespaced(client.clone(), SPACE), &(), &mut running);
    let services = Followed::<Service>::start(Api::all(client.clone()), &(), &mut running);
    let deployments =
        Followed::<Deployment>::start(Api::namespaced(client.clone(), SPACE), &(), &mut running);
    let widgets =
        Followed::<DynamicObject>::start(Api::all_with(client.clone(), &widget), &widget, &mut running);
    maps.ready().await;
    services.ready().await;
    deployments.ready().await;
    widgets.ready().await;

    let mut writers = JoinSet::new();
    for seed in 0..3 {
        writers.spawn(write(client.clone(), widget.clone(), seed));
    }
    let writes: u64 = writers.join_all().await.into_iter().sum();
    maps.agrees().await;
    services.agrees().await;
    deployments.agrees().await;
    widgets.agrees().await;
    assert!(writes > 100, "only {writes} writes");
    running.abort_all();
    hub.stop().await;
}

/// Creates, changes and deletes at random; how many writes there were.
async fn write(client: Client, widget: ApiResource, seed: u64) -> u64 {
    let end = landfall_runtime::clock::instant() + run_for();
    let mut luck = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut writes = 0;
    while landfall_runtime::clock::instant() < end {
        luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (kind, deed, number) = ((luck >> 33) % 4, (luck >> 40) % 4, (luck >> 50) % 20);
        let name = format!("busy-{number:02}");
        match kind {
            0 => {
                once(
                    &Api::namespaced(client.clone(), SPACE),
                    deed,
                    luck,
                    object::<ConfigMap>(&name, &json!({})),
                )
                .await
            }
            1 => {
                let spec = json!({"spec": {"ports": [{"port": 80}]}});
                once(&Api::namespaced(client.clone(), SPACE), deed, luck, object::<Service>(&name, &spec))
                    .await;
            }
            2 => {
                let api = Api::namespaced(client.clone(), SPACE);
                once(&api, deed, luck, object::<Deployment>(&name, &deployment())).await;
            }
            _ => {
                let api = Api::namespaced_with(client.clone(), SPACE, &widget);
                let spec = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 2}});
                once(&api, deed, luck, object::<DynamicObject>(&name, &spec)).await;
            }
        }
        writes += 1;
    }
    writes
}

fn object<K: DeserializeOwned>(name: &str, rest: &serde_json::Value) -> K {
    let mut value = rest.clone();
    value["metadata"] = json!({"name": name});
    serde_json::from_value(value).unwrap()
}

fn deployment() -> serde_json::Value {
    json!({"spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})
}

/// One write; losing a race with another writer is fine, anything else is not.
async fn once<K>(api: &Api<K>, deed: u64, luck: u64, object: K)
where
    K: Resource + Clone + DeserializeOwned + serde::Serialize + Debug,
{
    let name = object.name_any();
    let labels = json!({"metadata": {"labels": {"luck": luck.to_string()}}});
    let done = match deed {
        0 => api.delete(&name, &DeleteParams::default()).await.map(drop),
        1 => api.patch(&name, &PatchParams::default(), &Patch::Merge(labels)).await.map(drop),
        _ => api.create(&PostParams::default(), &object).await.map(drop),
    };
    match done {
        Ok(()) => {}
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(other) => panic!("not {other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typed_calls_do_what_they_say() {
    let hub = Hub::start().await;
    let api: Api<Deployment> = Api::default_namespaced(hub.client.clone());
    let params = PatchParams::apply("kube-rs").force();
    let mut wanted = deployment();
    wanted["apiVersion"] = json!("apps/v1");
    wanted["kind"] = json!("Deployment");
    wanted["metadata"] = json!({"name": "web"});
    let made = api.patch("web", &params, &Patch::Apply(&wanted)).await.unwrap();
    assert_eq!(made.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("kube-rs"));
    let scaled = api
        .patch_scale("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}})))
        .await;
    assert_eq!(scaled.unwrap().spec.unwrap().replicas, Some(3));
    let status = Patch::Merge(json!({"status": {"replicas": 3, "observedGeneration": 2}}));
    let now = api.patch_status("web", &PatchParams::default(), &status).await.unwrap();
    assert_eq!((now.spec.unwrap().replicas, now.status.unwrap().replicas), (Some(3), Some(3)));
    let strategic = Patch::Strategic(
        json!({"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "e"}]}}}}),
    );
    let now = api.patch("web", &PatchParams::default(), &strategic).await.unwrap();
    assert_eq!(now.spec.unwrap().template.spec.unwrap().containers.len(), 2);

    let secrets: Api<Secret> = Api::default_namespaced(hub.client.clone());
    let held: Secret =
        serde_json::from_value(json!({"metadata": {"name": "held", "finalizers": ["example.com/a"]}}))
            .unwrap();
    secrets.create(&PostParams::default(), &held).await.unwrap();
    let marked = secrets
        .delete("held", &DeleteParams::background())
        .await
        .unwrap()
        .left()
        .expect("held by its finalizer");
    assert!(marked.metadata.deletion_timestamp.is_some());
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    secrets.patch("held", &PatchParams::default(), &free).await.unwrap();
    assert!(secrets.get_opt("held").await.unwrap().is_none());

    let found = kube::discovery::Discovery::new(hub.client.clone()).run_aggregated().await.unwrap();
    let groups: Vec<_> = found.groups().map(|group| group.name().to_owned()).collect();
    assert!(groups.iter().any(|name| name == "apps") && groups.iter().any(String::is_empty), "{groups:?}");
    hub.stop().await;
}
