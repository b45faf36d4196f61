//! SRV records: where a port is served, member by member or pod by pod, with their addresses beside them.

use landfall_plan::records::names::Scope;
use landfall_plan::records::sets::srv_rank;

use crate::lookup::{Asked, Base, Outcome, addresses, climb, is_own, pointer, since, some};
use crate::wire::kind;
use crate::wire::name::Name;
use crate::wire::reply::{Reply, Section};
use crate::zone::Snapshot;
use crate::zone::service::{Family, Port, Service};

/// SRV records of a port: a shard each, or its pods.
pub(crate) fn ports(
    snapshot: &Snapshot,
    service: &Service,
    base: Base,
    port: &Port,
    asked: Asked<'_>,
    reply: &mut Reply<'_>,
) -> Option<Outcome> {
    if asked.kind == kind::ANY {
        return some(asked, reply);
    }
    let (scope, owner) = climb(snapshot, service, base, asked, reply)?;
    let steps = reply.count(Section::Answer);
    if asked.kind != kind::SRV {
        let is_step = asked.kind == kind::CNAME && steps > 0;
        return Some(if is_step { Outcome::Answer } else { Outcome::NoData });
    }
    let client = (asked.vantage.slot, asked.vantage.inside);
    let view = service.view(&snapshot.stage, client, scope, |_| true);
    let mut places = [(0_u16, 0_u16); 16];
    let mut count = 0;
    for ((number, share), rank) in view.as_slice().iter().zip(0_u16..) {
        let Some(target) = service.targets.get(usize::from(*number)) else { continue };
        let label = target.label(&snapshot.stage);
        let rank = srv_rank(service.policy, rank, *share);
        let before = [&[][..]];
        let pods = target.pods().iter().map(|pod| &*pod.label);
        let none = target.pods().is_empty();
        for pod in pods.chain(before.into_iter().filter(|_| none)) {
            let data = reply.begin(owner, kind::SRV, service.ttl_s)?;
            for number in [rank.0, rank.1, port.number] {
                reply.put(&number.to_be_bytes())?;
            }
            if let Some(place) = places.get_mut(count).filter(|_| none) {
                *place = (pointer(data + 6), *number);
                count += 1;
            }
            // The target is not compressed (RFC 2782). It stands in the scope that has it.
            reply.put(pod)?;
            reply.put(label)?;
            put_base(base, scope, asked.name, reply)?;
            reply.end(Section::Answer, data);
        }
    }
    courtesy(snapshot, service, &places[..count], asked, reply);
    Some(since(steps, reply))
}

/// A service's own name in a scope, whole.
fn put_base(base: Base, scope: Scope, name: &Name, reply: &mut Reply<'_>) -> Option<()> {
    let depth = |scope| match scope {
        Scope::All => 0,
        Scope::Region(_) => 1,
        Scope::Zone(_) => 2,
    };
    reply.put(name.between(base.at, base.zone_at.saturating_sub(depth(base.scope))))?;
    reply.put(name.from(base.zone_at.saturating_sub(depth(scope))))
}

/// Addresses of SRV targets: what does not fit is left out.
fn courtesy(
    snapshot: &Snapshot,
    service: &Service,
    places: &[(u16, u16)],
    asked: Asked<'_>,
    reply: &mut Reply<'_>,
) {
    for (owner, number) in places {
        let Some(target) = service.targets.get(usize::from(*number)) else { continue };
        let own = is_own(snapshot, asked, target);
        for family in [Family::V4, Family::V6] {
            let (at, count) = (reply.at(), reply.count(Section::Additional));
            let section = Section::Additional;
            if addresses(service, target, own, family, *owner, section, asked.luck, reply).is_none() {
                return reply.rewind(at, section, count);
            }
        }
    }
}
