//! The table of facts against `k8s-openapi`: both describe the same structs, from the same version of Kubernetes.
//! What is required is not compared: `k8s-openapi` mends that in its own way.

use k8s_openapi::api::{
    apps, authentication, authorization, autoscaling, batch, certificates, coordination, core, discovery,
    events, networking, policy, rbac, scheduling,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use landfall_api::schema::{Type, builtin, builtin_names};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::Value;

macro_rules! roots {
    ($generator:ident: $($of:ty),* $(,)?) => { $( $generator.subschema_for::<$of>(); )* };
}

fn definitions() -> serde_json::Map<String, Value> {
    let mut made = SchemaGenerator::new(SchemaSettings::draft2020_12());
    roots!(made:
        apiextensions::v1::CustomResourceDefinition, apps::v1::ControllerRevision, apps::v1::DaemonSet,
        apps::v1::Deployment, apps::v1::ReplicaSet, apps::v1::StatefulSet, authentication::v1::SelfSubjectReview,
        authentication::v1::TokenRequest, authentication::v1::TokenReview,
        authorization::v1::LocalSubjectAccessReview, authorization::v1::SelfSubjectAccessReview,
        authorization::v1::SelfSubjectRulesReview, authorization::v1::SubjectAccessReview,
        autoscaling::v1::HorizontalPodAutoscaler, autoscaling::v1::Scale, autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::CronJob, batch::v1::Job, certificates::v1::CertificateSigningRequest, coordination::v1::Lease, core::v1::Binding, core::v1::ConfigMap,
        core::v1::Endpoints, core::v1::Event, core::v1::LimitRange, core::v1::Namespace, core::v1::Node,
        core::v1::PersistentVolume, core::v1::PersistentVolumeClaim, core::v1::Pod, core::v1::PodTemplate,
        core::v1::ReplicationController, core::v1::ResourceQuota, core::v1::Secret, core::v1::Service,
        core::v1::ServiceAccount, discovery::v1::EndpointSlice, events::v1::Event, meta::v1::APIResourceList,
        meta::v1::DeleteOptions, meta::v1::ListMeta, meta::v1::Status, networking::v1::Ingress,
        networking::v1::IngressClass, networking::v1::NetworkPolicy, policy::v1::Eviction,
        policy::v1::PodDisruptionBudget, rbac::v1::ClusterRole, rbac::v1::ClusterRoleBinding, rbac::v1::Role,
        rbac::v1::RoleBinding, scheduling::v1::PriorityClass,
    );
    made.take_definitions(true)
}

/// The type of our graph in few words.
fn ours(ty: &Type) -> String {
    match ty {
        Type::Struct(of) => of.get().name.to_string(),
        Type::List(list) => format!("[{}]", ours(&list.item)),
        Type::Map(map) => format!("{{{}}}", ours(&map.value)),
        Type::SchemaOr(or) => format!(
            "JSONSchemaPropsOr{}",
            match or {
                landfall_api::schema::SchemaOr::Bool => "Bool",
                landfall_api::schema::SchemaOr::Schemas => "Array",
                landfall_api::schema::SchemaOr::Strings => "StringArray",
            }
        ),
        other => format!("{other:?}"),
    }
}

/// The same of a JSON schema.
fn theirs(schema: &Value) -> String {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.trim_start_matches("#/$defs/");
        return match name.rsplit('.').next().unwrap_or("") {
            known @ ("Quantity" | "Time" | "MicroTime" | "IntOrString") => known.into(),
            "RawExtension" | "FieldsV1" | "JSON" => "Any".into(),
            union if union.starts_with("JSONSchemaPropsOr") => union.into(),
            _ => name.into(),
        };
    }
    let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or("");
    match (text("type"), text("format")) {
        ("array", _) => format!("[{}]", theirs(&schema["items"])),
        ("object", _) => format!("{{{}}}", theirs(&schema["additionalProperties"])),
        ("boolean", _) => "Bool".into(),
        ("integer", "int32") => "Int32".into(),
        ("integer", _) => "Int64".into(),
        ("number", _) => "Double".into(),
        ("string", "byte") => "Bytes".into(),
        ("string", _) => "String".into(),
        (other, _) => other.into(),
    }
}

#[test]
fn both_know_the_same_fields() {
    let definitions = definitions();
    let mut compared = 0;
    for name in builtin_names() {
        let Some(schema) = definitions.get(&name) else {
            // `k8s-openapi` has no struct for a schema without fields of its own, and no shards.
            assert!(
                name.ends_with("CustomResourceSubresourceStatus") || name.ends_with("ShardInfo"),
                "{name}"
            );
            continue;
        };
        let mut want: Vec<String> = Vec::new();
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            want.push(format!("{field}: {}", theirs(schema)));
        }
        let fields = builtin(&name).fields.iter();
        let seen = fields.map(|f| format!("{}: {}", f.name, ours(&f.ty)));
        assert_eq!(seen.collect::<Vec<_>>(), want, "{name}");
        compared += 1;
    }
    assert!(compared > 300, "{compared}");
}
