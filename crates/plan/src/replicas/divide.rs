//! Federation v1's division of replicas over clusters, with two of its defects mended.
//!
//! 1. Everyone gets its minimum, in order.
//! 2. Unless rebalancing is asked for, what runs stays where it is: first up to the fair share, then above it.
//! 3. What is left is spread by weight, fractions rounded up, until nobody takes any more. What stayed counts as
//!    received, so that the poor catch up first.
//! 4. What a cluster should have but has no room for overflows to the others.
//!
//! Mended: scaling down keeps what is within everyone's fair share instead of emptying whole clusters
//! (kubernetes#31816), and a cluster that is new is given its fair share although nobody rebalances (kubernetes#33312).

use crate::hash::fnv1_32;

/// One cluster in the division, and what it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// How much of what is left it takes, relative to the others.
    pub weight: u32,
    /// Served before anything is spread.
    pub min: u32,
    /// Never more than this.
    pub max: Option<u32>,
    /// How many have room there, where that is known.
    pub capacity: Option<u32>,
    /// What it has; none for a cluster that was never given any.
    pub current: Option<u32>,
    /// Result: what it gets.
    pub planned: u32,
    /// Result: what it should have got but has no room for.
    pub overflow: u32,
}

impl Slot {
    /// The most it can take.
    fn limit(&self) -> u64 {
        let of = |limit: Option<u32>| limit.map_or(u64::MAX, u64::from);
        of(self.max).min(of(self.capacity))
    }
}

/// The order in which clusters are served: by weight, ties broken by a hash that differs from object to object, so
/// that the odd replicas of many objects do not all go to one cluster. Names decide what the hash leaves open.
pub fn order<'a>(key: &str, clusters: impl Iterator<Item = (&'a str, u32)>) -> Vec<usize> {
    let rank = |(at, (name, weight)): (usize, (&'a str, u32))| {
        (std::cmp::Reverse(weight), fnv1_32(&[name, key]), name, at)
    };
    let mut ranks: Vec<_> = clusters.enumerate().map(rank).collect();
    ranks.sort_unstable();
    ranks.into_iter().map(|(.., at)| at).collect()
}

/// Divides `total` over slots that stand in [`order`]; answers how many found no place.
pub fn divide(total: u32, rebalance: bool, slots: &mut [Slot]) -> u32 {
    let runs = slots.iter().any(|slot| slot.current.is_some_and(|current| current > 0));
    let mut stays = if rebalance || !runs { vec![0; slots.len()] } else { staying(total, slots) };
    let left = spread(total, slots, &mut stays);
    if !rebalance {
        trim(left, slots);
    }
    left
}

/// How many stay in each cluster above its minimum. A new cluster counts as if it had its fair share.
fn staying(total: u32, slots: &[Slot]) -> Vec<u64> {
    let mut fair = slots.to_vec();
    spread(total, &mut fair, &mut vec![0; slots.len()]);
    let mut left = u64::from(total);
    let minimums: Vec<u64> = slots.iter().map(|slot| u64::from(at_minimum(slot, &mut left))).collect();
    let mut stays = vec![0; slots.len()];
    // Two rounds: nobody loses what is fairly its own for the sake of someone who has more than that.
    for within_fair_share in [true, false] {
        for (((slot, fair), minimum), stays) in slots.iter().zip(&fair).zip(&minimums).zip(&mut stays) {
            let current = slot.current.unwrap_or(fair.planned);
            let wanted = if within_fair_share { current.min(fair.planned) } else { current };
            let more = u64::from(wanted).min(slot.limit()).saturating_sub(minimum + *stays).min(left);
            *stays += more;
            left -= more;
        }
    }
    stays
}

/// What a cluster's minimum gives it.
fn at_minimum(slot: &Slot, left: &mut u64) -> u32 {
    let room = slot.capacity.map_or(u64::MAX, u64::from);
    let given = u64::from(slot.min).min(*left).min(room);
    *left -= given;
    narrow(given)
}

/// Minimums, then what stays, then the rest by weight; what stayed counts as received until it is used up.
fn spread(total: u32, slots: &mut [Slot], stays: &mut [u64]) -> u32 {
    let mut left = u64::from(total);
    for slot in slots.iter_mut() {
        slot.overflow = 0;
        slot.planned = at_minimum(slot, &mut left);
    }
    for (slot, stays) in slots.iter_mut().zip(stays.iter()) {
        slot.planned = narrow(u64::from(slot.planned) + stays);
        left = left.saturating_sub(*stays);
    }
    let mut taking: Vec<usize> =
        (0..slots.len()).filter(|at| slots.get(*at).is_some_and(|s| s.weight > 0)).collect();
    let mut moved = true;
    while moved && left > 0 && !taking.is_empty() {
        moved = round(slots, stays, &mut taking, &mut left);
    }
    narrow(left)
}

/// One round of handing out by weight; whether anything changed. Clusters that are full leave `taking`.
fn round(slots: &mut [Slot], stayed: &mut [u64], taking: &mut Vec<usize>, left: &mut u64) -> bool {
    let weights: u64 = taking.iter().filter_map(|at| slots.get(*at)).map(|slot| u64::from(slot.weight)).sum();
    let to_spread = *left;
    let mut moved = false;
    taking.retain(|at| {
        let (Some(slot), Some(stayed)) = (slots.get_mut(*at), stayed.get_mut(*at)) else { return false };
        let due = (to_spread * u64::from(slot.weight)).div_ceil(weights.max(1)).min(*left);
        let received = due.min(*stayed);
        *stayed -= received;
        let before = u64::from(slot.planned);
        let mut after = before + (due - received);
        let mut full = false;
        if let Some(max) = slot.max.map(u64::from).filter(|max| after > *max) {
            (after, full) = (max.max(before), true);
        }
        if let Some(capacity) = slot.capacity.map(u64::from).filter(|capacity| after > *capacity) {
            slot.overflow = narrow(u64::from(slot.overflow) + (after - capacity));
            (after, full) = (capacity.max(before), true);
        }
        *left -= after - before;
        slot.planned = narrow(after);
        moved |= received > 0 || after > before;
        !full
    });
    moved
}

/// Without rebalancing only what found no place anywhere overflows.
fn trim(mut left: u32, slots: &mut [Slot]) {
    for slot in slots {
        slot.overflow = slot.overflow.min(left);
        left -= slot.overflow;
    }
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
