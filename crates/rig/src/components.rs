//! The daemons of a cluster with their arguments. Pure: from the plan to command lines.
//!
//! Every machine has its own network, disk and /run, so all of them use the ports and paths that they use anywhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::daemon::Spec;
use crate::plan::{API_PORT, ClusterPlan, NodePlan, PODS, SERVICES};
use crate::render::{NODE_GRACE_S, node_labels};

/// How long pods stay on a node that is lost. Kubernetes' default is 300 s; tests wait for this.
const LOST_S: u32 = 30;
/// Where certificates and kubeconfigs of a control plane lie in its machine.
pub(crate) const PKI: &str = "/var/lib/kubernetes";

/// Where the programs are.
pub(crate) type Binaries = BTreeMap<&'static str, PathBuf>;

/// etcd. One member, so there is no election worth waiting for.
pub(crate) fn etcd(program: &Path) -> Spec {
    let arguments = [
        "--name=rig",
        "--data-dir=/var/lib/etcd",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=rig=http://127.0.0.1:2380",
        "--heartbeat-interval=20",
        "--election-timeout=200",
        "--log-level=warn",
    ];
    Spec { name: "etcd", program: program.to_owned(), arguments: arguments.map(str::to_owned).to_vec() }
}

/// The API server.
pub(crate) fn api_server(cluster: &ClusterPlan, binaries: &Binaries) -> Spec {
    let mut arguments = vec![
        format!("--advertise-address={}", cluster.control),
        format!("--secure-port={API_PORT}"),
        format!("--service-cluster-ip-range={SERVICES}"),
        format!("--default-not-ready-toleration-seconds={LOST_S}"),
        format!("--default-unreachable-toleration-seconds={LOST_S}"),
    ];
    let fixed = [
        "--etcd-servers=http://127.0.0.1:2379",
        "--authorization-mode=Node,RBAC",
        // Nobody resolves the names of nodes.
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        // Webhooks and aggregated servers are called at their pods: there is no kube-proxy beside this server.
        "--enable-aggregator-routing=true",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--profiling=false",
    ];
    arguments.extend(fixed.map(str::to_owned));
    let files = [
        ("tls-cert-file", "api.crt"),
        ("tls-private-key-file", "api.key"),
        ("client-ca-file", "ca.crt"),
        ("requestheader-client-ca-file", "ca.crt"),
        ("proxy-client-cert-file", "front-proxy.crt"),
        ("proxy-client-key-file", "front-proxy.key"),
        ("kubelet-client-certificate", "kubelet-client.crt"),
        ("kubelet-client-key", "kubelet-client.key"),
        ("service-account-key-file", "tokens.pub"),
        ("service-account-signing-key-file", "tokens.key"),
    ];
    arguments.extend(files.map(|(option, file)| format!("--{option}={PKI}/{file}")));
    spec("kube-apiserver", binaries, arguments)
}

/// The controller manager.
pub(crate) fn controller_manager(binaries: &Binaries) -> Spec {
    let arguments = vec![
        format!("--kubeconfig={PKI}/controller-manager.kubeconfig"),
        format!("--root-ca-file={PKI}/ca.crt"),
        format!("--cluster-signing-cert-file={PKI}/ca.crt"),
        format!("--cluster-signing-key-file={PKI}/ca.key"),
        format!("--service-account-private-key-file={PKI}/tokens.key"),
        format!("--node-monitor-grace-period={NODE_GRACE_S}s"),
        "--node-monitor-period=2s".into(),
        "--use-service-account-credentials=true".into(),
        "--allocate-node-cidrs=false".into(),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        "--profiling=false".into(),
    ];
    spec("kube-controller-manager", binaries, arguments)
}

/// The scheduler.
pub(crate) fn scheduler(binaries: &Binaries) -> Spec {
    let arguments = vec![
        format!("--kubeconfig={PKI}/scheduler.kubeconfig"),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        "--profiling=false".into(),
    ];
    spec("kube-scheduler", binaries, arguments)
}

/// containerd.
pub(crate) fn containerd(program: &Path) -> Spec {
    let arguments = vec!["--config=/var/lib/containerd-config.toml".into(), "--log-level=warn".into()];
    Spec { name: "containerd", program: program.to_owned(), arguments }
}

/// The kubelet.
pub(crate) fn kubelet(cluster: &ClusterPlan, node: &NodePlan, binaries: &Binaries) -> Spec {
    let arguments = vec![
        "--config=/var/lib/kubelet/config.json".into(),
        "--kubeconfig=/var/lib/kubelet/kubeconfig".into(),
        format!("--hostname-override={}", node.name),
        format!("--node-ip={}", node.address),
        format!("--node-labels={}", node_labels(cluster, node)),
    ];
    spec("kubelet", binaries, arguments)
}

/// kube-proxy. The sizes of connection tables are the machine's affair, and a namespace may not set them.
pub(crate) fn proxy(node: &NodePlan, binaries: &Binaries) -> Spec {
    let arguments = vec![
        "--proxy-mode=nftables".into(),
        "--kubeconfig=/var/lib/kube-proxy/kubeconfig".into(),
        format!("--hostname-override={}", node.name),
        format!("--cluster-cidr={PODS}"),
        "--conntrack-max-per-core=0".into(),
        "--conntrack-min=0".into(),
        "--conntrack-tcp-timeout-established=0".into(),
        "--conntrack-tcp-timeout-close-wait=0".into(),
    ];
    spec("kube-proxy", binaries, arguments)
}

fn spec(name: &'static str, binaries: &Binaries, arguments: Vec<String>) -> Spec {
    let program = binaries.get(name).cloned().unwrap_or_else(|| PathBuf::from(name));
    Spec { name, program, arguments }
}
