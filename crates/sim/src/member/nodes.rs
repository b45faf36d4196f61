//! The objects that a member begins with: its nodes, their leases, and the way to its own API.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::config::{MemberConfig, NodeSpec};
use crate::controllers::read::{Millis, time_micro, time_text};

/// Where nodes say that they are there.
pub const LEASES: &str = "kube-node-lease";

/// The Kubernetes version that nodes claim to run.
pub const VERSION: &str = "v1.36.4";

/// How long a node's lease lasts, as kubelets say it.
const LEASE_S: u32 = 40;

/// The Node object of a node: registered and ready.
pub fn node(config: &MemberConfig, spec: &NodeSpec, index: u32, total: u32, now: Millis) -> Value {
    let mut labels = Map::new();
    let region = Some(&config.region).filter(|region| !region.is_empty());
    let zone = Some(&spec.zone).filter(|zone| !zone.is_empty());
    for (key, value) in [
        ("beta.kubernetes.io/arch", Some("amd64")),
        ("beta.kubernetes.io/os", Some("linux")),
        ("kubernetes.io/arch", Some("amd64")),
        ("kubernetes.io/hostname", Some(&*spec.name)),
        ("kubernetes.io/os", Some("linux")),
        ("topology.kubernetes.io/region", region.map(String::as_str)),
        ("topology.kubernetes.io/zone", zone.map(String::as_str)),
    ] {
        if let Some(value) = value {
            labels.insert(key.into(), json!(value));
        }
    }
    labels.extend(spec.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    let taints: Vec<Value> = spec
        .taints
        .iter()
        .map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}))
        .collect();
    let mut object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels},
        "spec": {"providerID": format!("landfall://{}/{}", config.name, spec.name)},
        "status": status(config, spec, (index, total), now),
    });
    if !taints.is_empty() {
        object["spec"]["taints"] = json!(taints);
    }
    if let Some(range) = config.block.node_pods(index, total) {
        object["spec"]["podCIDR"] = json!(range.to_string());
        object["spec"]["podCIDRs"] = json!([range.to_string()]);
    }
    object
}

fn status(config: &MemberConfig, spec: &NodeSpec, (index, total): (u32, u32), now: Millis) -> Value {
    // The first and the last address of a range are nobody's.
    let addresses = config.block.node_pods(index, total).map_or(0, |range| range.count().saturating_sub(2));
    let amounts = json!({
        "cpu": spec.cpu, "memory": spec.memory, "pods": spec.pods.min(addresses).to_string(),
        "ephemeral-storage": "100Gi", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
    });
    let mut addresses = vec![json!({"type": "Hostname", "address": spec.name})];
    if let Some(address) = config.block.nodes().get(index) {
        addresses.insert(0, json!({"type": "InternalIP", "address": address.to_string()}));
    }
    json!({
        "capacity": amounts, "allocatable": amounts, "addresses": addresses,
        "conditions": conditions(now),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "landfall-sim://0.1",
            "kernelVersion": "simulated", "kubeProxyVersion": "", "kubeletVersion": VERSION,
            "machineID": "", "operatingSystem": "linux", "osImage": "Landfall simulated node",
            "systemUUID": "",
        },
    })
}

/// The conditions of a healthy node, as kubelets say them.
pub fn conditions(now: Millis) -> Vec<Value> {
    let at = time_text(now);
    let row = |ty: &str, status: &str, reason: &str, message: &str| {
        json!({"type": ty, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": at, "lastTransitionTime": at})
    };
    let memory = "kubelet has sufficient memory available";
    vec![
        row("MemoryPressure", "False", "KubeletHasSufficientMemory", memory),
        row("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        row("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        row("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
}

/// Whether a node says nothing but that it is alive.
pub fn only_alive(old: &Value, new: &Value) -> bool {
    let said = |node: &Value| {
        let mut node = node.clone();
        let metadata = landfall_api::meta::metadata_mut(&mut node);
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        let conditions = node.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
            condition.remove("lastHeartbeatTime");
        }
        node
    };
    said(old) == said(new)
}

/// The lease of a node, renewed now.
pub fn lease(node: &str, now: Millis) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node, "namespace": LEASES},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_S, "renewTime": time_micro(now)},
    })
}

/// The endpoints of the Service `kubernetes`, which no selector finds.
pub(super) fn own_endpoints(address: SocketAddr) -> (Value, Value) {
    let port = json!({"name": "https", "port": address.port(), "protocol": "TCP"});
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": address.ip().to_string()}], "ports": [port]}],
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [port],
    });
    (endpoints, slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_only_lives_on_says_nothing_new() {
        let node = |version: &str, now: Millis, ready: &str| {
            let mut conditions = conditions(now);
            conditions.iter_mut().for_each(|c| c["lastTransitionTime"] = json!("2026-01-01T00:00:00Z"));
            conditions[0]["status"] = json!(ready);
            json!({"metadata": {"name": "n", "resourceVersion": version}, "status": {"conditions": conditions}})
        };
        let old = node("1", 1_000, "True");
        assert!(only_alive(&old, &node("2", 61_000, "True")));
        assert!(!only_alive(&old, &node("2", 61_000, "False")));
    }
}
