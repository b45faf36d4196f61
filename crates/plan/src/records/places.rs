//! Where members and clients stand: members, regions and zones by number, and the slots of vantages.

use landfall_api::landfall::{Coordinates, PlanMember, PlanPrefix};

/// Where a client stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In or near this member.
    Member(u16),
    /// In this region.
    Region(u16),
    /// Nothing is known.
    #[default]
    Unknown,
}

/// A member.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its region, by number.
    pub region: Option<u16>,
    /// Its zones, by number.
    pub zones: Vec<u16>,
    /// Where it stands on the globe.
    pub coordinates: Option<Coordinates>,
}

/// A zone of a region; both are needed for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its name, in lower case.
    pub name: String,
    /// Its region, by number.
    pub region: u16,
}

/// Members, regions and zones of a federation, each by number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places {
    /// Members, sorted by name.
    pub members: Vec<Member>,
    /// Regions in lower case, sorted.
    pub regions: Vec<String>,
    /// Zones, sorted by name, then region.
    pub zones: Vec<Zone>,
    /// The member whose edge answers.
    pub own: Option<u16>,
}

impl Places {
    /// The places of a federation's members. What cannot be a label of a host name has no number.
    pub fn new(members: &[PlanMember], own: Option<&str>) -> Self {
        let mut members: Vec<&PlanMember> = members.iter().take(usize::from(u16::MAX) / 2).collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members.dedup_by(|a, b| a.name == b.name);
        let label = |name: &String| is_label(name).then(|| name.to_ascii_lowercase());
        let region_of = |member: &PlanMember| member.region.as_ref().and_then(label);
        let mut regions: Vec<String> = members.iter().filter_map(|member| region_of(member)).collect();
        regions.sort();
        regions.dedup();
        let number =
            |region: &String| regions.binary_search(region).ok().and_then(|at| u16::try_from(at).ok());
        let zones_of = |member: &PlanMember| -> Vec<Zone> {
            let Some(region) = region_of(member).as_ref().and_then(number) else { return Vec::new() };
            member.zones.iter().filter_map(label).map(|name| Zone { name, region }).collect()
        };
        let mut zones: Vec<Zone> = members.iter().flat_map(|member| zones_of(member)).collect();
        zones.sort_by(|a, b| (&a.name, a.region).cmp(&(&b.name, b.region)));
        zones.dedup();
        zones.truncate(usize::from(u16::MAX));
        let zone_number =
            |zone: &Zone| zones.iter().position(|z| z == zone).and_then(|at| u16::try_from(at).ok());
        let members: Vec<Member> = members
            .iter()
            .map(|member| Member {
                name: member.name.clone(),
                region: region_of(member).as_ref().and_then(number),
                zones: zones_of(member).iter().filter_map(zone_number).collect(),
                coordinates: member.coordinates.clone(),
            })
            .collect();
        let mut places = Self { members, regions, zones, own: None };
        places.own = own.and_then(|own| places.member(own));
        places
    }

    /// The number of a member.
    pub fn member(&self, name: &str) -> Option<u16> {
        let at = self.members.binary_search_by(|member| member.name.as_str().cmp(name)).ok()?;
        u16::try_from(at).ok()
    }

    /// The number of a region, given in lower case.
    pub fn region(&self, name: &[u8]) -> Option<u16> {
        let at = self.regions.binary_search_by(|region| region.as_bytes().cmp(name)).ok()?;
        u16::try_from(at).ok()
    }

    /// The number of a zone, given in lower case.
    pub fn zone(&self, name: &[u8], region: u16) -> Option<u16> {
        let at = self.zones.binary_search_by(|zone| (zone.name.as_bytes(), zone.region).cmp(&(name, region)));
        u16::try_from(at.ok()?).ok()
    }

    /// How many slots there are: one for each member, each region, and one for clients of whom nothing is known.
    pub fn slots(&self) -> usize {
        self.members.len() + self.regions.len() + 1
    }

    /// The slot of a place. Where nothing is known, the edge's own member stands for the client.
    pub fn slot(&self, place: Place) -> usize {
        match place {
            Place::Member(member) => usize::from(member),
            Place::Region(region) => self.members.len() + usize::from(region),
            Place::Unknown => self.own.map_or_else(|| self.slots() - 1, usize::from),
        }
    }

    /// The place that has this slot.
    pub fn of_slot(&self, slot: usize) -> Place {
        let region = || slot.checked_sub(self.members.len()).filter(|at| *at < self.regions.len());
        match u16::try_from(slot) {
            Ok(member) if slot < self.members.len() => Place::Member(member),
            _ => region().and_then(|at| u16::try_from(at).ok()).map_or(Place::Unknown, Place::Region),
        }
    }

