//! A hub of its own process, and a client for it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};

/// A running hub; killed when dropped.
pub(crate) struct Hub {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    kubeconfig: PathBuf,
    log: PathBuf,
    /// Where it listens.
    pub(crate) address: String,
}

/// The command that starts a hub in a directory.
pub(crate) fn command(data: &Path, listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.arg("hub").arg("--data-dir").arg(data).args(["--listen", listen]);
    command
}

/// Starts a hub that is not expected to start; what it said. A limit ends it if it does.
pub(crate) fn refused(data: &Path) -> (Output, String) {
    let mut command = command(data, "127.0.0.1:0");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = String::new();
    // Standard output closes when it ends; its first line would say that it is ready.
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut out).unwrap();
    if !out.is_empty() {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("it started: {out}");
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

impl Hub {
    /// Starts a hub and waits until it says that it is ready. Its log goes to a file beside its directory.
    pub(crate) fn start(data: &Path, listen: &str) -> Self {
        let log = std::env::temp_dir().join(format!(
            "landfall-faults-{}-{}.log",
            std::process::id(),
            data.file_name().unwrap().display()
        ));
        let mut command = command(data, listen);
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        while !text.contains("kubeconfig") {
            let count = stdout.read_line(&mut text).unwrap();
            assert!(count > 0, "it ended: {text}{}", std::fs::read_to_string(&log).unwrap());
        }
        let url = text.split_whitespace().find(|word| word.starts_with("https://")).unwrap();
        let address = url.trim_start_matches("https://").to_owned();
        Self { child, _stdout: stdout, kubeconfig: data.join("admin.kubeconfig"), log, address }
    }

    /// Secrets of the default namespace, as the administrator.
    pub(crate) async fn secrets(&self) -> Api<Secret> {
        let read = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let mut config =
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Api::default_namespaced(Client::try_from(config).unwrap())
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as `kill` does; it must end well and never have panicked.
    pub(crate) fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
        let log = self.log();
        assert!(!log.contains("panicked"), "{log}");
    }

    fn log(&self) -> String {
        let mut text = String::new();
        std::fs::File::open(&self.log).unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// A Secret with something inside.
pub(crate) fn secret(name: &str, text: &str) -> Secret {
    let object = serde_json::json!({"metadata": {"name": name}, "stringData": {"text": text}});
    serde_json::from_value(object).unwrap()
}
