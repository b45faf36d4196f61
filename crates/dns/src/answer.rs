//! From a packet to its reply: what the RFCs ask of every question, without allocation and without a lock.

use std::net::IpAddr;

use landfall_plan::records::Place;
use landfall_plan::records::names::{Located, Node};

use crate::cookie::Jar;
use crate::lookup::{Asked, Outcome, look_up};
use crate::wire::name::{LABELS_MAX, Name};
use crate::wire::query::{Query, Read, read};
use crate::wire::reply::{EXTENSIONS_MAX, Extensions, Reply};
use crate::wire::{class, code, kind};
use crate::zone::Snapshot;
use crate::zone::table::hash;

/// The largest UDP reply: fits every path without fragments.
pub(crate) const UDP_MAX: usize = 1232;
/// The largest UDP reply to a client that says nothing of its size.
const UDP_MIN: usize = 512;
/// How wide a subnet may be said to be at most: finer than this, resolvers' caches would only fill.
const SCOPE_MAX: [u8; 2] = [24, 56];

/// What a server needs to answer, beside what is answered.
#[derive(Debug)]
pub(crate) struct Manner {
    /// Cookies.
    pub(crate) jar: Jar,
    /// Who we are.
    pub(crate) nsid: Option<Box<[u8]>>,
    /// Prefixes of clients inside our own member.
    pub(crate) inside: Vec<(IpAddr, u8)>,
}

impl Manner {
    /// Whether a client stands inside our own member, by where it came in or by its address.
    pub(crate) fn holds(&self, client: Client) -> bool {
        client.inside || self.is_inside(client.address)
    }

    /// Whether an address is inside our own member.
    pub(crate) fn is_inside(&self, client: IpAddr) -> bool {
        self.inside
            .iter()
            .any(|(network, length)| landfall_api::addresses::network(client, *length) == *network)
    }
}

/// Who asks, when, and with what luck.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    /// It came in where only clients inside our own member come in.
    pub(crate) inside: bool,
    pub(crate) tcp: bool,
    pub(crate) now_s: u32,
    pub(crate) luck: u64,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Nothing is sent.
    Silence,
    /// The reply has this length.
    Reply {
        /// Its length.
        length: usize,
        /// What it says, for counters and limits.
        sort: Sort,
        /// Answers of one sort are the same answer, for the limit.
        alike: u64,
        /// Whether the client has proved that it gets what we send.
        proven: bool,
    },
    /// It is signed: it must be verified first.
    Signed,
    /// A zone is to be transferred.
    Transfer,
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Answer,
    NoData,
    NxDomain,
    Refused,
    FormErr,
    NotImp,
    BadVers,
    ServFail,
    Truncated,
}

/// Answers a packet. `name` is a place for the name it asks for.
pub(crate) fn respond(
    snapshot: &Snapshot,
    manner: &Manner,
    client: Client,
    packet: &[u8],
    name: &mut Name,
    out: &mut [u8],
) -> Done {
    let query = match read(packet, name) {
        Read::Silence => return Done::Silence,
        Read::Bad { code, end, edns } => return refuse(packet, end, code, edns, out),
        Read::Query(query) if query.signature.is_some() => return Done::Signed,
        Read::Query(query) => query,
    };
    respond_to(snapshot, manner, client, packet, &query, out)
}

/// Answers a question that was read, and verified if it is signed.
pub(crate) fn respond_to(
    snapshot: &Snapshot,
    manner: &Manner,
    client: Client,
    packet: &[u8],
    query: &Query<'_>,
    out: &mut [u8],
) -> Done {
    match (query.class, query.kind) {
        (class::IN, kind::AXFR | kind::IXFR) if client.tcp => return Done::Transfer,
        (_, kind::AXFR | kind::IXFR) => {
            return refuse(packet, query.end, code::REFUSED, query.edns.is_some(), out);
        }
        (_, kind::MAILA | kind::MAILB | kind::OPT | kind::TSIG) => {
            return refuse(packet, query.end, code::NOT_IMP, query.edns.is_some(), out);
        }
        (class::IN | class::ANY, _) => {}
        // CHAOS too: what we are is nobody's business.
        _ => return refuse(packet, query.end, code::REFUSED, query.edns.is_some(), out),
    }
    let Some(mut reply) = Reply::new(out, packet, query.end, limit(query, client)) else {
        return Done::Silence;
    };
    if query.edns.is_some() {
        reply.reserve(EXTENSIONS_MAX);
    }
    let vantage = vantage(snapshot, manner, client, query);
    let (outcome, alike) = {
        let mut room = [&[][..]; LABELS_MAX];
        let (labels, skipped) = query.name.tail(&mut room);
        let located = snapshot.stage.scene.names.locate(&snapshot.stage.scene.places, labels);
        let located = unskip(located, skipped);
        let asked = Asked { name: query.name, kind: query.kind, vantage, luck: client.luck };
        (look_up(snapshot, located, asked, &mut reply), alike(located, query))
    };
    let sort = outcome.sort();
    match outcome {
        Outcome::Refused => reply.code(code::REFUSED),
        Outcome::NxDomain => reply.code(code::NX_DOMAIN),
        Outcome::Full => reply.truncate(),
        Outcome::Answer | Outcome::NoData => {}
    }
    let proven = extend(manner, client, query, vantage, &mut reply);
    let sort = if reply.is_truncated() { Sort::Truncated } else { sort };
    let alike = match sort {
        Sort::Answer | Sort::Truncated => alike,
        other => other as u64,
    };
    Done::Reply { length: reply.finish(), sort, alike, proven }
}

