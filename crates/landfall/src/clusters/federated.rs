//! The kinds that are federated, and what objects say about their shards.

use anyhow::Result;
use landfall_api::rules::read::{child, list, text};
use landfall_plan::truth;
use serde_json::Value;

use crate::basics::target::Target;

/// A federated kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) kind: String,
}

/// Group, version, resource, kind: every built-in kind that is federated.
pub(super) const BUILT_IN: &[(&str, &str, &str, &str)] = &[
    ("", "v1", "namespaces", "Namespace"),
    ("", "v1", "services", "Service"),
    ("networking.k8s.io", "v1", "ingresses", "Ingress"),
    ("", "v1", "configmaps", "ConfigMap"),
    ("", "v1", "secrets", "Secret"),
    ("", "v1", "serviceaccounts", "ServiceAccount"),
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "replicasets", "ReplicaSet"),
    ("", "v1", "replicationcontrollers", "ReplicationController"),
    ("apps", "v1", "daemonsets", "DaemonSet"),
    ("apps", "v1", "statefulsets", "StatefulSet"),
    ("batch", "v1", "jobs", "Job"),
    ("batch", "v1", "cronjobs", "CronJob"),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
];

/// Kinds whose replicas leave a cluster that is drained.
pub(super) const DRAINED: &[&str] = &["Deployment", "ReplicaSet", "ReplicationController", "Job"];

/// The label of a definition whose kind is federated.
const FEDERATED_LABEL: &str = "landfall.dev/federated";

/// What one federated object has in one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// `namespace/name`, or the name.
    pub(super) object: String,
    pub(super) cluster: String,
    /// How the shard is, in a word.
    pub(super) state: &'static str,
    /// Whether it is as it should be.
    pub(super) well: bool,
    pub(super) replicas: u32,
    pub(super) why: String,
}

impl Kind {
    /// Where all its objects are.
    pub(super) fn path(&self) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        format!("{root}/{}/{}", self.version, self.plural)
    }
}

/// All federated kinds: the built-in ones, then those whose definition is marked.
pub(super) async fn kinds(hub: &Target) -> Result<Vec<Kind>> {
    let row = |(group, version, plural, kind): &(&str, &str, &str, &str)| Kind {
        group: (*group).into(),
        version: (*version).into(),
        plural: (*plural).into(),
        kind: (*kind).into(),
    };
    let mut all: Vec<Kind> = BUILT_IN.iter().map(row).collect();
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?labelSelector={FEDERATED_LABEL}%3Dtrue"
    );
    let definitions = hub.get(&path, "application/json").await?;
    all.extend(list(&definitions, "items").iter().filter_map(defined));
    Ok(all)
}

/// The kind that a definition defines.
fn defined(definition: &Value) -> Option<Kind> {
    let spec = child(definition, "spec");
    let stored =
        list(spec, "versions").iter().find(|version| version.get("storage") == Some(&Value::Bool(true)))?;
    let names = child(spec, "names");
    Some(Kind {
        group: text(spec, "group").into(),
        version: text(stored, "name").into(),
        plural: text(names, "plural").into(),
        kind: text(names, "kind").into(),
    })
}

/// What an object says about its shards; nothing before the hub has looked at it.
pub(super) fn lines(object: &Value) -> Vec<Line> {
    let metadata = child(object, "metadata");
    let written = text(child(metadata, "annotations"), truth::ANNOTATION);
    let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
    let title = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let line = |line: truth::Line| Line {
        object: title.clone(),
        cluster: line.cluster,
        state: line.state.word(),
        well: line.state == truth::State::Propagated,
        replicas: line.count.map_or(0, |count| count.wanted.max(count.ready)),
        why: line.why.unwrap_or_default(),
    };
    truth::read(written).into_iter().map(line).collect()
}