    /// Where the clients of a prefix stand: what is said first counts, from the member to the point on the globe.
    pub fn of_prefix(&self, prefix: &PlanPrefix) -> Place {
        let member = prefix.cluster.as_deref().and_then(|name| self.member(name)).map(Place::Member);
        let region = || {
            let name = prefix.region.as_ref()?.to_ascii_lowercase();
            self.region(name.as_bytes()).map(Place::Region)
        };
        let point = || self.nearest(prefix.coordinates.as_ref()?).map(Place::Member);
        member.or_else(region).or_else(point).unwrap_or_default()
    }

    /// The member nearest to a point on the globe.
    pub fn nearest(&self, point: &Coordinates) -> Option<u16> {
        let distances =
            self.members.iter().zip(0_u16..).filter_map(|(member, number)| {
                Some((distance_km(member.coordinates.as_ref()?, point), number))
            });
        distances.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, number)| number)
    }

    /// A place in words.
    pub fn say(&self, place: Place) -> String {
        let member = |number: u16| self.members.get(usize::from(number)).map_or("?", |m| m.name.as_str());
        match place {
            Place::Member(number) => format!("cluster {}", member(number)),
            Place::Region(number) => {
                format!("region {}", self.regions.get(usize::from(number)).map_or("?", String::as_str))
            }
            Place::Unknown => "nothing known".to_owned(),
        }
    }
}

/// Great-circle distance.
pub fn distance_km(a: &Coordinates, b: &Coordinates) -> f64 {
    const EARTH_RADIUS_KM: f64 = 6371.0;
    let [lat_a, lon_a, lat_b, lon_b] =
        [a.latitude, a.longitude, b.latitude, b.longitude].map(f64::to_radians);
    let [dlat, dlon] = [(lat_b - lat_a) / 2.0, (lon_b - lon_a) / 2.0].map(f64::sin);
    let h = dlat * dlat + lat_a.cos() * lat_b.cos() * dlon * dlon;
    2.0 * EARTH_RADIUS_KM * h.clamp(0.0, 1.0).sqrt().asin()
}

/// Whether a text can be one label of a host name, as services and their surroundings are named.
pub fn is_label(text: &str) -> bool {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.len() <= 63 && text.bytes().all(fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, region: &str, zones: &[&str], at: (f64, f64)) -> PlanMember {
        PlanMember {
            name: name.into(),
            region: Some(region.into()),
            zones: zones.iter().map(|zone| (*zone).into()).collect(),
            coordinates: Some(Coordinates { latitude: at.0, longitude: at.1 }),
        }
    }

    fn three() -> Places {
        Places::new(
            &[
                member("tokyo", "asia", &["a", "b"], (35.7, 139.7)),
                member("paris", "Europe", &["a"], (48.9, 2.4)),
                member("berlin", "europe", &["b.c"], (52.5, 13.4)),
            ],
            Some("paris"),
        )
    }

    #[test]
    fn regions_and_zones_are_labels_and_have_numbers() {
        let places = three();
        assert_eq!(places.regions, ["asia", "europe"]);
        let zones: Vec<(&str, u16)> = places.zones.iter().map(|z| (z.name.as_str(), z.region)).collect();
        assert_eq!(zones, [("a", 0), ("a", 1), ("b", 0)], "b.c is no label");
        assert_eq!(places.zone(b"a", 1), Some(1));
        assert_eq!(places.members[1].zones, [1]);
        assert_eq!(places.own, Some(1));
    }

    #[test]
    fn every_slot_is_the_slot_of_its_place() {
        let places = three();
        for slot in 0..places.slots() - 1 {
            assert_eq!(places.slot(places.of_slot(slot)), slot);
        }
        assert_eq!(places.slot(Place::Unknown), 1, "our own member stands for the unknown");
        let alone = Places::new(&[], None);
        assert_eq!(alone.slot(Place::Unknown), 0);
        assert_eq!(alone.of_slot(0), Place::Unknown);
    }

    #[test]
    fn the_nearest_member_by_coordinates() {
        let places = three();
        for ((latitude, longitude), want) in
            [((51.5, -0.1), "paris"), ((52.2, 21.0), "berlin"), ((37.8, -122.4), "tokyo")]
        {
            let nearest = places.nearest(&Coordinates { latitude, longitude }).unwrap();
            assert_eq!(places.members[usize::from(nearest)].name, want);
        }
        let km = distance_km(
            places.members[1].coordinates.as_ref().unwrap(),
            places.members[2].coordinates.as_ref().unwrap(),
        );
        assert!((9_600.0..9_800.0).contains(&km), "{km}");
    }
}
