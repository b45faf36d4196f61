//! Where members and clients stand, and the atlases drawn from that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_api::landfall::{Cluster, LocalityBy, PlanMember, PlanPrefix};
use landfall_plan::membership::State;
use landfall_plan::proximity::{Atlas, RoundTrips};
use landfall_plan::quorum::Witness;
use parking_lot::Mutex;

use crate::member::Member;

/// A member, as far as traffic is concerned.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    /// Where it stands.
    pub place: PlanMember,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Nothing new goes there.
    pub cordoned: bool,
    /// Its traffic moves away.
    pub draining: bool,
    /// What our own probe of its API says.
    pub witness: Witness,
}

impl Facts {
    /// What is known of a member.
    pub(super) fn of(member: &Member) -> Self {
        let cluster: Arc<Cluster> = member.cluster.read().clone();
        let status = cluster.status.clone().unwrap_or_default();
        let spec = &cluster.spec;
        let place = PlanMember {
            name: member.name.clone(),
            region: spec.region.clone().or(status.region),
            zones: if spec.zones.is_empty() { status.zones } else { spec.zones.clone() },
            coordinates: spec.coordinates.clone(),
        };
        let witness = match member.health.lock().state {
            State::Unknown => Witness::Silent,
            State::Ready | State::NotReady => Witness::Reached,
            State::Offline => Witness::Offline,
        };
        let labels = cluster.metadata.labels.clone().unwrap_or_default();
        Self { place, labels, cordoned: spec.cordoned, draining: spec.draining, witness }
    }
}

/// All that is known of places.
#[derive(Debug, Default)]
pub(super) struct Geography {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    members: Arc<Vec<Facts>>,
    prefixes: Vec<PlanPrefix>,
    trips: RoundTrips,
    /// One for each way to find distances, drawn when it is first asked for.
    atlases: [Option<Arc<Atlas>>; 4],
}

impl Geography {
    /// Takes over what is known of members, in order of their names; whether it is different.
    pub(super) fn set_members(&self, members: Vec<Facts>) -> bool {
        let mut inner = self.inner.lock();
        if *inner.members == members {
            return false;
        }
        if !inner.members.iter().map(|facts| &facts.place).eq(members.iter().map(|facts| &facts.place)) {
            inner.atlases = Default::default();
        }
        inner.members = Arc::new(members);
        true
    }

    /// Takes over where clients stand; whether it is different.
    pub(super) fn set_prefixes(&self, prefixes: Vec<PlanPrefix>) -> bool {
        let mut inner = self.inner.lock();
        let news = inner.prefixes != prefixes;
        if news {
            inner.prefixes = prefixes;
            inner.atlases = Default::default();
        }
        news
    }

    /// Takes over what was measured, where it is clearly different; whether anything is.
    pub(super) fn set_trips(&self, measured: RoundTrips) -> bool {
        let mut inner = self.inner.lock();
        let settled = inner.trips.settled(measured);
        let news = inner.trips != settled;
        if news {
            inner.trips = settled;
            inner.atlases = Default::default();
        }
        news
    }

    /// The members.
    pub(super) fn members(&self) -> Arc<Vec<Facts>> {
        self.inner.lock().members.clone()
    }

    /// Their names.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.inner.lock().members.iter().map(|facts| facts.place.name.clone()).collect()
    }

    /// Where clients stand.
    pub(super) fn prefixes(&self) -> Vec<PlanPrefix> {
        self.inner.lock().prefixes.clone()
    }

    /// The atlas for one way to find distances.
    pub(super) fn atlas(&self, by: LocalityBy) -> Arc<Atlas> {
        let inner = &mut *self.inner.lock();
        let at = match by {
            LocalityBy::Measured => 0,
            LocalityBy::Coordinates => 1,
            LocalityBy::Topology => 2,
            LocalityBy::Ignore => 3,
        };
        let (members, prefixes, trips) = (&inner.members, &inner.prefixes, &inner.trips);
        let draw = || {
            let places: Vec<PlanMember> = members.iter().map(|facts| facts.place.clone()).collect();
            Arc::new(Atlas::new(&places, prefixes, trips.clone(), by))
        };
        inner.atlases[at].get_or_insert_with(draw).clone()
    }
}
