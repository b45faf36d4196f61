//! `discovery.k8s.io/v1`.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group { name: "discovery.k8s.io", version: "v1", schema: "io.k8s.api.discovery.v1" };

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![V1.namespaced("EndpointSlice", "endpointslices").generation()]
}
