//! Writes against a whole server on an empty store, without HTTP.

use std::sync::Arc;

use landfall_api::{Kind, Status, kinds, meta};
use landfall_store::{embedded, open_embedded};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::patch::{Patch, patch};
use super::update::{Part, current, update};
use super::{By, Wanted, Written, create};
use crate::api::Api;
use crate::authn::User;
use crate::bootstrap::server as masters;
use crate::http::negotiate::Content;
use crate::options::FieldValidation;
use crate::start::{self, Server};
use crate::{bootstrap, encode, keys, pki};

/// A running server and where it keeps its data.
struct Hub {
    server: Server,
    _data: TempDir,
}

impl Hub {
    async fn start() -> Self {
        let data = TempDir::new().unwrap();
        let store = open_embedded(embedded::Config::new(data.path().join("store"))).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = start::Config {
            edge_certificate_s: 3600,
            pki: pki::Config { data_dir: data.path().join("pki"), ..pki::Config::default() },
            token_file: None,
            anonymous: false,
            audit: None,
            kinds: kinds::federation(),
            definitions: Vec::new(),
            identity: "test".into(),
            admission: None,
            beside: None,
        };
        let server = start::start(config, store, listener).await.unwrap();
        Self { server, _data: data }
    }

    fn api(&self) -> &Api {
        &self.server.api
    }

    fn kind(&self, api_version: &str, kind: &str) -> Arc<Kind> {
        self.api().catalog.load().find_kind(api_version, kind).cloned().expect("a served kind")
    }

    async fn create(&self, kind: &Kind, object: Value) -> Result<Value, Status> {
        let user = masters();
        let wanted = Wanted::new(object, Vec::new());
        self.read(kind, create::create(self.api(), kind, "default", wanted, &by(&user, None)).await)
    }

    async fn patch(
        &self,
        (kind, served): (&Kind, Option<&Kind>),
        user: &User,
        content: Content,
        body: &Value,
    ) -> Result<Value, Status> {
        let bytes = body.to_string();
        let sent = Patch {
            content: Some(content),
            bytes: bytes.as_bytes(),
            force: None,
            manager_given: content == Content::ApplyPatch,
        };
        let by = by(user, served);
        self.read(kind, patch(self.api(), kind, "default", "a", Part::Main, &sent, &by).await)
    }

    fn read(&self, kind: &Kind, written: Result<Written, Status>) -> Result<Value, Status> {
        current(kind, &written?.entry)
    }
}

fn by<'a>(user: &'a User, served: Option<&'a Kind>) -> By<'a> {
    By { user, manager: "test", dry_run: false, validation: FieldValidation::Strict, served }
}

#[tokio::test]
async fn applying_what_is_not_there_needs_the_right_to_create() {
    let hub = Hub::start().await;
    let kind = hub.kind("v1", "ConfigMap");
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
    let user = User { name: "eve".into(), ..User::default() };
    let refused = hub.patch((&kind, None), &user, Content::ApplyPatch, &body).await.unwrap_err();
    assert_eq!(
        refused.message,
        r#"configmaps "a" is forbidden: User "eve" cannot create resource "configmaps" in API group "" in the namespace "default""#
    );
    hub.patch((&kind, None), &masters(), Content::ApplyPatch, &body).await.unwrap();
    // What is there may be applied to by whoever was let through to here.
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "2"}});
    let done = hub.patch((&kind, None), &user, Content::ApplyPatch, &body).await.unwrap();
    assert_eq!(done["data"]["x"], "2");
}

#[tokio::test]
async fn blind_updates_are_of_whatever_is_there() {
    let hub = Hub::start().await;
    let kind = hub.kind("v1", "ConfigMap");
    hub.create(&kind, json!({"metadata": {"name": "a"}, "data": {"x": "1"}})).await.unwrap();
    let user = masters();
    let by = by(&user, None);
    let new = json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "2"}});
    let written = update(hub.api(), &kind, "default", "a", Part::Main, &by, |_| {
        Ok(Wanted::new(new.clone(), Vec::new()))
    });
    assert_eq!(hub.read(&kind, written.await).unwrap()["data"]["x"], "2");
}

#[tokio::test]
async fn roles_of_the_start_are_mended() {
    const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";
    let hub = Hub::start().await;
    let kind = hub.kind("rbac.authorization.k8s.io/v1", "ClusterRole");
    let user = masters();
    let by = by(&user, None);
    let emptied = update(hub.api(), &kind, "", "view", Part::Main, &by, |old| {
        let mut new = old.clone();
        meta::metadata_mut(&mut new).remove("labels");
        Ok(Wanted::new(new, Vec::new()))
    });
    assert_eq!(meta::label(&hub.read(&kind, emptied.await).unwrap(), BOOTSTRAPPING), None);
    bootstrap::roles(hub.api()).await.unwrap();
    let mended = super::update::existing(hub.api(), &kind, "", "view").await.unwrap().unwrap();
    assert_eq!(meta::label(&current(&kind, &mended).unwrap(), BOOTSTRAPPING), Some("rbac-defaults"));
}

