//! A real kube-apiserver for the time of one command.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::kubernetes;
use crate::shell::output;

/// A running etcd and kube-apiserver; both end with the value.
pub(super) struct Server {
    children: Vec<Child>,
    binaries: PathBuf,
    dir: PathBuf,
    port: u16,
}

impl Server {
    /// Starts both in a directory of their own and waits until the server is ready.
    pub(super) fn start() -> Result<Self> {
        let binaries = kubernetes::binaries()?;
        let dir = std::env::temp_dir().join(format!("landfall-gen-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let [client, peer, port] = [free_port()?, free_port()?, free_port()?];
        let mut server = Self { children: Vec::new(), binaries, dir, port };
        let key = server.path("sa.key");
        output(Command::new("openssl").args(["genrsa", "-out", &key, "2048"]))?;
        std::fs::write(server.dir.join("tokens.csv"), "gen,gen,gen,system:masters\n")?;
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        server.spawn(Command::new("etcd").args([
            format!("--data-dir={}", server.path("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
        ]))?;
        server.spawn(Command::new(server.binaries.join("kube-apiserver")).args([
            format!("--etcd-servers={client}"),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            format!("--token-auth-file={}", server.path("tokens.csv")),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", server.path("certs")),
        ]))?;
        for _ in 0..120 {
            if server.get("/readyz").is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        bail!("kube-apiserver did not get ready within a minute")
    }

    /// The body at a path.
    pub(super) fn get(&self, path: &str) -> Result<String> {
        let server = format!("https://127.0.0.1:{}", self.port);
        let flags = ["--insecure-skip-tls-verify", "--token=gen", "--server", &server, "get", "--raw", path];
        output(Command::new(self.binaries.join("kubectl")).args(flags))
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn spawn(&mut self, command: &mut Command) -> Result<()> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().with_context(|| format!("starting {}", quiet.get_program().display()))?;
        self.children.push(child);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // The child may be gone already; there is nobody to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
