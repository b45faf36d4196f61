//! The plan of a rig: which clusters and nodes there are, and every name and address, from four numbers.
//!
//! Pure. One rig takes one block `10.B.0.0/16`, so several stand beside each other on one machine:
//!
//! | addresses | what |
//! |---|---|
//! | `10.B.0.1`, `10.B.0.2` | the host's end and the backbone's end of the link between them |
//! | `10.B.i.1` | the backbone's address in cluster i: its gateway |
//! | `10.B.i.2` | its control plane |
//! | `10.B.i.11`… | its nodes |
//! | `10.B.(100+i).1`… | its load balancers |
//!
//! Pods and cluster IPs have the same addresses in every cluster, as they often do in the wild: nobody can come to
//! rely on reaching them from another cluster.

use std::fmt;
use std::net::Ipv4Addr;

use crate::Error;

/// More clusters than this do not fit into a block (nor on a machine).
pub const CLUSTERS_MAX: usize = 64;
/// More nodes than this per cluster have no address between the first node's and the end of the subnet.
pub const NODES_MAX: usize = 64;
/// The blocks that a rig tries, in this order: `10.B.0.0/16`.
pub const BLOCKS: std::ops::RangeInclusive<u8> = 200..=239;
/// Where pods live, in every cluster.
pub const PODS: Subnet = Subnet { base: Ipv4Addr::new(10, 244, 0, 0), bits: 16 };
/// Where cluster IPs live, in every cluster.
pub const SERVICES: Subnet = Subnet { base: Ipv4Addr::new(10, 96, 0, 0), bits: 16 };
/// The API server's cluster IP.
pub const SERVICE_API: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The cluster IP of the cluster's DNS.
pub const SERVICE_DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The API server's port.
pub const API_PORT: u16 = 6443;

/// The last octet of a cluster's first load-balancer address, and of its last.
const BALANCERS: std::ops::RangeInclusive<u8> = 1..=250;
/// Names of clusters, as the playground has them. More are named by number.
const NAMES: &[&str] =
    &["us-east", "eu-west", "asia-east", "us-west", "eu-north", "asia-south", "sa-east", "af-south"];

/// An IPv4 subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Its lowest address.
    pub base: Ipv4Addr,
    /// How many bits of it are fixed.
    pub bits: u8,
}

/// Everything that has a name or an address in a rig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The rig's name.
    pub name: String,
    /// The second octet of all its addresses.
    pub block: u8,
    /// Its clusters.
    pub clusters: Vec<ClusterPlan>,
}

/// One cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPlan {
    /// Its name, which is its region's name and its context's name too.
    pub name: String,
    /// Its number, from 1: the third octet of its addresses.
    pub number: u8,
    /// Its nodes and its control plane live here.
    pub subnet: Subnet,
    /// Its load balancers live here.
    pub balancers: Subnet,
    /// The backbone's address in it.
    pub gateway: Ipv4Addr,
    /// Its control plane's address.
    pub control: Ipv4Addr,
    /// Its nodes.
    pub nodes: Vec<NodePlan>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// Its name: the cluster's and a number from 1.
    pub name: String,
    /// Its zone; the nodes of a cluster take turns through three.
    pub zone: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its pods' addresses.
    pub pods: Subnet,
}

/// Makes the plan of a rig.
///
/// # Errors
/// When the numbers or the name are out of bounds.
pub fn plan(name: &str, block: u8, clusters: usize, nodes: usize) -> Result<Plan, Error> {
    let fits = |what, number, most| {
        let fine = (1..=most).contains(&number);
        if fine { Ok(()) } else { Err(Error::Size { what, number, most }) }
    };
    fits("clusters", clusters, CLUSTERS_MAX)?;
    fits("nodes per cluster", nodes, NODES_MAX)?;
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 20 || !name.chars().all(letter) {
        return Err(Error::Name(name.to_owned()));
    }
    let numbers = 1..=u8::try_from(clusters).unwrap_or(u8::MAX);
    let clusters = numbers.map(|number| cluster(block, number, nodes)).collect();
    Ok(Plan { name: name.to_owned(), block, clusters })
}

