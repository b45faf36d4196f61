//! Real etcd members on loopback, which tests kill and start again.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use landfall_store::etcd::Config;
use landfall_store::{OpenError, Store, connect_etcd};

use super::skip;

/// Members of one etcd; killed when dropped.
pub(crate) struct Etcd {
    members: Vec<Member>,
    _directory: tempfile::TempDir,
}

struct Member {
    args: Vec<String>,
    endpoint: String,
    child: Option<Child>,
}

/// Starts members, or says loudly that there is no etcd to start.
pub(crate) fn start(count: usize) -> Option<Etcd> {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        skip("etcd", "etcd not found");
    }
    found.then(|| Etcd::start(count))
}

impl Etcd {
    fn start(count: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listeners: Vec<_> = (0..count * 2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let urls: Vec<_> = listeners.iter().map(|l| format!("http://{}", l.local_addr().unwrap())).collect();
        drop(listeners);
        let (clients, peers) = urls.split_at(count);
        let names: Vec<_> = peers.iter().enumerate().map(|(n, url)| format!("m{n}={url}")).collect();
        let member = |n: usize| Member {
            args: vec![
                format!("--name=m{n}"),
                format!("--data-dir={}", directory.path().join(format!("m{n}")).display()),
                format!("--listen-client-urls={}", clients[n]),
                format!("--advertise-client-urls={}", clients[n]),
                format!("--listen-peer-urls={}", peers[n]),
                format!("--initial-advertise-peer-urls={}", peers[n]),
                format!("--initial-cluster={}", names.join(",")),
                "--heartbeat-interval=100".into(),
                "--election-timeout=1000".into(),
                "--log-level=error".into(),
            ],
            endpoint: clients[n].clone(),
            child: None,
        };
        let members = (0..count).map(member).collect();
        let mut etcd = Self { members, _directory: directory };
        (0..count).for_each(|index| etcd.revive(index));
        etcd
    }

    /// A store on these members, once they answer.
    pub(crate) async fn connect(&self) -> Arc<dyn Store> {
        let config = Config::new(self.members.iter().map(|member| &member.endpoint));
        for _ in 0..30 {
            match connect_etcd(config.clone()).await {
                Ok(store) => return store,
                Err(OpenError::Unreachable(_)) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(other) => panic!("not {other}"),
            }
        }
        panic!("etcd does not answer");
    }

    /// Which member leads, as etcd says.
    pub(crate) fn leader(&self) -> usize {
        let leads = |member: &Member| {
            let args = ["--endpoints", &member.endpoint, "endpoint", "status", "-w", "json"];
            let out = Command::new("etcdctl").env("ETCDCTL_API", "3").args(args).output().unwrap();
            let status: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
            let of = |field: &str| status.pointer(field).cloned().unwrap_or_default();
            let id = of("/0/Status/header/member_id");
            !id.is_null() && id == of("/0/Status/leader")
        };
        self.members.iter().position(leads).expect("one of them leads")
    }

    /// Kills a member as a power cut would.
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.members[index].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts a member (again).
    pub(crate) fn revive(&mut self, index: usize) {
        let member = &mut self.members[index];
        let child =
            Command::new("etcd").args(&member.args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        member.child = Some(child.unwrap());
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|index| self.kill(index));
    }
}
