//! Secondaries are told when a zone has changed: one that only listens, and real BIND.

use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, OpCode};
use landfall_dns::{Config, Secondary, Server, start};
use landfall_plan::records::Resolved;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

use crate::lab::{config, federation, plan, plans, small};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with these secondaries, which knows all of the lab.
fn check(secondaries: Vec<Secondary>, test: impl FnOnce(&Server, SocketAddr)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tasks = Tasks::default();
    let config = Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, secondaries, ..config() };
    let server = runtime.block_on(async { start(&config, &tasks, &Registry::default()).unwrap() });
    let plans = plans();
    server.publish(&federation(), plans.iter().map(|plan| ("my-namespace", plan)), Resolved::new());
    test(&server, server.addresses()[0]);
    runtime.block_on(tasks.join());
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_secondary_is_told_again_until_it_answers() {
    let listens = UdpSocket::bind("127.0.0.1:0").unwrap();
    listens.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = Secondary { address: listens.local_addr().unwrap(), key: Some("secondary".into()) };
    check(vec![told], |server, _| {
        let hear = || {
            let mut packet = [0; 512];
            let (length, from) = listens.recv_from(&mut packet).expect("it is told");
            let message = Message::from_vec(&packet[..length]).unwrap();
            assert_eq!(message.metadata.op_code, OpCode::Notify);
            assert!(message.signature.is_some(), "it is signed");
            (message, from)
        };
        let answer = |message: &Message, from: SocketAddr| {
            let said = Message::response(message.metadata.id, OpCode::Notify);
            listens.send_to(&said.to_vec().unwrap(), from).unwrap();
        };
        let zone = |message: &Message| message.queries[0].name().to_ascii();
        let (first, _) = hear();
        // It was not answered: the same again.
        let (again, from) = hear();
        assert_eq!((zone(&first), zone(&again)), ("my-domain.com.".into(), "my-domain.com.".into()));
        answer(&again, from);
        let (next, from) = hear();
        assert_eq!(zone(&next), "clusterset.local.");
        answer(&next, from);
        // A change is told, once for both.
        server.change([("my-namespace", "new", Some(&small("new", |_| {})))]);
        server.change([("my-namespace", "new", None)]);
        let (next, from) = hear();
        assert_eq!(zone(&next), "my-domain.com.");
        answer(&next, from);
    });
}

/// A process that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn named(directory: &Path, port: u16, primary: SocketAddr) -> Running {
    let secret = "YSBzZWNyZXQgb2YgMzIgYnl0ZXMgb3IgdGhlcmVieS4=";
    let place = directory.display();
    let (host, at) = (primary.ip(), primary.port());
    // It looks of itself after an hour.
    let config = format!(
        "options {{ directory \"{place}\"; pid-file \"{place}/pid\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; \
         recursion no; allow-transfer {{ none; }}; min-refresh-time 3600; min-retry-time 1; max-retry-time 1; session-keyfile none; \
         dnssec-validation no; }};\ncontrols {{ }};\n\
         key secondary {{ algorithm hmac-sha256; secret \"{secret}\"; }};\n\
         server {host} {{ keys {{ secondary; }}; }};\n\
         zone my-domain.com {{ type secondary; primaries {{ {host} port {at} key secondary; }}; \
         allow-notify {{ key secondary; }}; masterfile-format text; file \"copy\"; }};\n"
    );
    let file = directory.join("named.conf");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new("named");
    command.args(["-g", "-c"]).arg(&file).stdout(Stdio::null());
    command.stderr(std::fs::File::create(directory.join("log")).unwrap());
    Running(command.spawn().unwrap())
}

/// The addresses of a name at a server.
fn dig(port: u16, name: &str) -> Vec<String> {
    let port = port.to_string();
    let said = Command::new("dig")
        .args(["+short", "+time=1", "+tries=1", "@127.0.0.1", "-p", &port, name])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    text.lines().filter(|line| !line.starts_with(';')).map(str::to_owned).collect()
}

#[test]
fn real_bind_follows_a_change_at_once() {
    for (program, version) in [("named", "-v"), ("dig", "-v")] {
        if Command::new(program).arg(version).output().is_err() {
            let mut stderr = std::io::stderr();
            writeln!(
                stderr,
                "SKIPPED: BIND as a secondary: no `{program}` (apt-get install bind9 bind9-dnsutils)"
            )
            .unwrap();
            return;
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let told = Secondary { address: ([127, 0, 0, 1], port).into(), key: Some("secondary".into()) };
    check(vec![told], |server, primary| {
        let _named = named(directory.path(), port, primary);
        let name = "my-service.my-namespace.my-federation.my-domain.com";
        let until = |what: &str, wanted: usize| {
            let began = Instant::now();
            while dig(port, name).len() != wanted {
                let log = std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
                assert!(began.elapsed() < PATIENCE, "{what}\n{log}");
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        until("it has the zone", 3);
        let mut fewer = plan();
        fewer.clusters[2].verdict.up = false;
        server.change([("my-namespace", "my-service", Some(&fewer))]);
        until("it follows, an hour before it would look of itself", 2);
    });
}
