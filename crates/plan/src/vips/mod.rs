//! Virtual IPs: which address a group of edges has in which member.
//!
//! ```text
//!   groups' status (what they have) ─┐
//!   groups' spec (what they ask for) ├─► allocate ─► what each group has from now on, and why not more
//!   IngressVIPRanges ────────────────┘         └─► what each range has given out
//! ```
//!
//! What a group has it keeps: for as long as it is there, runs in that member and asks for no other address, also when its range
//! is gone. Then come those that ask for an address, then those that take what there is, each in the order of their age. An address is
//! never given twice, whatever ranges overlap and whatever statuses say.
//!
//! What a group has no more it lets go (`release`): the address is nobody's until every edge that could hold it has said that it
//! follows a plan without it, or is gone. An edge that is cut off from the hub goes on holding what it was told.

mod block;
mod check;
mod hold;
mod release;
mod router;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use landfall_api::landfall::{GroupVip, IngressVIPRangeSpec, IpFamily};

pub use block::Block;
pub use check::{check_group, check_range, label_selector};
pub use hold::{Hold, Part, holding};
pub use release::{FINALIZER, Follower, Remains, Told};
pub use router::priorities;

use crate::Reason;

/// A range of addresses, and who may have them.
#[derive(Clone, Debug, Default)]
pub struct Range {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub blocks: Vec<Block>,
    /// What is not given out of it.
    pub excluded: Vec<Block>,
    /// The members whose groups may use it; all when none.
    pub clusters: Option<BTreeSet<String>>,
    /// What of it cannot be read.
    pub problems: Vec<String>,
}

/// A group, and what it has and asks for.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// When it was made, so that they can be ordered.
    pub created: String,
    /// The members it runs in.
    pub clusters: Vec<String>,
    /// Addresses it asks for: in one member, or in the only one.
    pub wanted: Vec<(Option<String>, String)>,
    /// The range it asks for.
    pub range: Option<String>,
    /// The families it asks for; one address of any when empty.
    pub families: Vec<IpFamily>,
    /// What it has.
    pub held: Vec<GroupVip>,
    /// What it has no more, and its edges may still hold.
    pub releasing: Vec<GroupVip>,
    /// What its edges were told last.
    pub told: Told,
    /// Its edges that may hold addresses, also those in members that it has left.
    pub followers: Vec<Follower>,
}

/// What a group has from now on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Its addresses, ordered by member.
    pub vips: Vec<GroupVip>,
    /// What it has no more, and what is nobody else's yet.
    pub releasing: Vec<GroupVip>,
    /// Why it has not more, or not what it asks for.
    pub troubles: Vec<Reason>,
}

/// What a range has given out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Addresses that can be given out, as far as that can be counted.
    pub total: i64,
    /// Address, group and member.
    pub given: Vec<(IpAddr, String, String)>,
    /// Other ranges that have some of the same addresses.
    pub overlaps: Vec<String>,
}

/// One address that a group should have: in a member, of a family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    cluster: String,
    family: Option<IpFamily>,
}

/// The family of an address.
pub fn family(address: IpAddr) -> IpFamily {
    if address.is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 }
}

impl Range {
    /// Reads a range; `clusters` are the members that it selects, none for all.
    pub fn new(name: &str, spec: &IngressVIPRangeSpec, clusters: Option<BTreeSet<String>>) -> Self {
        let mut range = Self { name: name.to_owned(), clusters, ..Self::default() };
        for text in &spec.cidrs {
            match Block::parse(text) {
                Some(block) => range.blocks.push(block),
                None => range.problems.push(format!("{text:?} is no range such as 192.0.2.0/28")),
            }
        }
        for text in &spec.exclude {
            match Block::parse(text) {
                Some(block) => range.excluded.push(block),
                None => range.problems.push(format!("{text:?} is neither an address nor a range")),
            }
        }
        range
    }

    fn serves(&self, group: &Group, cluster: &str) -> bool {
        let asked = group.range.as_ref().is_none_or(|asked| *asked == self.name);
        asked && self.clusters.as_ref().is_none_or(|all| all.contains(cluster))
    }

    /// Whether an address may be given out of it.
    pub fn offers(&self, address: IpAddr) -> bool {
        self.blocks.iter().any(|block| block.usable(address))
            && !self.excluded.iter().any(|block| block.contains(address))
    }

    /// The first address that nobody has.
    fn first_free(&self, family: Option<IpFamily>, taken: &BTreeMap<IpAddr, String>) -> Option<IpAddr> {
        let blocks = self.blocks.iter().filter(|block| family.is_none_or(|family| block.family() == family));
        blocks
            .into_iter()
            .find_map(|block| block.first_free(&self.excluded, |address| taken.contains_key(&address)))
    }
}

