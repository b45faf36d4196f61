//! Traffic: for one service and every vantage, which clusters take its clients, in which order, and how much of them.
//!
//! ```text
//!   verdicts, endpoints, addresses, fence, cordons ─► pool    who may take traffic
//!   atlas (proximity), locality ───────────────────► order   whom each vantage would rather ask
//!   capacity, demand, overflow, weights, canary ───► share   how much each takes
//!   the plan before ───────────────────────────────► settle  what is too little to move anybody
//! ```
//!
//! - Local first, then the nearest with room, and so on: a waterfall. If everything is full, by capacity.
//! - A vantage's choices are all the clusters it may use, in order: those with a fraction, then the standbys. What is not
//!   among them must not be used.
//! - Clusters that are cordoned or drained are asked only where no other is healthy. If everything is down, the policy says
//!   whether to answer as if it were up, or nothing. The fence is left by nobody, whatever happens.
//! - Of clients that stand nowhere, and where nearness shall play no part, everybody takes a share by capacity.
//! - A vantage of a member without the service is left out where it says the same as its region's; without either, the vantage
//!   that is nowhere tells.

pub mod policies;
mod pool;
pub mod probe;
mod settle;
mod share;
pub mod summary;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet};

use landfall_api::landfall::{
    EndpointCapacity, Load, OverflowMode, PlanChoice, PlanVantage, TrafficPolicySpec, WhenAllDown,
};

use crate::proximity::{Atlas, Vantage};
use crate::reason::Reason;
use pool::{Fitness, Matcher, Tier, judge};
use share::{Asker, Given, Rooms, by_weight, waterfall};

pub use pool::{canary, fence};
pub use settle::{settled_load, unlike};

/// So many choices has a vantage, unless more of them take a part.
pub const CHOICES_MAX: usize = 16;

/// A member that has the service, and how that is.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The member.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// The majority's verdict.
    pub up: bool,
    /// Its own edges see it up, whatever others see: enough for clients inside it.
    pub up_inside: bool,
    /// Endpoints that are ready.
    pub endpoints: u32,
    /// Clients inside the member reach it.
    pub inside: bool,
    /// Clients outside reach it.
    pub outside: bool,
    /// What it can carry, in requests per second; without a limit when not given. See [`capacity`].
    pub capacity: Option<f64>,
    /// Nothing new goes there.
    pub cordoned: bool,
    /// Its traffic moves away.
    pub draining: bool,
}

/// One service, and all that is known about its traffic.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The members that have it.
    pub candidates: &'a [Candidate<'a>],
    /// What is asked for.
    pub policy: &'a TrafficPolicySpec,
    /// What clients of each member ask for, in requests per second, wherever it goes now.
    pub demand: &'a BTreeMap<String, f64>,
    /// The plan so far.
    pub previous: &'a [PlanVantage],
}

/// What was decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Who goes where.
    pub vantages: Vec<PlanVantage>,
    /// For each candidate: why nothing goes there.
    pub left_out: Vec<Option<Reason>>,
}

/// What a member's endpoints can carry, in requests per second: the first limit that is reached counts. Limits on what is
/// in flight or used are turned into rates by what is measured now; where nothing is, they do not limit.
pub fn capacity(
    policy: Option<&EndpointCapacity>,
    endpoints: u32,
    load: &Load,
    used_percent: Option<f64>,
) -> Option<f64> {
    let policy = policy?;
    let rate = load.requests_per_second.filter(|rate| rate.is_finite() && *rate > 0.0);
    let scaled = |limit: f64, now: Option<f64>| Some(rate? * limit / now.filter(|now| *now > 0.0)?);
    let rates = policy.requests_per_second.map(|rate| rate * f64::from(endpoints));
    let flights =
        policy.concurrency.and_then(|one| scaled(f64::from(one) * f64::from(endpoints), load.concurrency));
    let usage = policy.utilization_percent.and_then(|target| scaled(f64::from(target), used_percent));
    let limits = [rates, flights, usage].into_iter().flatten().filter(|limit| limit.is_finite());
    limits.map(|limit| limit.max(0.0)).min_by(f64::total_cmp)
}

