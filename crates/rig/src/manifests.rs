//! What a rig puts into every cluster: the cluster's DNS. Pure: from names to objects.

use serde_json::{Value, json};

use crate::image::COREDNS;
use crate::plan::SERVICE_DNS;

/// Zones that CoreDNS answers, as kubeadm configures it, but with no way out: the machine has no upstream to offer.
const COREFILE: &str = "\
.:53 {
    errors
    health {
       lameduck 1s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 5
    }
    prometheus :9153
    cache 5
    loop
    reload 5s
    loadbalance
}
";

/// The cluster's DNS: (path, object), in the order in which they are applied.
pub(crate) fn dns() -> Vec<(&'static str, Value)> {
    let meta =
        |name: &str| json!({"name": name, "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}});
    let read = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": ["list", "watch"]});
    let port = |name: &str, number: u16, protocol: &str| json!({"name": name, "port": number, "targetPort": number, "protocol": protocol});
    let subject = json!({"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"});
    vec![
        (
            "/api/v1/namespaces/kube-system/serviceaccounts/coredns",
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("coredns")}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coredns",
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "system:coredns"},
                "rules": [
                    read(&[""], &["endpoints", "services", "pods", "namespaces"]),
                    read(&["discovery.k8s.io"], &["endpointslices"]),
                ],
            }),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:coredns",
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "system:coredns"}, "roleRef": role, "subjects": [subject],
            }),
        ),
        (
            "/api/v1/namespaces/kube-system/configmaps/coredns",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("coredns"), "data": {"Corefile": COREFILE}}),
        ),
        (
            "/api/v1/namespaces/kube-system/services/kube-dns",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": meta("kube-dns"),
                "spec": {
                    "clusterIP": SERVICE_DNS, "selector": {"k8s-app": "kube-dns"},
                    "ports": [port("dns", 53, "UDP"), port("dns-tcp", 53, "TCP"), port("metrics", 9153, "TCP")],
                },
            }),
        ),
        (
            "/apis/apps/v1/namespaces/kube-system/deployments/coredns",
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("coredns"),
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
                    "template": {"metadata": {"labels": {"k8s-app": "kube-dns"}}, "spec": dns_pod()},
                },
            }),
        ),
    ]
}

fn dns_pod() -> Value {
    let soon = json!([
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    ]);
    json!({
        "serviceAccountName": "coredns", "dnsPolicy": "Default", "priorityClassName": "system-cluster-critical",
        // The whole cluster waits for it: it leaves a lost node soon.
        "tolerations": soon,
        "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
        "containers": [{
            "name": "coredns", "image": COREDNS, "args": ["-conf", "/etc/coredns/Corefile"],
            "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}],
            "ports": [
                {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            ],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
            "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 60},
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_applied_at_its_own_path() {
        for (path, object) in dns() {
            let name = object["metadata"]["name"].as_str().unwrap();
            assert!(path.ends_with(&format!("/{name}")), "{path}");
            let version = object["apiVersion"].as_str().unwrap();
            let group = if version == "v1" { "/api/v1/".to_owned() } else { format!("/apis/{version}/") };
            assert!(path.starts_with(&group), "{path}");
            if let Some(namespace) = object["metadata"]["namespace"].as_str() {
                assert!(path.contains(&format!("/namespaces/{namespace}/")), "{path}");
            }
        }
    }
}
