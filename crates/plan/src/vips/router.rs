//! Numbers that tell groups on one link from each other: VRRP's virtual router id, and priorities of a group's edges.

use std::collections::{BTreeMap, BTreeSet};

use super::{Allocation, Group};
use crate::Reason;
use crate::hash;

/// The highest number there is.
const ROUTER_ID_MAX: i32 = 255;

/// Gives every group a number in every member where it has addresses: the one it has, else one that no other group has in that
/// member nor, while there are enough, in that range.
pub(super) fn number(order: &[&Group], made: &mut BTreeMap<String, Allocation>) {
    let mut used: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    let mut known: BTreeMap<(String, String), i32> = BTreeMap::new();
    let places = |cluster: &str, range: Option<&String>| {
        [Some(format!("member {cluster}")), range.map(|range| format!("range {range}"))]
    };
    for group in order {
        let Some(allocation) = made.get(&group.name) else { continue };
        // An edge that has not let go yet speaks with the number that it has.
        for vip in allocation.vips.iter().chain(&allocation.releasing) {
            let Some(id) = vip.router_id.filter(|id| (1..=ROUTER_ID_MAX).contains(id)) else { continue };
            let key = (group.name.clone(), vip.cluster.clone());
            let [member, range] = places(&vip.cluster, vip.range.as_ref());
            let mine = known.get(&key) == Some(&id);
            if !mine && used.get(member.as_deref().unwrap_or("")).is_some_and(|all| all.contains(&id)) {
                continue;
            }
            known.entry(key).or_insert(id);
            for place in [member, range].into_iter().flatten() {
                used.entry(place).or_default().insert(id);
            }
        }
    }
    for group in order {
        let Some(allocation) = made.get_mut(&group.name) else { continue };
        for vip in &mut allocation.vips {
            let key = (group.name.clone(), vip.cluster.clone());
            let [member, range] = places(&vip.cluster, vip.range.as_ref());
            let id = known.get(&key).copied().or_else(|| {
                let none = BTreeSet::new();
                let at = |place: &Option<String>| {
                    place.as_ref().and_then(|place| used.get(place)).unwrap_or(&none)
                };
                let (here, there) = (at(&member), at(&range));
                let begin = i32::try_from(hash::texts(&[&group.name]) % 255).unwrap_or(0);
                let all = || (0..ROUTER_ID_MAX).map(|step| (begin + step) % ROUTER_ID_MAX + 1);
                all()
                    .find(|id| !here.contains(id) && !there.contains(id))
                    .or_else(|| all().find(|id| !here.contains(id)))
            });
            vip.router_id = id;
            let Some(id) = id else {
                let sentence = format!("{ROUTER_ID_MAX} groups have addresses in {} already", vip.cluster);
                allocation.troubles.push(Reason::new("RouterIDsExhausted", sentence));
                continue;
            };
            known.insert(key, id);
            for place in [member, range].into_iter().flatten() {
                used.entry(place).or_default().insert(id);
            }
        }
    }
}

/// The highest priority of an edge, of the 254 there are. Whoever hears that the holder ends waits for (256 - priority) / 256 of the time
/// between two adverts before it takes the address. At 254 that is less than a millisecond, and a holder that was killed between saying
/// so and letting go still had the address; at 100 and below it is 61 ms or more, in which the holder's keeper takes it off.
const PRIORITY_MAX: i32 = 100;

/// The priorities of a group's edges in one member: those that have one keep it. Others get the one that is farthest from all that are
/// taken: edges whose priorities are next to each other would take the address of one that is silent within half a millisecond of each
/// other, before one could hear the other.
pub fn priorities(known: &BTreeMap<String, i32>, edges: &BTreeSet<String>) -> BTreeMap<String, i32> {
    let mut free: BTreeSet<i32> = (1..=PRIORITY_MAX).collect();
    let mut all = BTreeMap::new();
    for edge in edges {
        if let Some(priority) = known.get(edge)
            && free.remove(priority)
        {
            all.insert(edge.clone(), *priority);
        }
    }
    for edge in edges {
        if !all.contains_key(edge) {
            // More than there are numbers: the address of the node decides among the last ones.
            let priority = farthest(&free, &all).unwrap_or(1);
            free.remove(&priority);
            all.insert(edge.clone(), priority);
        }
    }
    all
}

/// The number that is farthest from all that are taken; of several the highest.
fn farthest(free: &BTreeSet<i32>, taken: &BTreeMap<String, i32>) -> Option<i32> {
    let distance = |one: i32| taken.values().map(|other| one.abs_diff(*other)).min();
    free.iter().copied().max_by_key(|one| distance(*one))
}