/// Decides where the clients of a service go.
pub fn plan(question: &Question<'_>, atlas: &Atlas) -> Answer {
    let fence = question.policy.fence.as_ref().map(Matcher::new);
    let fitness: Vec<Fitness> = question.candidates.iter().map(|one| judge(one, fence.as_ref())).collect();
    let tiers: Vec<Option<Tier>> = fitness
        .iter()
        .map(|fitness| match fitness {
            Fitness::Fit(tier, _) => Some(*tier),
            Fitness::Unfit(_) => None,
        })
        .collect();
    let table = Table::new(question, atlas, &tiers);
    let given = table.share();
    let mut used = vec![false; question.candidates.len()];
    let mut vantages = Vec::with_capacity(given.len());
    for (at, (vantage, given)) in atlas.vantages().zip(given).enumerate() {
        let choices = table.choices(at, vantage, &given, &mut used);
        vantages.push(PlanVantage { choices, ..key(vantage) });
    }
    let left_out = fitness.into_iter().zip(used).map(|(fitness, used)| match fitness {
        _ if used => None,
        Fitness::Fit(_, Some(reason)) | Fitness::Unfit(reason) => Some(reason),
        Fitness::Fit(_, None) => Some(Reason::new("TooFar", "enough others are nearer to everyone")),
    });
    Answer { left_out: left_out.collect(), vantages: without_repetition(vantages, question, atlas) }
}

/// One service's part of the atlas: whom each vantage may ask.
struct Table<'a> {
    question: &'a Question<'a>,
    atlas: &'a Atlas,
    /// What each vantage may ask, from near to far, and how well that is.
    orders: Vec<(Vec<u32>, Tier)>,
    rooms: Rooms,
    canary: Vec<bool>,
    weights: Vec<Option<f64>>,
    previous: HashMap<(Option<&'a str>, Option<&'a str>), &'a PlanVantage>,
    index: HashMap<&'a str, u32>,
}

impl<'a> Table<'a> {
    fn new(question: &'a Question<'a>, atlas: &'a Atlas, tiers: &[Option<Tier>]) -> Self {
        let candidates = question.candidates;
        let policy = question.policy;
        let picked = atlas.pick(candidates.iter().map(|one| one.name));
        let prefer = policy.locality.as_ref().map(|locality| locality.prefer.as_slice()).unwrap_or_default();
        let preferred = |pick: &u32| {
            let name = candidates.get(*pick as usize).map_or("", |one| one.name);
            prefer.iter().position(|one| one == name).unwrap_or(usize::MAX)
        };
        let orders = atlas.vantages().enumerate().map(|(at, vantage)| {
            let fit = |pick: &u32| {
                let (candidate, tier) = (candidates.get(*pick as usize)?, (*tiers.get(*pick as usize)?)?);
                let here =
                    matches!(vantage, Vantage::Member(name) if name == candidate.name) && candidate.inside;
                let tier =
                    if here && candidate.up_inside && tier == Tier::Down { Tier::Healthy } else { tier };
                (candidate.outside || here).then_some(tier)
            };
            let mut order = atlas.nearest(at, &picked);
            let tier = order.iter().filter_map(fit).min().unwrap_or(Tier::Empty);
            let closed = tier >= Tier::Down && policy.when_all_down == WhenAllDown::Closed;
            order.retain(|pick| !closed && fit(pick) == Some(tier));
            // Nobody is moved who is not named, so nearness goes on counting among the others.
            if !prefer.is_empty() {
                order.sort_by_key(preferred);
            }
            (order, tier)
        });
        let canary = policy.canary.as_ref().map(|canary| Matcher::new(&canary.clusters));
        let weights: Vec<(Matcher<'_>, i32)> =
            policy.weights.iter().map(|one| (Matcher::new(&one.clusters), one.weight)).collect();
        let weight = |one: &Candidate<'_>| {
            let named = weights.iter().find(|(matcher, _)| matcher.matches(one.name, one.labels));
            named.map(|(_, weight)| f64::from((*weight).max(0)))
        };
        Self {
            question,
            atlas,
            orders: orders.collect(),
            rooms: rooms(question),
            canary: candidates
                .iter()
                .map(|one| canary.as_ref().is_some_and(|canary| canary.matches(one.name, one.labels)))
                .collect(),
            weights: candidates.iter().map(weight).collect(),
            previous: question
                .previous
                .iter()
                .map(|one| ((one.cluster.as_deref(), one.region.as_deref()), one))
                .collect(),
            index: candidates.iter().zip(0..).map(|(one, at)| (one.name, at)).collect(),
        }
    }

