//! Facts of OpenAPI beyond the shape: fields that take one of a few values, and declared defaults that are Go's zero.
//!
//! Names are without `io.k8s.api.` and the like. Values as Kubernetes 1.36 lists them.

/// The values of the fields that take one of a few; for lists and maps, of what is inside.
const VALUES: &[(&[&str], &[&str])] = &[
    (
        &["OnDelete", "RollingUpdate"],
        &["apps.v1.DaemonSetUpdateStrategy.type", "apps.v1.StatefulSetUpdateStrategy.type"],
    ),
    (&["Recreate", "RollingUpdate"], &["apps.v1.DeploymentStrategy.type"]),
    (&["OrderedReady", "Parallel"], &["apps.v1.StatefulSetSpec.podManagementPolicy"]),
    (&["Allow", "Forbid", "Replace"], &["batch.v1.CronJobSpec.concurrencyPolicy"]),
    (&["Indexed", "NonIndexed"], &["batch.v1.JobSpec.completionMode"]),
    (&["Failed", "TerminatingOrFailed"], &["batch.v1.JobSpec.podReplacementPolicy"]),
    (&["In", "NotIn"], &["batch.v1.PodFailurePolicyOnExitCodesRequirement.operator"]),
    (&["Count", "FailIndex", "FailJob", "Ignore"], &["batch.v1.PodFailurePolicyRule.action"]),
    (
        &["Localhost", "RuntimeDefault", "Unconfined"],
        &["core.v1.AppArmorProfile.type", "core.v1.SeccompProfile.type"],
    ),
    (&["None", "ReadOnly", "ReadWrite"], &["core.v1.AzureDiskVolumeSource.cachingMode"]),
    (&["Dedicated", "Managed", "Shared"], &["core.v1.AzureDiskVolumeSource.kind"]),
    (
        &["Always", "IfNotPresent", "Never"],
        &[
            "core.v1.Container.imagePullPolicy",
            "core.v1.EphemeralContainer.imagePullPolicy",
            "core.v1.ImageVolumeSource.pullPolicy",
        ],
    ),
    (
        &["FallbackToLogsOnError", "File"],
        &[
            "core.v1.Container.terminationMessagePolicy",
            "core.v1.EphemeralContainer.terminationMessagePolicy",
        ],
    ),
    (
        &["SCTP", "TCP", "UDP"],
        &[
            "core.v1.ContainerPort.protocol",
            "core.v1.EndpointPort.protocol",
            "core.v1.PortStatus.protocol",
            "core.v1.ServicePort.protocol",
            "discovery.v1.EndpointPort.protocol",
            "networking.v1.IngressPortStatus.protocol",
            "networking.v1.NetworkPolicyPort.protocol",
        ],
    ),
    (&["HTTP", "HTTPS"], &["core.v1.HTTPGetAction.scheme"]),
    (
        &[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ],
        &["core.v1.HostPathVolumeSource.type"],
    ),
    (&["InProgress", "Infeasible", "Pending"], &["core.v1.ModifyVolumeStatus.status"]),
    (&["Active", "Terminating"], &["core.v1.NamespaceStatus.phase"]),
    (&["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"], &["core.v1.NodeSelectorRequirement.operator"]),
    (&["Pending", "Running", "Terminated"], &["core.v1.NodeStatus.phase"]),
    (
        &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"],
        &[
            "core.v1.PersistentVolumeClaimSpec.accessModes",
            "core.v1.PersistentVolumeClaimStatus.accessModes",
            "core.v1.PersistentVolumeSpec.accessModes",
        ],
    ),
    (
        &["Block", "Filesystem"],
        &["core.v1.PersistentVolumeClaimSpec.volumeMode", "core.v1.PersistentVolumeSpec.volumeMode"],
    ),
    (
        &[
            "ControllerResizeInProgress",
            "ControllerResizeInfeasible",
            "NodeResizeInProgress",
            "NodeResizeInfeasible",
            "NodeResizePending",
        ],
        &["core.v1.PersistentVolumeClaimStatus.allocatedResourceStatuses"],
    ),
    (&["Bound", "Lost", "Pending"], &["core.v1.PersistentVolumeClaimStatus.phase"]),
    (&["Delete", "Recycle", "Retain"], &["core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy"]),
    (&["Available", "Bound", "Failed", "Pending", "Released"], &["core.v1.PersistentVolumeStatus.phase"]),
    (&["Always", "OnRootMismatch"], &["core.v1.PodSecurityContext.fsGroupChangePolicy"]),
    (&["Merge", "Strict"], &["core.v1.PodSecurityContext.supplementalGroupsPolicy"]),
    (&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"], &["core.v1.PodSpec.dnsPolicy"]),
    (
        &["Never", "PreemptLowerPriority"],
        &["core.v1.PodSpec.preemptionPolicy", "scheduling.v1.PriorityClass.preemptionPolicy"],
    ),
    (&["Always", "Never", "OnFailure"], &["core.v1.PodSpec.restartPolicy"]),
    (&["Failed", "Pending", "Running", "Succeeded", "Unknown"], &["core.v1.PodStatus.phase"]),
    (&["BestEffort", "Burstable", "Guaranteed"], &["core.v1.PodStatus.qosClass"]),
    (
        &[
            "BestEffort",
            "CrossNamespacePodAffinity",
            "NotBestEffort",
            "NotTerminating",
            "PriorityClass",
            "Terminating",
            "VolumeAttributesClass",
        ],
        &["core.v1.ResourceQuotaSpec.scopes", "core.v1.ScopedResourceSelectorRequirement.scopeName"],
    ),
    (&["DoesNotExist", "Exists", "In", "NotIn"], &["core.v1.ScopedResourceSelectorRequirement.operator"]),
    (&["Default", "Unmasked"], &["core.v1.SecurityContext.procMount"]),
    (
        &["Cluster", "Local"],
        &["core.v1.ServiceSpec.externalTrafficPolicy", "core.v1.ServiceSpec.internalTrafficPolicy"],
    ),
    (&["", "IPv4", "IPv6"], &["core.v1.ServiceSpec.ipFamilies"]),
    (&["PreferDualStack", "RequireDualStack", "SingleStack"], &["core.v1.ServiceSpec.ipFamilyPolicy"]),
    (&["ClientIP", "None"], &["core.v1.ServiceSpec.sessionAffinity"]),
    (&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], &["core.v1.ServiceSpec.type"]),
    (
        &["NoExecute", "NoSchedule", "PreferNoSchedule"],
        &["core.v1.Taint.effect", "core.v1.Toleration.effect"],
    ),
    (&["Equal", "Exists", "Gt", "Lt"], &["core.v1.Toleration.operator"]),
    (
        &["Honor", "Ignore"],
        &[
            "core.v1.TopologySpreadConstraint.nodeAffinityPolicy",
            "core.v1.TopologySpreadConstraint.nodeTaintsPolicy",
        ],
    ),
    (&["DoNotSchedule", "ScheduleAnyway"], &["core.v1.TopologySpreadConstraint.whenUnsatisfiable"]),
    (&["Bidirectional", "HostToContainer", "None"], &["core.v1.VolumeMount.mountPropagation"]),
    (&["FQDN", "IPv4", "IPv6"], &["discovery.v1.EndpointSlice.addressType"]),
    (&["Exact", "ImplementationSpecific", "Prefix"], &["networking.v1.HTTPIngressPath.pathType"]),
    (&["Egress", "Ingress"], &["networking.v1.NetworkPolicySpec.policyTypes"]),
    (&["AlwaysAllow", "IfHealthyBudget"], &["policy.v1.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy"]),
    (
        &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"],
        &["apiextensions.v1.ValidationRule.reason"],
    ),
    (SIGNALS, &["core.v1.ContainerStatus.stopSignal", "core.v1.Lifecycle.stopSignal"]),
];

