//! `events.k8s.io/v1`: the newer shape of core events, kept in the same place.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group { name: "events.k8s.io", version: "v1", schema: "io.k8s.api.events.v1" };

const FIELDS: &[&str] = &[
    "reason",
    "regarding.apiVersion",
    "regarding.fieldPath",
    "regarding.kind",
    "regarding.name",
    "regarding.namespace",
    "regarding.resourceVersion",
    "regarding.uid",
    "reportingController",
    "type",
];

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![V1.namespaced("Event", "events").short(&["ev"]).select(FIELDS).stored_as("", "v1").ttl(3600)]
}
