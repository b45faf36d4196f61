//! What Kubernetes warns of in a pod's template without refusing it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::read::{at, has, int, items, opt_int, some, text};
use super::spec::containers;
use crate::field::Path;
use crate::names;
use crate::quantity::Quantity;

/// Sources of volumes that went out of use, and since when.
const OLD_SOURCES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// A name that pods and their hosts get parts of.
pub(in super::super) fn host_name(warnings: &mut Vec<String>, name: &str) {
    let wrong = names::dns1123_label(name);
    if !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
}

/// A template at `path`; `path` is the root for pods themselves.
pub(in super::super) fn template(warnings: &mut Vec<String>, path: &Path<'_>, template: &Value) {
    let spec = at(template, "spec");
    let path = path.child("spec");
    for (index, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        if !has(constraint, "labelSelector") {
            let path = path.child("topologySpreadConstraints");
            no_selector(warnings, &path.index(index).child("labelSelector"));
        }
    }
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        for (source, what) in OLD_SOURCES {
            if has(volume, source) {
                let said = if source == "storageos" { "storageOS" } else { source };
                warnings.push(format!("{}: {what}", path.child("volumes").index(index).child(said)));
            }
        }
    }
    repeated(warnings, &path, spec, "hostAliases", "ip");
    repeated(warnings, &path, spec, "imagePullSecrets", "name");
    for (index, _) in items(spec, "imagePullSecrets")
        .iter()
        .enumerate()
        .filter(|(_, secret)| text(secret, "name").is_empty())
    {
        let path = path.child("imagePullSecrets");
        warnings.push(format!("{}: invalid empty name \"\"", path.index(index).child("name")));
    }
    for (list, index, container) in containers(spec) {
        let path = path.child(list);
        let path = path.index(index);
        fractions(warnings, &path, container);
        hidden(warnings, &path, container);
    }
    ports(warnings, &path, spec);
    port_names(warnings, &path, spec);
    if opt_int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let path = path.child("terminationGracePeriodSeconds");
        warnings.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    affinities(warnings, &path, spec);
}

fn no_selector(warnings: &mut Vec<String>, path: &Path<'_>) {
    warnings.push(format!("{path}: a null labelSelector results in matching no pod"));
}

fn repeated(warnings: &mut Vec<String>, path: &Path<'_>, spec: &Value, list: &str, field: &str) {
    let mut seen = HashSet::new();
    for (index, item) in items(spec, list).iter().enumerate() {
        let value = text(item, field);
        if !seen.insert(value) {
            let path = path.child(list);
            let path = path.index(index);
            warnings.push(format!("{}: duplicate {field} {value:?}", path.child(field)));
        }
    }
}

fn fractions(warnings: &mut Vec<String>, path: &Path<'_>, container: &Value) {
    let resources = at(container, "resources");
    for name in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"] {
            let amount = some(at(resources, list), name).and_then(Quantity::from_value);
            if let Some(amount) = amount.filter(|amount| amount.milli() % 1000 != 0) {
                let path = path.child("resources");
                let path = path.child(list);
                warnings.push(format!(
                    "{}: fractional byte value \"{amount}\" is invalid, must be an integer",
                    path.key(name)
                ));
            }
        }
    }
}

fn hidden(warnings: &mut Vec<String>, path: &Path<'_>, container: &Value) {
    let variables = items(container, "env");
    let mut seen = HashSet::new();
    for (index, variable) in variables.iter().enumerate().filter(|_| variables.len() > 1) {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        if seen.insert(name) {
            continue;
        }
        // `X="$(X)more"` goes on from the earlier value; everything else hides it.
        let reference = format!("$({name})");
        if has(variable, "valueFrom") || value == reference || !value.contains(&reference) {
            warnings.push(format!(
                "{}: hides previous definition of {name:?}, which may be dropped when using apply",
                path.child("env").index(index)
            ));
        }
    }
}

fn ports(warnings: &mut Vec<String>, path: &Path<'_>, spec: &Value) {
    let mut seen = HashMap::<(i64, &str), Vec<(String, &Value)>>::new();
    for (list, number, container) in containers(spec) {
        for (index, port) in items(container, "ports").iter().enumerate() {
            let path = path.child(list);
            let path = path.index(number);
            let path = path.child("ports");
            let here = path.index(index).to_string();
            let others = seen.entry((int(port, "containerPort"), text(port, "protocol"))).or_default();
            // A few conflicting ports are worth saying; thousands are not.
            for (there, other) in others.iter().take(16) {
                if let Some(how) = conflict(port, other) {
                    warnings.push(format!("{here}: {how} port definition with {there}"));
                }
            }
            others.push((here, port));
        }
    }
}

fn conflict(port: &Value, other: &Value) -> Option<&'static str> {
    let (a, b) = (int(port, "hostPort"), int(other, "hostPort"));
    let (x, y) = (text(port, "hostIP"), text(other, "hostIP"));
    if x == y && a == b {
        Some("duplicate")
    } else if a == 0 || b == 0 {
        Some("overlapping")
    } else if a == b && x.is_empty() != y.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

fn port_names(warnings: &mut Vec<String>, path: &Path<'_>, spec: &Value) {
    let mut seen = HashMap::<&str, String>::new();
    for (list, number, container) in containers(spec) {
        for (index, port) in items(container, "ports").iter().enumerate() {
            let name = text(port, "name");
            if name.is_empty() {
                continue;
            }
            let path = path.child(list);
            let path = path.index(number);
            let path = path.child("ports");
            let here = path.index(index).to_string();
            match seen.get(name) {
                Some(first) => warnings.push(format!(
                    "{here}: duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}"
                )),
                None => {
                    seen.insert(name, here);
                }
            }
        }
    }
}

fn affinities(warnings: &mut Vec<String>, path: &Path<'_>, spec: &Value) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity = at(spec, "affinity");
    let path = path.child("affinity");
    for kind in ["podAffinity", "podAntiAffinity"] {
        let path = path.child(kind);
        for (index, term) in items(at(affinity, kind), REQUIRED).iter().enumerate() {
            if !has(term, "labelSelector") {
                no_selector(warnings, &path.child(REQUIRED).index(index).child("labelSelector"));
            }
        }
        for (index, term) in items(at(affinity, kind), PREFERRED).iter().enumerate() {
            if !has(at(term, "podAffinityTerm"), "labelSelector") {
                let path = path.child(PREFERRED);
                let path = path.index(index);
                no_selector(warnings, &path.child("podAffinityTerm").child("labelSelector"));
            }
        }
    }
}
