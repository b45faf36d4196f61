//! Protobuf bodies: `k8s-pb` encodes, we decode, and the result is what Go's JSON of the same object is.

use k8s_pb::api::{apps, authentication, coordination, core};
use k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_pb::apimachinery::pkg::runtime::{RawExtension, TypeMeta, Unknown};
use k8s_pb::apimachinery::pkg::util::intstr::IntOrString;
use landfall_api::schema::{normalize, of_kind};
use landfall_api::wire;
use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};

fn body(api_version: &str, kind: &str, object: &impl Message) -> Vec<u8> {
    let type_meta = TypeMeta { api_version: Some(api_version.into()), kind: Some(kind.into()) };
    let raw = Some(object.encode_to_vec());
    let unknown = Unknown { type_meta: Some(type_meta), raw, ..Unknown::default() };
    [b"k8s\0", &unknown.encode_to_vec()[..]].concat()
}

fn check(api_version: &str, kind: &str, object: &impl Message, mut want: Value) {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let mut seen = wire::parse(&body(api_version, kind, object), api_version, kind).expect("a good body");
    let report = normalize(of_kind(group, version, kind).expect("a built-in kind").get(), &mut seen);
    assert!(report.is_clean(), "{report:?}");
    (want["apiVersion"], want["kind"]) = (api_version.into(), kind.into());
    assert_eq!(seen, want);
}

fn named(name: &str) -> Option<meta::ObjectMeta> {
    Some(meta::ObjectMeta { name: Some(name.into()), namespace: Some(String::new()), ..Default::default() })
}

