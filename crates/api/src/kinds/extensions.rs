//! `apiextensions.k8s.io/v1`: kinds that users define.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group {
    name: "apiextensions.k8s.io",
    version: "v1",
    schema: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
};

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![
        V1.cluster("CustomResourceDefinition", "customresourcedefinitions")
            .short(&["crd", "crds"])
            .category("api-extensions")
            .status()
            .generation(),
    ]
}
