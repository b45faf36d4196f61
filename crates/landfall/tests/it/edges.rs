//! `landfall edge` as a process: comes in with a token, answers names, goes on without the hub, renews itself, is shut out.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Process, find, free_port, skip, text};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A hub that can be stopped and started again where it was.
struct Hub {
    directory: PathBuf,
    port: u16,
    process: Option<Process>,
}

impl Hub {
    fn start(directory: &Path) -> Self {
        let mut hub = Self { directory: directory.to_owned(), port: free_port(), process: None };
        hub.again();
        hub
    }

    fn again(&mut self) {
        let mut command = landfall(&["hub", "--edge-certificate-ttl", "15s", "--audit-log", "-"]);
        command.args(["--domain", "example.com"]);
        command.args(["--listen", &format!("127.0.0.1:{}", self.port), "--data-dir"]).arg(&self.directory);
        let mut process = Process::start("hub", &mut command, self.directory.parent().unwrap());
        process.wait_for("ready", |process| process.output().contains("is ready").then_some(()));
        self.process = Some(process);
    }

    fn stop(&mut self) {
        assert!(self.process.take().unwrap().terminate().success());
    }

    /// A command at the hub; what it printed.
    fn say(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.directory.join("admin.kubeconfig");
        let output = landfall(arguments).arg("--kubeconfig").arg(kubeconfig).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn apply(&self, objects: &[Value]) {
        let file = self.directory.join("objects.json");
        std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())
            .unwrap();
        self.say(&["apply", "--force-conflicts", "-f", file.to_str().unwrap()]);
    }

    /// An edge as JSON; null when it is not there.
    fn edge(&self, name: &str) -> Value {
        let kubeconfig = self.directory.join("admin.kubeconfig");
        let mut command = landfall(&["get", "edge", name, "-o", "json", "--kubeconfig"]);
        serde_json::from_slice(&command.arg(kubeconfig).output().unwrap().stdout).unwrap_or_default()
    }
}

fn landfall(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(arguments);
    command
}

/// An edge of the cluster `a`, with what `landfall edge token` said to type, or without.
fn edge(directory: &Path, arguments: &[&str], admin: u16) -> Process {
    let mut command = landfall(&["edge", "--name", "a-1", "--data-dir"]);
    command.arg(directory.join("edge")).args(arguments);
    command.args(["--admin-listen", &format!("127.0.0.1:{admin}"), "--dns-listen", "127.0.0.1:0"]);
    let mut process = Process::start("edge", &mut command, directory);
    process.wait_for("ready", |process| process.output().contains("is ready").then_some(()));
    process
}

/// Where an edge says that it answers names.
fn dns(process: &Process) -> String {
    let output = process.output();
    let line = output.lines().find_map(|line| line.trim().strip_prefix("names"));
    line.unwrap_or_else(|| panic!("{output}")).trim().to_owned()
}

/// Whether the zone of the federation is answered; true where there is no dig to ask with.
fn answers(at: &str) -> bool {
    if find("dig").is_none() {
        skip("names of an edge", "dig not found");
        return true;
    }
    let (host, port) = at.rsplit_once(':').unwrap();
    let mut command = Command::new("dig");
    command.args(["+short", "+tries=1", "+time=1", &format!("@{host}"), "-p", port, "SOA", "example.com"]);
    text(&command.output().unwrap().stdout).contains("hostmaster.example.com")
}

/// What the admin port says.
fn admin(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

/// The status of what the admin port says.
fn status(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split(' ').nth(1)?.to_owned())
}

#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A member that nobody reaches: what an edge needs is that it is one.
fn member() -> Value {
    json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "a"},
        "spec": {"endpoints": [{"server": "https://127.0.0.1:1"}]}})
}

#[test]
fn an_edge_from_its_token_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut hub = Hub::start(&directory.path().join("hub"));
    hub.apply(&[member()]);
    let said = hub.say(&["edge", "token", "--cluster", "a"]);
    let words: Vec<&str> =
        said.split_once("landfall edge ").unwrap().1.split_whitespace().filter(|w| *w != "\\").collect();
    let door: Vec<&str> = words.iter().copied().take_while(|word| *word != "--token").collect();

    let port = free_port();
    let mut process = edge(directory.path(), &words, port);
    until("a heartbeat", || hub.edge("a-1")["status"]["heartbeatTime"].as_str().map(str::to_owned));
    until("plans", || admin(port, "/readyz"));
    until("names", || answers(&dns(&process)).then_some(()));
    assert!(admin(port, "/metrics").unwrap().contains("landfall_health_probes_total"));
    for file in ["edge.key", "edge.crt"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(directory.path().join("edge").join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let first = std::fs::read_to_string(directory.path().join("edge/edge.crt")).unwrap();
    until("a new certificate", || {
        let now = std::fs::read_to_string(directory.path().join("edge/edge.crt")).unwrap_or_default();
        (!now.is_empty() && now != first).then_some(())
    });

    // Without the hub it goes on, also after a restart; with the hub again it speaks again.
    hub.stop();
    assert!(process.terminate().success());
    let mut process = edge(directory.path(), &door, port);
    until("the plans on disk are followed", || admin(port, "/readyz"));
    until("names without the hub", || answers(&dns(&process)).then_some(()));
    let silent = Instant::now();
    hub.again();
    until("alive again", || {
        let edge = hub.edge("a-1");
        let conditions = edge["status"]["conditions"].as_array()?.clone();
        let plans: Value = serde_json::from_str(&admin(port, "/plans")?).unwrap();
        let heard = plans["hubSilentMs"].as_u64()? < 3_000;
        (heard && silent.elapsed() > Duration::from_secs(3) && conditions[0]["status"] == "True")
            .then_some(())
    });

    // It was given another token, too.
    let said = hub.say(&["edge", "token"]);
    let second = said.split_once("--token ").unwrap().1.trim();
    let told = hub.say(&["edge", "revoke", "a-1"]);
    assert!(told.contains("edge.landfall.dev/a-1 revoked"), "{told}");
    process.wait_for("shut out", |process| {
        process.output().contains("the hub refuses this edge's certificate").then_some(())
    });
    assert!(admin(port, "/readyz").is_some(), "what was planned goes on");
    assert!(process.terminate().success());
    let again: Vec<&str> = door.iter().copied().chain(["--token", second]).collect();
    let mut process = edge(directory.path(), &again, port);
    process.wait_for("kept out", |process| process.output().contains("Unauthorized").then_some(()));
    assert_eq!(hub.edge("a-1"), Value::Null);
    assert!(process.terminate().success());
}

/// An HTTP server that says the same to everybody, for as long as the test runs.
pub(crate) fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut asked = [0; 4096];
                while stream.read(&mut asked).is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                }
            });
        }
    });
    port
}

