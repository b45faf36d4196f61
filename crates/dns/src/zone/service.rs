//! A service's records, ready for the wire, and which of them a client gets.

use std::net::IpAddr;

use landfall_api::landfall::DnsAnswer;
use landfall_plan::records::answers::{Answers, Choice, TARGETS_MAX};
use landfall_plan::records::names::Scope;
use landfall_plan::records::places::is_label;
use smallvec::SmallVec;

use super::Stage;
use crate::wire::name::to_wire;
use crate::wire::{kind, reply};

/// An A record whose owner is the question's name.
pub(crate) type A = [u8; 16];
/// An AAAA record whose owner is the question's name.
pub(crate) type Aaaa = [u8; 28];

/// A service. What most of them have few of stands in one piece of memory: every other place is a cache miss.
#[derive(Debug)]
pub(crate) struct Service {
    /// How long answers may be kept.
    pub(crate) ttl_s: u32,
    /// Which members of an order are in an answer.
    pub(crate) policy: DnsAnswer,
    /// Members that may be named.
    pub(crate) targets: SmallVec<[Target; 3]>,
    /// A records: all of one target's together.
    a: SmallVec<[A; 4]>,
    /// AAAA records, likewise.
    aaaa: Box<[Aaaa]>,
    /// All orders, one after the other: target and weight.
    choices: SmallVec<[(u16, u16); 9]>,
    /// Where each order begins, and where the last ends.
    bounds: SmallVec<[u32; 4]>,
    /// The order for each slot.
    by_slot: SmallVec<[u16; 8]>,
    /// Named ports.
    pub(crate) ports: Box<[Port]>,
}

/// A member that may be named.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its number.
    pub(crate) member: Option<u16>,
    /// Whether clients elsewhere are told of it, and those inside our own member.
    told: [bool; 2],
    /// Addresses for clients outside: A, AAAA.
    outside: [Span; 2],
    /// Addresses for clients inside: A, AAAA.
    inside: [Span; 2],
    /// What few have.
    rare: Option<Box<Rare>>,
}

/// What few targets have.
#[derive(Debug, Default)]
struct Rare {
    /// Its label with its length, if it has no number.
    label: Option<Box<[u8]>>,
    /// A host name for clients outside, in place of addresses.
    hostname: Option<Box<[u8]>>,
    /// Its pods, where the service is headless.
    pods: Box<[Pod]>,
}

/// A pod of a headless service.
#[derive(Debug)]
pub(crate) struct Pod {
    /// Its label with its length.
    pub(crate) label: Box<[u8]>,
    /// Its addresses: A, AAAA.
    pub(crate) spans: [Span; 2],
}

/// Orders one after the other, where each begins, and which of them each slot follows.
type Orders = (Vec<(u16, u16)>, Vec<u32>, SmallVec<[u16; 8]>);

/// Some records in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u16,
    len: u16,
}

/// A named port.
#[derive(Debug)]
pub(crate) struct Port {
    /// Its name in lower case, without the underscore.
    pub(crate) name: Box<[u8]>,
    /// Whether it is UDP; TCP otherwise.
    pub(crate) udp: bool,
    /// Its number.
    pub(crate) number: u16,
}

/// The two families of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Targets for one client, in order, with their shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    chosen: [(u16, u16); TARGETS_MAX],
    len: usize,
}

impl Target {
    /// Its label with its length; empty if it has none.
    pub(crate) fn label<'a>(&'a self, stage: &'a Stage) -> &'a [u8] {
        let known = || self.member.and_then(|member| stage.labels.get(usize::from(member)));
        let own = self.rare.as_ref().and_then(|rare| rare.label.as_ref());
        own.or_else(known).map_or(&[], |label| label)
    }

    /// A host name in place of addresses, for one client.
    pub(crate) fn alias(&self, inside: bool) -> Option<&[u8]> {
        let hostname = self.rare.as_ref()?.hostname.as_deref();
        hostname.filter(|_| !inside || self.inside.iter().all(|span| span.is_empty()))
    }

    /// Its pods, where the service is headless.
    pub(crate) fn pods(&self) -> &[Pod] {
        self.rare.as_ref().map_or(&[], |rare| &rare.pods)
    }

    /// Whether a client is told of it: one inside our own member, or elsewhere.
    pub(crate) fn is_for(&self, inside: bool) -> bool {
        self.told[usize::from(inside)]
    }

    /// Its addresses for one client.
    pub(crate) fn span(&self, family: Family, inside: bool) -> Span {
        let spans = if inside { &self.inside } else { &self.outside };
        spans[family as usize]
    }
}

impl Span {
    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }
}

impl View {
    pub(crate) fn as_slice(&self) -> &[(u16, u16)] {
        &self.chosen[..self.len]
    }

