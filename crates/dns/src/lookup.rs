//! From a name to its records: what stands under it, how a scope without shards points upwards, and what to say when nothing
//! stands there.

use std::sync::Arc;

use landfall_api::landfall::DnsAnswer;
use landfall_plan::records::TTL_NEGATIVE_S;
use landfall_plan::records::names::{Located, Node, Scope};

use crate::answer::{Sort, Vantage};
use crate::srv;
use crate::wire::kind;
use crate::wire::name::Name;
use crate::wire::reply::{QUESTION, Reply, Section};
use crate::zone::Snapshot;
use crate::zone::apex::{self, Apex};
use crate::zone::hosts::Found;
use crate::zone::service::{Family, Service, Target, View};

/// What is asked, by whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a Name,
    pub(crate) kind: u16,
    pub(crate) vantage: Vantage,
    pub(crate) luck: u64,
}

/// What came of it; records are in the reply already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Something is answered.
    Answer,
    /// The name exists, but has nothing of this type.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// It is none of ours.
    Refused,
    /// The answer does not fit.
    Full,
}

impl Outcome {
    pub(crate) fn sort(self) -> Sort {
        match self {
            Self::Answer => Sort::Answer,
            Self::NoData => Sort::NoData,
            Self::NxDomain => Sort::NxDomain,
            Self::Refused => Sort::Refused,
            Self::Full => Sort::Truncated,
        }
    }
}

/// Looks a name up and writes what is found.
pub(crate) fn look_up(
    snapshot: &Snapshot,
    located: Located,
    asked: Asked<'_>,
    reply: &mut Reply<'_>,
) -> Outcome {
    let found = match located {
        Located::In { zone_at, node, .. } => in_zone(snapshot, zone_at, node, asked, reply),
        Located::Foreign => host(snapshot, None, asked, reply),
    };
    if matches!(found, Some((Outcome::Refused, _))) {
        return Outcome::Refused;
    }
    reply.authoritative();
    let Some((outcome, zone_at)) = found else { return Outcome::Full };
    let negative = matches!(outcome, Outcome::NoData | Outcome::NxDomain);
    if negative && soa(snapshot, asked, zone_at, Section::Authority, reply).is_none() {
        return Outcome::Full;
    }
    outcome
}

/// What came of it, and at which label the zone begins. None if it does not fit.
type Said = Option<(Outcome, usize)>;

fn in_zone(snapshot: &Snapshot, zone_at: usize, node: Node, asked: Asked<'_>, reply: &mut Reply<'_>) -> Said {
    let outcome = match node {
        Node::Service { at, scope } => match snapshot.services.get(asked.name.between(at, at + 2)) {
            Some(service) => below(snapshot, service, Base { at, scope, zone_at }, asked, reply)?,
            None => Outcome::NxDomain,
        },
        Node::Apex => top(snapshot, zone_at, asked, reply)?,
        Node::Empty => some(asked, reply)?,
        Node::Namespace { at } if snapshot.namespaces.get(asked.name.label(at)).is_some() => {
            some(asked, reply)?
        }
        Node::Edge { at } => match snapshot.apex.edges.get(asked.name.label(at)) {
            Some(edge) => {
                edge.records(asked.kind)
                    .try_for_each(|record| reply.record(Section::Answer, QUESTION, record))?;
                some(asked, reply)?
            }
            None => Outcome::NxDomain,
        },
        Node::Namespace { .. } | Node::Nothing => Outcome::NxDomain,
    };
    let nothing = matches!(outcome, Outcome::NxDomain) || (node == Node::Apex && outcome == Outcome::NoData);
    match nothing.then(|| host(snapshot, Some(zone_at), asked, reply)) {
        Some(None) => None,
        Some(Some((found, _))) if found != Outcome::Refused => Some((found, zone_at)),
        _ => Some((outcome, zone_at)),
    }
}

