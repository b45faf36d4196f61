//! How long bytes are on their way between members, and between a member and the hub.

use std::collections::HashMap;
use std::time::Duration;

use super::Origin;
use crate::world::places::distance_km;

/// What light in fibre takes there and back for a kilometre.
const ROUND_TRIP_PER_KM: Duration = Duration::from_micros(10);

/// What a round trip between two clusters takes however close they are.
const ROUND_TRIP_MIN: Duration = Duration::from_micros(500);

/// Where members and the hub stand: latitude and longitude of each. Whoever is not in it is near to everybody.
#[derive(Clone, Debug, Default)]
pub struct Distances(HashMap<Origin, (f64, f64)>);

impl Distances {
    /// From where each stands.
    pub fn new(places: impl IntoIterator<Item = (Origin, (f64, f64))>) -> Self {
        Self(places.into_iter().collect())
    }

    /// How long a round trip takes. Nothing within a cluster, and nothing for users: they can be anywhere.
    pub fn round_trip(&self, a: Origin, b: Origin) -> Duration {
        if a == b || a == Origin::Outside || b == Origin::Outside {
            return Duration::ZERO;
        }
        let both = self.0.get(&a).zip(self.0.get(&b));
        let km = both.map_or(0.0, |(a, b)| distance_km(*a, *b));
        ROUND_TRIP_MIN + ROUND_TRIP_PER_KM.mul_f64(km)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Block;

    #[test]
    fn round_trips() {
        let [east, west, near, nowhere] = [0, 1, 2, 3].map(|n| Origin::Member(Block::all().nth(n).unwrap()));
        let distances = Distances::new([
            (east, (38.9, -77.5)),
            (west, (53.3, -6.3)),
            (near, (38.9, -77.5)),
            (Origin::Hub, (38.9, -77.5)),
        ]);
        for (a, b, want_ms) in [
            (east, east, 0.0),
            (east, near, 0.5),
            (east, west, 55.1),
            (Origin::Hub, west, 55.1),
            (Origin::Hub, east, 0.5),
            (nowhere, west, 0.5),
            (Origin::Outside, west, 0.0),
        ] {
            for (a, b) in [(a, b), (b, a)] {
                let took_ms = distances.round_trip(a, b).as_secs_f64() * 1000.0;
                assert!((took_ms - want_ms).abs() < 0.6, "{a:?} to {b:?}: {took_ms} ms");
            }
        }
        assert!(distances.round_trip(east, near) > Duration::ZERO);
    }
}