    fn push(&mut self, choice: (u16, u16)) {
        if let Some(place) = self.chosen.get_mut(self.len) {
            *place = choice;
            self.len += 1;
        }
    }

    /// The one that comes first, drawn by shares if several have one.
    pub(crate) fn head(&self, luck: u64) -> usize {
        let shares = self.as_slice().iter().map(|(_, share)| u64::from(*share));
        let total: u64 = shares.clone().sum();
        let mut left = luck.checked_rem(total).unwrap_or(0);
        let mut fallback = 0;
        for (at, share) in shares.enumerate() {
            if left < share {
                return at;
            }
            left -= share;
            fallback = if total == 0 { 0 } else { at };
        }
        fallback
    }

    /// The one that comes first without drawing.
    pub(crate) fn first(&self) -> usize {
        self.as_slice().iter().position(|(_, share)| *share > 0).unwrap_or(0)
    }
}

impl Service {
    /// Compiles a service's answers.
    pub(crate) fn new(answers: &Answers<'_>) -> Self {
        let mut records = Records { ttl_s: answers.ttl_s, a: Vec::new(), aaaa: Vec::new() };
        let targets = answers.targets.iter().map(|target| {
            let pods = target.pods.iter().filter_map(|(name, ips)| {
                let spans = records.spans(ips);
                Some(Pod { label: label(name)?, spans })
            });
            let pods: Box<[Pod]> = pods.collect();
            let label = if target.member.is_none() { label(&target.cluster.name) } else { None };
            let hostname = target.hostname.and_then(to_wire).map(Into::into);
            let is_rare = label.is_some() || hostname.is_some() || !pods.is_empty();
            Target {
                member: target.member,
                told: [target.outside, target.inside],
                outside: records.spans(&target.addresses),
                inside: records.spans(&target.local),
                rare: is_rare.then(|| Box::new(Rare { label, hostname, pods })),
            }
        });
        let targets = targets.collect();
        let (choices, bounds, by_slot) = orders(answers);
        let ports = answers.ports.iter().filter_map(|port| {
            let name = is_label(&port.name).then(|| port.name.to_ascii_lowercase().into_bytes().into())?;
            let udp = port.protocol.eq_ignore_ascii_case("udp");
            Some(Port { name, udp, number: u16::try_from(port.port).ok()? })
        });
        Self {
            ttl_s: answers.ttl_s,
            policy: answers.policy,
            targets,
            a: fitted(&records.a),
            aaaa: records.aaaa.into(),
            choices: fitted(&choices),
            bounds: fitted(&bounds),
            by_slot,
            ports: ports.collect(),
        }
    }

    /// The records of a span, one after the other, from a chosen one on and around.
    pub(crate) fn records(&self, family: Family, span: Span, from: u64) -> impl Iterator<Item = &[u8]> {
        let len = usize::from(span.len);
        let start = usize::try_from(from.checked_rem(len as u64).unwrap_or(0)).unwrap_or(0);
        (0..len).filter_map(move |step| {
            let at = usize::from(span.start) + (start + step) % len;
            match family {
                Family::V4 => self.a.get(at).map(<[u8; 16]>::as_slice),
                Family::V6 => self.aaaa.get(at).map(<[u8; 28]>::as_slice),
            }
        })
    }

    /// Whether some target lies in a scope that a client is told of: one inside our own member, or elsewhere.
    pub(crate) fn serves(&self, stage: &Stage, scope: Scope, inside: bool) -> bool {
        let here = |target: &Target| target.is_for(inside) && within(stage, target, scope);
        matches!(scope, Scope::All) || self.targets.iter().any(here)
    }

    /// The targets for a client, of those in a scope that also fit; empty only if none does.
    pub(crate) fn view(
        &self,
        stage: &Stage,
        (slot, inside): (usize, bool),
        scope: Scope,
        fits: impl Fn(&Target) -> bool,
    ) -> View {
        let mut view = View { chosen: [(0, 0); TARGETS_MAX], len: 0 };
        let good = |number: u16| {
            let target = self.targets.get(usize::from(number));
            target.is_some_and(|target| target.is_for(inside) && within(stage, target, scope) && fits(target))
        };
        let order = self.by_slot.get(slot).map_or(0, |order| usize::from(*order));
        let bound = |at| self.bounds.get(at).and_then(|bound| usize::try_from(*bound).ok());
        let choices = bound(order).zip(bound(order + 1)).and_then(|(from, to)| self.choices.get(from..to));
        choices.unwrap_or_default().iter().filter(|(target, _)| good(*target)).for_each(|c| view.push(*c));
        if view.len == 0 {
            // An order names only the nearest; whoever asks for a far region means it.
            (0_u16..)
                .take(self.targets.len())
                .filter(|n| good(*n))
                .take(TARGETS_MAX)
                .for_each(|n| view.push((n, 0)));
        }
        view
    }
}

