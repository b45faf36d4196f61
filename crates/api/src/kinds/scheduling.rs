//! `scheduling.k8s.io/v1`: in members only.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group { name: "scheduling.k8s.io", version: "v1", schema: "io.k8s.api.scheduling.v1" };

pub(super) fn kinds(role: Role) -> Vec<Kind> {
    match role {
        Role::Federation => Vec::new(),
        Role::Member => vec![V1.cluster("PriorityClass", "priorityclasses").short(&["pc"]).generation()],
    }
}