#[tokio::test]
async fn patches_are_of_the_shape_that_is_served() {
    let hub = Hub::start().await;
    let (v1, v2) = (
        hub.kind("autoscaling/v1", "HorizontalPodAutoscaler"),
        hub.kind("autoscaling/v2", "HorizontalPodAutoscaler"),
    );
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 3});
    hub.create(&v2, json!({"metadata": {"name": "a"}, "spec": spec})).await.unwrap();
    let percent = |object: &Value| {
        object.pointer("/spec/metrics/0/resource/target/averageUtilization").and_then(Value::as_i64)
    };
    let changes = [
        (Content::MergePatch, json!({"spec": {"targetCPUUtilizationPercentage": 51}}), 51),
        (Content::StrategicPatch, json!({"spec": {"targetCPUUtilizationPercentage": 52}}), 52),
        (
            Content::JsonPatch,
            json!([{"op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 53}]),
            53,
        ),
    ];
    for (content, body, expected) in changes {
        let done = hub.patch((&v2, Some(&v1)), &masters(), content, &body).await.unwrap();
        assert_eq!(percent(&done), Some(expected), "{body}");
    }
    let entry = super::update::existing(hub.api(), &v2, "default", "a").await.unwrap().unwrap();
    let fields = current(&v2, &entry).unwrap()["metadata"]["managedFields"].to_string();
    assert!(
        fields.contains("f:targetCPUUtilizationPercentage") && fields.contains("autoscaling/v1"),
        "{fields}"
    );
    // The same field manager, now by apply: an entry of its own, which conflicts with nobody else's value.
    let applied = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 53},
    });
    let done = hub.patch((&v2, Some(&v1)), &masters(), Content::ApplyPatch, &applied).await.unwrap();
    assert_eq!(percent(&done), Some(53));
}

#[tokio::test]
async fn events_are_patched_in_both_groups() {
    let hub = Hub::start().await;
    let (core, events) = (hub.kind("v1", "Event"), hub.kind("events.k8s.io/v1", "Event"));
    let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    hub.create(&core, json!({"metadata": {"name": "a"}, "involvedObject": about, "message": "old"}))
        .await
        .unwrap();
    let body = json!({"deprecatedCount": 7});
    let done = hub.patch((&core, Some(&events)), &masters(), Content::MergePatch, &body).await;
    let done = done.unwrap();
    assert_eq!((&done["count"], &done["message"]), (&json!(7), &json!("old")));
}

#[tokio::test]
async fn nothing_is_left_behind_in_a_namespace_that_went_away() {
    let hub = Hub::start().await;
    let kind = hub.kind("v1", "ConfigMap");
    let key = keys::object("", "configmaps", "gone", "a");
    let store = &hub.api().store;
    // As if the namespace had gone between the look at it and the commit.
    let entry =
        store.create(&key, encode::stored(&kind, &json!({"metadata": {"name": "a"}})), None).await.unwrap();
    let refused = create::still_wanted(hub.api(), &kind, "gone", &entry).await.unwrap_err();
    assert_eq!((refused.reason.code(), &*refused.message), (404, "namespaces \"gone\" not found"));
    assert!(store.snapshot().get(&key).is_none());
    // And where the namespace is there, it stays.
    let key = keys::object("", "configmaps", "default", "a");
    let entry =
        store.create(&key, encode::stored(&kind, &json!({"metadata": {"name": "a"}})), None).await.unwrap();
    create::still_wanted(hub.api(), &kind, "default", &entry).await.unwrap();
    assert!(store.snapshot().get(&key).is_some());
}

#[tokio::test]
async fn nothing_is_made_of_a_definition_that_goes_away() {
    let hub = Hub::start().await;
    let mut kind = (*hub.kind("v1", "ConfigMap")).clone();
    (kind.group, kind.plural, kind.strategic) = ("x.io".into(), "things".into(), false);
    kind.stored_as = (kind.group.clone(), kind.plural.clone());
    let definitions = hub.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let key = keys::object("apiextensions.k8s.io", "customresourcedefinitions", "", "things.x.io");
    let going = json!({
        "metadata": {"name": "things.x.io", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"group": "x.io"},
    });
    hub.create(&kind, json!({"metadata": {"name": "a"}})).await.unwrap();
    hub.api().store.create(&key, encode::stored(&definitions, &going), None).await.unwrap();
    let refused = hub.create(&kind, json!({"metadata": {"name": "b"}})).await.unwrap_err();
    assert_eq!(refused.reason.code(), 405);
    assert_eq!(refused.message, "create not allowed while custom resource definition is terminating");
}
