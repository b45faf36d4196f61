//! How far one place is from another, by the best that is known.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use landfall_api::landfall::{Coordinates, LocalityBy, PlanMember, RoundTrip};

/// How far, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distance {
    /// The same cluster.
    Here,
    /// A round trip between edges, in milliseconds.
    Measured(f64),
    /// Over the globe, in kilometres.
    Globe(f64),
    /// A zone is shared.
    Zone,
    /// The region is the same.
    Region,
    /// The regions' names begin with the same word, such as `europe`.
    Continent,
    /// Nothing is known, or nothing shall count.
    Unknown,
}

impl Distance {
    /// What a round trip takes, measured or guessed: one scale for all that is known.
    pub fn milliseconds(self) -> f64 {
        match self {
            Self::Here => 0.0,
            Self::Measured(ms) => ms,
            // Light in fibre goes 100 km there and back in a millisecond; cables are no great circles.
            Self::Globe(km) => 1.0 + km / 70.0,
            Self::Zone => 1.0,
            Self::Region => 3.0,
            Self::Continent => 30.0,
            Self::Unknown => 150.0,
        }
    }
}

impl Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("the same cluster"),
            Self::Measured(ms) if *ms < 10.0 => write!(f, "{ms:.1} ms away"),
            Self::Measured(ms) => write!(f, "{ms:.0} ms away"),
            Self::Globe(km) => write!(f, "{km:.0} km away"),
            Self::Zone => f.write_str("in the same zone"),
            Self::Region => f.write_str("in the same region"),
            Self::Continent => f.write_str("in a region of the same part of the world"),
            Self::Unknown => f.write_str("at an unknown distance"),
        }
    }
}

/// Where someone stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Place {
    pub region: Option<String>,
    pub zones: Vec<String>,
    pub coordinates: Option<Coordinates>,
}

impl Place {
    pub(super) fn of(member: &PlanMember) -> Self {
        let PlanMember { region, zones, coordinates, .. } = member;
        Self { region: region.clone(), zones: zones.clone(), coordinates: coordinates.clone() }
    }
}

/// The distance by coordinates, else by labels; `by` may leave out either.
pub(super) fn unmeasured(from: &Place, to: &Place, by: LocalityBy) -> Distance {
    let globe = || Some(Distance::Globe(kilometres(from.coordinates.as_ref()?, to.coordinates.as_ref()?)?));
    match by {
        LocalityBy::Measured => globe().unwrap_or_else(|| labelled(from, to)),
        LocalityBy::Coordinates => globe().unwrap_or(Distance::Unknown),
        LocalityBy::Topology => labelled(from, to),
        LocalityBy::Ignore => Distance::Unknown,
    }
}

fn labelled(from: &Place, to: &Place) -> Distance {
    let (Some(here), Some(there)) = (&from.region, &to.region) else {
        let shared = from.zones.iter().any(|zone| to.zones.contains(zone));
        return if shared { Distance::Zone } else { Distance::Unknown };
    };
    if here == there {
        let shared = from.zones.iter().any(|zone| to.zones.contains(zone));
        return if shared { Distance::Zone } else { Distance::Region };
    }
    let word = |region: &str| region.split(['-', '_', '.']).next().unwrap_or("").to_ascii_lowercase();
    if word(here) == word(there) { Distance::Continent } else { Distance::Unknown }
}

/// The way over the globe; none for points that are none.
fn kilometres(a: &Coordinates, b: &Coordinates) -> Option<f64> {
    const RADIUS_KM: f64 = 6_371.0;
    let right = |point: &Coordinates| point.latitude.abs() <= 90.0 && point.longitude.abs() <= 180.0;
    if !right(a) || !right(b) {
        return None;
    }
    let (lat_a, lat_b) = (a.latitude.to_radians(), b.latitude.to_radians());
    let half = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
    let part = half(b.latitude - a.latitude) + lat_a.cos() * lat_b.cos() * half(b.longitude - a.longitude);
    Some(2.0 * RADIUS_KM * part.clamp(0.0, 1.0).sqrt().asin())
}

/// Measured round trips between clusters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundTrips {
    ms: BTreeMap<String, BTreeMap<String, f64>>,
}

/// A round trip counts as changed when it differs by more than this, or
const SETTLED_MS: f64 = 2.0;
/// by more than this part of it, whichever is more.
const SETTLED_PART: f64 = 0.2;

