//! What kubectl reads from discovery.

use std::sync::Arc;

use landfall_api::{Kind, kinds};
use serde_json::{Value, json};

use super::*;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn federation() -> Discovery {
    let kinds: Vec<Arc<Kind>> = kinds::federation().into_iter().map(Arc::new).collect();
    Discovery::new(&kinds, "192.0.2.1:6443")
}

fn read(discovery: &Discovery, path: &str, accept: &str) -> Value {
    let document = discovery.find(path, accept).expect("served").expect("acceptable");
    serde_json::from_slice(&document.body).expect("JSON")
}

fn custom(group: &'static str, version: &'static str, kind: &'static str) -> Arc<Kind> {
    let mut row = kinds::federation().remove(0);
    (row.group, row.version, row.kind) = (group.into(), version.into(), kind.into());
    (row.plural, row.strategic) = (format!("{}s", kind.to_lowercase()).into(), false);
    (row.sub.status, row.sub.scale) = (true, None);
    Arc::new(row)
}

#[test]
fn a_version_lists_its_resources_as_kubernetes_does() {
    let discovery = federation();
    let list = read(&discovery, "/apis/apps/v1", "");
    assert_eq!(list["groupVersion"], "apps/v1");
    let deployments: Vec<&Value> = list["resources"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|r| r["name"].as_str().expect("named").starts_with("deployments"))
        .collect();
    assert_eq!(
        json!(deployments),
        json!([
            {"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment",
             "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
             "shortNames": ["deploy"], "categories": ["all"], "storageVersionHash": "8aSe+NMegvE="},
            {"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
             "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]},
            {"name": "deployments/status", "singularName": "", "namespaced": true, "kind": "Deployment",
             "verbs": ["get", "patch", "update"]},
        ])
    );
}

/// Dashboards look here before they offer logs.
#[test]
fn pods_of_members_have_logs() {
    let kinds: Vec<Arc<Kind>> = kinds::member().into_iter().map(Arc::new).collect();
    let list = read(&Discovery::new(&kinds, "192.0.2.1:6443"), "/api/v1", "");
    let of_pods = |r: &&Value| r["name"].as_str().expect("named").starts_with("pods/");
    let found: Vec<&Value> = list["resources"].as_array().expect("a list").iter().filter(of_pods).collect();
    let names: Vec<&Value> = found.iter().map(|resource| &resource["name"]).collect();
    assert_eq!(json!(names), json!(["pods/binding", "pods/eviction", "pods/log", "pods/status"]));
    let log =
        json!({"name": "pods/log", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["get"]});
    assert_eq!(*found[2], log);
}

/// Hashes as a real server gives them: of the stored kind, not of the one that is asked for.
#[test]
fn storage_hashes_are_those_of_kubernetes() {
    let discovery = federation();
    for (path, name, hash) in [
        ("/api/v1", "configmaps", "qFsyl6wFWjQ="),
        ("/api/v1", "events", "r2yiGXH7wu8="),
        ("/apis/events.k8s.io/v1", "events", "r2yiGXH7wu8="),
        ("/apis/autoscaling/v1", "horizontalpodautoscalers", "qwQve8ut294="),
        ("/apis/autoscaling/v2", "horizontalpodautoscalers", "qwQve8ut294="),
    ] {
        let list = read(&discovery, path, "");
        let entry = list["resources"].as_array().expect("a list").iter().find(|r| r["name"] == name);
        assert_eq!(entry.expect("listed")["storageVersionHash"], hash, "{path} {name}");
    }
}

#[test]
fn the_roots_name_groups_and_versions() {
    let discovery = federation();
    let api = read(&discovery, "/api/", "*/*");
    assert_eq!((&api["kind"], &api["versions"]), (&json!("APIVersions"), &json!(["v1"])));
    assert_eq!(api["serverAddressByClientCIDRs"][0]["serverAddress"], "192.0.2.1:6443");
    let apis = read(&discovery, "/apis", "application/json");
    let names: Vec<&str> =
        apis["groups"].as_array().expect("a list").iter().filter_map(|g| g["name"].as_str()).collect();
    assert_eq!(names.first(), Some(&"apps"));
    assert!(!names.contains(&""));
    let group = read(&discovery, "/apis/autoscaling", "");
    assert_eq!(group["preferredVersion"], json!({"groupVersion": "autoscaling/v2", "version": "v2"}));
    assert_eq!(group["versions"].as_array().map(Vec::len), Some(2));
    assert!(discovery.find("/apis/nope", "").is_none());
    assert!(discovery.find("/apis/apps/v2", "").is_none());
}

#[test]
fn one_list_has_everything() {
    let discovery = federation();
    let document = discovery.find("/apis", V2).expect("served").expect("acceptable");
    assert_eq!(document.content_type, V2);
    let list = read(&discovery, "/apis", V2);
    assert_eq!(list["apiVersion"], "apidiscovery.k8s.io/v2");
    let apps = &list["items"][0];
    assert_eq!(apps["metadata"]["name"], "apps");
    assert_eq!(apps["versions"][0]["freshness"], "Current");
    let deployments = &apps["versions"][0]["resources"][1];
    assert_eq!(deployments["responseKind"], json!({"group": "", "version": "", "kind": "Deployment"}));
    assert_eq!(
        deployments["subresources"][0],
        json!({"subresource": "scale", "verbs": ["get", "patch", "update"],
               "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}})
    );
    let core = read(&discovery, "/api", V2);
    assert_eq!(core["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(core["items"][0]["metadata"], json!({}));
}

#[test]
fn custom_kinds_come_last_with_their_best_version_first() {
    let mut kinds: Vec<Arc<Kind>> = vec![
        custom("zebra.test", "v1", "Zebra"),
        custom("boat.test", "v1alpha1", "Boat"),
        custom("boat.test", "v1", "Boat"),
        custom("boat.test", "v2beta1", "Boat"),
    ];
    kinds.extend(kinds::federation().into_iter().map(Arc::new));
    let discovery = Discovery::new(&kinds, "");
    let list = read(&discovery, "/apis", V2);
    let items = list["items"].as_array().expect("a list");
    let names: Vec<&Value> = items.iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names[names.len() - 2..], [&json!("boat.test"), &json!("zebra.test")]);
    let boat = &items[items.len() - 2];
    let versions: Vec<&Value> =
        boat["versions"].as_array().expect("a list").iter().map(|v| &v["version"]).collect();
    assert_eq!(versions, [&json!("v1"), &json!("v2beta1"), &json!("v1alpha1")]);
    let resource = &boat["versions"][0]["resources"][0];
    assert_eq!(resource["responseKind"], json!({"group": "boat.test", "version": "v1", "kind": "Boat"}));
    assert_eq!(resource["subresources"][0]["responseKind"]["group"], "boat.test");
}

#[test]
fn the_accept_header_decides_the_form() {
    let both = format!(
        "{V2},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    );
    for (accept, aggregated, form) in [
        ("", true, Some(Form::Legacy)),
        ("*/*", true, Some(Form::Legacy)),
        ("application/json", true, Some(Form::Legacy)),
        (V2, true, Some(Form::V2)),
        (&both, true, Some(Form::V2)),
        (&both, false, Some(Form::Legacy)),
        (V2, false, None),
        (
            "application/json;as=APIGroupDiscoveryList;v=v2beta1;g=apidiscovery.k8s.io",
            true,
            Some(Form::V2Beta1),
        ),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", true, None),
        ("application/vnd.kubernetes.protobuf,application/json", true, Some(Form::Legacy)),
        ("text/plain", true, None),
    ] {
        assert_eq!(negotiate(accept, aggregated), form, "{accept}");
    }
}

#[test]
fn an_etag_is_that_of_the_text() {
    let (a, b) = (federation(), federation());
    let etag = |d: &Discovery, path| d.find(path, "").expect("served").expect("acceptable").etag.clone();
    assert_eq!(etag(&a, "/apis"), etag(&b, "/apis"));
    assert_ne!(etag(&a, "/apis"), etag(&a, "/api"));
    assert_eq!(etag(&a, "/apis").len(), 130);
}

#[test]
fn versions_are_ordered_by_stability_then_number() {
    let mut versions =
        ["v1alpha1", "foo", "v2", "v10", "v1beta2", "v1beta1", "v11alpha2", "v1", "v01", "beta1", "v3beta"];
    versions.sort_by(|a, b| by_priority(a, b));
    assert_eq!(
        versions,
        ["v10", "v2", "v1", "v1beta2", "v1beta1", "v11alpha2", "v1alpha1", "beta1", "foo", "v01", "v3beta"]
    );
}
