//! The servers that are measured, each started alone in a directory of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::client::Target;
use crate::kubernetes;
use crate::shell::output;

/// In the order they run; the first is what the others are compared with.
pub(crate) const NAMES: &[&str] = &["kubernetes", "etcd", "embedded"];

const TOKEN: &str = "bench";

/// A running server and what it needs; all of it ends with the value.
pub(crate) struct Contender {
    children: Vec<Child>,
    directory: PathBuf,
    address: SocketAddr,
    began: Instant,
}

impl Contender {
    pub(crate) fn start(name: &str, landfall: &Path) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("landfall-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join("tokens.csv"), format!("{TOKEN},bench,bench,system:masters\n"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut contender = Self { children: Vec::new(), directory, address, began: Instant::now() };
        let etcd = if name == "embedded" { None } else { Some(contender.etcd()?) };
        contender.began = Instant::now();
        match (name, etcd) {
            ("kubernetes", Some(etcd)) => contender.kube_apiserver(&etcd)?,
            (_, etcd) => contender.hub(landfall, etcd.as_deref())?,
        }
        Ok(contender)
    }

    pub(crate) fn target(&self) -> Target {
        Target::new(self.address, TOKEN)
    }

    /// How long it took from starting the server to its first `ok`.
    pub(crate) async fn wait_ready(&self) -> Result<Duration> {
        let target = self.target();
        while self.began.elapsed() < Duration::from_secs(120) {
            if let Ok(mut connection) = target.connect().await
                && matches!(connection.send("GET", "/readyz", "").await, Ok(200))
            {
                return Ok(self.began.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bail!("it did not get ready within two minutes (see {})", self.directory.display())
    }

    /// Kills the server and starts it again on what it left.
    pub(crate) fn restart(&mut self, landfall: &Path) -> Result<()> {
        let mut server = self.children.pop().context("nothing runs")?;
        server.kill()?;
        server.wait()?;
        self.began = Instant::now();
        self.hub(landfall, None)
    }

    /// Resident memory of the server itself, without etcd.
    pub(crate) fn resident_mb(&self) -> Result<f64> {
        crate::bench::resident_mb(self.pid()?)
    }

    /// The server's own process.
    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self.children.last().context("nothing runs")?.id())
    }

    fn etcd(&mut self) -> Result<String> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(free_port()?), url(free_port()?));
        let mut etcd = Command::new("etcd");
        etcd.args([
            format!("--data-dir={}", self.directory.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--log-level=error".into(),
        ]);
        self.spawn(&mut etcd, "etcd.log")?;
        // etcd counts for nobody's start: wait until it answers.
        let address: SocketAddr = client.trim_start_matches("http://").parse()?;
        for _ in 0..1000 {
            if std::net::TcpStream::connect(address).is_ok() {
                std::thread::sleep(Duration::from_secs(2));
                return Ok(client);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("etcd did not start")
    }

    fn kube_apiserver(&mut self, etcd: &str) -> Result<()> {
        let binaries = kubernetes::binaries()?;
        let key = self.path("sa.key");
        output(Command::new("openssl").args(["genrsa", "-out", &key, "2048"]))?;
        let mut server = Command::new(binaries.join("kube-apiserver"));
        server.args([
            format!("--etcd-servers={etcd}"),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--authorization-mode=RBAC".into(),
            format!("--token-auth-file={}", self.path("tokens.csv")),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.address.port()),
            format!("--cert-dir={}", self.path("certs")),
            // Let the load through: its own limits are not what is measured.
            "--max-requests-inflight=4000".into(),
            "--max-mutating-requests-inflight=4000".into(),
        ]);
        self.began = Instant::now();
        self.spawn(&mut server, "server.log")
    }

    fn hub(&mut self, landfall: &Path, etcd: Option<&str>) -> Result<()> {
        let mut hub = Command::new(landfall);
        hub.args(["hub", "--data-dir", &self.path("hub"), "--listen", &self.address.to_string()]);
        hub.args(["--token-auth-file", &self.path("tokens.csv")]);
        // kube-apiserver writes no audit log unless told to.
        hub.args(["--audit-log", "-"]);
        if let Some(etcd) = etcd {
            hub.args(["--etcd", etcd]);
        }
        self.spawn(&mut hub, "server.log")
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn spawn(&mut self, command: &mut Command, log: &str) -> Result<()> {
        let file = std::fs::File::create(self.directory.join(log))?;
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn();
        let program = command.get_program().to_string_lossy().into_owned();
        self.children.push(child.with_context(|| format!("cannot start {program}"))?);
        Ok(())
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // It may have ended by itself; nothing more can be done here.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
