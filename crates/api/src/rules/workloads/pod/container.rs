//! Containers of all three lists.

use std::collections::HashSet;

use serde_json::Value;

use super::super::check;
use super::super::read::{has, int, is_zero, items, some, text, too_many, unsupported};
use super::spec::Whole;
use super::volume::pull_policy;
use super::{env, mount, probe, resources, security};
use crate::field::{ErrorList, Path};

/// Everything wrong with the containers of a pod.
pub(super) fn validate_all(errors: &mut ErrorList, path: &Path<'_>, whole: &Whole<'_>) {
    regular(errors, &path.child("containers"), whole);
    init(errors, &path.child("initContainers"), whole);
    ephemeral(errors, &path.child("ephemeralContainers"), whole);
}

fn regular(errors: &mut ErrorList, path: &Path<'_>, whole: &Whole<'_>) {
    let containers = items(whole.spec, "containers");
    if containers.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut names = HashSet::with_capacity(containers.len());
    let mut ports = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        common(errors, &path, container, whole);
        if !names.insert(text(container, "name")) {
            errors.duplicate(&path.child("name"), text(container, "name"));
        }
        probe::lifecycle(errors, &path.child("lifecycle"), container, whole);
        probe::probes(errors, &path, container, whole);
        restart_policy(errors, &path, container);
    }
    for (index, container) in containers.iter().enumerate() {
        host_ports(errors, &path.index(index), container, &mut ports);
    }
}

fn init(errors: &mut ErrorList, path: &Path<'_>, whole: &Whole<'_>) {
    const WHY: &str = "may not be set for init containers without restartPolicy=Always";
    let containers = items(whole.spec, "initContainers");
    if containers.is_empty() {
        return;
    }
    let mut names: HashSet<_> = items(whole.spec, "containers").iter().map(|c| text(c, "name")).collect();
    for (index, container) in containers.iter().enumerate() {
        let list = path;
        let path = path.index(index);
        let name = text(container, "name");
        common(errors, &path, container, whole);
        restart_policy(errors, &path, container);
        if names.contains(name) {
            errors.duplicate(&path.child("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        // Each is checked as if it were alone, hence the first of the list.
        host_ports(errors, &list.index(0), container, &mut HashSet::new());
        let sidecar = text(container, "restartPolicy") == "Always";
        if sidecar {
            probe::lifecycle(errors, &path.child("lifecycle"), container, whole);
            probe::probes(errors, &path, container, whole);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if has(container, field) {
                    errors.forbidden(&path.child(field), WHY);
                }
            }
            let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            for (number, policy) in items(container, "resizePolicy").iter().enumerate() {
                if text(policy, "restartPolicy") == "RestartContainer" {
                    let path = path.child("resizePolicy");
                    errors.invalid(&path.index(number).child("restartPolicy"), "RestartContainer", why);
                }
            }
        }
    }
}

/// Fields that only containers of the other lists have, in Kubernetes' order.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

fn ephemeral(errors: &mut ErrorList, path: &Path<'_>, whole: &Whole<'_>) {
    const WHY: &str = "cannot be set for an Ephemeral Container";
    let containers = items(whole.spec, "ephemeralContainers");
    if containers.is_empty() {
        return;
    }
    let others: HashSet<_> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| items(whole.spec, list))
        .map(|c| text(c, "name"))
        .collect();
    let mut names = others.clone();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        common(errors, &path, container, whole);
        let image = text(container, "image");
        if image.trim().len() != image.len() {
            errors.invalid(&path.child("image"), image, "must not have leading or trailing whitespace");
        }
        if !names.insert(text(container, "name")) {
            errors.duplicate(&path.child("name"), text(container, "name"));
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.child("targetContainerName"), target);
        }
        for field in NOT_EPHEMERAL {
            if some(container, field).is_some_and(|v| !is_zero(v)) {
                errors.forbidden(&path.child(field), WHY);
            }
        }
        for (number, mount) in items(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    errors.forbidden(&path.child("volumeMounts").index(number).child(field), WHY);
                }
            }
        }
    }
}

