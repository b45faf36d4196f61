//! A ring of endpoints: the same key leads to the same endpoint, at every edge, and when an endpoint goes, only its own keys
//! move, to those that stand next to it on the ring.

use std::rc::Rc;

use landfall_plan::hash;

use super::Endpoint;

/// Places that each endpoint has on the ring. With so many, shares differ by a tenth or so.
const POINTS: u64 = 128;

/// A ring: hashes in order, and whose they are.
pub(super) struct Ring(Vec<(u64, u32)>);

impl Ring {
    pub(super) fn new(endpoints: &[Rc<Endpoint>]) -> Self {
        let mut points = Vec::with_capacity(endpoints.len().saturating_mul(128));
        for (endpoint, at) in endpoints.iter().zip(0_u32..) {
            let own = hash::bytes(endpoint.reach.to_string().as_bytes());
            points.extend((0..POINTS).map(|point| (hash::mix(own.wrapping_add(point)), at)));
        }
        points.sort_unstable();
        Self(points)
    }

    /// The endpoints from a key on, by their places among those that the ring was made of; some come several times.
    pub(super) fn from(&self, key: u64) -> impl Iterator<Item = usize> {
        let start = self.0.partition_point(|(point, _)| *point < key);
        let (before, after) = self.0.split_at(start.min(self.0.len()));
        after.iter().chain(before).filter_map(|(_, at)| usize::try_from(*at).ok())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::table::{Reach, Vitals};

    fn endpoints(ports: impl Iterator<Item = u16>) -> Vec<Rc<Endpoint>> {
        let one = |port| {
            Rc::new(Endpoint::new(Reach::Direct(([10, 0, 0, 1], port).into()), Arc::new(Vitals::default())))
        };
        ports.map(one).collect()
    }

    #[test]
    fn keys_are_shared_and_stay_when_others_go() {
        let (all, fewer) = (endpoints(0..10), endpoints(1..10));
        let (ring, smaller) = (Ring::new(&all), Ring::new(&fewer));
        let mut counts = [0; 10];
        for key in (0..10_000_u64).map(hash::mix) {
            let at = ring.from(key).next().unwrap();
            counts[at] += 1;
            let then = smaller.from(key).next().unwrap() + 1;
            assert!(at == then || at == 0, "only keys of the one that went move");
            assert_eq!(
                ring.from(key).find(|at| *at != 0),
                Some(then),
                "they move to where it would have been left out"
            );
        }
        assert!(counts.iter().all(|count| (600..1_500).contains(count)), "{counts:?}");
        assert_eq!(Ring::new(&[]).from(7).next(), None);
    }
}
