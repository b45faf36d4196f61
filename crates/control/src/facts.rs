//! What a member tells of itself: version, identity, nodes, capacity, where it stands.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use landfall_api::landfall::Cluster;
use landfall_api::quantity::Quantity;
use landfall_plan::membership::{Topology, topology};
use serde_json::{Value, json};

use crate::client::{Ask, Trouble, ask_json};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Most nodes that are read.
const NODES_MAX: usize = 5_000;
/// The resources that are summed up.
const RESOURCES: &[&str] = &["cpu", "memory", "pods"];

/// What a member tells of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    version: Option<String>,
    cluster_id: Option<String>,
    topology: Topology,
    total: usize,
    ready: usize,
    capacity: BTreeMap<&'static str, String>,
    allocatable: BTreeMap<&'static str, String>,
}

/// Asks a member for them.
pub async fn read(client: &kube::Client, cluster: &Cluster) -> Result<Facts, Trouble> {
    let get = |path: String| async move { ask_json(client, Ask::new(Method::GET, &path), TIMEOUT).await };
    let version = get("/version".into()).await?;
    let system = get("/api/v1/namespaces/kube-system".into()).await.ok();
    let nodes = get(format!("/api/v1/nodes?limit={NODES_MAX}&resourceVersion=0")).await?;
    let nodes = nodes.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
    Ok(Facts {
        version: text(&version, "/gitVersion"),
        cluster_id: system.and_then(|system| text(&system, "/metadata/uid")),
        topology: whereabouts(cluster, nodes),
        total: nodes.len(),
        ready: nodes.iter().filter(|node| ready(node)).count(),
        capacity: sum(nodes, "capacity"),
        allocatable: sum(nodes, "allocatable"),
    })
}

impl Facts {
    /// Writes them into a `Cluster`'s status.
    pub fn write(&self, status: &mut Value) {
        if let Some(version) = &self.version {
            status["version"] = version.clone().into();
        }
        if let Some(id) = &self.cluster_id {
            status["clusterId"] = id.clone().into();
        }
        if let Some(region) = &self.topology.region {
            status["region"] = region.clone().into();
        }
        status["zones"] = json!(self.topology.zones);
        status["nodes"] = json!({"total": self.total, "ready": self.ready});
        status["capacity"] = json!(self.capacity);
        status["allocatable"] = json!(self.allocatable);
    }
}

fn whereabouts(cluster: &Cluster, nodes: &[Value]) -> Topology {
    let given = Topology { region: cluster.spec.region.clone(), zones: cluster.spec.zones.clone() };
    let before = cluster
        .status
        .as_ref()
        .map(|status| Topology { region: status.region.clone(), zones: status.zones.clone() });
    let labels = |node: &Value| {
        let labels = node.pointer("/metadata/labels").cloned().unwrap_or_default();
        serde_json::from_value(labels).unwrap_or_default()
    };
    let labels: Vec<BTreeMap<String, String>> = nodes.iter().map(labels).collect();
    topology(&given, &before.unwrap_or_default(), &labels)
}

fn ready(node: &Value) -> bool {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let holds = |condition: &Value| {
        condition.get("type").and_then(Value::as_str) == Some("Ready")
            && condition.get("status").and_then(Value::as_str) == Some("True")
    };
    conditions.is_some_and(|all| all.iter().any(holds))
}

fn sum(nodes: &[Value], what: &str) -> BTreeMap<&'static str, String> {
    let of = |name: &'static str| {
        let values = nodes.iter().filter_map(|node| node.pointer(&format!("/status/{what}/{name}")));
        let values = values.filter_map(Quantity::from_value);
        let total = match name {
            "cpu" => values.map(Quantity::milli).fold(0, i64::saturating_add),
            _ => values.map(Quantity::whole).fold(0, i64::saturating_add),
        };
        match (name, total) {
            ("cpu", milli) if milli % 1000 != 0 => format!("{milli}m"),
            ("cpu", milli) => (milli / 1000).to_string(),
            ("memory", bytes) if bytes % 1024 == 0 => format!("{}Ki", bytes / 1024),
            (_, total) => total.to_string(),
        }
    };
    RESOURCES.iter().map(|name| (*name, of(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_summed_up() {
        let node = |cpu: &str, memory: &str| json!({"status": {"capacity": {"cpu": cpu, "memory": memory, "pods": "110"}}});
        let nodes = [node("1500m", "2Gi"), node("1", "1048576Ki"), json!({})];
        let expected = [("cpu", "2500m"), ("memory", "3145728Ki"), ("pods", "220")];
        assert_eq!(sum(&nodes, "capacity"), expected.map(|(name, text)| (name, text.to_owned())).into());
    }
}
