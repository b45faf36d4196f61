//! Objects against built-in structs: the sentences are those of a real kube-apiserver 1.36.

use landfall_api::schema::{builtin, complete, normalize, of_kind};
use serde_json::{Value, json};

fn report(of: &str, object: &Value) -> String {
    let report = normalize(builtin(of), &mut object.clone());
    report.error.unwrap_or_else(|| report.unknown.join(", "))
}

#[test]
fn wrong_types() {
    let service =
        |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
    for (spec, what, field) in [
        (json!({"ports": "x"}), "string", "ServiceSpec.spec.ports of type []v1.ServicePort"),
        (json!({"ports": [{"port": "80"}]}), "string", "ServicePort.spec.ports.port of type int32"),
        (json!({"ports": [{"port": 80.5}]}), "number 80.5", "ServicePort.spec.ports.port of type int32"),
        (
            json!({"ports": [{"port": 3_000_000_000_u32}]}),
            "number 3000000000",
            "ServicePort.spec.ports.port of type int32",
        ),
        (json!({"ports": {"a": 1}}), "object", "ServiceSpec.spec.ports of type []v1.ServicePort"),
        (json!("x"), "string", "Service.spec of type v1.ServiceSpec"),
        (json!([]), "array", "Service.spec of type v1.ServiceSpec"),
        (json!({"selector": {"a": 1}}), "number", "ServiceSpec.spec.selector of type string"),
        (json!({"selector": ["a"]}), "array", "ServiceSpec.spec.selector of type map[string]string"),
        (json!({"type": 5}), "number", "ServiceSpec.spec.type of type v1.ServiceType"),
        (json!({"clusterIPs": [1]}), "number", "ServiceSpec.spec.clusterIPs of type string"),
        (json!({"ports": [{"targetPort": true}]}), "bool", "ServicePort.spec.ports.targetPort of type int32"),
        (
            json!({"ports": [{"targetPort": 80.5}]}),
            "number 80.5",
            "ServicePort.spec.ports.targetPort of type int32",
        ),
        (json!({"ports": ["x"]}), "string", "ServiceSpec.spec.ports of type v1.ServicePort"),
        (
            json!({"publishNotReadyAddresses": "true"}),
            "string",
            "ServiceSpec.spec.publishNotReadyAddresses of type bool",
        ),
    ] {
        let want = format!("json: cannot unmarshal {what} into Go struct field {field}");
        assert_eq!(report("io.k8s.api.core.v1.Service", &service(spec.clone())), want, "{spec}");
    }
}