/// A name of its own: a host of an Ingress.
fn host(snapshot: &Snapshot, top: Option<usize>, asked: Asked<'_>, reply: &mut Reply<'_>) -> Said {
    let outcome = match snapshot.hosts.find(asked.name, top) {
        Found::Foreign => return Some((Outcome::Refused, 0)),
        Found::Missing { zone } => return Some((Outcome::NxDomain, zone)),
        Found::Empty { zone } => (some(asked, reply)?, zone),
        Found::Service { key, zone } => match snapshot.fronts.get(key).or_else(|| snapshot.services.get(key))
        {
            Some(service) => {
                let base = Base { at: 0, scope: Scope::All, zone_at: zone.or(top).unwrap_or(0) };
                (base_name(snapshot, service, base, asked, reply)?, zone)
            }
            None => (Outcome::NoData, zone),
        },
    };
    let (outcome, zone) = outcome;
    // A zone of its own has a top of its own.
    if zone == Some(0) && outcome == Outcome::NoData {
        return Some((self::top(snapshot, 0, asked, reply)?, 0));
    }
    Some((outcome, zone.or(top).unwrap_or(0)))
}

/// The top of a zone: SOA and name servers.
fn top(snapshot: &Snapshot, zone_at: usize, asked: Asked<'_>, reply: &mut Reply<'_>) -> Option<Outcome> {
    match asked.kind {
        kind::SOA => {
            soa(snapshot, asked, zone_at, Section::Answer, reply)?;
            Some(Outcome::Answer)
        }
        kind::NS => {
            servers(&snapshot.apex, reply)?;
            Some(Outcome::Answer)
        }
        _ => some(asked, reply),
    }
}

/// A name that exists: ANY is told something small (RFC 8482), all else what was written, or that there is nothing.
pub(crate) fn some(asked: Asked<'_>, reply: &mut Reply<'_>) -> Option<Outcome> {
    if asked.kind == kind::ANY {
        let data = reply.begin(QUESTION, kind::HINFO, apex::TTL_S)?;
        reply.put(b"\x07RFC8482\x00")?;
        reply.end(Section::Answer, data);
    }
    Some(if reply.count(Section::Answer) > 0 { Outcome::Answer } else { Outcome::NoData })
}

fn servers(apex: &Apex, reply: &mut Reply<'_>) -> Option<()> {
    let mut places = [0_u16; 16];
    for ((name, _), place) in apex.servers.iter().zip(&mut places) {
        let data = reply.begin(QUESTION, kind::NS, apex::TTL_S)?;
        *place = pointer(data);
        reply.put(name)?;
        reply.end(Section::Answer, data);
    }
    // Addresses are a courtesy: what does not fit is left out.
    for ((_, edge), place) in apex.servers.iter().zip(places) {
        let all = [kind::A, kind::AAAA].into_iter().flat_map(|kind| edge.records(kind));
        all.map_while(|record| reply.record(Section::Additional, place, record)).for_each(drop);
    }
    Some(())
}

fn soa(
    snapshot: &Snapshot,
    asked: Asked<'_>,
    zone_at: usize,
    section: Section,
    reply: &mut Reply<'_>,
) -> Option<()> {
    let owner = QUESTION + u16::try_from(asked.name.start(zone_at)).ok()?;
    let ttl_s = if matches!(section, Section::Authority) { TTL_NEGATIVE_S } else { apex::TTL_S };
    let data = reply.begin(owner, kind::SOA, ttl_s)?;
    reply.put(&snapshot.apex.soa)?;
    reply.put(&snapshot.serial.to_be_bytes())?;
    reply.put(&Apex::timers())?;
    reply.end(section, data);
    Some(())
}

/// Points to a place in the reply.
pub(crate) fn pointer(at: usize) -> u16 {
    0xC000 | u16::try_from(at & 0x3FFF).unwrap_or(0)
}

/// Where a service's own name stands in the question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    pub(crate) at: usize,
    pub(crate) scope: Scope,
    pub(crate) zone_at: usize,
}