/// Gives every group its addresses.
pub fn allocate(groups: &[Group], ranges: &[Range]) -> BTreeMap<String, Allocation> {
    let mut order: Vec<&Group> = groups.iter().collect();
    order.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
    let mut state = State { ranges, taken: BTreeMap::new(), going: BTreeSet::new(), made: BTreeMap::new() };
    let mut open: Vec<(&Group, Slot)> = Vec::new();
    for group in &order {
        state.made.insert(group.name.clone(), Allocation::default());
        if group.clusters.len() > 1 && group.wanted.iter().any(|(cluster, _)| cluster.is_none()) {
            let sentence = "it runs in several members; vips says which address is for which";
            state.trouble(group, Reason::new("VIPAmbiguous", sentence));
        }
        open.extend(state.keep(group).into_iter().map(|slot| (*group, slot)));
    }
    for group in &order {
        state.reserve(group);
    }
    // Who asks for an address has it before somebody else gets it by chance.
    open.retain(|(group, slot)| !state.ask(group, slot));
    for (group, slot) in &open {
        state.take(group, slot);
    }
    let mut made = state.made;
    for allocation in made.values_mut() {
        let key = |vip: &GroupVip| (vip.cluster.clone(), vip.address.contains(':'), vip.address.clone());
        allocation.vips.sort_by_key(key);
        allocation.releasing.sort_by_key(key);
    }
    router::number(&order, &mut made);
    made
}

/// What every range has given out, by its name.
pub fn given(ranges: &[Range], made: &BTreeMap<String, Allocation>) -> BTreeMap<String, Given> {
    let mut all: BTreeMap<String, Given> = BTreeMap::new();
    for range in ranges {
        let others = ranges.iter().filter(|other| other.name != range.name);
        let overlaps = others.filter(|other| overlap(range, other)).map(|other| other.name.clone());
        let total =
            range.blocks.iter().fold(0_i64, |sum, block| sum.saturating_add(block.count(&range.excluded)));
        all.insert(range.name.clone(), Given { total, given: Vec::new(), overlaps: overlaps.collect() });
    }
    let own = |(group, made): (&'_ String, &'_ Allocation)| {
        let all = made.vips.iter().chain(&made.releasing);
        all.map(|vip| (group.clone(), vip.clone())).collect::<Vec<_>>()
    };
    for (group, vip) in made.iter().flat_map(own) {
        let from = vip.range.as_ref().and_then(|range| all.get_mut(range));
        if let (Some(from), Ok(address)) = (from, vip.address.parse()) {
            from.given.push((address, group, vip.cluster));
        }
    }
    all.values_mut().for_each(|one| one.given.sort());
    all
}

/// Whether two ranges have addresses in common.
pub fn overlap(one: &Range, two: &Range) -> bool {
    one.blocks.iter().any(|a| two.blocks.iter().any(|b| a.overlaps(b)))
}

struct State<'a> {
    ranges: &'a [Range],
    /// Who has what.
    taken: BTreeMap<IpAddr, String>,
    /// What is on its way to be nobody's.
    going: BTreeSet<IpAddr>,
    made: BTreeMap<String, Allocation>,
}

