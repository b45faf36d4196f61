//! Where simulated members live: each owns a block of 4,096 loopback addresses.
//!
//! ```text
//!   127.x.y.0/20   +0x000  the API server (+1), the same for the hub (+2), clients that stand in the member (+3 …)
//!                  +0x040  edges of groups, 64
//!                  +0x080  virtual IPs, 128
//!                  +0x100  nodes, 256
//!                  +0x200  load balancers, 512
//!                  +0x400  clusterIPs, 1,024
//!                  +0x800  pods, 2,048, an equal share for each node
//! ```
//!
//! A block is claimed with an abstract Unix socket named after it: no file is left behind, it dies with the process,
//! and it is seen exactly where the addresses are (both belong to the network namespace).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::str::FromStr;

/// 127.0.0.0.
const LOOPBACK: u32 = 0x7f00_0000;

/// Addresses in a block.
const BLOCK_SIZE: u32 = 0x1000;

/// The first block: 127.0.0.0/16 belongs to everybody else.
const FIRST: u16 = 16;

/// One more than the last block; the very last holds the broadcast address of loopback.
const END: u16 = 4095;

/// The most nodes of a member.
pub const NODES_MAX: u32 = 256;

/// The most addresses for pods of one node, as Kubernetes gives a node a few more than its 110 pods.
pub const NODE_PODS_MAX: u32 = 128;

/// The 4,096 addresses of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u16);

/// Addresses in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    first: u32,
    count: u32,
}

/// A block that is this process's alone until the claim is dropped.
#[derive(Debug)]
pub struct Claim {
    block: Block,
    _socket: UnixListener,
}

/// Why there is no block.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process holds this block.
    #[error("another playground uses {block}: stop it first")]
    Taken {
        /// Which block.
        block: Block,
    },
    /// Other processes hold every block.
    #[error("all {} blocks of loopback addresses are taken by other playgrounds", END - FIRST)]
    Full,
    /// The system refused.
    #[error("cannot claim the loopback addresses {block}")]
    System {
        /// Which block was tried.
        block: Block,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// A text that is no block.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a block of a member, such as 127.1.16.0/20")]
pub struct NotABlock(String);

// === impl Claim ===

impl Claim {
    /// Claims the preferred block if it is free, else the first free one.
    pub fn take(preferred: Option<Block>) -> Result<Self, ClaimError> {
        Self::first(preferred.into_iter().chain(Block::all()))
    }

    /// Claims the first free block from one that `luck` chooses, so that worlds that are kept rarely want the same.
    pub fn somewhere(luck: u64) -> Result<Self, ClaimError> {
        let count = u64::from(END - FIRST);
        let skip = usize::try_from(luck % count).unwrap_or_default();
        Self::first(Block::all().skip(skip).chain(Block::all().take(skip)))
    }

    /// Claims this block and no other.
    pub fn exactly(block: Block) -> Result<Self, ClaimError> {
        match bind(block) {
            Ok(socket) => Ok(Self { block, _socket: socket }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(ClaimError::Taken { block }),
            Err(source) => Err(ClaimError::System { block, source }),
        }
    }

    fn first(blocks: impl Iterator<Item = Block>) -> Result<Self, ClaimError> {
        for block in blocks {
            match Self::exactly(block) {
                Err(ClaimError::Taken { .. }) => {}
                done => return done,
            }
        }
        Err(ClaimError::Full)
    }

    /// What was claimed.
    pub const fn block(&self) -> Block {
        self.block
    }
}

fn bind(block: Block) -> io::Result<UnixListener> {
    let name = format!("landfall/sim/block/{}", block.0);
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

// === impl Block ===

impl Block {
    /// Every block, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (FIRST..END).map(Self)
    }

    /// The block that an address belongs to.
    pub fn of(address: IpAddr) -> Option<Self> {
        let IpAddr::V4(address) = address.to_canonical() else { return None };
        let offset = u32::from(address).checked_sub(LOOPBACK)?;
        let index = u16::try_from(offset / BLOCK_SIZE).ok()?;
        (FIRST..END).contains(&index).then_some(Self(index))
    }

    /// All its addresses.
    pub const fn range(self) -> Range {
        self.part(0, BLOCK_SIZE)
    }

    /// Where its API server listens.
    pub fn api(self) -> Ipv4Addr {
        Ipv4Addr::from(self.range().first + 1)
    }

    /// Where the hub reaches its API server.
    pub fn backbone(self) -> Ipv4Addr {
        Ipv4Addr::from(self.range().first + 2)
    }

    /// Addresses for clients that stand in the member and bind their source address, and for its edge.
    pub const fn clients(self) -> Range {
        self.part(3, 0x40 - 3)
    }

    /// Addresses of edges that belong to groups.
    pub const fn group_edges(self) -> Range {
        self.part(0x40, 0x40)
    }

    /// Addresses that groups of edges share.
    pub const fn virtual_ips(self) -> Range {
        self.part(0x80, 0x80)
    }

    /// Addresses of nodes.
    pub const fn nodes(self) -> Range {
        self.part(0x100, NODES_MAX)
    }

    /// Addresses for Services of type LoadBalancer.
    pub const fn load_balancers(self) -> Range {
        self.part(0x200, 0x200)
    }

    /// Addresses for clusterIPs. The first is not given out, as in Kubernetes; the second is the API's.
    pub const fn services(self) -> Range {
        self.part(0x400, 0x400)
    }

    /// Addresses of all pods.
    pub const fn pods(self) -> Range {
        self.part(0x800, 0x800)
    }

    /// Addresses for pods of node number `node` of `nodes`: its podCIDR. None when there are not so many nodes.
    pub fn node_pods(self, node: u32, nodes: u32) -> Option<Range> {
        if node >= nodes || nodes > NODES_MAX {
            return None;
        }
        let share = (self.pods().count / nodes.next_power_of_two()).min(NODE_PODS_MAX);
        Some(self.part(0x800 + node * share, share))
    }

    const fn part(self, offset: u32, count: u32) -> Range {
        Range { first: LOOPBACK + self.0 as u32 * BLOCK_SIZE + offset, count }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.range().fmt(f)
    }
}

impl FromStr for Block {
    type Err = NotABlock;

    fn from_str(text: &str) -> Result<Self, NotABlock> {
        let address = text.strip_suffix("/20").and_then(|a| a.parse().ok());
        let block = address.and_then(Self::of).filter(|block| block.to_string() == text);
        block.ok_or_else(|| NotABlock(text.to_owned()))
    }
}

// === impl Range ===

impl Range {
    /// How many there are.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Address number `index`.
    pub fn get(self, index: u32) -> Option<Ipv4Addr> {
        (index < self.count).then(|| Ipv4Addr::from(self.first + index))
    }

    /// The number of an address, if it is one of these.
    pub fn index(self, address: Ipv4Addr) -> Option<u32> {
        u32::from(address).checked_sub(self.first).filter(|index| *index < self.count)
    }

    /// Whether an address is one of these.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.index(address).is_some()
    }

    /// All of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Ipv4Addr> {
        (self.first..self.first + self.count).map(Ipv4Addr::from)
    }
}

