//! The edges that there are, and which of them vote on a target.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use landfall_api::landfall::{PlanCluster, PlanEdge};

use super::target_cluster;
use crate::hash;

/// So many edges probe a target and vote on it: probes grow with neither edges nor routes.
pub const VOTERS_MAX: usize = 5;

/// The edges of the federation, by the cluster they stand in; made once, asked often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    seats: Vec<Seat>,
    seat_of: HashMap<String, usize>,
}

/// A cluster with edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seat {
    cluster: String,
    /// Those that have spoken lately, in order of their names, with the hashes of these.
    alive: Vec<(String, u64)>,
    /// Others can look at its services through one of its edges, whether that is silent now or not.
    linked: bool,
}

impl Seat {
    /// Those that are alive, but not these.
    fn others<'a>(&'a self, but: &BTreeSet<&str>) -> impl Iterator<Item = &'a (String, u64)> {
        self.alive.iter().filter(move |(name, _)| !but.contains(name.as_str()))
    }
}

impl Roster {
    /// The roster as the federation's plan tells it. An edge that is told twice counts once.
    pub fn new(edges: &[PlanEdge]) -> Self {
        let by_name: BTreeMap<&str, &PlanEdge> =
            edges.iter().rev().map(|edge| (edge.name.as_str(), edge)).collect();
        let mut clusters: BTreeMap<&str, Vec<&PlanEdge>> = BTreeMap::new();
        for edge in by_name.values() {
            clusters.entry(&edge.cluster).or_default().push(edge);
        }
        let mut roster = Self::default();
        for (at, (cluster, edges)) in clusters.into_iter().enumerate() {
            roster.seat_of.extend(edges.iter().map(|edge| (edge.name.clone(), at)));
            let alive = edges.iter().filter(|edge| edge.alive);
            let alive = alive.map(|edge| (edge.name.clone(), hash::texts(&[&edge.name]))).collect();
            let linked = edges.iter().any(|edge| edge.linked && edge.peer_address.is_some());
            roster.seats.push(Seat { cluster: cluster.to_owned(), alive, linked });
        }
        roster
    }

    /// The cluster of an edge.
    pub fn cluster_of(&self, edge: &str) -> Option<&str> {
        self.seats.get(*self.seat_of.get(edge)?).map(|seat| seat.cluster.as_str())
    }

    /// All edges that have spoken lately.
    pub fn alive(&self) -> impl Iterator<Item = &str> {
        self.seats.iter().flat_map(|seat| &seat.alive).map(|(name, _)| name.as_str())
    }

    /// How many clusters have an edge that has spoken lately, and how many have edges at all.
    pub fn seats(&self) -> (usize, usize) {
        (self.seats.iter().filter(|seat| !seat.alive.is_empty()).count(), self.seats.len())
    }

    /// Whether the edges of other clusters can see a service there: at its addresses, or through an edge.
    pub fn sees(&self, cluster: &PlanCluster) -> bool {
        !cluster.addresses.is_empty() || self.seat(&cluster.name).is_some_and(|seat| seat.linked)
    }

    /// The edges that vote on a target which nobody else can see: at most [`VOTERS_MAX`] of its own cluster that are alive.
    pub fn own_voters(&self, target: &str) -> Vec<&str> {
        self.own_voters_but(target, &BTreeSet::new())
    }

    fn own_voters_but(&self, target: &str, but: &BTreeSet<&str>) -> Vec<&str> {
        let seat = target_cluster(target).and_then(|cluster| self.seat(cluster));
        let target = hash::texts(&[target]);
        let mut best: Vec<Ranked<'_>> = Vec::new();
        seat.into_iter()
            .flat_map(|seat| seat.others(but))
            .for_each(|edge| keep_best(&mut best, Some(ranked(target, edge))));
        best.into_iter().map(|(_, name)| name).collect()
    }

    /// The edges that vote on a service in a cluster.
    pub fn voters_on(&self, target: &str, cluster: &PlanCluster) -> Vec<&str> {
        if self.sees(cluster) { self.voters(target) } else { self.own_voters(target) }
    }

    fn seat(&self, cluster: &str) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.cluster == cluster)
    }

    /// The edges that vote on a target: at most [`VOTERS_MAX`] that are alive, of as many clusters as there are.
    ///
    /// Every edge has a score for every target (rendezvous hashing): when one comes or goes, only its own places change
    /// hands. First stand the best edges of all clusters, by their scores; then the second best of all, and so on.
    pub fn voters(&self, target: &str) -> Vec<&str> {
        self.voters_but(target, &BTreeSet::new())
    }

    /// The edges that vote on a group's addresses: some that stand near them, in the same member, and some of all members; never the
    /// group's own.
    pub fn group_voters(&self, target: &str, own: &BTreeSet<&str>) -> Vec<&str> {
        let near = self.own_voters_but(target, own);
        let far = self.voters_but(target, own).into_iter().filter(|edge| !near.contains(edge));
        near.iter().copied().chain(far).collect()
    }

    fn voters_but(&self, target: &str, but: &BTreeSet<&str>) -> Vec<&str> {
        let target = hash::texts(&[target]);
        let mut voters = Vec::with_capacity(VOTERS_MAX);
        let mut tier: Vec<Ranked<'_>> = Vec::new();
        for seat in &self.seats {
            let best = seat.others(but).map(|edge| ranked(target, edge)).min();
            keep_best(&mut tier, best);
        }
        voters.extend(tier.iter().map(|(_, name)| *name));
        if voters.len() < VOTERS_MAX {
            self.fill(target, but, &mut voters);
        }
        voters
    }

    /// Where fewer clusters than places have edges: the second best of each, then the third best.
    fn fill<'a>(&'a self, target: u64, but: &BTreeSet<&str>, voters: &mut Vec<&'a str>) {
        let mut seats: Vec<Vec<Ranked<'a>>> = self
            .seats
            .iter()
            .map(|seat| {
                let mut all: Vec<_> = seat.others(but).map(|edge| ranked(target, edge)).collect();
                all.sort_unstable();
                all
            })
            .collect();
        seats.retain(|seat| seat.len() > 1);
        for place in 1.. {
            let mut tier = Vec::new();
            seats.iter().for_each(|seat| keep_best(&mut tier, seat.get(place).copied()));
            if tier.is_empty() {
                return;
            }
            voters.extend(tier.iter().map(|(_, name)| *name).take(VOTERS_MAX.saturating_sub(voters.len())));
            if voters.len() >= VOTERS_MAX {
                return;
            }
        }
    }
}

/// The highest score stands first; names decide what scores leave open.
type Ranked<'a> = (Reverse<u64>, &'a str);

fn ranked(target: u64, (name, hash): &(String, u64)) -> Ranked<'_> {
    (Reverse(hash::mix(target ^ hash.rotate_left(32))), name)
}

/// Puts one more into a short sorted list that keeps the best.
fn keep_best<'a>(best: &mut Vec<Ranked<'a>>, one: Option<Ranked<'a>>) {
    let Some(one) = one else { return };
    let at = best.partition_point(|other| *other < one);
    if at < VOTERS_MAX {
        best.truncate(VOTERS_MAX - 1);
        best.insert(at, one);
    }
}
