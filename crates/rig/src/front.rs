//! A front: a hub, a group of edges with their keepers and keepalived, and a client, all real and all on one link.
//!
//! ```text
//!   node 1: hub     nodes 2 …: an edge and its keeper on each     the last node: a client that asks again and again
//! ```

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, HOST};
use crate::ear::Ear;
use crate::program::{find, output};
use crate::{Error, Link, Node};

/// The address that clients use.
pub const VIP: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 100);
/// The same of IPv6, for those who want one.
pub const VIP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x88, 0, 0, 0, 0, 0x100);
/// Where edges carry HTTP.
const HTTP_PORT: u16 = 80;
/// What keepers start, in the directory.
const KEEPALIVED: &str = "keepalived";
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A front; gone when dropped.
pub struct Front {
    landfall: PathBuf,
    directory: PathBuf,
    link: Link,
    hub: Process,
    edges: Vec<Edge>,
    /// With what edges come in.
    door: Vec<String>,
}

struct Edge {
    process: Process,
    keeper: Process,
}

/// A process that ends with us.
struct Process(Child);

impl Edge {
    fn pids(&self) -> [String; 2] {
        [self.process.0.id().to_string(), self.keeper.0.id().to_string()]
    }
}

impl Front {
    /// Starts a hub and so many edges of the group `front`, by a program of ours; its files go into a directory.
    pub fn start(landfall: &Path, directory: &Path, edges: u8) -> Result<Self, Error> {
        let link = Link::start(edges.saturating_add(2))?;
        let keepalived = find("keepalived").unwrap_or_else(|| "keepalived".into());
        symlink(keepalived, directory.join(KEEPALIVED)).map_err(Error::io("link keepalived"))?;
        let hub_node = node(&link, 0)?;
        let mut command = hub_node.command(&landfall.display().to_string());
        command.args(["hub", "--listen", &format!("{}:6443", hub_node.address()), "--data-dir"]);
        let hub = Process::start(command.arg(directory.join("hub")), directory, "hub")?;
        let mut front = Self {
            landfall: landfall.to_owned(),
            directory: directory.to_owned(),
            link,
            hub,
            edges: Vec::new(),
            door: Vec::new(),
        };
        front.until("the hub is ready", |front| Ok(front.said("hub").contains("is ready")))?;
        front.apply(&[
            json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "a"},
            "spec": {"endpoints": [{"server": "https://127.0.0.1:1"}]}}),
        ])?;
        let token = front.say(&["edge", "token", "--cluster", "a"])?;
        let words = token.split_once("landfall edge ").map(|(_, words)| words).unwrap_or_default();
        front.door = words.split_whitespace().filter(|word| *word != "\\").map(str::to_owned).collect();
        for at in 0..edges.into() {
            let (keeper, process) = (front.keeper(at)?, front.edge(at)?);
            front.edges.push(Edge { process, keeper });
        }
        Ok(front)
    }

    fn keeper(&self, at: usize) -> Result<Process, Error> {
        let mut command = self.node(at)?.command(&self.landfall.display().to_string());
        command.args(["edge", "keeper", "--dir"]).arg(self.directory.join(format!("vip-{at}")));
        command.arg("--keepalived").arg(self.directory.join(KEEPALIVED));
        Process::start(&mut command, &self.directory, &format!("keeper-{at}"))
    }

    fn edge(&self, at: usize) -> Result<Process, Error> {
        let node = self.node(at)?;
        let mut command = node.command(&self.landfall.display().to_string());
        command.args([
            "edge",
            "--name",
            &format!("a-{at}"),
            "--node",
            &format!("node-{at}"),
            "--group",
            "front",
        ]);
        command.arg("--data-dir").arg(self.directory.join(format!("edge-{at}")));
        command.arg("--vip-keeper").arg(self.directory.join(format!("vip-{at}")));
        command.args(["--advertise", &node.address().to_string(), "--proxy-threads", "1"]);
        command.args(["--http-listen", &format!(":{HTTP_PORT}")]).args(&self.door);
        Process::start(&mut command, &self.directory, &format!("edge-{at}"))
    }

    /// A group of all edges with the address, and something to answer with, as the hub would write them.
    pub fn objects(&self) -> Result<Vec<Value>, Error> {
        let mut edges = Vec::new();
        for at in 0..self.edges.len() {
            let addresses = [self.node(at)?.address().to_string()];
            edges.push(json!({"name": format!("a-{at}"), "addresses": addresses, "priority": 100 - 30 * at}));
        }
        let answer = json!({"path": "/", "match": "Prefix", "action": {"fixedResponse": {"statusCode": 200, "body": "hello"}}});
        let route = json!({"sourceRef": {"kind": "Ingress", "name": "hello"}, "revision": 1, "groups": ["front"],
            "hosts": [{"host": HOST, "paths": [answer]}], "options": {}});
        Ok(vec![
            json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "GroupPlan", "metadata": {"name": "front"}, "spec": {
                "revision": 1, "members": [{"cluster": "a", "routerId": 7, "vips": [VIP], "edges": edges}],
            }}),
            json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "RoutePlan",
                "metadata": {"name": "ingress-hello", "namespace": "default", "labels": {"group.landfall.dev/front": ""}},
                "spec": route}),
        ])
    }

    /// The edges as the hub knows them, in order.
    pub fn edges(&self) -> Result<Vec<Value>, Error> {
        let listed: Value =
            serde_json::from_str(&self.say(&["get", "edges", "-o", "json"])?).unwrap_or_default();
        Ok(listed["items"].as_array().cloned().unwrap_or_default())
    }

    /// Gives objects to the hub.
    pub fn apply(&self, objects: &[Value]) -> Result<(), Error> {
        let file = self.directory.join("objects.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&file, list.to_string()).map_err(Error::io("write objects"))?;
        self.say(&["apply", "--force-conflicts", "-f", &file.display().to_string()]).map(drop)
    }

    /// A command at the hub; what it printed.
    pub fn say(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut command = node(&self.link, 0)?.command(&self.landfall.display().to_string());
        command.args(arguments).arg("--kubeconfig").arg(self.directory.join("hub/admin.kubeconfig"));
        output(&mut command)
    }

    /// What a process has printed: `hub`, `edge-0`, `keeper-0` and so on.
    pub fn said(&self, process: &str) -> String {
        let bytes = std::fs::read(self.directory.join(format!("{process}.log"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The link.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The node of an edge.
    pub fn node(&self, at: usize) -> Result<&Node, Error> {
        node(&self.link, at.saturating_add(1))
    }

    /// The edges whose node has the address.
    pub fn holders(&self) -> Result<Vec<usize>, Error> {
        let mut holders = Vec::new();
        for at in 0..self.edges.len() {
            if self.node(at)?.has(IpAddr::V4(VIP))? {
                holders.push(at);
            }
        }
        Ok(holders)
    }

    /// Waits until exactly one edge holds the address, and it is another than this one.
    pub fn holder(&self, not: Option<usize>) -> Result<usize, Error> {
        let mut found = None;
        self.until("one edge holds the address", |front| {
            found = match front.holders()?[..] {
                [one] if Some(one) != not => Some(one),
                _ => None,
            };
            Ok(found.is_some())
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, mut so: impl FnMut(&Self) -> Result<bool, Error>) -> Result<(), Error> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if so(self)? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(Error::NotReady {
            what: format!("not so: {what}"),
            waited_s: PATIENCE.as_secs(),
            detail: String::new(),
        })
    }

    /// Kills an edge as `kill -9` does.
    pub fn kill_edge(&mut self, at: usize) {
        if let Some(edge) = self.edges.get_mut(at) {
            edge.process.kill();
        }
    }

    /// Starts an edge that was killed.
    pub fn start_edge(&mut self, at: usize) -> Result<(), Error> {
        let process = self.edge(at)?;
        if let Some(edge) = self.edges.get_mut(at) {
            edge.process = process;
        }
        Ok(())
    }

    /// Lets an edge hang, or go on.
    pub fn freeze_edge(&self, at: usize, frozen: bool) -> Result<(), Error> {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let pids = self.edges.get(at).map(|edge| edge.process.0.id().to_string());
        output(Command::new("kill").arg(signal).args(pids)).map(drop)
    }

    /// Tells an edge to stop, and waits until it has.
    pub fn stop_edge(&mut self, at: usize) -> Result<(), Error> {
        match self.edges.get_mut(at) {
            Some(edge) => edge.process.terminate(),
            None => Ok(()),
        }
    }

    /// Kills a keeper as `kill -9` does; another one is started when asked for.
    pub fn kill_keeper(&mut self, at: usize) {
        if let Some(edge) = self.edges.get_mut(at) {
            edge.keeper.kill();
        }
    }

    /// Starts a keeper that was killed.
    pub fn start_keeper(&mut self, at: usize) -> Result<(), Error> {
        let keeper = self.keeper(at)?;
        if let Some(edge) = self.edges.get_mut(at) {
            edge.keeper = keeper;
        }
        Ok(())
    }

    /// Kills keepalived as `kill -9` does: the process that holds the address, or the first one, which watches over it.
    pub fn kill_keepalived(&self, at: usize, first: bool) -> Result<(), Error> {
        let name = if first { "keepalived.pid" } else { "vrrp.pid" };
        let file = self.directory.join(format!("vip-{at}/{name}"));
        let pid = std::fs::read_to_string(file).map_err(Error::io("find keepalived"))?;
        output(Command::new("kill").args(["-KILL", pid.trim()])).map(drop)
    }

    /// Kills all of keepalived at once as `kill -9` does: nobody of it is left to let go of anything.
    pub fn kill_all_of_keepalived(&self, at: usize) -> Result<(), Error> {
        output(Command::new("kill").arg("-KILL").args(self.keepalived(at))).map(drop)
    }

    /// Lets keepalived hang: the process that holds the address, or the first one, which watches over it.
    pub fn freeze_keepalived(&self, at: usize, first: bool) -> Result<(), Error> {
        let pids = self.keepalived(at);
        output(Command::new("kill").arg("-STOP").args(pids.get(usize::from(!first)))).map(drop)
    }

    /// The processes of keepalived on the node of an edge: the first one, and the one that holds the address.
    fn keepalived(&self, at: usize) -> Vec<String> {
        let files =
            ["keepalived.pid", "vrrp.pid"].map(|name| self.directory.join(format!("vip-{at}/{name}")));
        let pids = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        pids.map(|pid| pid.trim().to_owned()).collect()
    }

    /// Takes the power from the node of an edge: nobody hears it any more, and nothing runs on it.
    pub fn kill_node(&mut self, at: usize) -> Result<(), Error> {
        self.link.isolate(self.node(at)?, true)?;
        let mut pids = self.keepalived(at);
        pids.extend(self.edges.get(at).into_iter().flat_map(Edge::pids));
        output(Command::new("kill").arg("-KILL").args(pids))?;
        self.kill_edge(at);
        self.kill_keeper(at);
        Ok(())
    }

    /// Starts a node that had no power: its edge and its keeper come up, and no address but its own.
    pub fn start_node(&mut self, at: usize) -> Result<(), Error> {
        let node = self.node(at)?;
        if node.has(IpAddr::V4(VIP))? {
            output(node.command("ip").args(["addr", "del", &format!("{VIP}/32"), "dev", "eth0"]))?;
        }
        self.link.isolate(node, false)?;
        self.start_keeper(at)?;
        self.start_edge(at)
    }

    /// Takes keepalived away from all keepers, or gives it back. One that runs goes on.
    pub fn hide_keepalived(&self, hidden: bool) -> Result<(), Error> {
        let (shown, away) = (self.directory.join(KEEPALIVED), self.directory.join("hidden"));
        let (from, to) = if hidden { (shown, away) } else { (away, shown) };
        std::fs::rename(from, to).map_err(Error::io("hide keepalived"))
    }

    /// keepalived's configuration on the node of an edge; empty where there is none.
    pub fn configuration(&self, at: usize) -> String {
        std::fs::read_to_string(self.directory.join(format!("vip-{at}/keepalived.conf"))).unwrap_or_default()
    }

    /// Kills the hub as `kill -9` does.
    pub fn kill_hub(&mut self) {
        self.hub.kill();
    }

    /// A client on a node of its own, which asks at the address until it is dropped.
    pub fn client(&self, vip: impl Into<IpAddr>) -> Result<Client, Error> {
        let last = self.link.nodes().len().saturating_sub(1);
        let at = SocketAddr::from((vip.into(), HTTP_PORT));
        Client::start(at, |asking| node(&self.link, last)?.thread(asking))
    }

    /// Hears what is said on the link.
    pub fn ear(&self) -> Result<Ear, Error> {
        Ear::start(self.link.command("tcpdump"), "br0")
    }
}

fn node(link: &Link, at: usize) -> Result<&Node, Error> {
    link.nodes().get(at).ok_or_else(|| Error::Unknown {
        name: at.to_string(),
        known: format!("nodes 0 to {}", link.nodes().len().saturating_sub(1)),
    })
}

impl Process {
    fn start(command: &mut Command, directory: &Path, name: &str) -> Result<Self, Error> {
        let file = directory.join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(file).map_err(Error::io("open a log"))?;
        let twin = log.try_clone().map_err(Error::io("open a log"))?;
        command.stdin(Stdio::null()).stdout(log).stderr(twin);
        Ok(Self(command.spawn().map_err(Error::io(format!("start {name}")))?))
    }

    fn kill(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn terminate(&mut self) -> Result<(), Error> {
        output(Command::new("kill").args(["-TERM", &self.0.id().to_string()]))?;
        self.0.wait().map(drop).map_err(Error::io("wait for a process"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // Keepers first, politely: keepalived ends with them.
        for edge in &mut self.edges {
            let _ = edge.keeper.terminate();
        }
        self.hub.kill();
    }
}
