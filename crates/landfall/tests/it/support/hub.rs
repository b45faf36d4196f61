//! A hub: the built binary, on a data directory and a port of its own.

use std::path::PathBuf;
use std::process::Command;

use super::{Process, TOKENS, kubeconfig};

/// A running hub; stopped when dropped.
pub(crate) struct Hub {
    /// A kubeconfig with the same people as [`super::Kubernetes`] has.
    pub(crate) kubeconfig: PathBuf,
    // Stopped before its files go.
    _process: Process,
    /// A directory for whatever the test wants to keep beside it.
    pub(crate) directory: tempfile::TempDir,
}

impl Hub {
    /// Starts one and waits until it says that it is ready.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("hub");
        let tokens = directory.path().join("tokens.csv");
        std::fs::write(&tokens, TOKENS).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.args(["hub", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
        command.arg("--token-auth-file").arg(&tokens);
        let mut process = Process::start("hub", &mut command, directory.path());
        let url = process.wait_for("ready", |process| {
            let output = process.output();
            output.lines().find_map(|line| line.trim().strip_prefix("API ")).map(|url| url.trim().to_owned())
        });
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig(&url, &data.join("pki/ca.crt"))).unwrap();
        Self { kubeconfig: file, directory, _process: process }
    }
}
