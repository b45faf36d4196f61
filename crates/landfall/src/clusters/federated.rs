//! The kinds that are federated, and what objects say about their shards.

use std::sync::Arc;

use anyhow::Result;
use landfall_api::rules::read::{child, list, text};
use landfall_control::kinds::{FEDERATED_LABEL, Kinds, Row, eligible};
use landfall_plan::truth;
use serde_json::Value;

use crate::basics::target::Target;

/// Kinds whose replicas leave a cluster that is drained.
pub(super) const DRAINED: &[&str] = &["Deployment", "ReplicaSet", "ReplicationController", "Job"];

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

/// All federated kinds: the built-in ones, then those whose definition is marked.
pub(super) async fn kinds(hub: &Target) -> Result<Vec<Arc<Row>>> {
    let kinds = Kinds::default();
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?labelSelector={FEDERATED_LABEL}%3Dtrue"
    );
    let definitions = hub.get(&path, "application/json").await?;
    for definition in list(&definitions, "items") {
        kinds.add(definition);
    }
    Ok(kinds.all())
}

/// What an object says about its shards; nothing for what is not federated.
pub(super) fn lines(kind: &Row, object: &Value) -> Vec<Line> {
    let metadata = child(object, "metadata");
    let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
    let title = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let Some(written) = child(child(metadata, "annotations"), truth::ANNOTATION).as_str() else {
        // Which Secrets stay here is not told by their metadata.
        let federated = kind.kind != "Secret" && eligible(kind, object);
        return federated.then(|| unseen(title)).into_iter().collect();
    };
    let line = |line: truth::Line| Line {
        object: title.clone(),
        cluster: line.cluster,
        state: line.state.word(),
        well: line.state == truth::State::Propagated,
        replicas: line.count.map_or(0, |count| count.wanted.max(count.ready)),
        why: line.why.unwrap_or_default(),
    };
    let mistake = truth::mistake(written).map(|why| Line {
        state: truth::State::Failed.word(),
        why: why.to_owned(),
        ..unseen(title.clone())
    });
    let lines: Vec<Line> = mistake.into_iter().chain(truth::read(written).into_iter().map(line)).collect();
    if lines.is_empty() {
        vec![Line { why: "no cluster is selected".into(), ..unseen(title) }]
    } else {
        lines
    }
}

/// An object that is in no cluster.
fn unseen(object: String) -> Line {
    let why = "the hub has not looked at it yet".into();
    Line { object, cluster: "-".into(), state: "Pending", well: false, replicas: 0, why }
}
