//! CoreDNS, which answers from etcd; its etcd asks for a password.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::servers::{FOREIGN, Server};
use crate::support::{self, Process, find, free_port};

/// An etcd with users, and a CoreDNS that reads it.
pub(super) struct CoreDns {
    directory: PathBuf,
    etcd_port: u16,
    port: u16,
    etcd: Option<Process>,
    coredns: Option<Process>,
}

const COREFILE: &str = "\
example.com:PORT {
    errors
    etcd {
        path /skydns
        endpoint http://127.0.0.1:ETCD
        credentials root right
    }
}
";

impl CoreDns {
    fn etcd(directory: &Path, port: u16) -> Process {
        let mut etcd = Command::new("etcd");
        let (client, peer) = (format!("http://127.0.0.1:{port}"), "http://127.0.0.1:0");
        etcd.arg("--data-dir").arg(directory.join("etcd"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", peer]);
        Process::start("etcd", &mut etcd, directory)
    }

    fn coredns(directory: &Path) -> Process {
        let mut coredns = Command::new(support::coredns().unwrap());
        coredns.arg("-conf").arg(directory.join("Corefile"));
        Process::start("coredns", &mut coredns, directory)
    }

    /// Runs etcdctl; whether it went well.
    fn ctl(&self, arguments: &[&str]) -> bool {
        let mut ctl = Command::new("etcdctl");
        ctl.env("ETCDCTL_API", "3").args(["--endpoints", &format!("http://127.0.0.1:{}", self.etcd_port)]);
        ctl.args(["--command-timeout", "2s", "--user", "root:right"])
            .args(arguments)
            .output()
            .unwrap()
            .status
            .success()
    }

    fn wait(&mut self) {
        let mut etcd = self.etcd.take().unwrap();
        etcd.wait_for("answering", |_| self.ctl(&["get", "nothing"]).then_some(()));
        self.etcd = Some(etcd);
    }
}

impl Server for CoreDns {
    const PROGRAMS: &'static [&'static str] = &["etcd", "etcdctl", "dig"];

    fn missing() -> Option<&'static str> {
        let program = Self::PROGRAMS.iter().copied().find(|program| find(program).is_none());
        program.or_else(|| support::coredns().is_none().then_some("coredns"))
    }

    fn start(directory: &Path) -> Self {
        let (etcd_port, port) = (free_port(), free_port());
        let etcd = Self::etcd(directory, etcd_port);
        let config = COREFILE.replace("PORT", &port.to_string()).replace("ETCD", &etcd_port.to_string());
        std::fs::write(directory.join("Corefile"), config).unwrap();
        // Without users yet, etcdctl must not name one.
        let bare = |arguments: &[&str]| {
            let mut ctl = Command::new("etcdctl");
            ctl.env("ETCDCTL_API", "3").args(["--endpoints", &format!("http://127.0.0.1:{etcd_port}")]);
            ctl.args(["--command-timeout", "2s"]).args(arguments).output().unwrap().status.success()
        };
        let mut etcd = etcd;
        etcd.wait_for("answering", |_| bare(&["get", "nothing"]).then_some(()));
        let foreign = FOREIGN.0.rsplit('.').collect::<Vec<_>>().join("/");
        let foreign = format!("/skydns/{foreign}/x1");
        assert!(bare(&["put", &foreign, &json!({"host": FOREIGN.1, "ttl": 5}).to_string()]));
        for arguments in
            [&["user", "add", "root:right"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
        {
            assert!(bare(arguments), "etcdctl {arguments:?}");
        }
        let coredns = Some(Self::coredns(directory));
        let directory = directory.to_owned();
        let mut started = Self { directory, etcd_port, port, etcd: Some(etcd), coredns };
        started.wait();
        started
    }

    fn stop(&mut self) {
        // It takes CoreDNS minutes to find etcd again, and it is not CoreDNS that is tested.
        self.coredns.take().unwrap().terminate();
        self.etcd.take().unwrap().terminate();
    }

    fn resume(&mut self) {
        self.etcd = Some(Self::etcd(&self.directory, self.etcd_port));
        self.wait();
        self.coredns = Some(Self::coredns(&self.directory));
    }

    fn spec(&self, secret: &str) -> Value {
        let endpoint = format!("http://127.0.0.1:{}", self.etcd_port);
        json!({"zone": "example.com", "skydns": {"endpoints": [endpoint], "credentials": {"name": secret}}})
    }

    fn wrong_zone(&self, _: &str) -> Option<Value> {
        // An etcd has whatever is put there.
        None
    }

    fn secret(&self, right: bool) -> Vec<(&'static str, &'static str)> {
        vec![("username", "root"), ("password", if right { "right" } else { "wrong" })]
    }

    fn port(&self) -> u16 {
        self.port
    }
}