/// What an edge was told before it lost the hub: everything leads to a service of its own member.
pub(crate) fn write_plans(directory: &Path, port: u16) {
    let service = json!({"namespace": "default", "name": "web", "port": port});
    let plans = json!({
        "federation": {"name": "f"},
        "services": [{"namespace": "default", "name": "web", "spec": {
            "ports": [{"port": port}],
            "clusters": [{"name": "a", "verdict": {"up": true}, "clusterIps": ["127.0.0.1"]}],
            "vantages": [{"choices": [{"cluster": "a", "fraction": 1.0}]}],
        }}],
        "routes": [{"namespace": "default", "name": "web", "spec": {
            "hosts": [{"paths": [{"path": "/", "action": {"service": service}}]}],
        }}],
    });
    std::fs::create_dir(directory.join("edge")).unwrap();
    std::fs::write(directory.join("edge/plans.json"), plans.to_string()).unwrap();
}

/// An edge without a hub that carries HTTP, once it lets clients in.
fn carrying(directory: &Path, name: &str, http: u16, admin: u16) -> Process {
    carrying_with(directory, name, http, admin, &[])
}

/// The same, which is told more.
pub(crate) fn carrying_with(directory: &Path, name: &str, http: u16, admin: u16, more: &[&str]) -> Process {
    let mut command = landfall(&["edge", "--name", "a-1", "--cluster", "a", "--hub", "https://127.0.0.1:1"]);
    command.arg("--data-dir").arg(directory.join("edge"));
    command.args(["--http-listen", &format!("127.0.0.1:{http}"), "--shutdown-delay", "2s"]);
    command.args(["--admin-listen", &format!("127.0.0.1:{admin}")]).args(more);
    let mut process = Process::start(name, &mut command, directory);
    process.wait_for("open", |process| process.output().contains("clients are let in").then_some(()));
    process
}

#[test]
fn an_edge_takes_over_from_another_and_no_request_fails() {
    let directory = tempfile::tempdir().unwrap();
    write_plans(directory.path(), server());
    let (http, admin_port) = (free_port(), free_port());
    let mut first = carrying(directory.path(), "first", http, admin_port);
    let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let (over, asked) = (over.clone(), asked.clone());
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(admin(http, "/").as_deref(), Some("ok"));
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let some_more = || {
        let before = asked.load(Ordering::Relaxed);
        until("more answers", || (asked.load(Ordering::Relaxed) > before + 20).then_some(()));
    };
    some_more();
    let mut second = carrying(directory.path(), "second", http, admin_port);
    some_more();
    assert!(first.terminate().success());
    some_more();
    over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(second.terminate().success());
}

#[test]
fn an_edge_that_stops_says_so_before_it_does() {
    let directory = tempfile::tempdir().unwrap();
    write_plans(directory.path(), server());
    let (http, admin_port) = (free_port(), free_port());
    let mut edge = carrying(directory.path(), "edge", http, admin_port);
    assert!(admin(admin_port, "/readyz").is_some());
    let stopping = std::thread::spawn(move || edge.terminate());
    until("not ready", || status(admin_port, "/readyz").filter(|status| status == "503"));
    assert_eq!(admin(http, "/").as_deref(), Some("ok"), "clients are carried all the same");
    assert!(stopping.join().unwrap().success());
}

#[test]
fn what_cannot_be_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], words: &str| {
        let output = landfall(&["edge", "--data-dir"])
            .arg(directory.path().join("edge"))
            .args(arguments)
            .output()
            .unwrap();
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains(words), "{told}");
    };
    check(&[], "say which hub with --hub URL");
    check(&["--hub", "https://127.0.0.1:1", "--cluster", "a", "--name", "A b"], "cannot be an edge's name");
    check(
        &["--hub", "https://127.0.0.1:1", "--cluster", "a", "--admin-listen", "192.0.2.1:1"],
        "cannot listen on",
    );
}
