//! Proximity: which clusters are near to a vantage, in order, by the best that is known.
//!
//! Measured round trips between edges come first, then the way over the globe, then shared zones, regions, and the first
//! word of the regions' names. All are turned into milliseconds, so that what was measured can be compared with what was
//! not. Ties are broken by a hash that differs from vantage to vantage: not everybody goes to the first by name.
//!
//! An [`Atlas`] is drawn once for all services, when members move or round trips change; a service only picks from it.

mod distance;
mod regions;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use landfall_api::landfall::{Coordinates, LocalityBy, PlanMember, PlanPrefix};

use crate::hash;
pub use distance::{Distance, RoundTrips};
use distance::{Place, unmeasured};
pub use regions::{Regions, region_names, regions};

/// Where clients stand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vantage {
    /// Inside this member, or with an edge of it.
    Member(String),
    /// In this region.
    Region(String),
    /// Nobody knows where.
    Nowhere,
}

/// All members as they are seen from all vantages.
#[derive(Clone, Debug)]
pub struct Atlas {
    members: Vec<(String, Place)>,
    index: HashMap<String, usize>,
    views: Vec<View>,
    trips: RoundTrips,
    by: LocalityBy,
}

/// The members as one vantage sees them.
#[derive(Clone, Debug)]
struct View {
    vantage: Vantage,
    place: Place,
    /// Members whose measurements speak for it.
    from: Vec<usize>,
    /// Members by nearness.
    order: Vec<u32>,
    /// The place of each member in that order.
    rank: Vec<u32>,
}

impl Atlas {
    /// Draws the atlas. Vantages are all members, all regions of members and prefixes, and the one that nobody knows.
    pub fn new(members: &[PlanMember], prefixes: &[PlanPrefix], trips: RoundTrips, by: LocalityBy) -> Self {
        let unique: BTreeMap<&str, &PlanMember> =
            members.iter().map(|member| (member.name.as_str(), member)).collect();
        let members: Vec<(String, Place)> =
            unique.into_values().map(|member| (member.name.clone(), Place::of(member))).collect();
        let index = members.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        let mut atlas = Self { members, index, views: Vec::new(), trips, by };
        let inside = atlas.members.iter().enumerate();
        let mut views: Vec<View> = inside
            .map(|(at, (name, place))| View::new(Vantage::Member(name.clone()), place.clone(), vec![at]))
            .collect();
        views.extend(atlas.regions(prefixes));
        views.push(View::new(Vantage::Nowhere, Place::default(), Vec::new()));
        for view in &mut views {
            view.order = atlas.sorted(view);
            view.rank = vec![0; view.order.len()];
            for (place, at) in view.order.iter().zip(0_u32..) {
                if let Some(rank) = view.rank.get_mut(*place as usize) {
                    *rank = at;
                }
            }
        }
        atlas.views = views;
        atlas
    }

    /// All vantages: members, then regions, each by name, then nowhere.
    pub fn vantages(&self) -> impl ExactSizeIterator<Item = &Vantage> {
        self.views.iter().map(|view| &view.vantage)
    }

    /// A member's place in the atlas.
    pub(crate) fn member(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// A member's region.
    pub(crate) fn region(&self, name: &str) -> Option<&str> {
        self.members.get(self.member(name)?)?.1.region.as_deref()
    }

    /// Whether nearness plays no part at all.
    pub(crate) fn ignored(&self) -> bool {
        self.by == LocalityBy::Ignore
    }

    /// Picks some members by name; those that the atlas does not know are left out.
    pub(crate) fn pick<'a>(&self, names: impl Iterator<Item = &'a str>) -> Picked {
        let known = names.zip(0..).filter_map(|(name, pick)| Some((self.member(name)?, pick)));
        let list: Vec<(usize, u32)> = known.collect();
        let mut table = vec![None; self.members.len()];
        for (at, pick) in &list {
            if let Some(place) = table.get_mut(*at) {
                *place = Some(*pick);
            }
        }
        Picked { list, table }
    }

    /// What was picked, from near to far, by the numbers in which it was picked.
    pub(crate) fn nearest(&self, vantage: usize, picked: &Picked) -> Vec<u32> {
        let Some(view) = self.views.get(vantage) else { return Vec::new() };
        // Few are sorted by their ranks; many are found by going through the whole order.
        if picked.list.len() * 8 < picked.table.len() {
            let rank = |(at, pick): &(usize, u32)| Some((*view.rank.get(*at)?, *pick));
            let mut few: Vec<(u32, u32)> = picked.list.iter().filter_map(rank).collect();
            few.sort_unstable();
            return few.into_iter().map(|(_, pick)| pick).collect();
        }
        view.order.iter().filter_map(|at| *picked.table.get(*at as usize)?).collect()
    }

