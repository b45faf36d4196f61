//! Core group, `v1`.

use super::Role;
use super::row::{Group, NO_COLLECTION, READ};
use crate::kind::Kind;

const V1: Group = Group { name: "", version: "v1", schema: "io.k8s.api.core.v1" };

/// How long events are kept, as Kubernetes does it by default.
const EVENT_TTL_S: u32 = 3600;

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.apiVersion",
    "involvedObject.fieldPath",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.resourceVersion",
    "involvedObject.uid",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const POD_FIELDS: &[&str] = &[
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn kinds(role: Role) -> Vec<Kind> {
    let mut kinds = vec![
        V1.namespaced("ConfigMap", "configmaps").short(&["cm"]),
        V1.namespaced("Endpoints", "endpoints").short(&["ep"]),
        V1.namespaced("Event", "events").short(&["ev"]).select(EVENT_FIELDS).ttl(EVENT_TTL_S),
        V1.namespaced("LimitRange", "limitranges").short(&["limits"]),
        V1.cluster("Namespace", "namespaces")
            .short(&["ns"])
            .verbs(NO_COLLECTION)
            .status()
            .finalize()
            .select(&["status.phase"]),
        pods(role),
        V1.namespaced("ReplicationController", "replicationcontrollers")
            .short(&["rc"])
            .in_all()
            .status()
            .scale()
            .generation()
            .select(&["status.replicas"]),
        V1.namespaced("ResourceQuota", "resourcequotas").short(&["quota"]).status(),
        V1.namespaced("Secret", "secrets").select(&["type"]),
        V1.namespaced("ServiceAccount", "serviceaccounts").short(&["sa"]).token(),
        V1.namespaced("Service", "services")
            .short(&["svc"])
            .in_all()
            .status()
            .select(&["spec.clusterIP", "spec.type"]),
    ];
    if role == Role::Member {
        kinds.extend([
            V1.cluster("Node", "nodes").short(&["no"]).status().select(&["spec.unschedulable"]),
            V1.namespaced("PersistentVolumeClaim", "persistentvolumeclaims").short(&["pvc"]).status(),
            V1.cluster("PersistentVolume", "persistentvolumes").short(&["pv"]).status(),
            V1.namespaced("PodTemplate", "podtemplates").generation(),
        ]);
        kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
    }
    kinds
}

/// The federation only looks at its members' pods.
fn pods(role: Role) -> Kind {
    let pods = V1.namespaced("Pod", "pods").short(&["po"]).in_all().select(POD_FIELDS);
    match role {
        Role::Federation => pods.verbs(READ),
        Role::Member => pods.status().generation().eviction(),
    }
}
