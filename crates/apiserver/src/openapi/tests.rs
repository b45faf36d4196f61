//! What kubectl reads from the documents.

use std::collections::BTreeSet;

use landfall_api::kinds;
use landfall_api::schema::{Struct, StructRef};

use super::*;

fn built_in() -> OpenApi {
    let kinds: Vec<Arc<Kind>> = kinds::member().into_iter().map(Arc::new).collect();
    OpenApi::new(&kinds, CustomSchemas::new())
}

fn boat(schema: Value) -> OpenApi {
    let mut kind = kinds::federation().remove(0);
    (kind.group, kind.version, kind.kind) = ("example.test".into(), "v1".into(), "Boat".into());
    (kind.plural, kind.list_kind, kind.strategic) = ("boats".into(), "BoatList".into(), false);
    kind.schema = StructRef::owned(Struct::default());
    let key = ("example.test".to_owned(), "v1".to_owned(), "Boat".to_owned());
    OpenApi::new(&[Arc::new(kind)], CustomSchemas::from([(key, Arc::new(schema))]))
}

fn read(packed: &Packed) -> Value {
    serde_json::from_slice(&packed.plain()).expect("JSON")
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|inner| references(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let api = built_in();
    let mut documents: Vec<(String, Value)> =
        api.versions.keys().map(|path| (path.clone(), read(api.v3(path).expect("served")))).collect();
    documents.push(("v2".into(), read(api.v2())));
    for (path, document) in &documents {
        let mut found = BTreeSet::new();
        references(document, &mut found);
        assert!(!found.is_empty(), "{path}");
        for target in found {
            let pointer = target.strip_prefix('#').expect("a local reference");
            assert!(document.pointer(pointer).is_some_and(Value::is_object), "{path}: {target}");
        }
    }
}

#[test]
fn the_index_says_where_and_changes_with_what_is_served() {
    let api = built_in();
    let url = api.index()["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("a URL").to_owned();
    let hash = api.hash_of("apis/apps/v1").expect("served");
    assert_eq!(url, format!("/openapi/v3/apis/apps/v1?hash={hash}"));
    assert!(api.v3("apis/apps/v9").is_none());
    let hash = |schema: Value| boat(schema).hash_of("apis/example.test/v1").expect("served").to_owned();
    assert_eq!(hash(json!({"type": "object"})), hash(json!({"type": "object"})));
    assert_ne!(hash(json!({"type": "object"})), hash(json!({"type": "object", "description": "x"})));
}

#[test]
fn shapes_words_and_extensions_are_those_of_kubernetes() {
    let api = built_in();
    let apps = read(api.v3("apis/apps/v1").expect("served"));
    let at =
        |pointer: &str| apps.pointer(&format!("/components/schemas/{pointer}")).cloned().unwrap_or_default();
    for (pointer, value) in [
        (
            "io.k8s.api.apps.v1.Deployment/x-kubernetes-group-version-kind",
            json!([{"group": "apps", "kind": "Deployment", "version": "v1"}]),
        ),
        ("io.k8s.api.apps.v1.DeploymentSpec/required", json!(["selector", "template"])),
        (
            "io.k8s.api.apps.v1.DeploymentSpec/properties/strategy/x-kubernetes-patch-strategy",
            json!("retainKeys"),
        ),
        ("io.k8s.api.apps.v1.DeploymentSpec/properties/strategy/default", json!({})),
        ("io.k8s.api.apps.v1.DeploymentSpec/properties/replicas/format", json!("int32")),
        ("io.k8s.api.apps.v1.DeploymentStrategy/properties/type/enum", json!(["Recreate", "RollingUpdate"])),
        (
            "io.k8s.api.core.v1.Container/properties/ports/x-kubernetes-list-map-keys",
            json!(["containerPort", "protocol"]),
        ),
        (
            "io.k8s.api.core.v1.Container/properties/ports/x-kubernetes-patch-merge-key",
            json!("containerPort"),
        ),
        ("io.k8s.api.core.v1.Container/properties/name/default", json!("")),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector/x-kubernetes-map-type", json!("atomic")),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.Time/format", json!("date-time")),
    ] {
        assert_eq!(at(pointer), value, "{pointer}");
    }
    let words = at("io.k8s.api.apps.v1.DeploymentSpec/properties/replicas/description");
    assert!(words.as_str().is_some_and(|text| text.starts_with("Number of desired pods")), "{words}");
}

/// kubectl decides from the patch operation whether it may validate on the server and merge strategically.
#[test]
fn a_patch_says_what_it_takes() {
    let api = built_in();
    let apps = read(api.v3("apis/apps/v1").expect("served"));
    let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    let names: Vec<&Value> =
        patch["parameters"].as_array().expect("a list").iter().map(|parameter| &parameter["name"]).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let strategic = "application/strategic-merge-patch+json";
    assert!(patch["requestBody"]["content"].get(strategic).is_some());
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");

    let boats = read(boat(json!({})).v3("apis/example.test/v1").expect("served"));
    let patch = &boats["paths"]["/apis/example.test/v1/namespaces/{namespace}/boats/{name}"]["patch"];
    let content = patch["requestBody"]["content"].as_object().expect("media types");
    assert!(!content.contains_key(strategic) && content.contains_key("application/merge-patch+json"));
    assert_eq!(patch["tags"], json!(["exampleTest_v1"]));
}

#[test]
fn a_custom_kind_has_its_schema_and_what_every_object_has() {
    let schema = json!({"type": "object", "description": "It floats.",
        "properties": {"spec": {"type": "object", "properties": {"masts": {"type": "integer", "minimum": 1}}},
                       "metadata": {"type": "object"}}});
    let document = read(boat(schema).v3("apis/example.test/v1").expect("served"));
    let boat = &document["components"]["schemas"]["test.example.v1.Boat"];
    assert_eq!(boat["description"], "It floats.");
    assert_eq!(boat["properties"]["spec"]["properties"]["masts"]["minimum"], 1);
    let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(boat["properties"]["metadata"]["allOf"], json!([{"$ref": meta}]));
    assert_eq!(boat["properties"]["kind"]["type"], "string");
    let list = &document["components"]["schemas"]["test.example.v1.BoatList"];
    assert_eq!(list["properties"]["items"]["items"]["$ref"], "#/components/schemas/test.example.v1.Boat");
    assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "BoatList");
}