#[test]
fn a_service() {
    let port = core::v1::ServicePort {
        name: Some(String::new()),
        port: Some(80),
        node_port: Some(0),
        target_port: Some(IntOrString { r#type: Some(1), int_val: Some(0), str_val: Some("http".into()) }),
        ..Default::default()
    };
    let number = IntOrString { r#type: Some(0), int_val: Some(-1), str_val: Some(String::new()) };
    let spec = core::v1::ServiceSpec {
        ports: vec![port, core::v1::ServicePort { target_port: Some(number), ..Default::default() }],
        selector: [("a".into(), "b".into()), ("empty".into(), String::new())].into(),
        session_affinity: Some(String::new()),
        allocate_load_balancer_node_ports: Some(false),
        publish_not_ready_addresses: Some(false),
        ..Default::default()
    };
    let service =
        core::v1::Service { metadata: named("a"), spec: Some(spec), status: Some(Default::default()) };
    check(
        "v1",
        "Service",
        &service,
        json!({"metadata": {"name": "a"}, "status": {}, "spec": {"selector": {"a": "b", "empty": ""},
            "allocateLoadBalancerNodePorts": false,
            "ports": [{"port": 80, "targetPort": "http"}, {"targetPort": -1}]}}),
    );
}

/// Story: `replicas` is a pointer in Go and 0 means none; dropping it with the other zeros gave one replica.
#[test]
fn a_deployment_of_no_replicas() {
    let container = core::v1::Container {
        name: Some("c".into()),
        resources: Some(core::v1::ResourceRequirements {
            limits: [("cpu".into(), Quantity { string: Some("1000m".into()) })].into(),
            ..Default::default()
        }),
        liveness_probe: Some(core::v1::Probe {
            handler: Some(core::v1::ProbeHandler {
                exec: Some(core::v1::ExecAction { command: vec!["true".into()] }),
                ..Default::default()
            }),
            period_seconds: Some(5),
            ..Default::default()
        }),
        ..Default::default()
    };
    let volume = core::v1::Volume {
        name: Some("v".into()),
        volume_source: Some(core::v1::VolumeSource {
            empty_dir: Some(Default::default()),
            ..Default::default()
        }),
    };
    let pod = core::v1::PodSpec {
        containers: vec![container],
        volumes: vec![volume],
        host_network: Some(false),
        termination_grace_period_seconds: Some(0),
        ..Default::default()
    };
    let template = core::v1::PodTemplateSpec { metadata: named(""), spec: Some(pod) };
    let spec = apps::v1::DeploymentSpec { replicas: Some(0), template: Some(template), ..Default::default() };
    check(
        "apps/v1",
        "Deployment",
        &apps::v1::Deployment { metadata: named("a"), spec: Some(spec), status: None },
        json!({"metadata": {"name": "a"}, "spec": {"replicas": 0, "template": {"metadata": {}, "spec": {
            "terminationGracePeriodSeconds": 0, "volumes": [{"name": "v", "emptyDir": {}}], "containers": [{
            "name": "c", "resources": {"limits": {"cpu": "1"}},
            "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 5}}]}}}}),
    );
}

#[test]
fn times_bytes_maps_and_raw_values() {
    let secret = core::v1::Secret {
        metadata: Some(meta::ObjectMeta {
            creation_timestamp: Some(meta::Time { seconds: Some(1_600_000_000), nanos: Some(5) }),
            deletion_timestamp: Some(meta::Time { seconds: None, nanos: None }),
            managed_fields: vec![meta::ManagedFieldsEntry {
                fields_v1: Some(meta::FieldsV1 { raw: Some(br#"{"f:data":{}}"#.to_vec()) }),
                ..Default::default()
            }],
            ..Default::default()
        }),
        data: [("a".into(), vec![0xff, 0]), ("none".into(), vec![])].into(),
        ..Default::default()
    };
    check(
        "v1",
        "Secret",
        &secret,
        json!({"metadata": {"creationTimestamp": "2020-09-13T12:26:40Z",
            "managedFields": [{"fieldsV1": {"f:data": {}}}]}, "data": {"a": "/wA=", "none": ""}}),
    );
    let time = meta::MicroTime { seconds: Some(1_600_000_000), nanos: Some(123_456_789) };
    let spec = coordination::v1::LeaseSpec { renew_time: Some(time), ..Default::default() };
    let lease = coordination::v1::Lease { metadata: None, spec: Some(spec) };
    let want = json!({"spec": {"renewTime": "2020-09-13T12:26:40.123456Z"}});
    check("coordination.k8s.io/v1", "Lease", &lease, want);
    let user = authentication::v1::UserInfo {
        extra: [("a".into(), authentication::v1::ExtraValue { items: vec!["x".into(), String::new()] })]
            .into(),
        ..Default::default()
    };
    let status = authentication::v1::TokenReviewStatus { user: Some(user), ..Default::default() };
    let review = authentication::v1::TokenReview { metadata: None, spec: None, status: Some(status) };
    let want = json!({"status": {"user": {"extra": {"a": ["x", ""]}}}});
    check("authentication.k8s.io/v1", "TokenReview", &review, want);
}

#[test]
fn an_object_inside_an_object() {
    let inner = core::v1::ConfigMap { data: [("a".into(), "b".into())].into(), ..Default::default() };
    for raw in [
        body("v1", "ConfigMap", &inner),
        br#"{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"b"}}"#.to_vec(),
    ] {
        let data = Some(RawExtension { raw: Some(raw) });
        let revision = apps::v1::ControllerRevision { metadata: None, data, revision: Some(7) };
        let want =
            json!({"revision": 7, "data": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}});
        check("apps/v1", "ControllerRevision", &revision, want);
    }
}

#[test]
fn schemas_of_a_crd() {
    let text = apiextensions::JsonSchemaProps { r#type: Some("string".into()), ..Default::default() };
    let or_bool = |allows, schema| {
        Some(Box::new(apiextensions::JsonSchemaPropsOrBool { allows: Some(allows), schema }))
    };
    let items = |schema, schemas| {
        Some(Box::new(apiextensions::JsonSchemaPropsOrArray { schema, j_son_schemas: schemas }))
    };
    let property = |name: &str, props| (name.to_owned(), props);
    let schema = apiextensions::JsonSchemaProps {
        maximum: Some(0.0),
        min_items: Some(0),
        nullable: Some(false),
        default: Some(apiextensions::Json { raw: Some(b"[1,null]".to_vec()) }),
        properties: [
            property(
                "yes",
                apiextensions::JsonSchemaProps {
                    additional_properties: or_bool(true, None),
                    ..Default::default()
                },
            ),
            property(
                "no",
                apiextensions::JsonSchemaProps {
                    additional_properties: or_bool(false, None),
                    ..Default::default()
                },
            ),
            property(
                "schema",
                apiextensions::JsonSchemaProps {
                    additional_properties: or_bool(true, Some(Box::new(text.clone()))),
                    items: items(Some(Box::new(text.clone())), vec![]),
                    ..Default::default()
                },
            ),
            property(
                "list",
                apiextensions::JsonSchemaProps {
                    items: items(None, vec![text.clone()]),
                    ..Default::default()
                },
            ),
        ]
        .into(),
        ..Default::default()
    };
    let validation = apiextensions::CustomResourceValidation { open_apiv3_schema: Some(schema) };
    let version = apiextensions::CustomResourceDefinitionVersion {
        served: Some(false),
        schema: Some(validation),
        ..Default::default()
    };
    let spec = apiextensions::CustomResourceDefinitionSpec { versions: vec![version], ..Default::default() };
    let crd = apiextensions::CustomResourceDefinition { metadata: None, spec: Some(spec), status: None };
    let text = json!({"type": "string"});
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &crd,
        json!({"spec": {"versions": [{"served": false, "schema": {"openAPIV3Schema": {
            "maximum": 0, "minItems": 0, "default": [1, null], "properties": {
            "yes": {"additionalProperties": true}, "no": {"additionalProperties": false},
            "schema": {"additionalProperties": text, "items": text}, "list": {"items": [text]}}}}}]}}),
    );
}

#[test]
fn numbers_come_packed_or_not() {
    let context =
        core::v1::PodSecurityContext { supplemental_groups: vec![1, -2, 300], ..Default::default() };
    let pod = |raw: Vec<u8>| {
        let of = of_kind("", "v1", "Pod").unwrap();
        let field = |number: u8, bytes: Vec<u8>| {
            [vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
        };
        let object = wire::object(of.get(), &field(2, field(14, raw))).unwrap();
        object["spec"]["securityContext"]["supplementalGroups"].clone()
    };
    let packed = [vec![4 << 3 | 2, 3], vec![1, 0xac, 2]].concat();
    assert_eq!(pod(context.encode_to_vec()), json!([1, -2, 300]));
    assert_eq!(pod(packed), json!([1, 300]));
}

/// The sentences are those of a real server.
#[test]
fn bodies_that_are_refused() {
    let service = |rest: &[u8]| [b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07Service\x12", rest].concat();
    let unrecognized = "the object provided is unrecognized (must be of type Service): ";
    let handled = "Service in version \"v1\" cannot be handled as a Service: ";
    for (body, want) in [
        (vec![], format!("{unrecognized}empty data (<empty>)")),
        (
            b"garbage".to_vec(),
            format!("{unrecognized}provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (67617262616765)"),
        ),
        (b"k8s\0".to_vec(), format!("{unrecognized}empty body (6b387300)")),
        (b"k8s\0\xff\xff".to_vec(), format!("{unrecognized}unexpected EOF (6b387300ffff)")),
        (service(b"\x03\xff\xff\xff"), format!("{handled}unexpected EOF")),
        (service(b"\x04\x08\x01\x08\x01"), format!("{handled}proto: wrong wireType = 0 for field ObjectMeta")),
        (service(b"\x05\x0a\x10ab\x08"), format!("{handled}unexpected EOF")),
        (
            b"k8s\0\x0a\x0b\x0a\x02v1\x12\x05Nopes\x12\x00".to_vec(),
            "Nopes in version \"v1\" cannot be handled as a Service: no kind \"Nopes\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"".into(),
        ),
    ] {
        let refusal = wire::parse(&body, "v1", "Service").unwrap_err();
        assert_eq!((refusal.message, refusal.reason.code()), (want, 400), "{body:?}");
    }
    let deep = (0..200).fold(Vec::new(), |inner: Vec<u8>, _| {
        let mut outer = Vec::new();
        prost::encoding::bytes::encode(28, &inner, &mut outer);
        outer
    });
    let props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let error = wire::object(landfall_api::schema::builtin(props), &deep).unwrap_err();
    assert_eq!(error.to_string(), "exceeded max depth");
}

#[test]
fn the_request_says_the_kind_when_the_envelope_does_not() {
    let object = wire::parse(b"k8s\0\x12\x02\x0a\x00", "v1", "Service").unwrap();
    assert_eq!(object, json!({"apiVersion": "v1", "kind": "Service", "metadata": {}}));
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = wire::parse(&bytes, "v1", "Service");
        let _ = wire::parse(&[b"k8s\0", &bytes[..]].concat(), "v1", "Service");
        for kind in ["Pod", "Service", "Node"] {
            let of = of_kind("", "v1", kind).unwrap();
            if let Ok(object) = wire::object(of.get(), &bytes) {
                let _ = normalize(of.get(), &mut Value::Object(object));
            }
        }
    }

    #[test]
    fn changed_bodies_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        let container = core::v1::Container { name: Some("c".into()), env: vec![Default::default()], ..Default::default() };
        let pod = core::v1::PodSpec { containers: vec![container], ..Default::default() };
        let mut bytes = body("v1", "Pod", &core::v1::Pod { metadata: named("a"), spec: Some(pod), status: None });
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = wire::parse(&bytes, "v1", "Pod");
    }
}
