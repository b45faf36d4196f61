//! A pod's spec as a whole; its parts are in the other files.

use std::collections::HashMap;

use serde_json::Value;

use super::super::check;
use super::super::read::{at, flag, has, items, one_of, opt_flag, opt_int, shown, some, text};
use super::{affinity, container, go_form, network, resources, scheduling, security, volume};
use crate::field::{ErrorList, ErrorType, Path};

/// Where a pod's spec stands.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Options<'a> {
    /// In a Pod, not in a template.
    pub(in super::super) is_pod: bool,
    /// Metadata of the pod, if it is one.
    pub(in super::super) metadata: Option<&'a Value>,
    /// In a StatefulSet, which makes hostname and subdomain itself.
    pub(in super::super) stateful: bool,
    /// The claims a StatefulSet makes; each is a volume of the same name.
    pub(in super::super) claims: &'a [Value],
}

/// What the parts need to know of the whole.
pub(super) struct Whole<'a> {
    pub(super) spec: &'a Value,
    /// Good volumes by name, and whether they are made from a claim.
    pub(super) volumes: HashMap<&'a str, bool>,
    pub(super) grace_s: Option<i64>,
    pub(super) restart_policy: &'a str,
    pub(super) host_users: bool,
}

/// All containers with the name of their list and their place in it, in the order Kubernetes visits them.
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |list| items(spec, list).iter().enumerate().map(move |(i, c)| (list, i, c)))
}

/// Everything wrong with a pod's spec.
pub(in super::super) fn validate(
    errors: &mut ErrorList,
    path: &Path<'_>,
    spec: &Value,
    options: &Options<'_>,
) {
    let grace_s = opt_int(spec, "terminationGracePeriodSeconds");
    if grace_s.is_none() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let whole = Whole {
        spec,
        volumes: volume::validate_all(errors, &path.child("volumes"), spec, options),
        grace_s,
        restart_policy: text(spec, "restartPolicy"),
        host_users: opt_flag(spec, "hostUsers").unwrap_or(true),
    };
    resource_claims(errors, &path.child("resourceClaims"), spec);
    container::validate_all(errors, path, &whole);
    resources::validate_pod(errors, path, spec);
    host_ports(errors, &path.child("containers"), spec, options);
    let allowed = ["Always", "OnFailure", "Never"];
    one_of(errors, &path.child("restartPolicy"), whole.restart_policy, &allowed);
    let allowed = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(errors, &path.child("dnsPolicy"), text(spec, "dnsPolicy"), &allowed);
    check::labels(errors, &path.child("nodeSelector"), at(spec, "nodeSelector"));
    security::validate_pod(errors, path, spec);
    affinity::validate(errors, &path.child("affinity"), at(spec, "affinity"));
    network::dns(errors, &path.child("dnsConfig"), spec);
    scheduling::gates(errors, path, spec);
    scheduling::spread(errors, &path.child("topologySpreadConstraints"), spec);
    host_users(errors, path, &whole);
    network::hostname_override(errors, path, spec);
    names(errors, path, spec, options);
    scheduling::tolerations(errors, &path.child("tolerations"), items(spec, "tolerations"));
    network::aliases(errors, &path.child("hostAliases"), spec);
    classes(errors, path, spec);
    os(errors, path, spec);
    file_keys(errors, path, spec);
}

