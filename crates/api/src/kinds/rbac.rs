//! `rbac.authorization.k8s.io/v1`.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group { name: "rbac.authorization.k8s.io", version: "v1", schema: "io.k8s.api.rbac.v1" };

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![
        V1.cluster("ClusterRoleBinding", "clusterrolebindings"),
        V1.cluster("ClusterRole", "clusterroles"),
        V1.namespaced("RoleBinding", "rolebindings"),
        V1.namespaced("Role", "roles"),
    ]
}
