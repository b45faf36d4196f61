//! One link with a few nodes on it and nothing else: a bridge, and network namespaces plugged into it. For what is about a
//! link alone, where whole clusters would only be slow.
//!
//! Everything is gone with the processes that hold the namespaces, and these end with whoever started them.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Error;
use crate::program::feed;

/// What holds a namespace: says that it is there, and ends when its input does.
const HOLD: &str = "ip link set lo up; echo; exec cat >/dev/null";

/// A link; gone when dropped.
pub struct Link {
    bridge: Space,
    nodes: Vec<Node>,
}

/// A node on a link.
pub struct Node {
    space: Space,
    address: Ipv4Addr,
    plug: String,
}

/// A network namespace, and the process that holds it.
struct Space(Child);

impl Link {
    /// Nodes at `10.88.0.1` and following, which can reach each other.
    pub fn start(nodes: u8) -> Result<Self, Error> {
        let bridge = Space::start()?;
        let lines = "link add br0 type bridge\nlink set br0 up\n";
        feed(bridge.command("ip").args(["-batch", "-"]), lines)?;
        let nodes = (1..=nodes).map(|number| Node::start(&bridge, number)).collect::<Result<_, _>>()?;
        Ok(Self { bridge, nodes })
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Pulls a node's plug out, or puts it in again. The node itself sees its link go down.
    pub fn plug(&self, node: &Node, plugged: bool) -> Result<(), Error> {
        let state = if plugged { "up" } else { "down" };
        feed(self.bridge.command("ip").args(["link", "set", &node.plug, state]), "").map(drop)
    }

    /// Lets no packet of a node through, or all again. The node sees nothing of it.
    pub fn isolate(&self, node: &Node, isolated: bool) -> Result<(), Error> {
        let argument = if isolated { ["master", "lonely"] } else { ["master", "br0"] };
        if isolated {
            // It may be there already.
            let _ = feed(self.bridge.command("ip").args(["link", "add", "lonely", "type", "bridge"]), "");
        }
        feed(self.bridge.command("ip").args(["link", "set", &node.plug]).args(argument), "").map(drop)
    }

    /// A program that sees all that passes on the link.
    pub fn command(&self, program: &str) -> Command {
        self.bridge.command(program)
    }
}

impl Node {
    fn start(bridge: &Space, number: u8) -> Result<Self, Error> {
        let (space, plug) = (Space::start()?, format!("node{number}"));
        let address = Ipv4Addr::new(10, 88, 0, number);
        let cable = format!(
            "link add {plug} type veth peer name eth0 netns {}\nlink set {plug} master br0 up\n",
            space.0.id()
        );
        feed(bridge.command("ip").args(["-batch", "-"]), &cable)?;
        let own = format!(
            "addr add {address}/24 dev eth0\naddr add 2001:db8:88::{number}/64 dev eth0 nodad\nlink set eth0 up\n"
        );
        feed(space.command("ip").args(["-batch", "-"]), &own)?;
        Ok(Self { space, address, plug })
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its hardware address.
    pub fn hardware(&self) -> Result<String, Error> {
        let shown = feed(self.command("ip").args(["-o", "link", "show", "eth0"]), "")?;
        let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
        Ok(words.nth(1).unwrap_or_default().to_owned())
    }

    /// A program on it.
    pub fn command(&self, program: &str) -> Command {
        self.space.command(program)
    }

    /// Whether one of its interfaces has an address.
    pub fn has(&self, address: IpAddr) -> Result<bool, Error> {
        let listed = feed(self.command("ip").args(["-o", "addr", "show", "to", &address.to_string()]), "")?;
        Ok(!listed.trim().is_empty())
    }

    /// A thread that is on it.
    pub fn thread<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        let path = format!("/proc/{}/ns/net", self.space.0.id());
        let space = std::fs::File::open(path).map_err(Error::io("open a namespace"))?;
        Ok(std::thread::spawn(move || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), Some(LinkNameSpaceType::Network))
                .expect("root may enter a namespace");
            run()
        }))
    }
}

impl Space {
    fn start() -> Result<Self, Error> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", HOLD]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(Error::io("start `unshare`"))?;
        let mut ready = [0; 1];
        if let Some(said) = &mut child.stdout {
            said.read_exact(&mut ready).map_err(Error::io("make a network namespace (as root)"))?;
        }
        Ok(Self(child))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id())).arg("--").arg(program);
        command
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