fn resource_claims(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let mut seen = Vec::new();
    for (index, claim) in items(spec, "resourceClaims").iter().enumerate() {
        let path = path.index(index);
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if seen.contains(&name) {
            errors.duplicate(&path.child("name"), name);
        } else {
            check::dns_label(errors, &path.child("name"), name);
            seen.push(name);
        }
        let (own, template) = (some(claim, "resourceClaimName"), some(claim, "resourceClaimTemplateName"));
        let wrong = match (own, template) {
            (Some(_), Some(_)) => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            (None, None) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !wrong.is_empty() {
            let go = go_form::write("PodResourceClaim", claim);
            shown(ErrorType::Invalid, errors, &path, &go, wrong);
        }
        for (field, value) in [("resourceClaimName", own), ("resourceClaimTemplateName", template)] {
            if let Some(value) = value.and_then(Value::as_str) {
                check::dns_subdomain(errors, &path.child(field), value);
            }
        }
    }
}

/// On the host's network a container's port is the host's.
fn host_ports(errors: &mut ErrorList, path: &Path<'_>, spec: &Value, options: &Options<'_>) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    for (index, container) in items(spec, "containers").iter().enumerate() {
        for (at, port) in items(container, "ports").iter().enumerate() {
            let (host, own) =
                (opt_int(port, "hostPort").unwrap_or(0), opt_int(port, "containerPort").unwrap_or(0));
            if (options.is_pod || host != 0) && host != own {
                let path = path.index(index);
                errors.invalid(
                    &path.child("ports").index(at).child("hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

fn host_users(errors: &mut ErrorList, path: &Path<'_>, whole: &Whole<'_>) {
    if whole.host_users {
        return;
    }
    for (field, said) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(whole.spec, field) {
            errors.forbidden(&path.child(said), "when `hostUsers` is false");
        }
    }
    for (list, index, container) in containers(whole.spec) {
        if !items(container, "volumeDevices").is_empty() {
            errors.forbidden(
                &path.child(list).index(index).child("volumeDevices"),
                "when `hostUsers` is false",
            );
        }
    }
}

fn names(errors: &mut ErrorList, path: &Path<'_>, spec: &Value, options: &Options<'_>) {
    for field in ["serviceAccountName", "nodeName"] {
        if !text(spec, field).is_empty() {
            check::dns_subdomain(errors, &path.child(field), text(spec, field));
        }
    }
    if let Some(seconds) = opt_int(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.invalid(
            &path.child("activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
    for field in ["hostname", "subdomain"] {
        if !text(spec, field).is_empty() && !options.stateful {
            check::dns_label(errors, &path.child(field), text(spec, field));
        }
    }
}

fn classes(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    if !text(spec, "priorityClassName").is_empty() {
        check::dns_subdomain(errors, &path.child("priorityClassName"), text(spec, "priorityClassName"));
    }
    if has(spec, "runtimeClassName") {
        check::dns_subdomain(errors, &path.child("runtimeClassName"), text(spec, "runtimeClassName"));
    }
    if has(spec, "preemptionPolicy") {
        let allowed = ["PreemptLowerPriority", "Never"];
        one_of(errors, &path.child("preemptionPolicy"), text(spec, "preemptionPolicy"), &allowed);
    }
    if has(spec, "overhead") {
        resources::validate_overhead(errors, &path.child("overhead"), at(spec, "overhead"));
    }
}

/// Fields of a security context that Windows has not, of the pod and of its containers.
const NOT_WINDOWS_POD: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const NOT_WINDOWS_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

fn os(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let Some(os) = some(spec, "os") else { return };
    match text(os, "name") {
        "" => errors.required(&path.child("os").child("name"), ""),
        "linux" => linux(errors, path, spec),
        "windows" => windows(errors, path, spec),
        other => errors.not_supported(&path.child("os"), other, &["linux", "windows"]),
    }
}

fn linux(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    const WHY: &str = "windows options cannot be set for a linux pod";
    let options = |of: &Value| has(at(of, "securityContext"), "windowsOptions");
    if options(spec) {
        errors.forbidden(&path.child("securityContext").child("windowsOptions"), WHY);
    }
    for (list, index, container) in containers(spec) {
        if options(container) {
            let path = path.child(list);
            let path = path.index(index);
            errors.forbidden(&path.child("securityContext").child("windowsOptions"), WHY);
        }
    }
}

fn windows(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    const WHY: &str = "cannot be set for a windows pod";
    for field in ["hostUsers", "shareProcessNamespace"] {
        if has(spec, field) {
            errors.forbidden(&path.child(field), WHY);
        }
    }
    for field in ["hostPID", "hostIPC"] {
        if flag(spec, field) {
            errors.forbidden(&path.child(field), WHY);
        }
    }
    let context = at(spec, "securityContext");
    for field in NOT_WINDOWS_POD {
        if has(context, field) {
            errors.forbidden(&path.child("securityContext").child(field), WHY);
        }
    }
    for (list, index, container) in containers(spec) {
        for field in NOT_WINDOWS_CONTAINER {
            if has(at(container, "securityContext"), field) {
                let path = path.child(list);
                let path = path.index(index);
                errors.forbidden(&path.child("securityContext").child(field), WHY);
            }
        }
    }
}

/// Variables read from files need a volume the kubelet can read.
fn file_keys(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    for (list, index, container) in containers(spec) {
        for (number, variable) in items(container, "env").iter().enumerate() {
            let Some(reference) = some(at(variable, "valueFrom"), "fileKeyRef") else { continue };
            let name = text(reference, "volumeName");
            let volume = items(spec, "volumes").iter().rev().find(|v| text(v, "name") == name);
            let path = path.child(list);
            let path = path.index(index);
            let path = path.child("env");
            let path = path.index(number);
            let path = path.child("valueFrom");
            let path = path.child("fileKeyRef");
            match volume {
                None => errors.not_found(&path.child("volumeName"), name),
                Some(volume) if !has(volume, "emptyDir") => errors.invalid(
                    &path.child("volumeName"),
                    name,
                    "referenced volume must be of type emptyDir",
                ),
                Some(_) => {}
            }
        }
    }
}

/// Whether a pod keeps a service-account token in a projected volume, without an account.
pub(in super::super) fn tokens_without_account(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    if !text(spec, "serviceAccountName").is_empty() {
        return;
    }
    for (number, volume) in items(spec, "volumes").iter().enumerate() {
        for (index, source) in items(at(volume, "projected"), "sources").iter().enumerate() {
            if has(source, "serviceAccountToken") {
                let path = path.child("volumes");
                let path = path.index(number);
                let path = path.child("projected");
                errors.forbidden(
                    &path.child("sources").index(index).child("serviceAccountToken"),
                    "must not be specified when serviceAccountName is not set",
                );
            }
        }
    }
}

/// Images of pods have no spaces around them; templates may.
pub(in super::super) fn trimmed_images(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    for list in ["containers", "initContainers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            let image = text(container, "image");
            if image.trim().len() != image.len() {
                errors.invalid(
                    &path.child(list).index(index).child("image"),
                    image,
                    "must not have leading or trailing whitespace",
                );
            }
        }
    }
}
