//! `apps/v1`.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group { name: "apps", version: "v1", schema: "io.k8s.api.apps.v1" };

pub(super) fn kinds(role: Role) -> Vec<Kind> {
    let mut kinds = vec![
        V1.namespaced("DaemonSet", "daemonsets").short(&["ds"]).in_all().status().generation(),
        V1.namespaced("Deployment", "deployments").short(&["deploy"]).in_all().status().scale().generation(),
        V1.namespaced("ReplicaSet", "replicasets").short(&["rs"]).in_all().status().scale().generation(),
        V1.namespaced("StatefulSet", "statefulsets").short(&["sts"]).in_all().status().scale().generation(),
    ];
    if role == Role::Member {
        kinds.insert(0, V1.namespaced("ControllerRevision", "controllerrevisions"));
    }
    kinds
}