    /// What a vantage was told before.
    fn previous(&self, vantage: &Vantage) -> Option<&'a PlanVantage> {
        let key = match vantage {
            Vantage::Member(name) => (Some(name.as_str()), None),
            Vantage::Region(name) => (None, Some(name.as_str())),
            Vantage::Nowhere => (None, None),
        };
        // Who was told nothing of its own was told what its region was.
        let region = || self.previous.get(&(None, Some(self.atlas.region(key.0?)?)));
        self.previous.get(&key).or_else(region).copied()
    }

    /// What every vantage is given.
    fn share(&self) -> Vec<Given> {
        let Some(canary) = &self.question.policy.canary else { return self.share_of(1.0, |_| true) };
        let part = (canary.percent / 100.0).clamp(0.0, 1.0);
        let is_canary = |pick: u32| self.canary.get(pick as usize).copied().unwrap_or(false);
        let few = self.share_of(part, is_canary);
        let many = self.share_of(1.0 - part, |pick| !is_canary(pick));
        let merge = |((order, _), (few, many)): (&(Vec<u32>, Tier), (Given, Given))| {
            let whole = |one: &Given| one.fractions.iter().sum::<f64>() > 0.5;
            let part = match (whole(&few), whole(&many)) {
                (true, true) => part,
                (true, false) => 1.0,
                (false, _) => 0.0,
            };
            let (mut few_each, mut many_each) = (few.fractions.iter(), many.fractions.iter());
            let one = |pick: &u32| match is_canary(*pick) {
                true => few_each.next().copied().unwrap_or(0.0) * part,
                false => many_each.next().copied().unwrap_or(0.0) * (1.0 - part),
            };
            Given { fractions: order.iter().map(one).collect(), full: few.full || many.full }
        };
        self.orders.iter().zip(few.into_iter().zip(many)).map(merge).collect()
    }

    /// What every vantage is given of a part of the demand, by some of the members.
    fn share_of(&self, part: f64, of: impl Fn(u32) -> bool) -> Vec<Given> {
        let policy = self.question.policy;
        let mode = policy.overflow.as_ref().map_or(OverflowMode::NextNearest, |overflow| overflow.mode);
        let askers: Vec<Asker> = self
            .atlas
            .vantages()
            .zip(&self.orders)
            .map(|(vantage, (order, _))| {
                let order: Vec<u32> = order.iter().copied().filter(|pick| of(*pick)).collect();
                let most =
                    self.previous(vantage).and_then(|old| old.choices.iter().find(|one| one.fraction > 0.5));
                let before = most.and_then(|one| self.index.get(one.cluster.as_str())).copied();
                Asker { demand: self.demand(vantage) * part, order, before }
            })
            .collect();
        let amount: f64 =
            askers.iter().filter(|asker| !asker.order.is_empty()).map(|asker| asker.demand).sum();
        let mut rooms = self.rooms.clone();
        if self.atlas.ignored() || !policy.weights.is_empty() {
            return askers.iter().map(|asker| self.weighted(&asker.order, amount, &rooms)).collect();
        }
        let mut given = waterfall(&askers, &mut rooms, mode);
        // Who stands nowhere has no nearest: by what is left of the room, where it has an end.
        if let (Some(asker), Some(last)) = (askers.last(), given.last_mut()) {
            let left = |pick: &u32| rooms.left.get(*pick as usize).copied().unwrap_or(0.0);
            let bulk = |pick: &u32| rooms.bulk.get(*pick as usize).copied().unwrap_or(0.0);
            let ended = asker.order.iter().all(|pick| left(pick).is_finite());
            let roomy = asker.order.iter().any(|pick| left(pick) > 0.0);
            let weights: Vec<f64> =
                asker.order.iter().map(|pick| if ended && roomy { left(pick) } else { bulk(pick) }).collect();
            *last = by_weight(&asker.order, &weights, 0.0, &rooms);
            last.full = !roomy && !asker.order.is_empty();
        }
        given
    }

    /// By the policy's weights; where none of those that may be asked has one, or where there are none, by capacity.
    fn weighted(&self, order: &[u32], amount: f64, rooms: &Rooms) -> Given {
        let weight = |pick: &u32| self.weights.get(*pick as usize).copied().flatten().unwrap_or(0.0);
        let mut weights: Vec<f64> = order.iter().map(weight).collect();
        if weights.iter().all(|weight| *weight <= 0.0) {
            weights =
                order.iter().map(|pick| rooms.bulk.get(*pick as usize).copied().unwrap_or(0.0)).collect();
        }
        by_weight(order, &weights, amount, rooms)
    }

    fn demand(&self, vantage: &Vantage) -> f64 {
        match vantage {
            Vantage::Member(name) => {
                let demand = self.question.demand.get(name).copied().unwrap_or(0.0);
                if demand.is_finite() { demand.max(0.0) } else { 0.0 }
            }
            Vantage::Region(_) | Vantage::Nowhere => 0.0,
        }
    }

    /// One vantage's choices, with reasons: those that take a part first.
    fn choices(&self, at: usize, vantage: &Vantage, given: &Given, used: &mut [bool]) -> Vec<PlanChoice> {
        let Some((order, tier)) = self.orders.get(at) else { return Vec::new() };
        let parts = given.fractions.iter().rposition(|fraction| *fraction > 0.0).map_or(0, |last| last + 1);
        let name = |pick: &u32| self.question.candidates.get(*pick as usize).map_or("", |one| one.name);
        let names: Vec<&str> = order.iter().take(parts.max(CHOICES_MAX)).map(name).collect();
        let previous = self.previous(vantage);
        let exact = self.question.policy.canary.is_some() || !self.question.policy.weights.is_empty();
        let (fractions, stayed) =
            settle::settle(&names, given.fractions.get(..names.len()).unwrap_or_default(), previous, exact);
        let scene = words::Scene { table: self, at, vantage, tier: *tier, full: given.full, names: &names };
        let (mut taking, mut standing) = (Vec::new(), Vec::new());
        for ((place, pick), (name, fraction)) in order.iter().enumerate().zip(names.iter().zip(&fractions)) {
            let reason = scene.reason(place, *pick, *fraction);
            let reason = words::settled(&reason, previous.filter(|_| stayed), name);
            let choice = PlanChoice { cluster: (*name).to_owned(), fraction: *fraction, reason };
            if *fraction > 0.0 {
                taking.push(choice)
            } else {
                standing.push(choice)
            }
            if let Some(used) = used.get_mut(*pick as usize) {
                *used = true;
            }
        }
        taking.append(&mut standing);
        taking
    }
}

