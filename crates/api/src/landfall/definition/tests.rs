//! What the definitions promise, and that objects go through our types unharmed.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

fn schema_of(kind: &str) -> Value {
    let all = definitions();
    let found = all.iter().find(|crd| crd["spec"]["names"]["kind"] == kind).expect("defined");
    found["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Walks a schema with the path of each part.
fn walk(schema: &Value, path: &str, see: &mut dyn FnMut(&Value, &str)) {
    see(schema, path);
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        walk(field, &format!("{path}.{name}"), see);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(inner) {
            walk(inner, &format!("{path}[]"), see);
        }
    }
}

#[test]
fn schemas_are_structural_and_every_field_is_described() {
    for crd in definitions() {
        let kind = crd["spec"]["names"]["kind"].as_str().expect("named").to_owned();
        let schema = schema_of(&kind);
        walk(&schema, &kind, &mut |part, path| {
            for forbidden in ["$ref", "oneOf", "anyOf", "allOf", "title", "x-default", "$schema", "const"] {
                let int_or_string = part.get("x-kubernetes-int-or-string").is_some();
                assert!(part.get(forbidden).is_none() || int_or_string, "{path} has {forbidden}: {part}");
            }
            let typed = part.get("type").is_some() || part.get("x-kubernetes-int-or-string").is_some();
            assert!(typed, "{path} has no type: {part}");
            let described =
                part.get("description").is_some() || path.ends_with("[]") || path.contains("metadata");
            assert!(described, "{path} is not described");
        });
    }
}

#[test]
fn constraints_and_defaults_are_written_out() {
    for (kind, pointer, value) in [
        (
            "IngressClaim",
            "/properties/spec/properties/reclaimPolicy/enum",
            json!(["Retain", "Recycle", "Delete"]),
        ),
        ("IngressClaim", "/properties/spec/properties/reclaimPolicy/default", json!("Delete")),
        ("IngressReplicaSet", "/properties/spec/properties/replicas/default", json!(2)),
        (
            "Cluster",
            "/properties/spec/properties/taints/x-kubernetes-list-map-keys",
            json!(["key", "effect"]),
        ),
        ("Cluster", "/properties/spec/properties/coordinates/properties/latitude/maximum", json!(90)),
        ("Cluster", "/properties/status/properties/conditions/x-kubernetes-list-type", json!("map")),
        (
            "TrafficPolicy",
            "/properties/spec/properties/healthCheck/properties/protocol/enum",
            json!(["TCP", "HTTP", "HTTPS", "GRPC", "TLS"]),
        ),
        ("TrafficPolicy", "/properties/spec/properties/healthCheck/properties/timeoutMs/default", json!(800)),
        (
            "DNSZone",
            "/properties/spec/properties/rfc2136/properties/tsig/properties/algorithm/default",
            json!("hmac-sha256"),
        ),
    ] {
        let schema = schema_of(kind);
        let seen = schema.pointer(pointer).unwrap_or_else(|| panic!("{kind} {pointer}"));
        assert!(
            seen == &value || seen.as_f64() == value.as_f64() && seen.is_number(),
            "{kind} {pointer}: {seen}"
        );
    }
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).expect("readable");
    assert_eq!(&serde_json::to_value(&typed).expect("writable"), object);
}

/// The objects of the talk that the idea comes from, as they were shown.
#[test]
fn the_first_examples_of_multi_cluster_ingress_are_read() {
    let backend = json!({"serviceName": "my-mc-service", "servicePort": 80});
    round_trip::<MultiClusterIngress>(&json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "MultiClusterIngress", "metadata": {"name": "my-mci"},
        "spec": {"template": {"spec": {
            "backend": backend,
            "rules": [{"host": "foo.bar.com", "http": {"paths": [{"backend": backend}]}}],
        }}},
    }));
    let ports = json!([{"name": "web", "protocol": "TCP", "port": 80, "targetPort": 80}]);
    let clusters = json!([{"selector": {"matchLabels": {"region": "us"}}}]);
    for spec in [
        json!({"template": {"selector": {"app": "shopping"}, "ports": ports, "clusters": clusters}}),
        json!({"template": {"selector": {"app": "shopping"}}, "ports": ports, "clusters": clusters}),
        json!({"template": {"spec": {"selector": {"app": "shopping"}, "ports": ports}}, "clusters": clusters}),
    ] {
        round_trip::<MultiClusterService>(&json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "MultiClusterService",
            "metadata": {"name": "my-mc-service"}, "spec": spec,
        }));
    }
}

#[test]
fn a_cluster_is_read_and_written() {
    round_trip::<Cluster>(&json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "europe", "labels": {"region": "eu"}},
        "spec": {
            "endpoints": [{"server": "https://192.0.2.1:6443"}],
            "credentials": {"name": "europe"},
            "region": "europe-west", "zones": ["a", "b"],
            "coordinates": {"latitude": 47.4, "longitude": 8.5},
            "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
            "cordoned": true,
        },
        "status": {"version": "v1.36.4", "nodes": {"total": 3, "ready": 2}, "capacity": {"cpu": "12"}},
    }));
}

#[test]
fn a_zone_is_read_and_written() {
    round_trip::<DNSZone>(&json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "DNSZone", "metadata": {"name": "example"},
        "spec": {
            "zone": "example.com", "minimumTtl": 30,
            "rfc2136": {
                "server": "192.0.2.1:53", "transport": "TCP",
                "tsig": {"keyName": "landfall", "algorithm": "hmac-sha512", "secretRef": {"name": "key", "key": "secret"}},
            },
        },
        "status": {"names": 3, "records": 4, "conflicts": ["www.example.com"]},
    }));
    round_trip::<DNSZone>(&json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "DNSZone", "metadata": {"name": "example"},
        "spec": {"zone": "example.com", "skydns": {"endpoints": ["http://192.0.2.1:2379"], "credentials": {"name": "etcd"}}},
    }));
}

/// Fields that the schema does not have are dropped by the server before our types ever see them.
#[test]
fn every_field_of_our_types_is_in_the_schema() {
    let policy = TrafficPolicy::default();
    let written = serde_json::to_value(&policy).expect("writable");
    let schema = schema_of("TrafficPolicy");
    for field in written["spec"].as_object().expect("an object").keys() {
        assert!(schema["properties"]["spec"]["properties"].get(field).is_some(), "{field}");
    }
}
