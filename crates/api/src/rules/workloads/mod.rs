//! Kinds that run pods, and the pods and nodes of members.
//!
//! One file per kind; what they share is in [`pod`] (templates), `read` and `check` (looking at fields), `scale`
//! (replicas, selectors, percentages) and `cron` (schedules).

use std::sync::Arc;

use crate::kind::Rules;

mod check;
mod controller_revision;
mod cron;
mod cronjob;
mod daemonset;
mod deployment;
mod hpa;
pub mod hpa_convert;
mod hpa_metrics;
mod job;
mod job_policy;
mod job_status;
mod job_update;
mod node;
mod pdb;
mod pod;
mod pod_kind;
mod pod_template;
mod read;
mod replicaset;
mod replication_controller;
mod scale;
mod statefulset;

/// The rules of a kind, if it is one of these.
pub fn rules(group: &str, kind: &str) -> Option<Arc<dyn Rules>> {
    Some(match (group, kind) {
        ("", "Node") => Arc::new(node::Node),
        ("", "Pod") => Arc::new(pod_kind::Pod),
        ("", "PodTemplate") => Arc::new(pod_template::PodTemplate),
        ("", "ReplicationController") => Arc::new(replication_controller::ReplicationController),
        ("apps", "ControllerRevision") => Arc::new(controller_revision::ControllerRevision),
        ("apps", "DaemonSet") => Arc::new(daemonset::DaemonSet),
        ("apps", "Deployment") => Arc::new(deployment::Deployment),
        ("apps", "ReplicaSet") => Arc::new(replicaset::ReplicaSet),
        ("apps", "StatefulSet") => Arc::new(statefulset::StatefulSet),
        ("autoscaling", "HorizontalPodAutoscaler") => Arc::new(hpa::HorizontalPodAutoscaler),
        ("batch", "CronJob") => Arc::new(cronjob::CronJob),
        ("batch", "Job") => Arc::new(job::Job),
        ("policy", "PodDisruptionBudget") => Arc::new(pdb::PodDisruptionBudget),
        _ => return None,
    })
}
