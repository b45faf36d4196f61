//! Upstream: where one thread sends requests. Each thread has its own view of a target: its endpoints, the connections to them
//! that are open, and how many requests each has.
//!
//! Reading order: here (a thread's view of a target), `endpoint` (one endpoint and its pool), `connect` (how a connection is
//! made: the seam for other transports), `fault` (what can go wrong, and whose fault it is), `budget` (how often is tried again),
//! `ring` (where the same requests go to the same endpoint).

mod budget;
mod connect;
mod endpoint;
mod fault;
mod ring;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) use budget::Budget;
pub(crate) use connect::{Call, Sender, at_hand, connect, fault_of, http2_to_edge};
pub(crate) use endpoint::{Active, Endpoint};
pub(crate) use fault::Fault;

use landfall_plan::choose::Affinity;
use ring::Ring;

use crate::core::Core;
use crate::meter::Meter;
use crate::peer::standby::Way;
use crate::table::{Plan, Reach, Service, Target, Vitals};

/// How long one that cannot be reached is left out at first, at most: to try it again costs one request a moment, and nothing is sent.
const UNREACHABLE_OUT: Duration = Duration::from_secs(2);
/// So long before an edge is asked again there is to be a connection to it.
const BACK_MS: u64 = 1_500;

/// An endpoint has failed.
pub(crate) fn blame(
    core: &Core,
    local: &Local,
    target: &Target,
    choice: u16,
    endpoint: &Endpoint,
    unreachable: bool,
) {
    if local.failed(choice, endpoint, unreachable, core.ticker.now_ms()) {
        core.shared.meters.ejected(&target.name, &local.cluster(choice));
        tracing::warn!(service = %target.name, endpoint = ?endpoint.reach, "left out: it fails");
    }
}

/// Nobody is called slow who answers within this time.
const SLOW_LEAST_US: u64 = 2_000;

/// One thread's view of a target.
pub(crate) struct Local {
    /// Of this version of the target.
    pub(crate) version: u64,
    /// Where its requests may go.
    pub(crate) service: Arc<Service>,
    /// How often is tried again.
    pub(crate) budget: Rc<Budget>,
    /// The endpoints of each choice.
    places: Vec<Vec<Rc<Endpoint>>>,
    /// Their rings, where requests are led by what they are.
    rings: Vec<Ring>,
    /// What is counted, by the plan whose routes led here and by the choice.
    meters: RefCell<HashMap<(u64, u16), Arc<Meter>>>,
    target: Weak<Target>,
}

impl Local {
    /// The view of a target as it is now; what was there before keeps its connections.
    pub(crate) fn new(target: &Arc<Target>, version: u64, before: Option<&Self>) -> Self {
        let service = target.service();
        let known: HashMap<&Reach, &Rc<Endpoint>> = before
            .into_iter()
            .flat_map(Self::endpoints)
            .map(|endpoint| (&endpoint.reach, endpoint))
            .collect();
        let endpoint = |(reach, vitals): &(Reach, Arc<Vitals>)| {
            let kept = known.get(reach).filter(|kept| Arc::ptr_eq(&kept.vitals, vitals));
            kept.map_or_else(|| Rc::new(Endpoint::new(reach.clone(), vitals.clone())), |kept| Rc::clone(kept))
        };
        let places: Vec<Vec<Rc<Endpoint>>> =
            service.places.iter().map(|place| place.ways.iter().map(endpoint).collect()).collect();
        let rings = if service.hash.is_some() { places.as_slice() } else { &[] };
        let rings = rings.iter().map(|endpoints| Ring::new(endpoints)).collect();
        let budget = before.map_or_else(|| Rc::new(Budget::new()), |before| before.budget.clone());
        Self {
            version,
            service,
            budget,
            places,
            rings,
            meters: RefCell::default(),
            target: Arc::downgrade(target),
        }
    }

    fn endpoints(&self) -> impl Iterator<Item = &Rc<Endpoint>> {
        self.places.iter().flatten()
    }

