//! `networking.k8s.io/v1`.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group { name: "networking.k8s.io", version: "v1", schema: "io.k8s.api.networking.v1" };

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![
        V1.cluster("IngressClass", "ingressclasses").generation(),
        V1.namespaced("Ingress", "ingresses").short(&["ing"]).status().generation(),
        V1.namespaced("NetworkPolicy", "networkpolicies").short(&["netpol"]).generation(),
    ]
}
