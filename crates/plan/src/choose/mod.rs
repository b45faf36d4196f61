//! Choose: where one request of a service goes, of the clusters that its plan gives the edge's own member.
//!
//! ```text
//!   TrafficPlan, own member ─► Chooser          once per change of the plan
//!   Ask (luck, headers, cookie, tried) ─► pick  for every request: no allocation, no lock
//! ```
//!
//! - A request with a canary's headers goes to the canary, one that knows its cluster from before goes there again, and the
//!   others go by the plan's fractions: `luck` says which.
//! - A cluster that was tried, or that the edge itself sees failing, is passed over: the next in the plan's order takes its
//!   requests, which is the next nearest; where nearness plays no part, all others take a share of them.
//! - What is not among the plan's choices is never chosen, nor what lies outside the fence, whatever happens.
//!
//! Luck is an argument: a random number for each request, or [`luck_of`] a client's address, which keeps the client where it
//! is as long as the fractions stay.

#[cfg(test)]
mod tests;
mod why;

use landfall_api::landfall::{AffinityMode, PlanChoice, PlanVantage, TrafficPlanSpec};

use crate::hash;
pub use why::Why;

/// A cookie's name, where the policy does not give one.
pub const COOKIE_NAME: &str = "landfall-cluster";

/// The clusters that requests of one service may go to from one member, ready to be chosen from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chooser {
    /// In the plan's order: those that take a part, then those that stand by.
    choices: Vec<Choice>,
    /// So many take a part.
    taking: usize,
    /// Headers that lead to the canary: names in lower case, and values.
    headers: Vec<(String, String)>,
    affinity: Affinity,
}

/// A cluster that may be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The cluster.
    pub cluster: String,
    /// Its place among the plan's clusters.
    pub place: usize,
    /// What a cookie calls it: the same at every edge and in every plan.
    pub token: String,
    /// Its share of the requests, 0 to 1.
    pub fraction: f64,
    /// Why it is among the choices, in the plan's words.
    pub reason: String,
    /// The same in one word.
    why: Why,
    /// Luck up to this number leads to it, or to one before.
    limit: u64,
    /// Requests with the canary's headers go there.
    canary: bool,
}

/// Whether a client stays with its cluster, and by what it is known again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// It does not.
    #[default]
    None,
    /// By its address: ask with [`luck_of`] it.
    ClientIp,
    /// By a cookie whose value is the cluster's [`Choice::token`].
    Cookie {
        /// The cookie's name.
        name: String,
        /// How long it is kept; as long as the browser is open when not given.
        ttl_s: Option<u32>,
    },
}

/// One request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// A random number, or [`luck_of`] what the client is known by.
    pub luck: u64,
    /// Whether it has the canary's headers: see [`Chooser::leads_to_canary`].
    pub canary: bool,
    /// The choice that its cookie names: see [`Chooser::by_token`].
    pub affinity: Option<u16>,
    /// Choices that were tried for it already.
    pub tried: &'a [u16],
}

impl Chooser {
    /// What a plan says to clients at an edge of the member `own`, which stands in a region.
    pub fn new(plan: &TrafficPlanSpec, own: &str, region: Option<&str>) -> Self {
        let region = region.or_else(|| {
            plan.clusters.iter().find(|cluster| cluster.name == own).and_then(|own| own.region.as_deref())
        });
        let told = vantage(plan, own, region).map(|vantage| vantage.choices.as_slice()).unwrap_or_default();
        let canary = plan.canary.as_ref();
        let mut choices: Vec<Choice> = Vec::with_capacity(told.len());
        for choice in told {
            let inside = plan.fence.is_empty() || plan.fence.contains(&choice.cluster);
            let place = plan.clusters.iter().position(|cluster| cluster.name == choice.cluster);
            let (Some(place), true) = (place, inside) else { continue };
            if choices.len() < usize::from(u16::MAX) && choices.iter().all(|one| one.place != place) {
                let canary = canary.is_some_and(|canary| canary.clusters.contains(&choice.cluster));
                choices.push(Choice::new(choice, place, canary));
            }
        }
        // Those that take a part stand first, whoever wrote the plan.
        choices.sort_by_key(|choice| choice.fraction <= 0.0);
        let taking = limit(&mut choices);
        if let Some(own) = choices.iter_mut().find(|choice| choice.cluster == own && choice.fraction > 0.0)
            && own.why == Why::Nearest
        {
            own.why = Why::Local;
        }
        let header = |(name, value): (&String, &String)| (name.to_ascii_lowercase(), value.clone());
        let headers = canary.map(|canary| canary.headers.iter().map(header).collect()).unwrap_or_default();
        Self { choices, taking, headers, affinity: affinity(plan) }
    }

