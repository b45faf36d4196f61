//! A hub and the clusters of a rig that are its members.

use std::fmt::Debug;
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_rig::{Config, Rig};
use serde_json::Value;

use crate::support::{PATIENCE, config, eventually, landfall, run, try_kubectl};

/// The clusters.
pub(crate) const MEMBERS: [&str; 3] = ["us-east", "eu-west", "asia-east"];
/// The hub, where a cluster can be named.
pub(crate) const HUB: &str = "federation";
/// The federation's name and domain, as the first design has them.
const NAME: [&str; 4] = ["--federation", "my-federation", "--domain", "my-domain.com"];
/// What no rig has in the first design's manifests, and what takes its place.
const REPLACED: [(&str, &str); 3] = [
    ("gcr.io/google_samples/my-service:v1", "landfall.dev/echo:dev"),
    ("targetPort: 2379", "targetPort: 8080"),
    ("targetPort: 2380", "targetPort: 8080"),
];

/// Waits until something is so; the last that was seen is told when it never is.
#[track_caller]
pub(crate) fn becomes<T: PartialEq + Debug>(what: &str, expected: &T, mut look: impl FnMut() -> T) {
    let began = Instant::now();
    loop {
        let seen = look();
        if seen == *expected {
            println!("{what}: after {:.1} s", began.elapsed().as_secs_f64());
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {seen:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A manifest of the first design, with images that a rig has.
pub(crate) fn manifest(name: &str) -> String {
    let file = format!("{}/../landfall/tests/it/manifests/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).unwrap();
    REPLACED.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

/// A hub, or several on one etcd, and their members.
pub(crate) struct Federation {
    pub(crate) rig: Rig,
    pub(crate) directory: tempfile::TempDir,
    hubs: Vec<Hub>,
    /// Where the hubs keep their objects, when it is not with each of them.
    etcd: Option<(Child, String)>,
}

/// One hub, running or not.
struct Hub {
    directory: PathBuf,
    port: u16,
    running: Option<Child>,
}

impl Hub {
    fn stop(&mut self) {
        if let Some(mut hub) = self.running.take() {
            let _ = hub.kill();
            let _ = hub.wait();
        }
    }
}

impl Federation {
    /// One hub with a store of its own.
    pub(crate) fn start(name: &str) -> Self {
        Self::with_hubs(name, 1)
    }

    /// So many hubs; on etcd, when there are several.
    pub(crate) fn with_hubs(name: &str, count: usize) -> Self {
        Self::of(&config(name, MEMBERS.len(), 1), count)
    }

    /// On a rig of some size.
    pub(crate) fn of(config: &Config, count: usize) -> Self {
        let rig = Rig::up(config).unwrap_or_else(|error| panic!("{}", landfall_rig::chain(&error)));
        let directory = tempfile::tempdir().unwrap();
        // Held until all are chosen, so that they differ.
        let ports: Vec<TcpListener> =
            (0..count).map(|_| TcpListener::bind((rig.plan().host(), 0)).unwrap()).collect();
        let hub = |(at, listener): (usize, &TcpListener)| Hub {
            directory: directory.path().join(if at == 0 { "hub".to_owned() } else { format!("hub-{at}") }),
            port: listener.local_addr().unwrap().port(),
            running: None,
        };
        let hubs = ports.iter().enumerate().map(hub).collect();
        drop(ports);
        let etcd = (count > 1).then(|| start_etcd(directory.path()));
        let mut federation = Self { rig, hubs, directory, etcd };
        federation.start_hub();
        federation
    }

    /// Starts the hubs that do not run, also again, where members reach them: on the host.
    pub(crate) fn start_hub(&mut self) {
        let host = self.rig.plan().host().to_string();
        let log_file = self.directory.path().join("hub.log");
        let first = self.hubs[0].directory.clone();
        for at in 0..self.hubs.len() {
            let hub = &mut self.hubs[at];
            if hub.running.is_some() {
                continue;
            }
            if !hub.directory.exists() && hub.directory != first {
                share_keys(&first, &hub.directory);
            }
            let log = File::options().create(true).append(true).open(&log_file).unwrap();
            let mut command = Command::new(landfall());
            command
                .args(["hub", "--listen", &format!("{host}:{}", hub.port), "--advertise", &host])
                .args(NAME);
            command.arg("--data-dir").arg(&hub.directory);
            if let Some((_, url)) = &self.etcd {
                command.args(["--etcd", url]);
            }
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
            hub.running = Some(command.spawn().unwrap());
            let kubeconfig = hub.directory.join("admin.kubeconfig");
            eventually("the hub", || self.kubectl_with(&kubeconfig, "get --raw /readyz"));
        }
    }

    /// Stops all hubs, as a machine that fails does.
    pub(crate) fn stop_hub(&mut self) {
        self.hubs.iter_mut().for_each(Hub::stop);
    }

    /// Kills a hub, known by what it writes into the Lease, without a word to anybody.
    pub(crate) fn kill_hub(&mut self, holder: &str) {
        let its = |hub: &&mut Hub| holder.contains(&format!("-{}", hub.port));
        self.hubs.iter_mut().find(its).unwrap_or_else(|| panic!("{holder:?} is none of ours")).stop();
    }

    /// Who leads, as the Lease says.
    pub(crate) fn leader(&self) -> String {
        let lease = "get lease landfall-hub -n kube-system -o jsonpath={.spec.holderIdentity}";
        eventually("who leads", || {
            self.try_kubectl(HUB, lease)
                .and_then(|holder| if holder.is_empty() { Err(holder) } else { Ok(holder) })
        })
    }

    /// The administrator's kubeconfig of a hub that runs.
    pub(crate) fn hub_kubeconfig(&self) -> PathBuf {
        let hub = self.hubs.iter().find(|hub| hub.running.is_some()).unwrap_or(&self.hubs[0]);
        hub.directory.join("admin.kubeconfig")
    }

    fn kubectl_with(&self, kubeconfig: &Path, line: &str) -> Result<String, String> {
        let mut command = Command::new(self.rig.kubectl(MEMBERS[0]).get_program());
        run(command.arg("--kubeconfig").arg(kubeconfig).args(line.split_whitespace()))
    }

    /// An operator's command that succeeds, and what it says; `MEMBERS` is the members' kubeconfig.
    pub(crate) fn landfall(&self, line: &str) -> String {
        let line = line.replace("MEMBERS", self.rig.kubeconfig().to_str().unwrap());
        // Where nobody speaks of members, the usual option means the hub.
        let alone = ["forget ", "status"].iter().any(|command| line.starts_with(command));
        let flag = if alone { "--kubeconfig" } else { "--hub-kubeconfig" };
        let mut command = Command::new(landfall());
        command.args(line.split_whitespace()).arg(flag).arg(self.hub_kubeconfig());
        run(command.env_remove("KUBECONFIG")).unwrap_or_else(|said| panic!("landfall {line}: {said}"))
    }

    /// Makes an image of edges, and gives it to a machine.
    pub(crate) fn import(&self, machine: &str, tag: &str) {
        let image = self.directory.path().join("edge.tar");
        if !image.exists() {
            run(Command::new(landfall()).args(["edge", "image", "--tag", tag, "-o"]).arg(&image)).unwrap();
        }
        let file = image.to_str().unwrap();
        let import = ["--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", file];
        self.exec(machine, "ctr", &import);
    }

    /// Runs a program on a machine, which succeeds.
    pub(crate) fn exec(&self, machine: &str, program: &str, arguments: &[&str]) -> String {
        let output = self.rig.exec(machine, program, arguments).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn try_kubectl(&self, place: &str, line: &str) -> Result<String, String> {
        if place != HUB {
            return try_kubectl(&self.rig, place, line);
        }
        self.kubectl_with(&self.hub_kubeconfig(), line)
    }

    #[track_caller]
    pub(crate) fn kubectl(&self, place: &str, line: &str) -> String {
        self.try_kubectl(place, line).unwrap_or_else(|said| panic!("{place}: kubectl {line}: {said}"))
    }

    #[track_caller]
    pub(crate) fn create(&self, place: &str, manifest: &str) {
        let file = self.directory.path().join("given.yaml");
        std::fs::write(&file, manifest).unwrap();
        self.kubectl(place, &format!("create -f {}", file.display()));
    }

    /// An object; null when it is not there, or nobody can say.
    pub(crate) fn object(&self, place: &str, what: &str) -> Value {
        let text = self.try_kubectl(place, &format!("get {what} -o json --request-timeout=5s"));
        text.map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default()
    }

    /// One number of an object in every member; -1 where there is none.
    pub(crate) fn numbers(&self, what: &str, path: &str) -> Vec<i64> {
        let number =
            |name: &&str| self.object(name, what).pointer(path).and_then(Value::as_i64).unwrap_or(-1);
        MEMBERS.iter().map(number).collect()
    }

    /// The condition `Propagated` of an object at the hub.
    pub(crate) fn propagated(&self, what: &str) -> String {
        let object = self.object(HUB, what);
        let conditions = object["status"]["conditions"].as_array();
        let own = conditions.into_iter().flatten().find(|condition| condition["type"] == "Propagated");
        let text = |key: &str| own.and_then(|own| own[key].as_str()).unwrap_or("-").to_owned();
        format!("{} {}", text("status"), text("reason"))
    }

    /// What is told about an object's clusters.
    pub(crate) fn told(&self, what: &str) -> String {
        let object = self.object(HUB, what);
        object["metadata"]["annotations"]["landfall.dev/clusters"].as_str().unwrap_or("").to_owned()
    }

    pub(crate) fn offline(&self, name: &str) -> String {
        let path = r#"jsonpath={.status.conditions[?(@.type=="Offline")].status}"#;
        self.kubectl(HUB, &format!("get cluster {name} -o {path}"))
    }
}

impl Drop for Federation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.path().join("hub.log")).unwrap_or_default();
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "--- the hub said:\n{log}");
            for place in MEMBERS.into_iter().chain([HUB]) {
                let all = "get services,rc,deployments,jobs,ingresses,pods,events -n my-namespace -o wide --request-timeout=5s";
                let said = self.try_kubectl(place, all).unwrap_or_else(|said| said);
                let _ = writeln!(stderr, "--- {place}: kubectl {all}\n{said}");
            }
            let said = self.try_kubectl(HUB, "get clusters,services,rc,deployments,ingresses -A -o yaml");
            let _ = writeln!(stderr, "--- the hub has\n{}", said.unwrap_or_else(|said| said));
        }
        self.stop_hub();
        if let Some((mut etcd, _)) = self.etcd.take() {
            let _ = etcd.kill();
            let _ = etcd.wait();
        }
    }
}

/// An etcd of this machine for several hubs, and where it is.
fn start_etcd(directory: &Path) -> (Child, String) {
    let free = || TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (client, peer) = (free(), free());
    let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let (client, peer) = (url(&client), url(&peer));
    let mut etcd = Command::new("etcd");
    etcd.arg("--data-dir").arg(directory.join("etcd")).args(["--log-level", "error"]);
    etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("default={peer}")]);
    etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    (etcd.spawn().unwrap(), client)
}

/// Gives a hub the authority and the key for Secrets that another one has made.
fn share_keys(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("pki")).unwrap();
    for file in ["pki/ca.crt", "pki/ca.key", "pki/sa.key", "secrets.key"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
}