impl RoundTrips {
    /// What edges report, each with the cluster it stands in; where several measured the same way, the median.
    pub fn measured<'a>(reports: impl IntoIterator<Item = (&'a str, &'a [RoundTrip])>) -> Self {
        let mut all: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
        for (from, trips) in reports {
            for trip in trips.iter().filter(|trip| trip.milliseconds.is_finite() && trip.milliseconds >= 0.0)
            {
                all.entry((from, &trip.cluster)).or_default().push(trip.milliseconds);
            }
        }
        let mut trips = Self::default();
        for ((from, to), mut times) in all {
            times.sort_unstable_by(f64::total_cmp);
            let Some(median) = times.get(times.len() / 2) else { continue };
            trips.ms.entry(from.to_owned()).or_default().insert(to.to_owned(), *median);
        }
        trips
    }

    /// What was known, with what is clearly different now: so that orders do not change with every measurement.
    pub fn settled(&self, now: Self) -> Self {
        let settle = |from: &str, to: &str, now: f64| match self.ms.get(from).and_then(|of| of.get(to)) {
            Some(before) if (now - before).abs() <= SETTLED_MS.max(before * SETTLED_PART) => *before,
            _ => now,
        };
        let one = |(from, of): (String, BTreeMap<String, f64>)| {
            let of = of.into_iter().map(|(to, ms)| (to.clone(), settle(&from, &to, ms))).collect();
            (from, of)
        };
        Self { ms: now.ms.into_iter().map(one).collect() }
    }

    /// The round trip between two clusters, whoever of them measured it.
    pub fn between(&self, from: &str, to: &str) -> Option<f64> {
        let of = |from: &str, to: &str| self.ms.get(from).and_then(|of| of.get(to)).copied();
        of(from, to).or_else(|| of(to, from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(latitude: f64, longitude: f64) -> Coordinates {
        Coordinates { latitude, longitude }
    }

    #[test]
    fn over_the_globe() {
        let check = |a: Coordinates, b: Coordinates, expected: f64| {
            let km = kilometres(&a, &b).unwrap();
            assert!((km - expected).abs() < expected * 0.01 + 0.1, "{km} and not {expected}");
        };
        let (new_york, london, tokyo) = (point(40.71, -74.01), point(51.51, -0.13), point(35.68, 139.69));
        check(new_york.clone(), london.clone(), 5_570.0);
        check(london.clone(), tokyo.clone(), 9_560.0);
        check(tokyo, new_york, 10_850.0);
        check(london.clone(), london.clone(), 0.0);
        check(point(0.0, 179.9), point(0.0, -179.9), 22.2);
        assert_eq!(kilometres(&london, &point(91.0, 0.0)), None);
        assert_eq!(kilometres(&london, &point(f64::NAN, 0.0)), None);
    }

    #[test]
    fn labels_from_near_to_far() {
        let place = |region: &str, zones: &[&str]| Place {
            region: (!region.is_empty()).then(|| region.to_owned()),
            zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            coordinates: None,
        };
        let here = place("europe-west", &["a", "b"]);
        for (there, expected) in [
            (place("europe-west", &["b"]), Distance::Zone),
            (place("europe-west", &["c"]), Distance::Region),
            (place("europe-north", &["b"]), Distance::Continent),
            (place("asia-east", &[]), Distance::Unknown),
            (place("", &[]), Distance::Unknown),
        ] {
            assert_eq!(unmeasured(&here, &there, LocalityBy::Measured), expected, "{there:?}");
            assert_eq!(unmeasured(&here, &there, LocalityBy::Ignore), Distance::Unknown);
        }
    }

    #[test]
    fn small_differences_settle() {
        let trips = |ms: f64| {
            let report = [RoundTrip { cluster: "b".into(), milliseconds: ms }];
            RoundTrips::measured([("a", report.as_slice())])
        };
        let known = trips(40.0);
        assert_eq!(known.settled(trips(47.0)), known);
        assert_eq!(known.settled(trips(33.0)), known);
        assert_eq!(known.settled(trips(49.0)).between("b", "a"), Some(49.0));
        assert_eq!(
            known.settled(RoundTrips::default()).between("a", "b"),
            None,
            "who measures no more knows no more"
        );
        assert_eq!(trips(f64::NAN), RoundTrips::default());
    }
}
