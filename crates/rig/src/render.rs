//! The files that the parts of a cluster are configured with. Pure: from the plan to text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::image::PAUSE;
use crate::pki::Identity;
use crate::plan::{ClusterPlan, NodePlan, PODS, Plan, SERVICE_DNS, Subnet};

/// How long a node may be silent before it counts as lost. Kubernetes' default is 50 s; tests wait for this often.
pub(crate) const NODE_GRACE_S: u32 = 20;
/// How long a node's lease holds; the kubelet renews it four times as often.
const NODE_LEASE_S: u32 = 16;

/// A kubeconfig with one context per entry of (name, URL, authority's certificate, identity).
pub(crate) fn kubeconfig<'a>(
    entries: impl Iterator<Item = (&'a str, String, String, &'a Identity)>,
) -> String {
    let (mut clusters, mut users, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
    for (name, url, authority, identity) in entries {
        let cluster = json!({"server": url, "certificate-authority-data": STANDARD.encode(authority)});
        let user = json!({
            "client-certificate-data": STANDARD.encode(&identity.certificate),
            "client-key-data": STANDARD.encode(&identity.key),
        });
        clusters.push(json!({"name": name, "cluster": cluster}));
        users.push(json!({"name": name, "user": user}));
        contexts.push(json!({"name": name, "context": {"cluster": name, "user": name}}));
    }
    let current = contexts.first().map_or(Value::Null, |context| context["name"].clone());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": current,
        "clusters": clusters, "users": users, "contexts": contexts,
    });
    format!("{config:#}\n")
}

/// The kubelet's configuration.
pub(crate) fn kubelet(plan: &Plan, node: &NodePlan) -> String {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/var/lib/kubelet/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": plan.cgroup(&node.name),
        // Without, containers would ignore the root and share one tree with other nodes.
        "cgroupsPerQOS": true,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDNS": [SERVICE_DNS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        // Images are imported, not pulled: one that was thrown away does not come back.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "makeIPTablesUtilChains": false,
        "nodeLeaseDurationSeconds": NODE_LEASE_S,
        "nodeStatusUpdateFrequency": "5s",
        "resolvConf": "/var/lib/kubelet/resolv.conf",
        "syncFrequency": "10s",
        "maxPods": 110,
    });
    format!("{config:#}\n")
}

/// The labels that a node registers with.
pub(crate) fn node_labels(cluster: &ClusterPlan, node: &NodePlan) -> String {
    format!("topology.kubernetes.io/region={},topology.kubernetes.io/zone={}", cluster.name, node.zone)
}

/// containerd's configuration.
pub(crate) fn containerd() -> String {
    let unused = ["btrfs", "devmapper", "zfs", "native", "aufs"]
        .map(|name| format!("\"io.containerd.snapshotter.v1.{name}\""));
    let cri = "[plugins.\"io.containerd.grpc.v1.cri\"";
    format!(
        "version = 2\n\
         root = \"/var/lib/containerd\"\n\
         state = \"/run/containerd\"\n\
         disabled_plugins = [{}, \"io.containerd.internal.v1.tracing\", \"io.containerd.tracing.processor.v1.otlp\"]\n\
         [grpc]\naddress = \"/run/containerd/containerd.sock\"\n\
         [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"/var/lib/containerd/opt\"\n\
         {cri}]\nsandbox_image = \"{PAUSE}\"\nrestrict_oom_score_adj = true\n\
         {cri}.cni]\nbin_dir = \"/usr/lib/cni\"\nconf_dir = \"/var/lib/cni-config\"\n\
         {cri}.containerd]\nsnapshotter = \"overlayfs\"\ndefault_runtime_name = \"runc\"\n\
         {cri}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
         {cri}.containerd.runtimes.runc.options]\nSystemdCgroup = false\n",
        unused.join(", ")
    )
}

/// The CNI configuration of a node: a bridge, and addresses from the node's own range.
pub(crate) fn cni(node: &NodePlan) -> String {
    let bridge = json!({
        "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "promiscMode": false,
        "ipam": {
            "type": "host-local", "dataDir": "/run/cni-addresses",
            "ranges": [[{"subnet": node.pods.to_string()}]], "routes": [{"dst": "0.0.0.0/0"}],
        },
    });
    let list = json!({"cniVersion": "0.4.0", "name": "rig", "plugins": [bridge]});
    format!("{list:#}\n")
}

/// What a node does to packets besides kube-proxy: whatever leaves the cluster has the node's address. CNI's own
/// masquerading wants iptables.
pub(crate) fn node_rules(cluster: &ClusterPlan) -> String {
    format!(
        "table ip landfall {{\n chain leave {{\n  type nat hook postrouting priority 100;\n  \
         ip saddr {PODS} ip daddr != {{ {PODS}, {} }} masquerade\n }}\n}}\n",
        cluster.subnet
    )
}