/// Our own kinds are defined as a user's would be, and explained in the same way.
#[test]
fn our_own_kinds_are_explained() {
    let definitions = landfall_api::landfall::definitions();
    let schemas: CustomSchemas = definitions.iter().flat_map(schemas_of).collect();
    assert_eq!(schemas.len(), definitions.len());
    let key = ("landfall.dev".to_owned(), "v1alpha1".to_owned(), "Cluster".to_owned());
    let schema = schemas.get(&key).expect("a schema");
    assert!(schema["properties"]["spec"]["properties"]["region"]["description"].is_string());
}

#[test]
fn only_served_verbs_have_operations() {
    let kinds: Vec<Arc<Kind>> = kinds::federation().into_iter().map(Arc::new).collect();
    let api = OpenApi::new(&kinds, CustomSchemas::new());
    let core = read(api.v3("api/v1").expect("served"));
    let methods = |path: &str| {
        let item = core["paths"].get(path).and_then(Value::as_object).expect("served");
        item.keys().filter(|key| *key != "parameters").cloned().collect::<Vec<_>>()
    };
    assert_eq!(methods("/api/v1/namespaces/{namespace}/pods/{name}"), ["get"]);
    assert_eq!(methods("/api/v1/namespaces"), ["get", "post"]);
    assert_eq!(methods("/api/v1/namespaces/{name}/finalize"), ["put"]);
    assert_eq!(methods("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"), ["post"]);
    assert_eq!(methods("/api/v1/namespaces/{namespace}/services"), ["delete", "get", "post"]);
}

#[test]
fn swagger_has_all_groups_and_no_unions() {
    let document = read(built_in().v2());
    let text = document.to_string();
    assert!(
        !text.contains("\"allOf\":[")
            && !text.contains("\"oneOf\":[")
            && !text.contains("components/schemas")
    );
    let options = &document["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
    assert!(options["x-kubernetes-group-version-kind"].as_array().is_some_and(|kinds| kinds.len() > 10));
    let post = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"]["post"];
    assert_eq!(post["parameters"][0]["in"], "body");
    assert_eq!(post["responses"]["201"]["schema"]["$ref"], "#/definitions/io.k8s.api.apps.v1.Deployment");
}