    /// One place outside the federation, which everything goes to.
    pub fn origin(name: &str) -> Self {
        let reason = format!("Origin: the route names {name}");
        let only = PlanChoice { cluster: String::new(), fraction: 1.0, reason };
        let mut choices = vec![Choice::new(&only, 0, false)];
        let taking = limit(&mut choices);
        Self { choices, taking, ..Self::default() }
    }

    /// The clusters that may be chosen, in order.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// One of them.
    pub fn choice(&self, at: u16) -> Option<&Choice> {
        self.choices.get(usize::from(at))
    }

    /// Whether a client stays with its cluster.
    pub fn affinity(&self) -> &Affinity {
        &self.affinity
    }

    /// The choice that a cookie names.
    pub fn by_token(&self, token: &[u8]) -> Option<u16> {
        let at = self.choices.iter().position(|choice| choice.token.as_bytes() == token)?;
        u16::try_from(at).ok()
    }

    /// Whether a request has all headers that lead to the canary; `has` tells whether a header, in lower case, has just that
    /// value.
    pub fn leads_to_canary(&self, has: impl Fn(&str, &str) -> bool) -> bool {
        !self.headers.is_empty() && self.headers.iter().all(|(name, value)| has(name, value))
    }

    /// Where a request goes, and why; none where no choice is left. `usable` tells whether the edge itself knows nothing
    /// against a choice.
    pub fn pick(&self, ask: &Ask<'_>, usable: impl Fn(u16) -> bool) -> Option<(u16, Why)> {
        let fit = |at: u16| usize::from(at) < self.choices.len() && !ask.tried.contains(&at) && usable(at);
        let retried = |why: Why| if ask.tried.is_empty() { why } else { Why::Retry };
        if ask.canary
            && let Some((_, at)) =
                self.choices.iter().zip(0_u16..).find(|(choice, at)| choice.canary && fit(*at))
        {
            return Some((at, retried(Why::CanaryHeader)));
        }
        if let Some(at) = ask.affinity.filter(|at| fit(*at)) {
            return Some((at, retried(Why::Affinity)));
        }
        let meant = self.by_luck(ask.luck)?;
        let choice = self.choices.get(meant)?;
        if let Some(at) = u16::try_from(meant).ok().filter(|at| fit(*at)) {
            return Some((at, retried(choice.why)));
        }
        let shared = if choice.why.is_spread() { self.share(ask.luck, &fit) } else { None };
        shared.or_else(|| self.next(meant, &fit)).map(|at| (at, retried(Why::Avoided)))
    }

    /// The share of all requests that each choice takes where only some are usable.
    pub fn shares(&self, usable: impl Fn(&Choice) -> bool) -> Vec<f64> {
        let fit = |at: u16| self.choice(at).is_some_and(&usable);
        let mut shares = vec![0.0; self.choices.len()];
        let mut give = |at: usize, part: f64| shares.get_mut(at).into_iter().for_each(|share| *share += part);
        let meant = self.choices.iter().enumerate().take(self.taking.max(1));
        for (at, choice) in meant {
            // None takes a part: the first stands for all.
            let part = if self.taking == 0 { 1.0 } else { choice.fraction };
            let left = || self.choices.iter().enumerate().take(self.taking).filter(|(_, one)| usable(one));
            let whole: f64 = left().map(|(_, one)| one.fraction).sum();
            if usable(choice) {
                give(at, part);
            } else if choice.why.is_spread() && whole > 0.0 {
                left().for_each(|(other, one)| give(other, part * one.fraction / whole));
            } else if let Some(next) = self.next(at, &fit) {
                give(usize::from(next), part);
            }
        }
        shares
    }