/// As a CIDR, which all ranges but that of clients are.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = 32 - self.count.next_power_of_two().trailing_zeros();
        write!(f, "{}/{bits}", Ipv4Addr::from(self.first))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_block_is_divided() {
        let block: Block = "127.1.16.0/20".parse().unwrap();
        let check = |got: String, want: &str| assert_eq!(got, want);
        check(block.to_string(), "127.1.16.0/20");
        check(block.api().to_string(), "127.1.16.1");
        check(block.backbone().to_string(), "127.1.16.2");
        check(block.clients().get(0).unwrap().to_string(), "127.1.16.3");
        check(block.nodes().to_string(), "127.1.17.0/24");
        check(block.load_balancers().to_string(), "127.1.18.0/23");
        check(block.services().to_string(), "127.1.20.0/22");
        check(block.pods().to_string(), "127.1.24.0/21");
        check(block.node_pods(1, 3).unwrap().to_string(), "127.1.24.128/25");
        check(block.node_pods(39, 40).unwrap().to_string(), "127.1.28.224/27");
        assert_eq!(block.node_pods(3, 3), None);
        assert_eq!(block.node_pods(0, NODES_MAX + 1), None);
    }

    #[test]
    fn parts_do_not_overlap() {
        for nodes in [1, 3, 16, 17, 256] {
            let block = Block::all().last().unwrap();
            let pods = (0..nodes).filter_map(|n| block.node_pods(n, nodes));
            let parts = [block.clients(), block.group_edges(), block.virtual_ips(), block.nodes()];
            let parts = parts.into_iter().chain([block.load_balancers(), block.services()]);
            let all: Vec<_> = parts.chain(pods).flat_map(Range::iter).collect();
            let distinct: BTreeSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "{nodes} nodes");
            assert!(
                all.iter().all(|a| block.range().contains(*a) && *a != block.api() && *a != block.backbone())
            );
        }
    }

    #[test]
    fn an_address_tells_its_block() {
        let check = |address: &str, want: Option<&str>| {
            let block = Block::of(address.parse().unwrap()).map(|b| b.to_string());
            assert_eq!(block.as_deref(), want, "{address}");
        };
        check("127.1.16.0", Some("127.1.16.0/20"));
        check("127.1.31.255", Some("127.1.16.0/20"));
        check("::ffff:127.1.31.255", Some("127.1.16.0/20"));
        check("127.0.0.1", None);
        check("127.255.255.255", None);
        check("10.0.0.1", None);
        check("::1", None);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for text in
            ["", "127.1.16.0", "127.1.16.0/21", "127.1.17.0/20", "127.0.0.0/20", "10.0.0.0/20", "x/20"]
        {
            assert!(text.parse::<Block>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_block_is_claimed_once_and_given_back() {
        let preferred = Block::all().nth(3000);
        let first = Claim::take(preferred).unwrap();
        let second = Claim::take(preferred).unwrap();
        assert_eq!(Some(first.block()), preferred);
        assert_ne!(second.block(), first.block());
        drop(first);
        assert_eq!(Some(Claim::take(preferred).unwrap().block()), preferred);
    }
}
