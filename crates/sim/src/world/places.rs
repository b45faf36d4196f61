//! Where simulated clusters can stand: a table of places, and the distance between two points on the globe.

/// A region with its zones and coordinates, in degrees; north and east are positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The region, which is also the name of a cluster that stands there alone.
    pub region: &'static str,
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
}

/// Places in the order they are taken: the first three are the playground's own.
pub const PLACES: [Place; 16] = [
    place("us-east", 38.9, -77.5),
    place("eu-west", 53.3, -6.3),
    place("asia-east", 35.7, 139.7),
    place("us-west", 45.6, -121.2),
    place("eu-central", 50.1, 8.7),
    place("asia-south", 19.1, 72.9),
    place("sa-east", -23.5, -46.6),
    place("au-southeast", -33.9, 151.2),
    place("af-south", -33.9, 18.4),
    place("us-central", 41.3, -95.9),
    place("eu-north", 59.3, 18.1),
    place("asia-southeast", 1.4, 103.8),
    place("me-central", 25.3, 55.3),
    place("ca-central", 45.5, -73.6),
    place("eu-south", 45.5, 9.2),
    place("asia-northeast", 37.6, 127.0),
];

const fn place(region: &'static str, latitude: f64, longitude: f64) -> Place {
    Place { region, latitude, longitude }
}

/// The place with that region's name.
pub fn find(region: &str) -> Option<&'static Place> {
    PLACES.iter().find(|place| place.region == region)
}

/// Along the surface between two points (latitude, longitude), in kilometres.
pub fn distance_km(from: (f64, f64), to: (f64, f64)) -> f64 {
    const EARTH_RADIUS_KM: f64 = 6371.0;
    let (from_latitude, to_latitude) = (from.0.to_radians(), to.0.to_radians());
    let half = |a: f64, b: f64| ((b - a) / 2.0).sin().powi(2);
    let longitude = half(from.1.to_radians(), to.1.to_radians());
    let chord = half(from_latitude, to_latitude) + from_latitude.cos() * to_latitude.cos() * longitude;
    2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let at = |region: &str| {
            let place = find(region).unwrap();
            (place.latitude, place.longitude)
        };
        for (from, to, want_km) in [
            ("us-east", "us-east", 0.0),
            ("us-east", "eu-west", 5460.0),
            ("us-east", "asia-east", 10900.0),
            ("eu-west", "asia-east", 9590.0),
            ("us-west", "asia-east", 7900.0),
        ] {
            let km = distance_km(at(from), at(to));
            assert!((km - want_km).abs() < 60.0, "{from} to {to}: {km}");
            assert!((km - distance_km(at(to), at(from))).abs() < 1e-6, "{from} to {to} is as far as back");
        }
    }

    #[test]
    fn regions_are_names_of_clusters() {
        for (index, place) in PLACES.iter().enumerate() {
            assert!(PLACES[..index].iter().all(|other| other.region != place.region), "{}", place.region);
            assert!(place.latitude.abs() <= 90.0 && place.longitude.abs() <= 180.0, "{}", place.region);
        }
    }
}
