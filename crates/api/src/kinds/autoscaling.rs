//! `autoscaling`: two shapes of one object, stored as `v2`.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V2: Group = Group { name: "autoscaling", version: "v2", schema: "io.k8s.api.autoscaling.v2" };
const V1: Group = Group { name: "autoscaling", version: "v1", schema: "io.k8s.api.autoscaling.v1" };

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    let hpa = |group: Group| {
        group
            .namespaced("HorizontalPodAutoscaler", "horizontalpodautoscalers")
            .short(&["hpa"])
            .in_all()
            .status()
    };
    vec![hpa(V2), hpa(V1).stored_as("autoscaling", "v2")]
}