/// Where a client stands, as one answer sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vantage {
    /// Its slot.
    pub(crate) slot: usize,
    /// Inside our own member.
    pub(crate) inside: bool,
    /// How wide the answer to a subnet is true.
    scope: u8,
}

fn vantage(snapshot: &Snapshot, manner: &Manner, client: Client, query: &Query<'_>) -> Vantage {
    let stage = &snapshot.stage;
    let slot = |place| stage.scene.places.slot(place);
    if manner.holds(client) {
        return Vantage { slot: slot(Place::Unknown), inside: true, scope: 0 };
    }
    match query.edns.and_then(|edns| edns.subnet).filter(|subnet| subnet.source > 0) {
        Some(subnet) => {
            let (place, scope) = stage.place(subnet.address);
            let most = SCOPE_MAX[usize::from(subnet.address.is_ipv6())];
            Vantage { slot: slot(place), inside: false, scope: scope.min(most) }
        }
        None => Vantage { slot: slot(stage.place(client.address).0), inside: false, scope: 0 },
    }
}

/// How long the reply may be.
fn limit(query: &Query<'_>, client: Client) -> usize {
    if client.tcp {
        return usize::from(u16::MAX);
    }
    query.edns.map_or(UDP_MIN, |edns| usize::from(edns.size).clamp(UDP_MIN, UDP_MAX))
}

/// Adds extensions to the reply of a question that has some. Gives whether its cookie is ours.
fn extend(
    manner: &Manner,
    client: Client,
    query: &Query<'_>,
    vantage: Vantage,
    reply: &mut Reply<'_>,
) -> bool {
    let Some(edns) = query.edns else { return client.tcp };
    let cookie = edns.cookie.and_then(|cookie| manner.jar.bake(cookie, client.address, client.now_s));
    let proven = edns.cookie.is_some_and(|cookie| manner.jar.knows(cookie, client.address, client.now_s));
    let subnet = edns.subnet.map(|subnet| {
        let (family, bytes) = match subnet.address {
            IpAddr::V4(ip) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&ip.octets());
                (1, bytes)
            }
            IpAddr::V6(ip) => (2, ip.octets()),
        };
        (family, subnet.source, vantage.scope, bytes)
    });
    let nsid = manner.nsid.as_deref().filter(|_| edns.nsid);
    let size = u16::try_from(UDP_MAX).unwrap_or(u16::MAX);
    reply.extend(&Extensions { size, dnssec: edns.dnssec, nsid, cookie, subnet });
    proven || client.tcp
}

/// A reply that says no more than a code.
fn refuse(packet: &[u8], end: usize, code: u16, edns: bool, out: &mut [u8]) -> Done {
    let Some(mut reply) = Reply::new(out, packet, end, UDP_MIN) else { return Done::Silence };
    reply.code(code);
    if edns {
        let size = u16::try_from(UDP_MAX).unwrap_or(u16::MAX);
        reply.extend(&Extensions { size, ..Extensions::default() });
    }
    let sort = match code {
        code::FORM_ERR => Sort::FormErr,
        code::NOT_IMP => Sort::NotImp,
        code::BAD_VERS => Sort::BadVers,
        code::REFUSED => Sort::Refused,
        _ => Sort::ServFail,
    };
    Done::Reply { length: reply.finish(), sort, alike: sort as u64, proven: false }
}

/// Positions counted from the name's own beginning.
fn unskip(located: Located, skipped: usize) -> Located {
    let Located::In { zone, zone_at, node } = located else { return located };
    let node = match node {
        Node::Namespace { at } => Node::Namespace { at: at + skipped },
        Node::Service { at, scope } => Node::Service { at: at + skipped, scope },
        Node::Edge { at } => Node::Edge { at: at + skipped },
        Node::Apex | Node::Empty | Node::Nothing => node,
    };
    Located::In { zone, zone_at: zone_at + skipped, node }
}

/// Answers about one service are alike, whatever stands before its name.
fn alike(located: Located, query: &Query<'_>) -> u64 {
    let name = match located {
        Located::In { node: Node::Service { at, .. }, .. } => query.name.from(at),
        _ => query.name.wire(),
    };
    (hash(name) ^ u64::from(query.kind) << 32) | 1 << 63
}
