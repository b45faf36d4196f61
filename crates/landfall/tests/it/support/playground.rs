//! A playground: the built binary with simulated clusters, in directories of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{Process, find, kubernetes_binary};

/// A playground with a directory for temporary files of its own, so that tests do not find each other's.
pub(crate) struct Playground {
    pub(crate) process: Process,
    temporary: PathBuf,
    dir: PathBuf,
}

impl Playground {
    /// Starts one in `base/world` and waits until it says what to type next.
    pub(crate) fn start(base: &Path, arguments: &[&str]) -> Self {
        let (temporary, dir) = (base.join("tmp"), base.join("world"));
        std::fs::create_dir_all(&temporary).unwrap();
        let mut command = landfall(&temporary);
        command.arg("playground").args(arguments).arg("--keep").arg(&dir);
        let mut process = Process::start("playground", &mut command, base);
        process.wait_for("ready", |process| process.output().contains("In another shell").then_some(()));
        Self { process, temporary, dir }
    }

    /// Its directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Where it lists itself.
    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// What `playground.json` says.
    pub(crate) fn addresses(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.dir.join("playground.json")).unwrap()).unwrap()
    }

    /// `landfall` with the playground's kubeconfig found by itself.
    pub(crate) fn landfall(&self, arguments: &[&str]) -> Output {
        landfall(&self.temporary).args(arguments).output().unwrap()
    }

    /// Breaks or mends something; what it says.
    pub(crate) fn fault(&self, arguments: &[&str]) -> String {
        let output = self.landfall(&[&["playground", "fault"], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// What kubectl makes of it.
    pub(crate) fn kubectl(&self, arguments: &str) -> Output {
        let kubectl = kubernetes_binary("kubectl").or_else(|| find("kubectl")).unwrap();
        let mut command = Command::new(kubectl);
        command.args(arguments.split_whitespace()).env("KUBECONFIG", self.dir.join("kubeconfig"));
        command.output().unwrap()
    }

    /// What kubectl prints, if it succeeds.
    pub(crate) fn kubectl_ok(&self, arguments: &str) -> String {
        let output = self.kubectl(arguments);
        assert!(output.status.success(), "kubectl {arguments}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Waits until the load balancer of a service has an address.
    pub(crate) fn address(&self, context: &str, service: &str) -> String {
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        self.kubectl_ok(&format!("--context {context} wait --for={path} service/{service} --timeout=60s"));
        self.kubectl_ok(&format!("--context {context} get service {service} -o {path}"))
    }
}

/// The binary, looking for playgrounds here only.
pub(crate) fn landfall(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.env("TMPDIR", temporary).env_remove("KUBECONFIG");
    command
}

/// Bytes that a program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