fn cluster(block: u8, number: u8, nodes: usize) -> ClusterPlan {
    let known = NAMES.get(usize::from(number) - 1);
    let name = known.map_or_else(|| format!("cluster-{number}"), |name| (*name).to_owned());
    let at = |last| Ipv4Addr::new(10, block, number, last);
    let numbers = 1..=u8::try_from(nodes).unwrap_or(u8::MAX);
    let nodes = numbers.map(|node| NodePlan {
        name: format!("{name}-{node}"),
        zone: format!("{name}-{}", ["a", "b", "c"][usize::from(node - 1) % 3]),
        address: at(10 + node),
        pods: Subnet { base: Ipv4Addr::new(10, 244, node, 0), bits: 24 },
    });
    ClusterPlan {
        number,
        subnet: Subnet { base: at(0), bits: 24 },
        balancers: Subnet { base: Ipv4Addr::new(10, block, 100 + number, 0), bits: 24 },
        gateway: at(1),
        control: at(2),
        nodes: nodes.collect(),
        name,
    }
}

// === impl Plan ===

impl Plan {
    /// The whole block.
    pub fn subnet(&self) -> Subnet {
        Subnet { base: Ipv4Addr::new(10, self.block, 0, 0), bits: 16 }
    }

    /// The name of the link between the host and the backbone.
    pub fn link(&self) -> String {
        format!("lfrig{}", self.block)
    }

    /// The host's address on that link: how machines of the rig reach whoever started it.
    pub fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.block, 0, 1)
    }

    /// The backbone's address on that link.
    pub fn backbone(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.block, 0, 2)
    }

    /// The name of the cgroup under which all containers of the rig live.
    pub fn cgroups(&self) -> String {
        format!("landfall-rig-{}", self.name)
    }

    /// The cgroup of a machine's containers.
    pub fn cgroup(&self, machine: &str) -> String {
        format!("/{}/{machine}", self.cgroups())
    }

    /// The addresses of a cluster, or of the host, as seen on the backbone.
    pub fn place(&self, name: &str) -> Result<Vec<Subnet>, Error> {
        if name == "host" {
            return Ok(vec![Subnet { base: Ipv4Addr::new(10, self.block, 0, 0), bits: 24 }]);
        }
        let found = self.clusters.iter().find(|cluster| cluster.name == name);
        found.map(|cluster| vec![cluster.subnet, cluster.balancers]).ok_or_else(|| self.unknown(name))
    }

    /// The error for a name that nothing has, which lists those that there are.
    pub fn unknown(&self, name: &str) -> Error {
        let clusters = self.clusters.iter().flat_map(|cluster| {
            let nodes = cluster.nodes.iter().map(|node| node.name.clone());
            [cluster.name.clone(), cluster.control_name()].into_iter().chain(nodes)
        });
        let known: Vec<String> = clusters.chain(["backbone".into(), "host".into()]).collect();
        Error::Unknown { name: name.to_owned(), known: known.join(", ") }
    }
}

impl ClusterPlan {
    /// The API server's address.
    pub fn url(&self) -> String {
        format!("https://{}:{API_PORT}", self.control)
    }

    /// The name of its control plane's machine.
    pub fn control_name(&self) -> String {
        format!("{}-control", self.name)
    }

    /// The addresses that load balancers can have.
    pub fn balancer_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let [a, b, c, _] = self.balancers.base.octets();
        BALANCERS.map(move |last| Ipv4Addr::new(a, b, c, last))
    }
}

// === impl Subnet ===

