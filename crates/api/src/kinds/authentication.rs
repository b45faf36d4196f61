//! `authentication.k8s.io/v1`: who is asking.

use super::Role;
use super::row::Group;
use crate::kind::{Kind, Scope};

const V1: Group =
    Group { name: "authentication.k8s.io", version: "v1", schema: "io.k8s.api.authentication.v1" };

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![
        V1.review("SelfSubjectReview", "selfsubjectreviews", Scope::Cluster),
        V1.review("TokenReview", "tokenreviews", Scope::Cluster),
    ]
}
