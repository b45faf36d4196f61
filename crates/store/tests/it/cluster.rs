//! Real etcd members on loopback, which tests kill and start again.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use landfall_store::etcd::{Config, Tls};
use landfall_store::{OpenError, connect_etcd};

use crate::battery::Shared;

/// What to start.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// How many members.
    pub(crate) members: usize,
    /// Whether clients need certificates.
    pub(crate) tls: bool,
    /// etcd's space quota in bytes; 0 for its default.
    pub(crate) quota: u64,
}

/// Members of one etcd; killed when dropped.
pub(crate) struct Cluster {
    members: Vec<Member>,
    tls: Option<Certificates>,
    _directory: tempfile::TempDir,
}

struct Member {
    args: Vec<String>,
    log: PathBuf,
    endpoint: String,
    child: Option<Child>,
}

struct Certificates {
    ca_pem: String,
    client_pem: (String, String),
}

/// Starts members, or says loudly that there is no etcd to start. Fails instead when the environment asks for that.
pub(crate) fn start(options: Options) -> Option<Cluster> {
    if which("etcd") {
        return Some(Cluster::start(options));
    }
    #[expect(clippy::disallowed_methods, reason = "how `cargo xtask test` says that nothing may be skipped")]
    let required = std::env::var("LANDFALL_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name == "etcd"),
        "etcd not found, and LANDFALL_REQUIRE asks for it"
    );
    // Not by a macro: those are hidden while a test passes.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIPPED: store on etcd: etcd not found").unwrap();
    None
}

fn which(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

impl Cluster {
    fn start(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tls = options.tls.then(|| Certificates::make(directory.path()));
        let scheme = if options.tls { "https" } else { "http" };
        let ports = free_ports(options.members * 2);
        let (clients, peers) = ports.split_at(options.members);
        let names: Vec<_> = peers
            .iter()
            .enumerate()
            .map(|(index, peer)| format!("m{index}=http://127.0.0.1:{peer}"))
            .collect();
        let members = (0..options.members)
            .map(|index| {
                let home = directory.path().join(format!("m{index}"));
                let endpoint = format!("{scheme}://127.0.0.1:{}", clients[index]);
                let peer = format!("http://127.0.0.1:{}", peers[index]);
                let mut args = vec![
                    format!("--name=m{index}"),
                    format!("--data-dir={}", home.display()),
                    format!("--listen-client-urls={endpoint}"),
                    format!("--advertise-client-urls={endpoint}"),
                    format!("--listen-peer-urls={peer}"),
                    format!("--initial-advertise-peer-urls={peer}"),
                    format!("--initial-cluster={}", names.join(",")),
                    "--heartbeat-interval=100".into(),
                    "--election-timeout=1000".into(),
                ];
                if options.quota > 0 {
                    args.push(format!("--quota-backend-bytes={}", options.quota));
                }
                if options.tls {
                    let file = |name: &str| directory.path().join(name).display().to_string();
                    args.push(format!("--cert-file={}", file("server.crt")));
                    args.push(format!("--key-file={}", file("server.key")));
                    args.push(format!("--trusted-ca-file={}", file("ca.crt")));
                    args.push("--client-cert-auth".into());
                }
                Member { args, log: directory.path().join(format!("m{index}.log")), endpoint, child: None }
            })
            .collect();
        let mut cluster = Self { members, tls, _directory: directory };
        (0..options.members).for_each(|index| cluster.revive(index));
        cluster
    }

    /// Settings for a store on these members.
    pub(crate) fn config(&self, root: &str) -> Config {
        let tls = self.tls.as_ref().map(|made| Tls {
            ca_pem: made.ca_pem.clone().into_bytes(),
            client_pem: Some((
                made.client_pem.0.clone().into_bytes(),
                made.client_pem.1.clone().into_bytes(),
            )),
            server_name: None,
        });
        let endpoints = self.members.iter().map(|member| &member.endpoint);
        // Whoever compacts writes down that it does, in its own time: those who count revisions would count that, too.
        Config { tls, root: root.into(), compact_every: None, ..Config::new(endpoints) }
    }

    /// A store under a root, once the members answer.
    pub(crate) async fn connect(&self, root: &str) -> Shared {
        connect(self.config(root)).await
    }

    /// Kills a member as a power cut would.
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.members[index].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Forgets everything that a killed member knew.
    pub(crate) fn wipe(&mut self, index: usize) {
        std::fs::remove_dir_all(self.members[index].log.with_extension("")).unwrap();
    }

    /// Starts a member (again).
    pub(crate) fn revive(&mut self, index: usize) {
        let member = &mut self.members[index];
        let log = std::fs::File::options().create(true).append(true).open(&member.log).unwrap();
        let child = Command::new("etcd")
            .args(&member.args)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        member.child = Some(child);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|index| self.kill(index));
    }
}

/// Connects, patiently: members take a while to find each other.
pub(crate) async fn connect(config: Config) -> Shared {
    for _ in 0..10 {
        match connect_etcd(config.clone()).await {
            Ok(store) => return store,
            Err(OpenError::Unreachable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(other) => panic!("not {other}"),
        }
    }
    panic!("etcd does not answer");
}

/// Ports that nobody listens on. (Somebody else may take one before etcd does; then the test says so.)
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

impl Certificates {
    fn make(directory: &Path) -> Self {
        use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(ca, ca_key);
        let issue = |names: Vec<String>, usage| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(names).unwrap();
            params.extended_key_usages = usage;
            (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
        };
        let both = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let server = issue(vec!["127.0.0.1".into(), "localhost".into()], both);
        let client_pem = issue(vec!["hub".into()], vec![ExtendedKeyUsagePurpose::ClientAuth]);
        for (name, text) in [("ca.crt", &ca_pem), ("server.crt", &server.0), ("server.key", &server.1)] {
            std::fs::write(directory.join(name), text).unwrap();
        }
        Self { ca_pem, client_pem }
    }
}
