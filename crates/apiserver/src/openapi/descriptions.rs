//! The words of built-in kinds: what `k8s-openapi` says about each struct and field.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1 as apps, authentication::v1 as authentication, authorization::v1 as authorization,
    autoscaling::v1 as autoscaling_v1, autoscaling::v2 as autoscaling_v2, batch::v1 as batch,
    certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, networking::v1 as networking, policy::v1 as policy,
    rbac::v1 as rbac, scheduling::v1 as scheduling,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
use k8s_openapi::apimachinery::pkg::{api::resource, apis::meta::v1 as meta, runtime, util::intstr};
use landfall_api::Kind;
use schemars::SchemaGenerator;
use serde_json::Value;

/// What is said about one struct.
#[derive(Default)]
pub(super) struct Words {
    /// About the struct itself.
    pub(super) about: String,
    /// About its fields.
    pub(super) fields: HashMap<String, String>,
}

/// What is said, by full struct name.
pub(super) type Descriptions = HashMap<String, Words>;

type Visit = fn(&mut SchemaGenerator);

macro_rules! roots {
    ($($group:literal $version:literal: $package:ident { $($kind:ident),* })*) => {
        &[$($(($group, $version, stringify!($kind), |g| { g.subschema_for::<$package::$kind>(); }),)*)*]
    };
}

/// The roots of each group version; what they refer to is found from there.
const ROOTS: &[(&str, &str, &str, Visit)] = roots! {
    "" "v1": core {
        ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
        PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount
    }
    "apiextensions.k8s.io" "v1": extensions { CustomResourceDefinition }
    "apps" "v1": apps { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
    "authentication.k8s.io" "v1": authentication { SelfSubjectReview, TokenReview }
    "authorization.k8s.io" "v1": authorization {
        LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview
    }
    "autoscaling" "v1": autoscaling_v1 { HorizontalPodAutoscaler }
    "autoscaling" "v2": autoscaling_v2 { HorizontalPodAutoscaler }
    "batch" "v1": batch { CronJob, Job }
    "certificates.k8s.io" "v1": certificates { CertificateSigningRequest }
    "coordination.k8s.io" "v1": coordination { Lease }
    "discovery.k8s.io" "v1": discovery { EndpointSlice }
    "events.k8s.io" "v1": events { Event }
    "networking.k8s.io" "v1": networking { Ingress, IngressClass, NetworkPolicy }
    "policy" "v1": policy { PodDisruptionBudget }
    "rbac.authorization.k8s.io" "v1": rbac { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
    "scheduling.k8s.io" "v1": scheduling { PriorityClass }
};

/// What is said about these kinds and everything they refer to.
pub(super) fn of(kinds: &[Arc<Kind>]) -> Descriptions {
    let mut generator = SchemaGenerator::default();
    for (group, version, name, visit) in ROOTS {
        if kinds.iter().any(|kind| (&*kind.group, &*kind.version, &*kind.kind) == (*group, *version, *name)) {
            visit(&mut generator);
        }
    }
    shared(&mut generator);
    let definitions = generator.take_definitions(true);
    definitions.into_iter().map(|(name, schema)| (name, words(&schema))).collect()
}

/// What every document refers to.
fn shared(generator: &mut SchemaGenerator) {
    generator.subschema_for::<authentication::TokenRequest>();
    generator.subschema_for::<autoscaling_v1::Scale>();
    generator.subschema_for::<meta::DeleteOptions>();
    generator.subschema_for::<meta::ListMeta>();
    generator.subschema_for::<meta::ObjectMeta>();
    generator.subschema_for::<meta::Status>();
    generator.subschema_for::<meta::MicroTime>();
    generator.subschema_for::<intstr::IntOrString>();
    generator.subschema_for::<resource::Quantity>();
    generator.subschema_for::<runtime::RawExtension>();
}

fn words(schema: &Value) -> Words {
    let about = |schema: &Value| schema.get("description").and_then(Value::as_str).unwrap_or("").to_owned();
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    Words { about: about(schema), fields: fields.map(|(name, field)| (name.clone(), about(field))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_kind_has_words() {
        for kind in landfall_api::kinds::member() {
            let has = ROOTS.iter().any(|(group, version, name, _)| {
                (&*kind.group, &*kind.version, &*kind.kind) == (*group, *version, *name)
            });
            assert!(has || kind.group == "landfall.dev", "no words for {} {}", kind.group, kind.kind);
        }
    }
}