/// What the backbone does to packets: nothing of a pod's crosses it, and pairs that are cut do not hear each other.
pub(crate) fn backbone_rules(pairs: &[(Vec<Subnet>, Vec<Subnet>)]) -> String {
    let set = |subnets: &[Subnet]| {
        let list: Vec<String> = subnets.iter().map(Subnet::to_string).collect();
        format!("{{ {} }}", list.join(", "))
    };
    let mut text = String::from(
        "table ip landfall\ndelete table ip landfall\n\
         table ip landfall {\n chain forward {\n  type filter hook forward priority 0;\n",
    );
    text.push_str(&format!("  ip saddr {PODS} drop\n  ip daddr {PODS} drop\n"));
    for (a, b) in pairs {
        text.push_str(&format!("  ip saddr {} ip daddr {} drop\n", set(a), set(b)));
        text.push_str(&format!("  ip saddr {} ip daddr {} drop\n", set(b), set(a)));
    }
    text.push_str(" }\n}\n");
    text
}

/// What `ip -batch` does in a machine that has just been plugged in.
pub(crate) fn machine_links(cluster: &ClusterPlan, own: std::net::Ipv4Addr) -> String {
    let mut text = format!(
        "link set lo up\naddr add {own}/{} dev eth0\nlink set eth0 up\nroute add default via {}\n",
        cluster.subnet.bits, cluster.gateway
    );
    for node in cluster.nodes.iter().filter(|node| node.address != own) {
        text.push_str(&format!("route add {} via {}\n", node.pods, node.address));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    #[test]
    fn a_kubeconfig_has_one_context_per_cluster() {
        let identity = Identity { certificate: "C".into(), key: "K".into() };
        let entries = ["a", "b"].map(|name| (name, format!("https://{name}"), "CA".to_owned(), &identity));
        let config: Value = serde_json::from_str(&kubeconfig(entries.into_iter())).unwrap();
        assert_eq!(config["current-context"], "a");
        assert_eq!(config["contexts"][1]["context"], json!({"cluster": "b", "user": "b"}));
        assert_eq!(config["clusters"][1]["cluster"]["server"], "https://b");
        assert_eq!(config["users"][0]["user"]["client-key-data"], "Sw==");
    }

    #[test]
    fn machines_know_the_way_to_the_pods_of_their_own_cluster_only() {
        let plan = plan("t", 200, 2, 2).unwrap();
        let links = machine_links(&plan.clusters[0], plan.clusters[0].nodes[0].address);
        assert!(links.contains("addr add 10.200.1.11/24 dev eth0\n"), "{links}");
        assert!(links.contains("route add 10.244.2.0/24 via 10.200.1.12\n"), "{links}");
        assert!(!links.contains("10.244.1.0"), "its own pods are on its bridge: {links}");
        assert!(!links.contains("10.200.2."), "{links}");
    }

    #[test]
    fn a_cut_works_both_ways_and_for_load_balancers_too() {
        let plan = plan("t", 200, 2, 1).unwrap();
        let pair = |a, b| (plan.place(a).unwrap(), plan.place(b).unwrap());
        let rules = backbone_rules(&[pair("us-east", "eu-west"), pair("us-east", "host")]);
        for line in [
            "ip saddr { 10.200.1.0/24, 10.200.101.0/24 } ip daddr { 10.200.2.0/24, 10.200.102.0/24 } drop",
            "ip saddr { 10.200.2.0/24, 10.200.102.0/24 } ip daddr { 10.200.1.0/24, 10.200.101.0/24 } drop",
            "ip saddr { 10.200.0.0/24 } ip daddr { 10.200.1.0/24, 10.200.101.0/24 } drop",
        ] {
            assert!(rules.contains(line), "{line}\n{rules}");
        }
        assert!(!backbone_rules(&[]).contains("10.200"), "nothing is cut");
    }

    #[test]
    fn nodes_carry_region_and_zone() {
        let plan = plan("t", 200, 1, 2).unwrap();
        let labels = node_labels(&plan.clusters[0], &plan.clusters[0].nodes[1]);
        assert_eq!(labels, "topology.kubernetes.io/region=us-east,topology.kubernetes.io/zone=us-east-b");
        let config: Value = serde_json::from_str(&kubelet(&plan, &plan.clusters[0].nodes[1])).unwrap();
        assert_eq!(config["cgroupRoot"], "/landfall-rig-t/us-east-2");
        assert!(cni(&plan.clusters[0].nodes[1]).contains("10.244.2.0/24"));
    }
}
