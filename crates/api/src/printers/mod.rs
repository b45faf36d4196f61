//! How `kubectl get` shows built-in kinds: the columns and cells that Kubernetes has, one file per group.
//!
//! A [`Sheet`] is a list of columns and a function from an object to its cells. Objects are read by JSON pointer and may
//! be of any shape: what is missing shows as Kubernetes shows it (`<none>`, `<unset>`, `<unknown>`, 0).

mod apps;
mod autoscaling;
mod batch;
mod cells;
mod certificates;
mod core;
mod events;
mod networking;
mod node;
mod plain;
mod pod;
mod rbac;
mod sheet;
mod storage;

use std::sync::Arc;

use crate::kind::Printer;
use sheet::Sheet;

/// Which kind is shown how: group, kind, sheet.
const SHEETS: &[(&str, &str, Sheet)] = &[
    ("", "ConfigMap", core::CONFIG_MAP),
    ("", "Endpoints", networking::ENDPOINTS),
    ("", "Event", events::EVENT),
    ("", "LimitRange", plain::CREATED_AT),
    ("", "Namespace", core::NAMESPACE),
    ("", "Node", node::NODE),
    ("", "PersistentVolume", storage::VOLUME),
    ("", "PersistentVolumeClaim", storage::CLAIM),
    ("", "Pod", pod::POD),
    ("", "PodTemplate", core::POD_TEMPLATE),
    ("", "ReplicationController", apps::REPLICATION_CONTROLLER),
    ("", "ResourceQuota", core::RESOURCE_QUOTA),
    ("", "Secret", core::SECRET),
    ("", "Service", networking::SERVICE),
    ("apiextensions.k8s.io", "CustomResourceDefinition", plain::CREATED_AT),
    ("apps", "ControllerRevision", apps::CONTROLLER_REVISION),
    ("apps", "DaemonSet", apps::DAEMON_SET),
    ("apps", "Deployment", apps::DEPLOYMENT),
    ("apps", "ReplicaSet", apps::REPLICA_SET),
    ("apps", "StatefulSet", apps::STATEFUL_SET),
    ("autoscaling", "HorizontalPodAutoscaler", autoscaling::AUTOSCALER),
    ("autoscaling", "Scale", autoscaling::SCALE),
    ("batch", "CronJob", batch::CRON_JOB),
    ("batch", "Job", batch::JOB),
    ("certificates.k8s.io", "CertificateSigningRequest", certificates::REQUEST),
    ("coordination.k8s.io", "Lease", core::LEASE),
    ("discovery.k8s.io", "EndpointSlice", networking::ENDPOINT_SLICE),
    ("events.k8s.io", "Event", events::EVENT),
    ("networking.k8s.io", "Ingress", networking::INGRESS),
    ("networking.k8s.io", "IngressClass", networking::INGRESS_CLASS),
    ("networking.k8s.io", "NetworkPolicy", networking::NETWORK_POLICY),
    ("policy", "PodDisruptionBudget", apps::DISRUPTION_BUDGET),
    ("rbac.authorization.k8s.io", "ClusterRole", plain::CREATED_AT),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", rbac::BINDING),
    ("rbac.authorization.k8s.io", "Role", plain::CREATED_AT),
    ("rbac.authorization.k8s.io", "RoleBinding", rbac::BINDING),
    ("scheduling.k8s.io", "PriorityClass", core::PRIORITY_CLASS),
];

/// The printer of a built-in kind; name and age for those that have no columns of their own.
pub fn printer(group: &str, kind: &str) -> Arc<dyn Printer> {
    let found = SHEETS.iter().find(|(g, k, _)| (*g, *k) == (group, kind));
    Arc::new(found.map_or(plain::NAME_AND_AGE, |(_, _, sheet)| *sheet))
}
