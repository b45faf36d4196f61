//! `batch/v1`.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group { name: "batch", version: "v1", schema: "io.k8s.api.batch.v1" };

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![
        V1.namespaced("CronJob", "cronjobs").short(&["cj"]).in_all().status().generation(),
        V1.namespaced("Job", "jobs").in_all().status().generation().select(&["status.successful"]),
    ]
}