impl State<'_> {
    /// Lets a group keep what it has and still wants; gives what it lacks.
    fn keep(&mut self, group: &Group) -> Vec<Slot> {
        let mut open = slots(group);
        // What it is letting go it may have again.
        for vip in group.held.iter().chain(&group.releasing) {
            let Ok(address) = vip.address.parse::<IpAddr>() else { continue };
            let fits = |slot: &Slot| {
                slot.cluster == vip.cluster && slot.family.is_none_or(|one| one == family(address))
            };
            let Some(at) = open.iter().position(fits) else { continue };
            let asked = group.asked(&vip.cluster, open[at].family);
            if asked.is_some_and(|asked| asked != Ok(address)) || self.taken.contains_key(&address) {
                continue;
            }
            open.remove(at);
            self.give(group, &vip.cluster, address, Some(vip));
        }
        open
    }

    /// Keeps from everybody what a group has no more and one of its edges may hold.
    fn reserve(&mut self, group: &Group) {
        for vip in group.held.iter().chain(&group.releasing) {
            let Ok(address) = vip.address.parse::<IpAddr>() else { continue };
            if self.taken.contains_key(&address) || !group.may_hold(address) {
                continue;
            }
            self.taken.insert(address, group.name.clone());
            self.going.insert(address);
            if let Some(made) = self.made.get_mut(&group.name) {
                made.releasing.push(GroupVip { holder: None, transitions: None, ..vip.clone() });
            }
        }
    }

    /// Gives the address that is asked for; whether one is.
    fn ask(&mut self, group: &Group, slot: &Slot) -> bool {
        let Some(asked) = group.asked(&slot.cluster, slot.family) else { return false };
        let trouble = match asked {
            Err(text) => Reason::new("InvalidVIP", format!("{text:?} is no IP address")),
            Ok(address) => {
                let from = |range: &&Range| range.serves(group, &slot.cluster) && range.offers(address);
                if self.going.contains(&address) {
                    let who = self.taken.get(&address).map_or("", String::as_str);
                    let sentence = format!("edges of the group {who} have not let go of {address} yet");
                    Reason::new("VIPConflict", sentence)
                } else if let Some(holder) = self.taken.get(&address) {
                    Reason::new("VIPConflict", format!("{address} belongs to the group {holder}"))
                } else if self.ranges.iter().any(|range| from(&range)) {
                    self.give(group, &slot.cluster, address, None);
                    return true;
                } else {
                    let sentence = format!("{address} is in no IngressVIPRange that serves {}", slot.cluster);
                    Reason::new("VIPOutsideRanges", sentence)
                }
            }
        };
        self.trouble(group, trouble);
        true
    }

    /// Gives the first address that is free.
    fn take(&mut self, group: &Group, slot: &Slot) {
        let serving: Vec<&Range> =
            self.ranges.iter().filter(|range| range.serves(group, &slot.cluster)).collect();
        let free = serving.iter().find_map(|range| range.first_free(slot.family, &self.taken));
        if let Some(address) = free {
            self.give(group, &slot.cluster, address, None);
            return;
        }
        let of = |range: &&&Range| {
            slot.family.is_none_or(|one| range.blocks.iter().any(|block| block.family() == one))
        };
        let kind = slot.family.map(|one| format!("{one:?} ")).unwrap_or_default();
        let trouble = if serving.iter().any(|range| of(&range)) {
            let names: Vec<&str> = serving.iter().map(|range| range.name.as_str()).collect();
            let sentence = format!("no {kind}address is left for {} in {}", slot.cluster, names.join(", "));
            Reason::new("VIPsExhausted", sentence)
        } else {
            let named = group.range.as_ref().map(|name| format!(" called {name}")).unwrap_or_default();
            let sentence =
                format!("there is no IngressVIPRange{named} with {kind}addresses for {}", slot.cluster);
            Reason::new("NoVIPRange", sentence)
        };
        self.trouble(group, trouble);
    }

    fn give(&mut self, group: &Group, cluster: &str, address: IpAddr, held: Option<&GroupVip>) {
        self.taken.insert(address, group.name.clone());
        let own = |range: &&Range| range.serves(group, cluster) && range.offers(address);
        let range =
            self.ranges.iter().find(own).or_else(|| self.ranges.iter().find(|range| range.offers(address)));
        let mut vip = held.cloned().unwrap_or_default();
        vip.address = address.to_string();
        cluster.clone_into(&mut vip.cluster);
        vip.range = range.map(|range| range.name.clone());
        if range.is_none() {
            let sentence = format!("{address} is in no IngressVIPRange any more; the group keeps it");
            self.trouble(group, Reason::new("VIPOutsideRanges", sentence));
        }
        if let Some(made) = self.made.get_mut(&group.name) {
            made.vips.push(vip);
        }
    }

    fn trouble(&mut self, group: &Group, reason: Reason) {
        if let Some(made) = self.made.get_mut(&group.name)
            && !made.troubles.contains(&reason)
        {
            made.troubles.push(reason);
        }
    }
}

impl Group {
    /// The address that the group asks for in a member, if it does.
    fn asked(&self, cluster: &str, of: Option<IpFamily>) -> Option<Result<IpAddr, String>> {
        let only = self.clusters.len() == 1;
        let here = self.wanted.iter().filter(|(at, _)| at.as_deref().map_or(only, |at| at == cluster));
        let read = here.map(|(_, text)| text.parse::<IpAddr>().map_err(|_| text.clone()));
        let fits = |asked: &Result<IpAddr, String>| match (asked, of) {
            (Ok(address), Some(of)) => family(*address) == of,
            (Ok(_), None) | (Err(_), _) => true,
        };
        read.into_iter().find(fits)
    }
}

/// What a group should have.
fn slots(group: &Group) -> Vec<Slot> {
    let mut families: Vec<Option<IpFamily>> = group.families.iter().copied().map(Some).collect();
    families.sort();
    families.dedup();
    if families.is_empty() {
        families.push(None);
    }
    let clusters: BTreeSet<&String> = group.clusters.iter().collect();
    let of = |cluster: &String| {
        let cluster = cluster.clone();
        families.clone().into_iter().map(move |family| Slot { cluster: cluster.clone(), family })
    };
    clusters.into_iter().flat_map(of).collect()
}