/// A service's own name, or something below it.
fn below(
    snapshot: &Snapshot,
    service: &Arc<Service>,
    base: Base,
    asked: Asked<'_>,
    reply: &mut Reply<'_>,
) -> Option<Outcome> {
    let label = |at| asked.name.label(at);
    let protocol = |at| match label(at) {
        b"_tcp" => Some(false),
        b"_udp" => Some(true),
        _ => None,
    };
    match base.at {
        0 => base_name(snapshot, service, base, asked, reply),
        1 => match protocol(0) {
            Some(udp) if service.ports.iter().any(|port| port.udp == udp) => some(asked, reply),
            Some(_) => Some(Outcome::NxDomain),
            None => match target(snapshot, service, base.scope, label(0)) {
                Some(target) => shard(service, target, snapshot, asked, reply),
                None => Some(Outcome::NxDomain),
            },
        },
        2 => match (protocol(1), label(0)) {
            (Some(udp), [b'_', name @ ..]) => {
                let port = service.ports.iter().find(|port| port.udp == udp && *port.name == *name);
                match port {
                    Some(port) => srv::ports(snapshot, service, base, port, asked, reply),
                    None => Some(Outcome::NxDomain),
                }
            }
            (Some(_), _) => Some(Outcome::NxDomain),
            (None, name) => {
                let target = target(snapshot, service, base.scope, label(1));
                let pod = target
                    .and_then(|target| target.pods().iter().find(|pod| pod.label.get(1..) == Some(name)));
                let Some(pod) = pod else { return Some(Outcome::NxDomain) };
                if let Some(family) = family(asked.kind) {
                    let records = service.records(family, pod.spans[family as usize], 0);
                    records
                        .into_iter()
                        .try_for_each(|record| reply.record(Section::Answer, QUESTION, record))?;
                }
                some(asked, reply)
            }
        },
        _ => Some(Outcome::NxDomain),
    }
}

/// The target with this label, in a scope.
fn target<'a>(snapshot: &Snapshot, service: &'a Service, scope: Scope, label: &[u8]) -> Option<&'a Target> {
    let stage = &snapshot.stage;
    let places = &stage.scene.places;
    service.targets.iter().find(|target| {
        target.label(stage).get(1..) == Some(label)
            && landfall_plan::records::Answers::within(places, target.member, scope)
    })
}

fn family(kind: u16) -> Option<Family> {
    match kind {
        kind::A => Some(Family::V4),
        kind::AAAA => Some(Family::V6),
        _ => None,
    }
}

/// Whether a client is inside the member that a target is.
pub(crate) fn is_own(snapshot: &Snapshot, asked: Asked<'_>, target: &Target) -> bool {
    asked.vantage.inside && target.member.is_some() && target.member == snapshot.stage.scene.places.own
}

/// The shard of one member, by its own name.
fn shard(
    service: &Service,
    target: &Target,
    snapshot: &Snapshot,
    asked: Asked<'_>,
    reply: &mut Reply<'_>,
) -> Option<Outcome> {
    let own = is_own(snapshot, asked, target);
    if let Some(hostname) = target.alias(own).filter(|_| asked.kind != kind::ANY) {
        return alias(service, hostname, QUESTION, reply);
    }
    if let Some(family) = family(asked.kind) {
        addresses(service, target, own, family, QUESTION, Section::Answer, asked.luck, reply)?;
    }
    some(asked, reply)
}

#[expect(
    clippy::too_many_arguments,
    reason = "a leaf: every one of them says where a record comes from or goes to"
)]
pub(crate) fn addresses(
    service: &Service,
    target: &Target,
    own: bool,
    family: Family,
    owner: u16,
    section: Section,
    luck: u64,
    reply: &mut Reply<'_>,
) -> Option<()> {
    let mut records = service.records(family, target.span(family, own), luck);
    records.try_for_each(|record| reply.record(section, owner, record))
}

/// A load balancer's host name in place of addresses.
fn alias(service: &Service, hostname: &[u8], owner: u16, reply: &mut Reply<'_>) -> Option<Outcome> {
    let data = reply.begin(owner, kind::CNAME, service.ttl_s)?;
    reply.put(hostname)?;
    reply.end(Section::Answer, data);
    Some(Outcome::Answer)
}

/// Points upwards until the scope has a shard: a CNAME for each step. Gives the scope, and the last name's place.
pub(crate) fn climb(
    snapshot: &Snapshot,
    service: &Service,
    base: Base,
    asked: Asked<'_>,
    reply: &mut Reply<'_>,
) -> Option<(Scope, u16)> {
    let (mut scope, mut owner) = (base.scope, QUESTION);
    let stem = base.zone_at.saturating_sub(match base.scope {
        Scope::All => 0,
        Scope::Region(_) => 1,
        Scope::Zone(_) => 2,
    });
    while !service.serves(&snapshot.stage, scope, asked.vantage.inside) && scope != Scope::All {
        let next = match scope {
            Scope::Zone(zone) => {
                let zone = snapshot.stage.scene.places.zones.get(usize::from(zone));
                zone.map_or(Scope::All, |zone| Scope::Region(zone.region))
            }
            Scope::Region(_) | Scope::All => Scope::All,
        };
        // All that stands left of the zone and region, then what is left of these in the question.
        let rest = if next == Scope::All { base.zone_at } else { base.zone_at - 1 };
        let data = reply.begin(owner, kind::CNAME, service.ttl_s)?;
        reply.put(asked.name.between(0, stem))?;
        reply.put(&(QUESTION + u16::try_from(asked.name.start(rest)).ok()?).to_be_bytes())?;
        reply.end(Section::Answer, data);
        (scope, owner) = (next, pointer(data));
        if asked.kind == kind::CNAME {
            break;
        }
    }
    Some((scope, owner))
}