fn within(stage: &Stage, target: &Target, scope: Scope) -> bool {
    Answers::within(&stage.scene.places, target.member, scope)
}

/// The same in no more room than it needs.
fn fitted<T: Copy, const N: usize>(all: &[T]) -> SmallVec<[T; N]>
where
    [T; N]: smallvec::Array<Item = T>,
{
    SmallVec::from_slice(all)
}

/// A label with its length before it.
pub(crate) fn label(text: &str) -> Option<Box<[u8]>> {
    let length = u8::try_from(text.len()).ok().filter(|_| is_label(text))?;
    Some(std::iter::once(length).chain(text.bytes().map(|byte| byte.to_ascii_lowercase())).collect())
}

/// Orders without those that say the same as another.
fn orders(answers: &Answers<'_>) -> Orders {
    let plain = |choice: &Choice| (choice.target, choice.weight);
    let mut distinct: Vec<&[Choice]> = Vec::new();
    let same = |a: &[Choice], b: &[Choice]| a.iter().map(plain).eq(b.iter().map(plain));
    let renamed: Vec<u16> = answers
        .orders
        .iter()
        .map(|order| {
            let at = distinct.iter().position(|known| same(known, order)).unwrap_or_else(|| {
                distinct.push(order);
                distinct.len() - 1
            });
            u16::try_from(at).unwrap_or(0)
        })
        .collect();
    let mut bounds = vec![0_u32];
    let mut choices = Vec::new();
    for order in distinct {
        choices.extend(order.iter().map(plain));
        bounds.push(u32::try_from(choices.len()).unwrap_or(0));
    }
    let by_slot = answers.by_slot.iter().map(|at| renamed.get(usize::from(*at)).copied().unwrap_or(0));
    (choices, bounds, by_slot.collect())
}

/// Records while they are gathered.
struct Records {
    ttl_s: u32,
    a: Vec<A>,
    aaaa: Vec<Aaaa>,
}

impl Records {
    /// Adds addresses; gives where they are.
    fn spans(&mut self, addresses: &[IpAddr]) -> [Span; 2] {
        let (a, aaaa) = (self.a.len(), self.aaaa.len());
        for address in addresses {
            match address {
                IpAddr::V4(ip) => self.a.push(record(kind::A, self.ttl_s, ip.octets())),
                IpAddr::V6(ip) => self.aaaa.push(record(kind::AAAA, self.ttl_s, ip.octets())),
            }
        }
        let span = |from: usize, to: usize| Span {
            start: u16::try_from(from).unwrap_or(0),
            len: u16::try_from(from).and_then(|_| u16::try_from(to - from)).unwrap_or(0),
        };
        [span(a, self.a.len()), span(aaaa, self.aaaa.len())]
    }
}

/// An address record under the question's name.
pub(crate) fn record<const DATA: usize, const ALL: usize>(
    kind: u16,
    ttl_s: u32,
    data: [u8; DATA],
) -> [u8; ALL] {
    let mut record = [0; ALL];
    let fixed: [&[u8]; 6] = [
        &reply::QUESTION.to_be_bytes(),
        &kind.to_be_bytes(),
        &[0, 1],
        &ttl_s.to_be_bytes(),
        &u16::try_from(DATA).unwrap_or(0).to_be_bytes(),
        &data,
    ];
    for (to, from) in record.iter_mut().zip(fixed.into_iter().flatten()) {
        *to = *from;
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_the_wire_wants_it() {
        let record: A = record(kind::A, 180, [192, 0, 2, 1]);
        assert_eq!(record, [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 180, 0, 4, 192, 0, 2, 1]);
    }

    #[test]
    fn the_head_is_drawn_by_shares() {
        let view = |shares: &[u16]| {
            let mut view = View { chosen: [(0, 0); TARGETS_MAX], len: 0 };
            shares.iter().for_each(|share| view.push((0, *share)));
            view
        };
        for (shares, want) in [
            (&[][..], [0, 0, 0, 0]),
            (&[0, 0], [0, 0, 0, 0]),
            (&[0, 5], [1, 1, 1, 1]),
            (&[1, 0, 1], [0, 2, 0, 2]),
            (&[3, 1], [0, 0, 0, 1]),
        ] {
            let got = [0, 1, 2, 3].map(|luck| view(shares).head(luck));
            assert_eq!(got, want, "{shares:?}");
        }
        assert_eq!(view(&[0, 2, 3]).first(), 1);
    }
}
