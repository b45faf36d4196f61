//! What every zone of ours has at its top: SOA and name servers; and the edges behind these, with their addresses.

use std::collections::HashMap;
use std::net::IpAddr;

use landfall_api::landfall::PlanFederation;
use landfall_plan::records::TTL_NEGATIVE_S;
use landfall_plan::records::names::{EDGES, Names};

use super::service::{A, Aaaa, label, record};
use crate::wire::kind;
use crate::wire::name::to_wire;

/// How long a zone's own records may be kept.
pub(crate) const TTL_S: u32 = 3600;
/// How long an edge's addresses may be kept.
const EDGE_TTL_S: u32 = 180;
/// At most so many name servers are named.
const SERVERS_MAX: usize = 8;
/// What secondaries are told: refresh, retry, expire.
const SECONDARIES_S: [u32; 3] = [30, 10, 604_800];

/// What every zone has at its top.
#[derive(Debug, Default)]
pub(crate) struct Apex {
    /// The SOA's two names; the serial follows.
    pub(crate) soa: Box<[u8]>,
    /// Name servers' names, and their records.
    pub(crate) servers: Vec<(Box<[u8]>, Edge)>,
    /// All edges by their label, without its length.
    pub(crate) edges: HashMap<Box<[u8]>, Edge>,
}

/// An edge's addresses as records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edge {
    pub(crate) a: Vec<A>,
    pub(crate) aaaa: Vec<Aaaa>,
}

impl Apex {
    /// The top of all zones of a federation.
    pub(crate) fn new(federation: &PlanFederation, names: &Names) -> Self {
        let zone = names.zone(names.edges_zone()).join(".");
        let above = format!("{EDGES}.{zone}");
        let mut edges = HashMap::new();
        let mut servers = Vec::new();
        for edge in &federation.edges {
            let ips = edge.addresses.iter().filter_map(|address| address.ip.as_ref()?.parse().ok());
            let known = Edge::new(ips);
            let (Some(label), Some(name)) = (label(&edge.name), to_wire(&format!("{}.{above}", edge.name)))
            else {
                continue;
            };
            let reachable = !known.a.is_empty() || !known.aaaa.is_empty();
            if edge.alive && reachable && servers.len() < SERVERS_MAX {
                servers.push((name.into(), known.clone()));
            }
            edges.insert(label[1..].into(), known);
        }
        if servers.is_empty() {
            // A zone without a name server is none: a name that has no address yet stands for it.
            servers.extend(to_wire(&format!("ns.{above}")).map(|name| (name.into(), Edge::default())));
        }
        let first = servers.first().map_or(&[0][..], |(name, _): &(Box<[u8]>, Edge)| name);
        let person = to_wire(&format!("hostmaster.{zone}")).unwrap_or_else(|| vec![0]);
        let soa = [first, &person].concat().into();
        Self { soa, servers, edges }
    }

    /// What follows a SOA's serial: refresh, retry, expire, and how long "no" may be kept.
    pub(crate) fn timers() -> [u8; 16] {
        let mut bytes = [0; 16];
        let [refresh, retry, expire] = SECONDARIES_S;
        let all = [refresh, retry, expire, TTL_NEGATIVE_S];
        for (place, number) in bytes.chunks_exact_mut(4).zip(all) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }
}

impl Edge {
    fn new(ips: impl Iterator<Item = IpAddr>) -> Self {
        let mut edge = Self::default();
        for ip in ips.take(8) {
            match ip {
                IpAddr::V4(ip) => edge.a.push(record(kind::A, EDGE_TTL_S, ip.octets())),
                IpAddr::V6(ip) => edge.aaaa.push(record(kind::AAAA, EDGE_TTL_S, ip.octets())),
            }
        }
        edge
    }

    /// Its records of one type.
    pub(crate) fn records(&self, kind: u16) -> impl Iterator<Item = &[u8]> {
        let a = self.a.iter().map(<[u8; 16]>::as_slice).filter(move |_| kind == kind::A);
        a.chain(self.aaaa.iter().map(<[u8; 28]>::as_slice).filter(move |_| kind == kind::AAAA))
    }
}
