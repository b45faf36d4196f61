//! `policy/v1`.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group { name: "policy", version: "v1", schema: "io.k8s.api.policy.v1" };

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![V1.namespaced("PodDisruptionBudget", "poddisruptionbudgets").short(&["pdb"]).status().generation()]
}