    /// The members from near to far, with their distances.
    pub fn order(&self, vantage: &Vantage) -> Vec<(&str, Distance)> {
        let Some(view) = self.views.iter().find(|view| view.vantage == *vantage) else { return Vec::new() };
        let each = |at: &u32| {
            let (name, _) = self.members.get(*at as usize)?;
            Some((name.as_str(), self.distance(view, *at as usize)))
        };
        view.order.iter().filter_map(each).collect()
    }

    /// How far a member is from a vantage.
    pub(crate) fn distance_to(&self, vantage: usize, member: &str) -> Distance {
        match (self.views.get(vantage), self.member(member)) {
            (Some(view), Some(at)) => self.distance(view, at),
            (None, _) | (_, None) => Distance::Unknown,
        }
    }

    fn regions(&self, prefixes: &[PlanPrefix]) -> Vec<View> {
        let of_members = self.members.iter().filter_map(|(_, place)| place.region.as_ref());
        let of_prefixes = prefixes.iter().filter_map(|prefix| prefix.region.as_ref());
        let names: BTreeSet<&String> = of_members.chain(of_prefixes).collect();
        names.into_iter().map(|name| self.region_view(name, prefixes)).collect()
    }

    fn region_view(&self, name: &str, prefixes: &[PlanPrefix]) -> View {
        let inside = |place: &Place| place.region.as_deref() == Some(name);
        let from: Vec<usize> =
            (0..).zip(&self.members).filter(|(_, (_, p))| inside(p)).map(|(at, _)| at).collect();
        let points = from.iter().filter_map(|at| self.members.get(*at)?.1.coordinates.as_ref());
        let told = prefixes.iter().filter(|prefix| prefix.region.as_deref() == Some(name));
        let coordinates =
            told.filter_map(|prefix| prefix.coordinates.clone()).next().or_else(|| middle(points));
        let place = Place { region: Some(name.to_owned()), zones: Vec::new(), coordinates };
        View::new(Vantage::Region(name.to_owned()), place, from)
    }

    fn sorted(&self, view: &View) -> Vec<u32> {
        let salt = match &view.vantage {
            Vantage::Member(name) => hash::texts(&["member", name]),
            Vantage::Region(name) => hash::texts(&["region", name]),
            Vantage::Nowhere => 0,
        };
        let region = matches!(view.vantage, Vantage::Region(_));
        let mut order: Vec<(f64, u64, u32)> = (0..)
            .zip(&self.members)
            .map(|(at, (name, _))| {
                let distance = self.distance(view, at as usize);
                // Who stands in a region is never led out of it by what its members measured to their neighbours.
                let inside = region && matches!(distance, Distance::Region);
                let far = if inside { -1.0 } else { distance.milliseconds() };
                (far, hash::mix(salt ^ hash::texts(&[name])), at)
            })
            .collect();
        order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        order.into_iter().map(|(.., at)| at).collect()
    }

    fn distance(&self, view: &View, at: usize) -> Distance {
        let Some((name, place)) = self.members.get(at) else { return Distance::Unknown };
        match &view.vantage {
            _ if self.by == LocalityBy::Ignore => return Distance::Unknown,
            Vantage::Member(own) if own == name => return Distance::Here,
            Vantage::Region(own) if place.region.as_ref() == Some(own) => return Distance::Region,
            Vantage::Member(_) | Vantage::Region(_) => {}
            Vantage::Nowhere => return Distance::Unknown,
        }
        let trip = |from: &usize| self.trips.between(&self.members.get(*from)?.0, name);
        let measured = view.from.iter().filter_map(trip).min_by(f64::total_cmp);
        match measured.filter(|_| self.by == LocalityBy::Measured) {
            Some(ms) => Distance::Measured(ms),
            None => unmeasured(&view.place, place, self.by),
        }
    }
}

/// Some of the members.
pub(crate) struct Picked {
    /// A member's place in the atlas, and the number of the pick.
    list: Vec<(usize, u32)>,
    /// The same by place.
    table: Vec<Option<u32>>,
}

impl View {
    fn new(vantage: Vantage, place: Place, from: Vec<usize>) -> Self {
        Self { vantage, place, from, order: Vec::new(), rank: Vec::new() }
    }
}

/// The middle of points on the globe; none where there are none, or where they lie all around it.
fn middle<'a>(points: impl Iterator<Item = &'a Coordinates>) -> Option<Coordinates> {
    let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
    for point in points {
        let (latitude, longitude) = (point.latitude.to_radians(), point.longitude.to_radians());
        x += latitude.cos() * longitude.cos();
        y += latitude.cos() * longitude.sin();
        z += latitude.sin();
    }
    let flat: f64 = f64::hypot(x, y);
    let length = f64::hypot(flat, z);
    if length.is_nan() || length < 1e-9 {
        return None;
    }
    Some(Coordinates { latitude: z.atan2(flat).to_degrees(), longitude: y.atan2(x).to_degrees() })
}