/// A service's own name.
fn base_name(
    snapshot: &Snapshot,
    service: &Service,
    base: Base,
    asked: Asked<'_>,
    reply: &mut Reply<'_>,
) -> Option<Outcome> {
    if asked.kind == kind::ANY {
        return some(asked, reply);
    }
    let (scope, owner) = climb(snapshot, service, base, asked, reply)?;
    let steps = reply.count(Section::Answer);
    if asked.kind == kind::CNAME && steps > 0 {
        return Some(Outcome::Answer);
    }
    let family = family(asked.kind);
    let own = |target: &Target| is_own(snapshot, asked, target);
    let single = matches!(service.policy, DnsAnswer::NearestOnly | DnsAnswer::Weighted);
    let fits = |target: &Target| match family {
        Some(family) => {
            !target.span(family, own(target)).is_empty() || (single && target.alias(own(target)).is_some())
        }
        None => true,
    };
    let client = (asked.vantage.slot, asked.vantage.inside);
    let mut view = service.view(&snapshot.stage, client, scope, fits);
    let get = |number: u16| service.targets.get(usize::from(number));
    // Host names stand for addresses only where there is no address at all. The top of a zone cannot be another name.
    let mut told = service.targets.iter().filter(|target| target.is_for(asked.vantage.inside));
    let alone = single || told.all(|target| target.alias(own(target)).is_some());
    if alone && view.as_slice().is_empty() {
        view = service.view(&snapshot.stage, client, scope, |target| target.alias(own(target)).is_some());
    }
    let chosen = choose(service.policy, &view, asked.luck);
    let hostname = chosen.first(&view).and_then(get).and_then(|target| target.alias(own(target)));
    if let Some(hostname) = hostname.filter(|_| alone && base.zone_at > 0) {
        return alias(service, hostname, owner, reply);
    }
    if let Some(family) = family {
        for number in chosen.iter(&view) {
            let Some(target) = get(number) else { continue };
            addresses(service, target, own(target), family, owner, Section::Answer, asked.luck >> 32, reply)?;
        }
    }
    Some(since(steps, reply))
}

/// Something, if more was written than the steps upwards.
pub(crate) fn since(steps: u16, reply: &Reply<'_>) -> Outcome {
    if reply.count(Section::Answer) > steps { Outcome::Answer } else { Outcome::NoData }
}

/// Which of a view are answered: from where on, whether around, and how many.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    head: usize,
    around: bool,
    only: bool,
}

fn choose(policy: DnsAnswer, view: &View, luck: u64) -> Chosen {
    let all = view.as_slice().len() as u64;
    match policy {
        DnsAnswer::NearestFirst => Chosen { head: view.head(luck), around: false, only: false },
        DnsAnswer::NearestOnly => Chosen { head: view.first(), around: false, only: true },
        DnsAnswer::Weighted => Chosen { head: view.head(luck), around: false, only: true },
        DnsAnswer::All => {
            let head = usize::try_from(luck.checked_rem(all).unwrap_or(0)).unwrap_or(0);
            Chosen { head, around: true, only: false }
        }
    }
}

impl Chosen {
    fn first(self, view: &View) -> Option<u16> {
        view.as_slice().get(self.head).map(|(target, _)| *target)
    }

    /// The head, then the others: those after it, or all in their order.
    fn iter(self, view: &View) -> impl Iterator<Item = u16> {
        let all = view.as_slice();
        let len = all.len();
        let rest = (0..len).map(move |step| if self.around { (self.head + step) % len } else { step });
        let rest = rest.filter(move |at| *at != self.head && !self.only);
        let head = (self.head < len).then_some(self.head);
        head.into_iter().chain(rest).filter_map(move |at| all.get(at).map(|(target, _)| *target))
    }
}