/// Signals a container can be stopped with.
const SIGNALS: &[&str] = &[
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// Fields that may be left out and whose declared default is the zero of their type.
const ZERO: &[&str] = &[
    "autoscaling.v1.ScaleSpec.replicas",
    "core.v1.AzureDiskVolumeSource.readOnly",
    "core.v1.ConfigMapEnvSource.name",
    "core.v1.ConfigMapKeySelector.name",
    "core.v1.ConfigMapProjection.name",
    "core.v1.ConfigMapVolumeSource.name",
    "core.v1.FileKeySelector.optional",
    "core.v1.GRPCAction.service",
    "core.v1.LocalObjectReference.name",
    "core.v1.ReplicationControllerSpec.minReadySeconds",
    "core.v1.SecretEnvSource.name",
    "core.v1.SecretKeySelector.name",
    "core.v1.SecretProjection.name",
];

/// The values of a field, sorted; `None` where any value goes.
pub(super) fn values(owner: &str, field: &str) -> Option<&'static [&'static str]> {
    VALUES
        .iter()
        .find(|(_, fields)| fields.iter().any(|name| is(name, owner, field)))
        .map(|(values, _)| *values)
}

/// Whether a field's declared default is the zero of its type.
pub(super) fn defaults_to_zero(owner: &str, field: &str) -> bool {
    ZERO.iter().any(|name| is(name, owner, field))
}

/// Whether `core.v1.PodSpec.dnsPolicy` is that field of `io.k8s.api.core.v1.PodSpec`.
fn is(name: &str, owner: &str, field: &str) -> bool {
    let Some((of, last)) = name.rsplit_once('.') else { return false };
    last == field && owner.strip_suffix(of).is_some_and(|package| package.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_full_name() {
        assert_eq!(
            values("io.k8s.api.core.v1.ServiceSpec", "sessionAffinity"),
            Some(&["ClientIP", "None"][..])
        );
        assert_eq!(values("io.k8s.api.core.v1.ServiceSpec", "clusterIP"), None);
        assert_eq!(values("io.k8s.api.discovery.v1.ServiceSpec", "type"), None);
        assert!(defaults_to_zero("io.k8s.api.core.v1.LocalObjectReference", "name"));
    }

    #[test]
    fn every_fact_is_about_a_field_that_exists() {
        let fields = VALUES.iter().flat_map(|(_, fields)| *fields).chain(ZERO);
        for name in fields {
            let (of, field) = name.rsplit_once('.').expect("struct and field");
            let found = landfall_api::schema::builtin_names().into_iter().find(|full| is(name, full, field));
            let item = landfall_api::schema::builtin(&found.unwrap_or_else(|| panic!("no struct {of}")));
            assert!(item.field(field).is_some(), "{name}");
        }
    }
}