impl Subnet {
    /// Whether an address lies in it.
    pub fn holds(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.bits.min(32))).unwrap_or(0);
        u32::from(address) & mask == u32::from(self.base) & mask
    }

    /// Whether the two have an address in common.
    pub fn overlaps(&self, other: Self) -> bool {
        if self.bits <= other.bits { self.holds(other.base) } else { other.holds(self.base) }
    }

    /// Reads `10.0.0.0/8`, or an address alone.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, bits) = text.split_once('/').unwrap_or((text, "32"));
        let bits = bits.parse().ok().filter(|bits| *bits <= 32)?;
        Some(Self { base: base.parse().ok()?, bits })
    }

    /// Its first address but the network's own.
    pub fn first(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base) | 1)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

/// The first block that none of the subnets in use overlaps.
///
/// # Errors
/// When all are in use.
pub fn free_block(used: &[Subnet]) -> Result<u8, Error> {
    let free = |block: &u8| {
        let subnet = Subnet { base: Ipv4Addr::new(10, *block, 0, 0), bits: 16 };
        !used.iter().any(|other| other.bits > 0 && subnet.overlaps(*other))
    };
    BLOCKS.into_iter().find(free).ok_or(Error::NoBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_a_rig_is_used_once() {
        let plan = plan("big", 200, CLUSTERS_MAX, NODES_MAX).unwrap();
        let mut seen = std::collections::BTreeSet::from([plan.host(), plan.backbone()]);
        for cluster in &plan.clusters {
            let nodes = cluster.nodes.iter().map(|node| node.address);
            let own = [cluster.gateway, cluster.control].into_iter().chain(nodes);
            for address in own.chain(cluster.balancer_addresses()) {
                assert!(seen.insert(address), "{address} twice");
                assert!(plan.subnet().holds(address), "{address} outside of the block");
            }
            assert!(!cluster.subnet.overlaps(cluster.balancers));
        }
        let names: std::collections::BTreeSet<_> = plan.clusters.iter().map(|c| &c.name).collect();
        assert_eq!(names.len(), CLUSTERS_MAX);
    }

    #[test]
    fn a_small_rig_reads_as_expected() {
        let plan = plan("default", 200, 3, 2).unwrap();
        let node = &plan.clusters[1].nodes[1];
        assert_eq!((node.name.as_str(), node.zone.as_str()), ("eu-west-2", "eu-west-b"));
        assert_eq!(node.address.to_string(), "10.200.2.12");
        assert_eq!(node.pods.to_string(), "10.244.2.0/24");
        assert_eq!(plan.clusters[2].url(), "https://10.200.3.2:6443");
        let places: Vec<String> = plan.place("asia-east").unwrap().iter().map(Subnet::to_string).collect();
        assert_eq!(places, ["10.200.3.0/24", "10.200.103.0/24"]);
        let error = plan.place("mars").unwrap_err().to_string();
        assert!(error.contains("mars") && error.contains("eu-west-control"), "{error}");
    }

    #[test]
    fn numbers_and_names_out_of_bounds_are_refused() {
        for (name, clusters, nodes) in
            [("a", 0, 1), ("a", 1, 0), ("a", 65, 1), ("a", 1, 65), ("", 1, 1), ("A/b", 1, 1), ("a b", 1, 1)]
        {
            assert!(plan(name, 200, clusters, nodes).is_err(), "{name:?} {clusters} {nodes}");
        }
    }

    #[test]
    fn a_block_in_use_is_passed_over() {
        let used = |list: &[&str]| list.iter().map(|s| Subnet::parse(s).unwrap()).collect::<Vec<_>>();
        assert_eq!(free_block(&used(&[])).unwrap(), 200);
        assert_eq!(free_block(&used(&["0.0.0.0/0", "10.200.7.0/24", "10.201.0.1"])).unwrap(), 202);
        assert!(free_block(&used(&["10.0.0.0/8"])).is_err());
        assert_eq!(Subnet::parse("10.0.0.0/33"), None);
    }
}