#[test]
fn wrong_types_elsewhere() {
    let regex = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let pod = |container: Value| json!({"spec": {"containers": [container]}});
    for (of, object, want) in [
        ("core.v1.Pod", json!([]), "json: cannot unmarshal array into Go value of type v1.Pod"),
        (
            "core.v1.Pod",
            json!({"metadata": {"name": 5}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            "core.v1.Pod",
            json!({"metadata": {"labels": {"a": 1}}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "core.v1.Pod",
            json!({"metadata": {"creationTimestamp": 5}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            "core.v1.Pod",
            json!({"metadata": {"creationTimestamp": "xx"}}),
            r#"parsing time "xx" as "2006-01-02T15:04:05Z07:00": cannot parse "xx" as "2006""#,
        ),
        ("core.v1.Pod", pod(json!({"resources": {"limits": {"cpu": "1x"}}})), regex),
        ("core.v1.Pod", pod(json!({"resources": {"limits": {"cpu": true}}})), regex),
        (
            "core.v1.Pod",
            pod(json!({"resources": {"limits": "x"}})),
            "json: cannot unmarshal string into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
        ),
        (
            "core.v1.Pod",
            pod(json!({"livenessProbe": {"httpGet": {"port": 1.5}}})),
            "json: cannot unmarshal number 1.5 into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            "core.v1.Pod",
            json!({"spec": {"volumes": [{"name": "a", "hostPath": "x"}]}}),
            "json: cannot unmarshal string into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource",
        ),
        ("core.v1.Secret", json!({"data": {"a": "!!"}}), "illegal base64 data at input byte 0"),
        (
            "core.v1.Secret",
            json!({"data": {"a": 5}}),
            "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
        ),
        (
            "apps.v1.Deployment",
            json!({"spec": {"replicas": 1.0}}),
            "json: cannot unmarshal number 1.0 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
    ] {
        assert_eq!(report(&format!("io.k8s.api.{of}"), &object), want, "{object}");
    }
}

#[test]
fn unknown_fields() {
    let object = json!({"apiVersion": "v1", "zed": 1, "spec": {
        "foo": {"bar": 1}, "ports": [{"port": 80, "bar": 1}, {"port": 81, "baz": 1}]}});
    assert_eq!(
        report("io.k8s.api.core.v1.Service", &object),
        r#"unknown field "spec.foo", unknown field "spec.ports[0].bar", unknown field "spec.ports[1].baz", unknown field "zed""#
    );
}

#[test]
fn nested_schemas_of_a_crd_are_not_strict() {
    let crd = of_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let mut object = json!({"spec": {"versions": [{"name": "v1", "served": false, "storage": true, "schema": {
        "openAPIV3Schema": {"nope": 1, "properties": {"a": {"additionalProperties": {"type": "string", "foo": 1},
            "items": [{"type": "string", "foo": 1}], "default": {"any": [null, 1.0]}}}}}}]}});
    let report = normalize(crd.get(), &mut object);
    assert_eq!(report.unknown, [r#"unknown field "spec.versions[0].schema.openAPIV3Schema.nope""#]);
    let schema = &object["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(
        *schema,
        json!({"properties": {"a": {"additionalProperties": {"type": "string"}, "items": [{"type": "string"}],
            "default": {"any": [null, 1.0]}}}})
    );
    assert_eq!(object["spec"]["versions"][0]["served"], json!(false), "no omitempty: kept");
}

/// What a real server stores of these, but for what it defaults.
#[test]
fn a_round_trip_through_go() {
    for (of, object, want) in [
        (
            "apps.v1.Deployment",
            json!({"metadata": {"name": "a", "labels": {}, "annotations": {"x": null}}, "spec": {"replicas": 0,
                "paused": false, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": null, "spec": {
                "hostNetwork": false, "volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "c",
                "image": "i", "args": [], "ports": [{"containerPort": 80, "name": ""}],
                "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}}}}),
            json!({"metadata": {"name": "a", "annotations": {"x": ""}}, "spec": {"replicas": 0, "strategy": {},
                "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {}, "spec": {
                "volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "c", "image": "i",
                "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]}}},
                "status": {}}),
        ),
        (
            "core.v1.Event",
            json!({"metadata": {"name": "a"}, "involvedObject": {"kind": "x"}, "eventTime": null}),
            json!({"metadata": {"name": "a"}, "involvedObject": {"kind": "x"}, "source": {}, "firstTimestamp": null,
                "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": ""}),
        ),
        ("rbac.v1.Role", json!({"metadata": {}}), json!({"metadata": {}, "rules": null})),
        (
            "policy.v1.PodDisruptionBudget",
            json!({"metadata": {}, "spec": {}}),
            json!({"metadata": {}, "spec": {}, "status": {"disruptionsAllowed": 0, "currentHealthy": 0,
                "desiredHealthy": 0, "expectedPods": 0}}),
        ),
        (
            "discovery.v1.EndpointSlice",
            json!({"addressType": "IPv4"}),
            json!({"metadata": {}, "addressType": "IPv4", "endpoints": null, "ports": null}),
        ),
        (
            "coordination.v1.Lease",
            json!({"metadata": {}, "spec": {"renewTime": "2020-01-01T00:00:00.123456+01:00"}}),
            json!({"metadata": {}, "spec": {"renewTime": "2019-12-31T23:00:00.123456Z"}}),
        ),
        (
            "core.v1.ConfigMap",
            json!({"metadata": {}, "immutable": false, "data": {"x": null}, "binaryData": {}}),
            json!({"metadata": {}, "immutable": false, "data": {"x": ""}}),
        ),
        (
            "core.v1.Pod",
            json!({"spec": {"containers": [{"name": "a", "env": [null, {"name": "x", "value": ""}]}]}}),
            json!({"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {},
                "env": [{"name": ""}, {"name": "x"}]}]}, "status": {}}),
        ),
    ] {
        let of = builtin(&format!("io.k8s.api.{of}"));
        let mut seen = object.clone();
        let report = normalize(of, &mut seen);
        assert!(report.is_clean(), "{report:?}");
        complete(of, &mut seen);
        assert_eq!(seen, want, "{object}");
    }
}