    /// The choice that the fractions mean.
    fn by_luck(&self, luck: u64) -> Option<usize> {
        if self.choices.is_empty() {
            return None;
        }
        let taking = self.choices.get(..self.taking).unwrap_or_default();
        Some(taking.iter().position(|choice| luck <= choice.limit).unwrap_or(0))
    }

    /// Draws again among those that take a part and are left.
    fn share(&self, luck: u64, fit: &impl Fn(u16) -> bool) -> Option<u16> {
        let left = || self.choices.iter().zip(0_u16..).take(self.taking).filter(|(_, at)| fit(*at));
        let whole: f64 = left().map(|(choice, _)| choice.fraction).sum();
        // The first luck led here: it must not decide this too.
        let mut rest = unit(hash::mix(luck.wrapping_add(1))) * whole;
        let mut last = None;
        for (choice, at) in left() {
            last = Some(at);
            rest -= choice.fraction;
            if rest < 0.0 {
                break;
            }
        }
        last
    }

    /// The next in order, from one on and then from the beginning.
    fn next(&self, after: usize, fit: &impl Fn(u16) -> bool) -> Option<u16> {
        let numbers = || (0_u16..).take(self.choices.len());
        numbers().skip(after + 1).chain(numbers().take(after)).find(|at| fit(*at))
    }
}

impl Choice {
    fn new(choice: &PlanChoice, place: usize, canary: bool) -> Self {
        let sound = choice.fraction.is_finite() && choice.fraction > 0.0;
        let fraction = if sound { choice.fraction.min(1.0) } else { 0.0 };
        Self {
            cluster: choice.cluster.clone(),
            place,
            token: format!("{:016x}", hash::texts(&["cluster", &choice.cluster])),
            fraction,
            reason: choice.reason.clone(),
            why: Why::of_plan(&choice.reason, fraction),
            limit: 0,
            canary,
        }
    }
}

/// Luck that is always the same for the same client.
pub fn luck_of(client: &[u8]) -> u64 {
    hash::bytes(client)
}

/// What a plan says to a member's clients: its own part, or its region's, or that of clients of whom nothing is known.
fn vantage<'a>(plan: &'a TrafficPlanSpec, own: &str, region: Option<&str>) -> Option<&'a PlanVantage> {
    let find = |of: &dyn Fn(&PlanVantage) -> bool| plan.vantages.iter().find(|one| of(one));
    find(&|one| one.cluster.as_deref() == Some(own))
        .or_else(|| find(&|one| one.cluster.is_none() && region.is_some() && one.region.as_deref() == region))
        .or_else(|| find(&|one| one.cluster.is_none() && one.region.is_none()))
}

/// Turns fractions into limits of luck; gives how many take a part.
fn limit(choices: &mut [Choice]) -> usize {
    let whole: f64 = choices.iter().map(|choice| choice.fraction).sum();
    let taking = choices.iter().take_while(|choice| choice.fraction > 0.0).count();
    let mut before = 0.0;
    for (choice, at) in choices.iter_mut().take(taking).zip(1..) {
        before += choice.fraction / whole;
        // A cast of a number that is too large gives the largest there is.
        choice.limit = if at == taking { u64::MAX } else { (before * LUCKS) as u64 };
    }
    taking
}

/// So many different lucks there are.
const LUCKS: f64 = 18_446_744_073_709_551_616.0;

fn unit(luck: u64) -> f64 {
    luck as f64 / LUCKS
}

fn affinity(plan: &TrafficPlanSpec) -> Affinity {
    let Some(affinity) = &plan.session_affinity else { return Affinity::None };
    match affinity.mode {
        AffinityMode::None => Affinity::None,
        AffinityMode::ClientIp => Affinity::ClientIp,
        AffinityMode::Cookie => Affinity::Cookie {
            name: affinity.cookie_name.clone().unwrap_or_else(|| COOKIE_NAME.to_owned()),
            ttl_s: affinity.ttl_seconds.and_then(|ttl| u32::try_from(ttl).ok()),
        },
    }
}