/// What holds in every list.
fn common(errors: &mut ErrorList, path: &Path<'_>, container: &Value, whole: &Whole<'_>) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        check::dns_label(errors, &path.child("name"), name);
    }
    if text(container, "image").is_empty() {
        errors.required(&path.child("image"), "");
    }
    match text(container, "terminationMessagePolicy") {
        "File" | "FallbackToLogsOnError" => {}
        "" => errors.required(&path.child("terminationMessagePolicy"), ""),
        other => {
            let allowed = ["File", "FallbackToLogsOnError"];
            unsupported(errors, &path.child("terminationMessagePolicy"), other, &allowed);
        }
    }
    ports(errors, &path.child("ports"), items(container, "ports"));
    env::variables(errors, &path.child("env"), items(container, "env"));
    env::sources(errors, &path.child("envFrom"), items(container, "envFrom"));
    mount::mounts(errors, &path.child("volumeMounts"), container, whole);
    mount::devices(errors, &path.child("volumeDevices"), container, whole);
    pull_policy(errors, &path.child("imagePullPolicy"), text(container, "imagePullPolicy"));
    resources::validate_container(errors, &path.child("resources"), container, whole.spec);
    resize_policy(errors, &path.child("resizePolicy"), container, whole);
    security::validate_container(errors, &path.child("securityContext"), container, whole);
}

fn ports(errors: &mut ErrorList, path: &Path<'_>, ports: &[Value]) {
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let before = errors.len();
            check::port_name(errors, &path.child("name"), name);
            if errors.len() == before && !names.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
        let number = int(port, "containerPort");
        if number == 0 {
            errors.required(&path.child("containerPort"), "");
        } else {
            check::port_number(errors, &path.child("containerPort"), number);
        }
        let host = int(port, "hostPort");
        if host != 0 {
            check::port_number(errors, &path.child("hostPort"), host);
        }
        match text(port, "protocol") {
            "TCP" | "UDP" | "SCTP" => {}
            "" => errors.required(&path.child("protocol"), ""),
            other => unsupported(errors, &path.child("protocol"), other, &["SCTP", "TCP", "UDP"]),
        }
    }
}

fn host_ports(errors: &mut ErrorList, path: &Path<'_>, container: &Value, seen: &mut HashSet<String>) {
    for (index, port) in items(container, "ports").iter().enumerate() {
        let number = int(port, "hostPort");
        if number == 0 {
            continue;
        }
        let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
        if seen.contains(&key) {
            errors.duplicate(&path.child("ports").index(index).child("hostPort"), key);
        } else {
            seen.insert(key);
        }
    }
}

fn resize_policy(errors: &mut ErrorList, path: &Path<'_>, container: &Value, whole: &Whole<'_>) {
    let mut seen = Vec::new();
    for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if seen.contains(&resource) {
            errors.duplicate(&path.index(index), resource);
        } else {
            seen.push(resource);
        }
        super::super::read::one_of(errors, path, resource, &["cpu", "memory"]);
        super::super::read::one_of(errors, path, restart, &["NotRequired", "RestartContainer"]);
        if whole.restart_policy == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, restart, why);
        }
    }
}

fn restart_policy(errors: &mut ErrorList, path: &Path<'_>, container: &Value) {
    const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
    let rules = items(container, "restartPolicyRules");
    let here = path.child("restartPolicy");
    match some(container, "restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => errors.required(&here, "must specify restartPolicy when restart rules are used"),
        Some(policy) if !POLICIES.contains(&policy) => unsupported(errors, &here, policy, &POLICIES),
        Some(_) => {}
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > 20 {
        too_many(errors, &path, rules.len(), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&text(rule, "action")) {
            unsupported(errors, &path.child("action"), text(rule, "action"), &actions);
        }
        let Some(codes) = some(rule, "exitCodes") else {
            errors.required(&path.child("exitCodes"), "must be specified");
            continue;
        };
        let path = path.child("exitCodes");
        if !matches!(text(codes, "operator"), "In" | "NotIn") {
            unsupported(errors, &path.child("operator"), text(codes, "operator"), &["In", "NotIn"]);
        }
        let count = items(codes, "values").len();
        if count > 255 {
            too_many(errors, &path.child("values"), count, 255);
        }
    }
}
