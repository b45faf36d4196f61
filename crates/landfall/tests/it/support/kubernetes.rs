//! A real Kubernetes control plane: etcd, kube-apiserver, and those controllers that a hub has too.

use std::path::PathBuf;
use std::process::Command;

use super::{Process, TOKENS, free_port, kubeconfig, kubernetes_binary};

/// The controllers that do what a hub's housekeeping does. None that makes ReplicaSets or pods.
const CONTROLLERS: &str = "--controllers=garbage-collector-controller,namespace-controller,\
serviceaccount-controller,root-ca-certificate-publisher-controller,clusterrole-aggregation-controller";

/// A running Kubernetes; stopped when dropped.
pub(crate) struct Kubernetes {
    /// A kubeconfig with the same people as [`super::Hub`] has.
    pub(crate) kubeconfig: PathBuf,
    // Stopped in this order, and before their files go.
    _processes: Vec<Process>,
    /// A directory for whatever the test wants to keep beside it.
    pub(crate) directory: tempfile::TempDir,
}

impl Kubernetes {
    /// Starts everything and waits until the server is ready. [`super::missing`] must be none.
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// The same, with the controller that makes lasting tokens for service accounts.
    pub(crate) fn start_with_tokens() -> Self {
        Self::start_with(",serviceaccount-token-controller")
    }

    fn start_with(controllers: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("tokens.csv"), TOKENS).unwrap();
        let [client, peer, port] = [(); 3].map(|()| free_port());
        let key = Command::new("openssl").args(["genrsa", "-out", &path("sa.key"), "2048"]).output().unwrap();
        assert!(key.status.success(), "openssl: {}", String::from_utf8_lossy(&key.stderr));
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let mut etcd = Command::new("etcd");
        etcd.args([
            format!("--data-dir={}", path("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
        ]);
        let etcd = Process::start("etcd", &mut etcd, directory.path());
        let mut server = Command::new(kubernetes_binary("kube-apiserver").unwrap());
        server.args([
            format!("--etcd-servers={client}"),
            format!("--service-account-key-file={}", path("sa.key")),
            format!("--service-account-signing-key-file={}", path("sa.key")),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            format!("--token-auth-file={}", path("tokens.csv")),
            "--authorization-mode=RBAC".into(),
            "--allow-privileged=true".into(),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", path("certs")),
        ]);
        let mut server = Process::start("kube-apiserver", &mut server, directory.path());
        let file = directory.path().join("kubeconfig");
        let url = format!("https://127.0.0.1:{port}");
        std::fs::write(&file, kubeconfig(&url, &directory.path().join("certs/apiserver.crt"))).unwrap();
        let kubectl = kubernetes_binary("kubectl").unwrap();
        server.wait_for("ready", |_| {
            let mut ask = Command::new(&kubectl);
            ask.arg("--kubeconfig").arg(&file).args(["get", "--raw", "/readyz"]);
            ask.output().is_ok_and(|output| output.status.success()).then_some(())
        });
        let mut manager = Command::new(kubernetes_binary("kube-controller-manager").unwrap());
        manager.arg(format!("{CONTROLLERS}{controllers}"));
        manager.arg(format!("--service-account-private-key-file={}", path("sa.key")));
        manager.args(["--leader-elect=false", "--use-service-account-credentials=false"]);
        manager.args(["--bind-address=127.0.0.1", "--secure-port=0"]);
        manager.arg(format!("--root-ca-file={}", path("certs/apiserver.crt")));
        manager.arg(format!("--kubeconfig={}", file.display()));
        let manager = Process::start("kube-controller-manager", &mut manager, directory.path());
        Self { kubeconfig: file, directory, _processes: vec![manager, server, etcd] }
    }
}
