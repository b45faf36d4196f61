//! From a MultiClusterService to the federated Service that it stands for: propagation, traffic and names carry that one as
//! any other.

use std::collections::BTreeMap;

use landfall_api::landfall::{ClusterEntry, MultiClusterServiceSpec};
use landfall_api::rules::read::{child, text};
use landfall_api::selector::Selector;
use serde_json::{Value, json};

use super::Backing;
use crate::hash;
use crate::placement::{NAME_LABEL, SELECTOR_ANNOTATION};
use crate::traffic::probe;

/// The label of a derived Service: the MultiClusterService that it stands for.
pub const DERIVED_LABEL: &str = "landfall.dev/multi-cluster-service";

/// Longest name that a Service can have, and that a label can have as its value.
const LABEL_MAX: usize = 63;

/// What becomes of a MultiClusterService.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// The Service: metadata and spec, without what the server adds.
    pub service: Value,
    /// Members that shall have it, in order.
    pub clusters: Vec<String>,
    /// What cannot be read.
    pub problem: Option<String>,
}

/// The name of the Service that a MultiClusterService stands for.
pub fn derived_name(group: &str, name: &str) -> String {
    let hash = hash::texts(&[group, name]);
    let plain: String = name.chars().map(|c| if c == '.' { '-' } else { c }).take(LABEL_MAX - 25).collect();
    format!("mci-{}-svc-{hash:016x}", plain.trim_end_matches('-'))
}

/// The Service that a MultiClusterService of some group stands for; `members` are all there are, with their labels.
pub fn derive<'a>(
    object: &Value,
    group: &str,
    members: impl Iterator<Item = (&'a str, &'a BTreeMap<String, String>)>,
) -> Derived {
    let spec = read(object);
    let metadata = child(object, "metadata");
    let name = text(metadata, "name");
    let (clusters, problem) = selection(&spec, members);
    let mut labels = child(metadata, "labels").as_object().cloned().unwrap_or_default();
    if name.len() <= LABEL_MAX {
        labels.insert(DERIVED_LABEL.into(), name.into());
    }
    let service = json!({
        "metadata": {
            "name": derived_name(group, name), "namespace": text(metadata, "namespace"), "labels": labels,
            "annotations": {SELECTOR_ANNOTATION: by_name(&clusters)},
        },
        "spec": {"type": "ClusterIP", "selector": selector(&spec), "ports": ports(&spec)},
    });
    Derived { service, clusters, problem }
}

impl Backing {
    /// The Service that a MultiClusterService of some group stands for.
    pub fn of_multi_cluster(object: &Value, group: &str) -> Self {
        let spec = read(object);
        let service = json!({"spec": {"ports": ports(&spec)}});
        let name = derived_name(group, text(child(object, "metadata"), "name"));
        Self { name, ports: probe::ports(&service), barred: None }
    }
}

fn read(object: &Value) -> MultiClusterServiceSpec {
    serde_json::from_value(child(object, "spec").clone()).unwrap_or_default()
}

fn selector(spec: &MultiClusterServiceSpec) -> &BTreeMap<String, String> {
    match &spec.template.spec {
        Some(inner) if spec.template.selector.is_empty() => &inner.selector,
        Some(_) | None => &spec.template.selector,
    }
}

/// Its ports, wherever they stand, as a Service has them.
fn ports(spec: &MultiClusterServiceSpec) -> Value {
    let inner = spec.template.spec.as_ref().map(|inner| inner.ports.as_slice()).unwrap_or_default();
    let all = [spec.template.ports.as_slice(), inner, spec.ports.as_slice()];
    let found = all.into_iter().find(|ports| !ports.is_empty()).unwrap_or_default();
    let mut ports = serde_json::to_value(found).unwrap_or_default();
    for port in ports.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        // Members choose these themselves.
        port.remove("nodePort");
    }
    ports
}

/// The members that a MultiClusterService selects: those that any of its entries means, all when it has none. An entry that
/// cannot be read selects nobody.
pub fn selection<'a>(
    spec: &MultiClusterServiceSpec,
    members: impl Iterator<Item = (&'a str, &'a BTreeMap<String, String>)>,
) -> (Vec<String>, Option<String>) {
    let entries = if spec.clusters.is_empty() { &spec.template.clusters } else { &spec.clusters };
    let mut problem = None;
    let mut means: Vec<Means<'_>> = Vec::with_capacity(entries.len());
    for (entry, at) in entries.iter().zip(0_usize..) {
        match Means::read(entry) {
            Ok(one) => means.push(one),
            Err(wrong) => problem = problem.or_else(|| Some(format!("clusters[{at}].selector: {wrong}"))),
        }
    }
    let meant = |name: &str, labels: &BTreeMap<String, String>| {
        entries.is_empty() || means.iter().any(|one| one.means(name, labels))
    };
    let chosen = members.filter(|(name, labels)| meant(name, labels));
    let mut names: Vec<String> = chosen.map(|(name, _)| name.to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    (names, problem)
}

/// Whom an entry means.
enum Means<'a> {
    Name(&'a str),
    Labels(Selector),
}

impl<'a> Means<'a> {
    fn read(entry: &'a ClusterEntry) -> Result<Self, String> {
        if let Some(name) = entry.name.as_deref() {
            return Ok(Self::Name(name));
        }
        if let Some(link) = entry.link.as_deref() {
            // Where it stands, and its name.
            return Ok(Self::Name(link.rsplit('/').next().unwrap_or(link)));
        }
        let selector = entry.selector.as_ref().and_then(|selector| serde_json::to_value(selector).ok());
        Selector::from_object(selector.as_ref()).map(Self::Labels)
    }

    fn means(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let label = |key: &str| match (labels.get(key), key) {
            (Some(value), _) => Some(value.as_str()),
            (None, NAME_LABEL) => Some(name),
            (None, _) => None,
        };
        match self {
            Self::Name(own) => *own == name,
            Self::Labels(selector) => selector.matches_with(label),
        }
    }
}

/// A selector of just these members.
fn by_name(clusters: &[String]) -> String {
    if clusters.is_empty() {
        // Every member has a name.
        return format!("!{NAME_LABEL}");
    }
    format!("{NAME_LABEL} in ({})", clusters.join(","))
}
