//! The pods of a group in one member. Pure: from the group to a StatefulSet.
//!
//! A StatefulSet, because its pods keep their names, and edges are known by their names: a pod that comes back is the same edge. They use
//! their node's network, where the address is held and clients come in; so no two of any group stand on one node. Beside the edge stands
//! the keeper of the addresses, in a container of its own: it outlives the edge, and gives them away.

use landfall_api::landfall::GROUPS_NAMESPACE;
use landfall_plan::hash;
use serde_json::{Value, json};

use super::gather::Group;
use super::pods::Installed;

/// The label of the pods of a group in a member; and the annotation of what runs them, with the group's name, which may be longer.
pub(super) const GROUP_LABEL: &str = "landfall.dev/group";
/// How all pods of groups are called.
const APP: &str = "landfall-group";
/// The account of the pods, and the Secret that keeps what they must not lose; `landfall edge install` makes both.
const ACCOUNT: &str = "landfall-edge";
const KEPT: &str = "landfall-edge-kept";
/// Ports of the node: name, number, and the edge's option.
const PORTS: [(&str, u16, &str); 4] = [
    ("http", 80, "--http-listen"),
    ("https", 443, "--https-listen"),
    ("peer", 9443, "--peer-listen"),
    ("admin", 9440, "--admin-listen"),
];
/// Pods of a group in one member when it does not say.
pub(super) const REPLICAS: i32 = 2;
/// Where edge and keeper meet.
const MEETING: &str = "/run/landfall-vip";
/// A StatefulSet's name, and what its pods have after it, must fit into a label.
const NAME_MAX: usize = 50;

/// How what runs a group in a member is called.
pub(super) fn name(group: &str, cluster: &str) -> String {
    let plain = format!("{group}-{cluster}").replace('.', "-");
    // What stands before the first dash is the group, or the end tells it from others.
    if plain.len() <= NAME_MAX && !group.contains(['.', '-']) && !cluster.contains('.') {
        return plain;
    }
    let hash = hash::value(&json!([group, cluster]));
    let cut: String = plain.chars().take(NAME_MAX - 17).collect();
    format!("{}-{hash:016x}", cut.trim_end_matches('-'))
}

/// The StatefulSet of a group in a member.
pub(super) fn stateful_set(name: &str, group: &Group, cluster: &str, installed: &Installed) -> Value {
    let spec = &group.object.spec;
    let own = group.object.metadata.name.as_deref().unwrap_or("");
    let mut arguments = vec![
        "edge".to_owned(),
        format!("--hub={}", installed.hub_url),
        format!("--cluster={cluster}"),
        "--name=$(POD_NAME)".into(),
        format!("--group={own}"),
        "--data-dir=/data".into(),
        format!("--keep-in={KEPT}"),
        "--advertise=$(HOST_IPS)".into(),
        format!("--vip-keeper={MEETING}"),
        "--in-cluster".into(),
    ];
    arguments.extend(installed.ca_hash.iter().map(|hash| format!("--hub-ca-hash={hash}")));
    arguments.extend(PORTS.map(|(_, port, option)| format!("{option}=:{port}")));
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 9440}, "periodSeconds": 5});
    let labels = json!({"app": APP, GROUP_LABEL: name});
    let container = json!({
        "name": "edge", "image": installed.image, "command": ["/bin/landfall"], "args": arguments,
        "env": [
            field("POD_NAME", "metadata.name"),
            field("NODE_NAME", "spec.nodeName"),
            // Of each family that the node has.
            field("HOST_IPS", "status.hostIPs"),
            {"name": "LANDFALL_EDGE_TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": "token", "optional": true}}},
        ],
        "ports": PORTS.map(|(name, port, _)| json!({"name": name, "containerPort": port, "hostPort": port, "protocol": "TCP"})),
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": spec.resources.as_ref().map_or_else(
            || json!({"requests": {"cpu": "100m", "memory": "64Mi"}}),
            |resources| serde_json::to_value(resources).unwrap_or_default(),
        ),
        // Where the keeper is killed, keepalived dies with its container, and nobody but the edge can take the addresses off.
        "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE", "NET_ADMIN"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "vip", "mountPath": MEETING}],
    });
    let keeper = json!({
        "name": "keeper", "image": installed.image, "command": ["/bin/landfall"],
        "args": ["edge", "keeper", format!("--dir={MEETING}")],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        // It puts addresses on interfaces, and speaks VRRP.
        "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}},
        "volumeMounts": [{"name": "vip", "mountPath": MEETING}],
    });
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": {"matchLabels": {"app": APP}}, "topologyKey": "kubernetes.io/hostname",
    }]}});
    let mut pod = json!({
        "serviceAccountName": ACCOUNT, "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet",
        "affinity": apart, "containers": [container, keeper],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "vip", "emptyDir": {"medium": "Memory"}}],
    });
    if !spec.node_selector.is_empty() {
        pod["nodeSelector"] = json!(spec.node_selector);
    }
    if !spec.tolerations.is_empty() {
        pod["tolerations"] = json!(spec.tolerations);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": GROUPS_NAMESPACE},
        "spec": {
            "serviceName": APP, "replicas": spec.replicas.unwrap_or(REPLICAS), "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::{IngressReplicaSet, Load};
    use landfall_plan::binding::Measured;

    use super::*;

    #[test]
    fn pods_of_a_group_stand_on_nodes_of_their_own() {
        let object: IngressReplicaSet = serde_json::from_value(json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "IngressReplicaSet", "metadata": {"name": "blue"},
            "spec": {"replicas": 3, "nodeSelector": {"edge": "yes"}, "tolerations": [{"operator": "Exists"}]},
        }))
        .expect("a group");
        let group = Group {
            object,
            clusters: vec!["a".into()],
            problem: None,
            edges: Vec::new(),
            followers: Vec::new(),
            lost: false,
            deleting: false,
            load: (Load::default(), Measured::default()),
            bound: 0,
            plan: None,
        };
        let installed =
            Installed { image: "landfall:1".into(), hub_url: "https://hub:6443".into(), ca_hash: None };
        let set = stateful_set(&name("blue", "a"), &group, "a", &installed);
        let pod = &set["spec"]["template"]["spec"];
        assert_eq!((&set["metadata"]["name"], &set["spec"]["replicas"]), (&json!("blue-a"), &json!(3)));
        assert_eq!((&pod["hostNetwork"], &pod["nodeSelector"]["edge"]), (&json!(true), &json!("yes")));
        let apart = &pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        let own = apart["labelSelector"]["matchLabels"]["app"].as_str();
        assert_eq!(own, set["spec"]["template"]["metadata"]["labels"]["app"].as_str());
        assert!(pod["containers"][0]["args"].to_string().contains("--group=blue"));
        for container in pod["containers"].as_array().expect("containers") {
            let may = container["securityContext"]["capabilities"]["add"].to_string();
            assert!(may.contains("NET_ADMIN"), "whoever is left takes addresses off: {container}");
        }
    }

    #[test]
    fn names_fit_and_differ() {
        let long = "g".repeat(60);
        for (group, cluster) in [("a", "b"), (long.as_str(), "b"), ("a.b", "c"), ("a", "b.c")] {
            assert!(name(group, cluster).len() <= NAME_MAX, "{group} {cluster}");
        }
        assert_ne!(name("a.b", "c"), name("a", "b.c"));
        assert_ne!(name("a-b", "c"), name("a", "b-c"));
    }
}
