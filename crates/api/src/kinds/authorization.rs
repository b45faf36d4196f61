//! `authorization.k8s.io/v1`: who may do what.

use super::Role;
use super::row::Group;
use crate::kind::{Kind, Scope};

const V1: Group =
    Group { name: "authorization.k8s.io", version: "v1", schema: "io.k8s.api.authorization.v1" };

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![
        V1.review("LocalSubjectAccessReview", "localsubjectaccessreviews", Scope::Namespaced),
        V1.review("SelfSubjectAccessReview", "selfsubjectaccessreviews", Scope::Cluster),
        V1.review("SelfSubjectRulesReview", "selfsubjectrulesreviews", Scope::Cluster),
        V1.review("SubjectAccessReview", "subjectaccessreviews", Scope::Cluster),
    ]
}