    /// Whether a choice has an endpoint that can take a request.
    pub(crate) fn is_usable(&self, choice: u16, now_ms: u64) -> bool {
        let endpoints = self.places.get(usize::from(choice)).map(Vec::as_slice).unwrap_or_default();
        !self.is_full(choice)
            && endpoints.iter().any(|endpoint| endpoint.can_take(now_ms, self.service.concurrency))
    }

    /// Whether a choice's cluster has as many requests as it may.
    fn is_full(&self, choice: u16) -> bool {
        self.service.cluster_concurrency.is_some_and(|limit| self.in_flight(choice) >= limit)
    }

    fn in_flight(&self, choice: u16) -> u32 {
        let place = self.service.places.get(usize::from(choice));
        place.map_or(0, |place| place.active.load(Ordering::Relaxed))
    }

    /// A request goes to an endpoint of a choice: none when that, or the cluster, has as many as it may.
    pub(crate) fn enter(&self, choice: u16, endpoint: &Rc<Endpoint>) -> Option<Active> {
        let active = endpoint.enter(self.service.concurrency)?;
        let Some(limit) = self.service.cluster_concurrency else { return Some(active) };
        let cluster = &self.service.places.get(usize::from(choice))?.active;
        if cluster.fetch_add(1, Ordering::Relaxed) >= limit {
            cluster.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(active.in_cluster(cluster.clone()))
    }

    /// Whether a choice has any endpoint, however it fares.
    pub(crate) fn has_any(&self, choice: u16) -> bool {
        self.places.get(usize::from(choice)).is_some_and(|endpoints| !endpoints.is_empty())
    }

    /// Whether a request needs nothing but to be sent: no cookie, no canary's headers, no limit of time as a whole.
    pub(crate) fn is_simple(&self) -> bool {
        let chooser = &self.service.chooser;
        let canary = chooser.leads_to_canary(|_, _| true);
        let led = *chooser.affinity() != Affinity::None || canary || self.service.hash.is_some();
        !led && self.service.times.whole.is_none()
    }

    /// Whether there is any endpoint at all in a choice that is open to a request.
    pub(crate) fn has_endpoints(&self, allows: impl Fn(u16) -> bool) -> bool {
        self.places.iter().zip(0_u16..).any(|(endpoints, at)| allows(at) && !endpoints.is_empty())
    }

    /// Whether an endpoint is still one of this target's, and nothing is known against it.
    pub(crate) fn stands_by(&self, endpoint: &Rc<Endpoint>, now_ms: u64) -> bool {
        !endpoint.is_out(now_ms) && self.endpoints().any(|one| Rc::ptr_eq(one, endpoint))
    }

    /// Whether a request may leave an endpoint that has it: another one can take it, and it may be tried again.
    pub(crate) fn may_leave(
        &self,
        endpoint: &Rc<Endpoint>,
        tried: &[Rc<Endpoint>],
        core: &Core,
        allows: impl Fn(u16) -> bool,
    ) -> bool {
        let now_ms = core.ticker.now_ms();
        let fresh =
            |one: &Rc<Endpoint>| !one.is_beside(endpoint) && !tried.iter().any(|tried| tried.is_beside(one));
        let takes = |one: &Rc<Endpoint>| fresh(one) && one.can_take(now_ms, self.service.concurrency);
        // In a cluster that is full it leaves a place for itself.
        let own = |endpoints: &[Rc<Endpoint>]| endpoints.iter().any(|one| Rc::ptr_eq(one, endpoint));
        let room = |endpoints: &[Rc<Endpoint>], at: u16| allows(at) && (!self.is_full(at) || own(endpoints));
        let mut places = self.places.iter().zip(0_u16..);
        self.budget.is_left() && places.any(|(all, at)| room(all, at) && all.iter().any(takes))
    }

    /// The less busy of two endpoints of a choice, or the one that a key leads to; none that was tried.
    pub(crate) fn pick(
        &self,
        choice: u16,
        core: &Core,
        tried: &[Rc<Endpoint>],
        desperate: bool,
        key: Option<u64>,
    ) -> Option<&Rc<Endpoint>> {
        let endpoints = self.places.get(usize::from(choice))?.as_slice();
        let (now_ms, limit) = (core.ticker.now_ms(), self.service.concurrency);
        let fit = |endpoint: &&Rc<Endpoint>| {
            !tried.iter().any(|one| one.is_beside(endpoint))
                && (desperate || endpoint.can_take(now_ms, limit))
        };
        if let [only] = endpoints {
            return Some(only).filter(fit);
        }
        if let Some((key, ring)) = key.zip(self.rings.get(usize::from(choice))) {
            return ring.from(key).filter_map(|at| endpoints.get(at)).find(fit);
        }
        let luck = core.luck();
        let count = u64::try_from(endpoints.len()).ok().filter(|count| *count > 0)?;
        let first = usize::try_from((luck >> 32) % count).ok()?;
        let second = usize::try_from((luck & 0xffff_ffff) % (count - 1).max(1)).ok()?;
        let second = if second >= first { second + 1 } else { second };
        let pair = [endpoints.get(first), endpoints.get(second)];
        let pair = pair.into_iter().flatten().filter(fit);
        let least = pair.min_by_key(|endpoint| endpoint.burden(now_ms));
        least.or_else(|| endpoints.iter().filter(fit).min_by_key(|endpoint| endpoint.burden(now_ms)))
    }

    /// Edges of the first clusters that are not the own, less those that are left out for a while yet.
    pub(crate) fn standing_by(&self, now_ms: u64, clusters: usize) -> Vec<Way> {
        let way = |endpoint: &Rc<Endpoint>| match &endpoint.reach {
            Reach::Peer { edge, address } if !endpoint.is_out(now_ms + BACK_MS) => {
                Some((edge.clone(), address.clone()))
            }
            Reach::Peer { .. } | Reach::Direct(_) => None,
        };
        self.far(clusters).filter_map(way).collect()
    }

    /// Edges that were left out and would be asked again soon stay out while there is no connection to them: otherwise a client
    /// would wait to find out that they are still silent.
    pub(crate) fn keep_out(&self, now_ms: u64, clusters: usize, is_open: impl Fn(&str, &str) -> bool) {
        for endpoint in self.far(clusters) {
            if let Reach::Peer { edge, address } = &endpoint.reach
                && endpoint.is_out(now_ms)
                && !endpoint.is_out(now_ms + BACK_MS)
                && !is_open(edge, address)
            {
                endpoint.stay_out(now_ms + BACK_MS);
            }
        }
    }

    /// Nothing new goes to these edges until then, if there is somebody else.
    pub(crate) fn spare(&self, edges: &[String], until_ms: u64) {
        self.among(edges).for_each(|endpoint| endpoint.spare(until_ms));
    }

    /// Leaves these edges out: they cannot be reached.
    pub(crate) fn leave_out(&self, core: &Core, edges: &[String]) {
        let (now_ms, first) = (core.ticker.now_ms(), self.service.outlier.out.min(UNREACHABLE_OUT));
        // It has failed like any other that is left out: one request tries it when it is back, and an answer clears it.
        let left_out = |endpoint: &&Rc<Endpoint>| endpoint.failed(1) && endpoint.leave_out(now_ms, first);
        for endpoint in self.among(edges).filter(left_out) {
            self.tell_left_out(core, endpoint, "left out: it is silent");
        }
    }

    /// One of its endpoints was left out.
    pub(crate) fn tell_left_out(&self, core: &Core, endpoint: &Rc<Endpoint>, why: &'static str) {
        let service = self.target.upgrade().map(|target| target.name.clone()).unwrap_or_default();
        let at = self.places.iter().position(|place| place.iter().any(|one| Rc::ptr_eq(one, endpoint)));
        let cluster = self.cluster(at.and_then(|at| u16::try_from(at).ok()).unwrap_or(u16::MAX));
        core.shared.meters.ejected(&service, &cluster);
        tracing::warn!(%service, %cluster, endpoint = ?endpoint.reach, "{why}");
    }

    /// Those of its endpoints that are reached by these edges.
    fn among<'a>(&'a self, edges: &'a [String]) -> impl Iterator<Item = &'a Rc<Endpoint>> {
        self.endpoints().filter(|endpoint| match &endpoint.reach {
            Reach::Peer { edge, .. } => edges.iter().any(|one| **one == **edge),
            Reach::Direct(_) => false,
        })
    }

    /// The endpoints of the first clusters that are not the own.
    fn far(&self, clusters: usize) -> impl Iterator<Item = &Rc<Endpoint>> {
        let places = self.service.places.iter().zip(&self.places);
        places.filter(|(place, _)| !place.choice.own).take(clusters).flat_map(|(_, endpoints)| endpoints)
    }

    /// The cluster of a choice; empty for none.
    pub(crate) fn cluster(&self, choice: u16) -> Arc<str> {
        let place = self.service.places.get(usize::from(choice));
        place.map_or_else(|| "".into(), |place| place.choice.cluster.clone())
    }

    /// What is counted of requests of a plan's routes that go to a choice.
    pub(crate) fn meter(&self, core: &Core, plan: &Plan, target: &Target, choice: u16) -> Arc<Meter> {
        let mut meters = self.meters.borrow_mut();
        let new = || core.shared.meters.meter(core.index, plan, &target.name, self.cluster(choice));
        meters.entry((plan.id, choice)).or_insert_with(new).clone()
    }

    /// An endpoint has failed: too often in a row, and it is left out, unless too many are. One that cannot even be reached is
    /// no help to anybody, however many there are.
    pub(crate) fn failed(&self, choice: u16, endpoint: &Endpoint, unreachable: bool, now_ms: u64) -> bool {
        let rules = &self.service.outlier;
        if !endpoint.failed(rules.failures) {
            return false;
        }
        let endpoints = self.places.get(usize::from(choice)).map(Vec::as_slice).unwrap_or_default();
        let first = if unreachable { rules.out.min(UNREACHABLE_OUT) } else { rules.out };
        (unreachable || self.may_lose(endpoints, now_ms)) && endpoint.leave_out(now_ms, first)
    }

    /// Whether one more of these may be left out.
    fn may_lose(&self, endpoints: &[Rc<Endpoint>], now_ms: u64) -> bool {
        let out = endpoints.iter().filter(|one| one.is_out(now_ms)).count();
        let percent = usize::try_from(self.service.outlier.percent).unwrap_or(100);
        // One may always be left out: there may be another cluster.
        let allowed = (endpoints.len() * percent / 100).max(usize::from(percent > 0));
        out < allowed
    }

    /// Leaves out endpoints that are far slower than the others of their cluster; gives them.
    pub(crate) fn leave_out_slow(&self, now_ms: u64) -> Vec<Rc<Endpoint>> {
        let Some(factor) = self.service.outlier.slower else { return Vec::new() };
        let mut slow = Vec::new();
        for endpoints in &self.places {
            let timed = endpoints.iter().filter(|one| !one.is_out(now_ms));
            let mut timed: Vec<(u64, &Rc<Endpoint>)> =
                timed.filter_map(|one| Some((one.latency_us()?, one))).collect();
            timed.sort_by_key(|(us, _)| *us);
            // The slowest first; the middle of those that are faster is what it is compared with.
            while let Some((us, endpoint)) = timed.pop() {
                let Some((usual_us, _)) = timed.get(timed.len() / 2) else { break };
                if us < SLOW_LEAST_US || us as f64 <= *usual_us as f64 * factor {
                    break;
                }
                if self.may_lose(endpoints, now_ms) && endpoint.leave_out(now_ms, self.service.outlier.out) {
                    slow.push(endpoint.clone());
                }
            }
        }
        slow
    }

    /// Closes connections that nobody has needed since then.
    pub(crate) fn sweep(&self, oldest_ms: u64) {
        self.budget.refill();
        self.endpoints().for_each(|endpoint| endpoint.sweep(oldest_ms));
    }

    /// Whether any route leads here.
    pub(crate) fn is_wanted(&self) -> bool {
        self.target.strong_count() > 0
    }
}