fn rooms(question: &Question<'_>) -> Rooms {
    let threshold = question.policy.overflow.as_ref().and_then(|overflow| overflow.threshold_percent);
    let threshold = f64::from(threshold.unwrap_or(100).clamp(1, 100)) / 100.0;
    let limited = question.candidates.iter().all(|one| one.capacity.is_some());
    let sound = |capacity: f64| if capacity.is_finite() { capacity.max(0.0) } else { 0.0 };
    Rooms {
        left: question
            .candidates
            .iter()
            .map(|one| one.capacity.map_or(f64::INFINITY, |capacity| sound(capacity) * threshold))
            .collect(),
        // Capacities and endpoints cannot be compared.
        bulk: question
            .candidates
            .iter()
            .map(|one| if limited { sound(one.capacity.unwrap_or(0.0)) } else { f64::from(one.endpoints) })
            .collect(),
    }
}

/// A vantage without choices.
fn key(vantage: &Vantage) -> PlanVantage {
    let (cluster, region) = match vantage {
        Vantage::Member(name) => (Some(name.clone()), None),
        Vantage::Region(name) => (None, Some(name.clone())),
        Vantage::Nowhere => (None, None),
    };
    PlanVantage { cluster, region, choices: Vec::new() }
}

/// Leaves out the vantages of members without the service that say what their regions say.
fn without_repetition(
    vantages: Vec<PlanVantage>,
    question: &Question<'_>,
    atlas: &Atlas,
) -> Vec<PlanVantage> {
    let serving: HashSet<&str> = question.candidates.iter().map(|one| one.name).collect();
    let regions: BTreeMap<String, Vec<(String, u64)>> =
        vantages.iter().filter_map(|one| Some((one.region.clone()?, outline(one)))).collect();
    let repeats = |one: &PlanVantage| {
        let Some(cluster) = one.cluster.as_deref().filter(|name| !serving.contains(name)) else {
            return false;
        };
        atlas.region(cluster).and_then(|region| regions.get(region)).is_some_and(|told| *told == outline(one))
    };
    let repeated: Vec<bool> = vantages.iter().map(repeats).collect();
    vantages.into_iter().zip(repeated).filter(|(_, repeated)| !repeated).map(|(one, _)| one).collect()
}

fn outline(vantage: &PlanVantage) -> Vec<(String, u64)> {
    vantage.choices.iter().map(|choice| (choice.cluster.clone(), choice.fraction.to_bits())).collect()
}
