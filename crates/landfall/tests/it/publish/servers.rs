//! Other people's DNS servers: started with a zone that has records of its own, stopped, started again, and asked.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Process, find, free_port, skip};

/// A key that servers know, and one that they do not.
pub(super) const KEY: &str = "bGFuZGZhbGwgbWFrZXMgbmFtZXMga25vd24gaGVyZS4=";
pub(super) const OTHER_KEY: &str = "bGFuZGZhbGwgbWFrZXMgbmFtZXMga25vd24gdGhlcmU=";

/// What other people have in the zone, on a name that we would like to have.
pub(super) const FOREIGN: (&str, &str) = ("www.shop.fed.example.com", "203.0.113.9");

const ZONE: &str = "\
$ORIGIN example.com.
$TTL 300
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
ns A 127.0.0.1
@ MX 10 mail
mail A 203.0.113.25
www.shop.fed A 203.0.113.9
";

/// A kind of server, with the zone `example.com`.
pub(super) trait Server: Sized {
    /// Programs that it takes.
    const PROGRAMS: &'static [&'static str];
    /// Starts one, with what other people have in it.
    fn start(directory: &Path) -> Self;
    /// It is not there for a while.
    fn stop(&mut self);
    /// It is there again.
    fn resume(&mut self);
    /// The zone, opened with the Secret of this name.
    fn spec(&self, secret: &str) -> Value;
    /// A zone that it does not have, if it can tell.
    fn wrong_zone(&self, secret: &str) -> Option<Value>;
    /// What is in the Secret that opens it, and in one that does not.
    fn secret(&self, right: bool) -> Vec<(&'static str, &'static str)>;
    /// Where to ask.
    fn port(&self) -> u16;

    /// What is missing to start it here.
    fn missing() -> Option<&'static str> {
        Self::PROGRAMS.iter().copied().find(|program| find(program).is_none())
    }

    /// Whether it can be started here; says so loudly if not.
    fn skipped() -> bool {
        let missing = Self::missing();
        if let Some(program) = missing {
            skip("publishing to other DNS servers", &format!("{program} not found"));
        }
        missing.is_some()
    }

    /// What it answers, sorted.
    fn ask(&self, name: &str, ty: &str) -> Vec<String> {
        let port = self.port().to_string();
        let dig = Command::new("dig")
            .args(["+short", "+time=1", "+tries=1", "@127.0.0.1", "-p", &port, name, ty])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&dig.stdout).into_owned();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

fn rfc2136(zone: &str, port: u16, secret: &str) -> Value {
    json!({
        "zone": zone,
        "rfc2136": {
            "server": format!("127.0.0.1:{port}"),
            "tsig": {"keyName": "landfall", "secretRef": {"name": secret}},
        },
    })
}

fn keys(right: bool) -> Vec<(&'static str, &'static str)> {
    vec![("secret", if right { KEY } else { OTHER_KEY })]
}

/// A server that is one process with one configuration.
struct Daemon {
    directory: PathBuf,
    port: u16,
    command: fn(&Path) -> Command,
    process: Option<Process>,
}

impl Daemon {
    fn start(directory: &Path, config: &str, command: fn(&Path) -> Command) -> Self {
        let port = free_port();
        let place = directory.display().to_string();
        let config =
            config.replace("DIRECTORY", &place).replace("PORT", &port.to_string()).replace("KEY", KEY);
        std::fs::write(directory.join("server.conf"), config).unwrap();
        std::fs::write(directory.join("example.com.zone"), ZONE).unwrap();
        let mut daemon = Self { directory: directory.to_owned(), port, command, process: None };
        daemon.resume();
        daemon
    }

    fn resume(&mut self) {
        let mut process = Process::start("server", &mut (self.command)(&self.directory), &self.directory);
        let port = self.port.to_string();
        process.wait_for("answering", |_| {
            let dig = Command::new("dig")
                .args(["+short", "+time=1", "+tries=1", "@127.0.0.1", "-p", &port, "example.com", "SOA"])
                .output()
                .unwrap();
            (dig.status.success() && !dig.stdout.is_empty()).then_some(())
        });
        self.process = Some(process);
    }

    fn stop(&mut self) {
        self.process.take().unwrap().terminate();
    }
}

/// BIND 9.
pub(super) struct Bind(Daemon);

const NAMED: &str = r#"
key "landfall" { algorithm hmac-sha256; secret "KEY"; };
options {
    directory "DIRECTORY"; pid-file "named.pid"; session-keyfile "session.key"; managed-keys-directory "DIRECTORY";
    listen-on port PORT { 127.0.0.1; }; listen-on-v6 { none; };
    recursion no; dnssec-validation no; allow-transfer { key landfall; };
};
controls { };
zone "example.com" { type primary; file "example.com.zone"; allow-update { key landfall; }; };
"#;

impl Server for Bind {
    const PROGRAMS: &'static [&'static str] = &["named", "dig"];

    fn start(directory: &Path) -> Self {
        Self(Daemon::start(directory, NAMED, |directory| {
            let mut named = Command::new("named");
            named.arg("-g").arg("-c").arg(directory.join("server.conf"));
            named
        }))
    }

    fn stop(&mut self) {
        self.0.stop();
    }

    fn resume(&mut self) {
        self.0.resume();
    }

    fn spec(&self, secret: &str) -> Value {
        rfc2136("example.com", self.0.port, secret)
    }

    fn wrong_zone(&self, secret: &str) -> Option<Value> {
        Some(rfc2136("example.org", self.0.port, secret))
    }

    fn secret(&self, right: bool) -> Vec<(&'static str, &'static str)> {
        keys(right)
    }

    fn port(&self) -> u16 {
        self.0.port
    }
}

/// Knot.
pub(super) struct Knot(Daemon);

const KNOTD: &str = r#"
server:
    rundir: "DIRECTORY"
    listen: 127.0.0.1@PORT
database:
    storage: "DIRECTORY"
key:
  - id: landfall
    algorithm: hmac-sha256
    secret: KEY
acl:
  - id: landfall
    key: landfall
    action: [update, transfer]
template:
  - id: default
    storage: "DIRECTORY"
zone:
  - domain: example.com
    file: example.com.zone
    acl: landfall
"#;

impl Server for Knot {
    const PROGRAMS: &'static [&'static str] = &["knotd", "dig"];

    fn start(directory: &Path) -> Self {
        Self(Daemon::start(directory, KNOTD, |directory| {
            let mut knotd = Command::new("knotd");
            knotd.arg("-c").arg(directory.join("server.conf"));
            knotd
        }))
    }

    fn stop(&mut self) {
        self.0.stop();
    }

    fn resume(&mut self) {
        self.0.resume();
    }

    fn spec(&self, secret: &str) -> Value {
        let mut spec = rfc2136("example.com", self.0.port, secret);
        spec["rfc2136"]["transport"] = json!("TCP");
        spec
    }

    fn wrong_zone(&self, secret: &str) -> Option<Value> {
        Some(rfc2136("example.org", self.0.port, secret))
    }

    fn secret(&self, right: bool) -> Vec<(&'static str, &'static str)> {
        keys(right)
    }

    fn port(&self) -> u16 {
        self.0.port
    }
}
