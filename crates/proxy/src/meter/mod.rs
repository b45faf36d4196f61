//! What is counted: by route, service and cluster, on each thread apart, so that counting is a store and not a fight.
//!
//! Reading order: here (what is counted), `render` (for Prometheus), `report` (for the hub).

mod render;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use landfall_plan::choose::Why;
use landfall_runtime::metrics::{Counter, Registry};
use parking_lot::Mutex;

use crate::table::Plan;

/// Upper bounds of durations, in microseconds.
const BOUNDS_US: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];
/// Routes, services and clusters are counted apart up to this number; what comes later is counted as one.
const METERS_MAX: usize = 50_000;

/// What one thread counts of one route, service and cluster. It is written by that thread only.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    began: AtomicU64,
    /// By the first digit of the status: 1xx to 5xx.
    ended: [AtomicU64; 5],
    retries: AtomicU64,
    overflow: AtomicU64,
    broke_off: AtomicU64,
    took: [AtomicU64; BOUNDS_US.len() + 1],
    took_us: AtomicU64,
    /// How busy endpoints said they are, in millionths, and how often they did.
    used: AtomicU64,
    used_told: AtomicU64,
}

/// The sum of meters at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    began: u64,
    ended: [u64; 5],
    retries: u64,
    overflow: u64,
    broke_off: u64,
    took: [u64; BOUNDS_US.len() + 1],
    took_us: u64,
    used: u64,
    used_told: u64,
}

/// Whose requests a meter counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Whose {
    /// The number of the plan whose routes led there; 0 for requests of other edges.
    plan: u64,
    route: Arc<str>,
    service: Arc<str>,
    cluster: Arc<str>,
}

/// The meters of all threads, with the thread's number.
type ByThread = Vec<(usize, Arc<Meter>)>;

/// How many endpoints were left out, by service and cluster.
type Ejected = BTreeMap<(Arc<str>, Arc<str>), u64>;

/// All meters.
#[derive(Default)]
pub(crate) struct Meters {
    /// By thread.
    all: Mutex<BTreeMap<Whose, ByThread>>,
    told: Mutex<report::Told>,
    ejected: Mutex<Ejected>,
    /// What happens seldom is counted for all threads together.
    pub(crate) rare: Rare,
}

/// What happens seldom.
#[derive(Default)]
pub(crate) struct Rare {
    /// Requests that were refused because there was no room.
    pub(crate) shed: Arc<Counter>,
    /// Requests that were refused because of what they are.
    pub(crate) refused: Arc<Counter>,
    /// Requests that no route matches.
    pub(crate) unmatched: Arc<Counter>,
    /// Connections that were refused because there were too many.
    pub(crate) overfull: Arc<Counter>,
}

impl Rare {
    pub(crate) fn new(registry: &Registry) -> Self {
        let row = |name, help| registry.counter(name, help, "");
        Self {
            shed: row("landfall_proxy_shed_total", "Requests refused because there was no room."),
            refused: row(
                "landfall_proxy_refused_total",
                "Requests refused because they are malformed, and clients that made nothing but noise.",
            ),
            unmatched: row("landfall_proxy_unmatched_total", "Requests that no route matches."),
            overfull: row(
                "landfall_proxy_connections_refused_total",
                "Connections refused because there were too many.",
            ),
        }
    }
}

impl Meters {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self { rare: Rare::new(registry), ..Self::default() }
    }

    /// What a thread counts of a plan's routes, a service and a cluster.
    pub(crate) fn meter(
        &self,
        thread: usize,
        plan: &Plan,
        service: &Arc<str>,
        cluster: Arc<str>,
    ) -> Arc<Meter> {
        let mut all = self.all.lock();
        let mut whose = Whose { plan: plan.id, route: plan.name.clone(), service: service.clone(), cluster };
        if all.len() >= METERS_MAX && !all.contains_key(&whose) {
            let rest: Arc<str> = "".into();
            whose = Whose { plan: 0, route: rest.clone(), service: rest.clone(), cluster: rest };
        }
        let of = all.entry(whose).or_default();
        if let Some((_, known)) = of.iter().find(|(one, _)| *one == thread) {
            return known.clone();
        }
        let meter: Arc<Meter> = Arc::default();
        of.push((thread, meter.clone()));
        meter
    }

    /// An endpoint was left out.
    pub(crate) fn ejected(&self, service: &Arc<str>, cluster: &Arc<str>) {
        let mut ejected = self.ejected.lock();
        let mut whose = (service.clone(), cluster.clone());
        if ejected.len() >= METERS_MAX && !ejected.contains_key(&whose) {
            whose = ("".into(), "".into());
        }
        *ejected.entry(whose).or_default() += 1;
    }

    /// These plans are no more.
    pub(crate) fn forget(&self, plans: &[u64]) {
        if !plans.is_empty() {
            self.all.lock().retain(|whose, _| !plans.contains(&whose.plan));
        }
    }

    fn sums(&self) -> Vec<(Whose, Sum)> {
        let all = self.all.lock();
        let sum = |meters: &ByThread| {
            meters.iter().fold(Sum::default(), |mut sum, (_, meter)| {
                sum.add(meter);
                sum
            })
        };
        all.iter().map(|(whose, meters)| (whose.clone(), sum(meters))).collect()
    }
}

/// Adds to a number that nobody else writes.
fn bump(number: &AtomicU64, by: u64) {
    number.store(number.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Meter {
    /// A request is answered, or was given up.
    pub(crate) fn began(&self, retries: u32, why: Why) {
        bump(&self.began, 1);
        if retries > 0 {
            bump(&self.retries, retries.into());
        }
        if why == Why::Overflow {
            bump(&self.overflow, 1);
        }
    }

    /// It is over.
    pub(crate) fn ended(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        bump(&self.ended[class], 1);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        bump(&self.took[at], 1);
        bump(&self.took_us, us);
    }

    /// Its endpoint said how busy it is.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between 0 and 10")]
    pub(crate) fn used(&self, used: f64) {
        bump(&self.used, (used * 1e6) as u64);
        bump(&self.used_told, 1);
    }

    /// Its answer broke off.
    pub(crate) fn broke_off(&self) {
        bump(&self.broke_off, 1);
    }
}

impl Sum {
    fn add(&mut self, meter: &Meter) {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        self.began += get(&meter.began);
        self.retries += get(&meter.retries);
        self.overflow += get(&meter.overflow);
        self.broke_off += get(&meter.broke_off);
        self.took_us += get(&meter.took_us);
        self.used += get(&meter.used);
        self.used_told += get(&meter.used_told);
        self.ended.iter_mut().zip(&meter.ended).for_each(|(sum, number)| *sum += get(number));
        self.took.iter_mut().zip(&meter.took).for_each(|(sum, number)| *sum += get(number));
    }

    fn ended(&self) -> u64 {
        self.ended.iter().sum()
    }
}
