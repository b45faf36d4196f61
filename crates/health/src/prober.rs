//! `Prober`: probes every target again and again, and keeps an opinion of each.
//!
//! Each target has a task of its own that outlives changes of how it is probed: what is known of it stays. All of them
//! together make a bounded number of probes at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use landfall_runtime::clock;
use landfall_runtime::metrics::{Counter, Histogram, Registry};
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use crate::check::Check;
use crate::opinion::{Opinion, Outcome};
use crate::probe::{Door, Point, Source, probe, probe_through};

/// Probes at once, of all targets together that were well when they were last looked at. Those that were not have as many
/// places of their own: a probe that nobody answers holds its place until its time is over, and a lost cluster must keep nobody
/// waiting. With the usual check, so many silent targets are probed once a second.
const TOGETHER_MAX: usize = 2_048;
/// Of the files that this process may open, probes take one in so many.
const FILES_PART: u64 = 4;
/// Points of one target that are looked at in one round; the next round begins with the next ones.
const POINTS_MAX: usize = 4;
/// The same for doors, which lead to the same place.
const DOORS_MAX: usize = 2;
/// Times between probes differ by so many parts of a thousand, so that edges do not probe in step.
const JITTER_PERMILLE: u64 = 100;

/// What a prober is given.
#[derive(Clone, Default)]
pub struct Config {
    /// Where probes come from.
    pub source: Source,
    /// Makes the times between probes differ from those of other edges.
    pub seed: u64,
}

/// Something that is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What it is called.
    pub name: String,
    /// Where it is reached; it is up where any of them is.
    pub points: Vec<Point>,
    /// Through whom it is reached, where it has no points.
    pub doors: Vec<Door>,
    /// How it is probed.
    pub check: Check,
    /// Why it is down without a probe, where that is known.
    pub down: Option<String>,
}

/// Probes targets. What was begun ends when it is dropped.
pub struct Prober {
    shared: Arc<Shared>,
    running: Mutex<HashMap<String, watch::Sender<Arc<Target>>>>,
    tasks: Tasks,
}

struct Shared {
    config: Config,
    opinions: Mutex<BTreeMap<String, Opinion>>,
    /// Rises with every opinion that says something else than before.
    changes: watch::Sender<u64>,
    /// Places for probes of what was well.
    room: Semaphore,
    /// Places for probes of what was not.
    room_ill: Semaphore,
    well: Arc<Counter>,
    ill: Arc<Counter>,
    took: Arc<Histogram>,
}

impl Prober {
    /// A prober of nothing.
    pub fn new(config: Config, registry: &Registry, tasks: &Tasks) -> Self {
        let files = usize::try_from(landfall_runtime::files::open_max() / FILES_PART / 2);
        let together = files.unwrap_or(TOGETHER_MAX).clamp(1, TOGETHER_MAX);
        let probes = "landfall_health_probes_total";
        let help = "Probes made.";
        let shared = Shared {
            config,
            opinions: Mutex::default(),
            changes: watch::Sender::new(0),
            room: Semaphore::new(together),
            room_ill: Semaphore::new(together),
            well: registry.counter(probes, help, "outcome=\"up\""),
            ill: registry.counter(probes, help, "outcome=\"down\""),
            took: registry.histogram("landfall_health_probe_seconds", "How long probes took.", ""),
        };
        Self { shared: Arc::new(shared), running: Mutex::default(), tasks: tasks.clone() }
    }

    /// Probes these targets from now on and no others. What is known of targets that stay is kept.
    pub fn set(&self, targets: Vec<Target>) {
        let mut running = self.running.lock();
        let mut before = std::mem::take(&mut *running);
        for target in targets {
            let name = target.name.clone();
            let sender = match before.remove(&name) {
                Some(sender) => {
                    sender.send_if_modified(|old| {
                        let changed = **old != target;
                        if changed {
                            *old = Arc::new(target);
                        }
                        changed
                    });
                    sender
                }
                None => {
                    let (sender, receiver) = watch::channel(Arc::new(target));
                    self.tasks.spawn_until_stop(run(self.shared.clone(), receiver));
                    sender
                }
            };
            running.insert(name, sender);
        }
        if before.is_empty() {
            return;
        }
        let mut opinions = self.shared.opinions.lock();
        before.keys().for_each(|gone| _ = opinions.remove(gone));
        drop(opinions);
        self.shared.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// What is thought of every target that was probed often enough to say.
    pub fn opinions(&self) -> BTreeMap<String, Opinion> {
        let opinions = self.shared.opinions.lock();
        opinions.iter().filter(|(_, o)| o.up.is_some()).map(|(name, o)| (name.clone(), o.clone())).collect()
    }

    /// Tells of every opinion that says something else than before.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }
}

impl Shared {
    /// Waits for a place among those that are as well or as ill.
    async fn place(&self, ill: bool) -> Option<SemaphorePermit<'_>> {
        let room = if ill { &self.room_ill } else { &self.room };
        room.acquire().await.ok()
    }
}

/// Probes one target until nobody wants it any more.
async fn run(shared: Arc<Shared>, mut wanted: watch::Receiver<Arc<Target>>) {
    let mut luck = Luck(shared.config.seed ^ fold(&wanted.borrow().name));
    let (mut round, mut silent, mut ill) = (0_usize, 0_u32, false);
    // Not all at once at the start.
    let first = wanted.borrow().check.interval.mul_f64(luck.part());
    let mut due = Instant::now() + first;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            changed = wanted.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        }
        let (target, began) = (wanted.borrow_and_update().clone(), Instant::now());
        let outcome = tokio::select! {
            outcome = look((&shared, ill), &target, round) => outcome,
            gone = gone(&mut wanted) => return gone,
        };
        round = round.wrapping_add(1);
        ill = outcome.as_ref().is_some_and(|outcome| !outcome.up);
        silent = if outcome.is_none() { silent.saturating_add(1) } else { 0 };
        if silent == target.check.down_threshold {
            // What nothing is seen of any more has no opinion.
            forget(&shared, &target, &wanted);
        }
        let hurry = outcome.as_ref().is_some_and(|outcome| note(&shared, &target, outcome, &wanted));
        let pause = if hurry { target.check.interval / 2 } else { target.check.interval };
        due = began + luck.around(pause);
    }
}

/// Waits until nobody wants the target any more; changes of it wait for the next round.
async fn gone(wanted: &mut watch::Receiver<Arc<Target>>) {
    let mut wanted = wanted.clone();
    while wanted.changed().await.is_ok() {}
}

/// One look at a target: up where any of its points is. None when it has no points, and nobody knows why.
async fn look(whose: Whose<'_>, target: &Target, round: usize) -> Option<Outcome> {
    if let Some(reason) = &target.down {
        return Some(Outcome::down(reason.as_str(), 0.0));
    }
    let count = target.points.len().max(target.doors.len());
    let first = round
        .wrapping_mul(if target.points.is_empty() { DOORS_MAX } else { POINTS_MAX })
        .checked_rem(count)?;
    let mut last = None;
    if target.points.is_empty() {
        return look_through(whose, target, first).await;
    }
    let points = target.points.iter().cycle().skip(first).take(count.min(POINTS_MAX));
    let mut looks: FuturesUnordered<_> = points.map(|point| one(whose, point, &target.check)).collect();
    while let Some(outcome) = looks.next().await {
        if outcome.up {
            return Some(outcome);
        }
        last = last.or(Some(outcome));
    }
    last
}

/// One look at a target through its doors, from one of them on.
async fn look_through(whose: Whose<'_>, target: &Target, first: usize) -> Option<Outcome> {
    let mut looks: FuturesUnordered<BoxFuture<'_, Option<Outcome>>> = FuturesUnordered::new();
    for door in target.doors.iter().cycle().skip(first).take(target.doors.len().min(DOORS_MAX)) {
        looks.push(through(whose, door, &target.check).boxed());
    }
    let mut last = None;
    while let Some(seen) = looks.next().await {
        if seen.as_ref().is_some_and(|outcome| outcome.up) {
            return seen;
        }
        last = last.or(seen);
    }
    last
}

/// A probe's prober, and whether its target was ill when it was last looked at.
type Whose<'a> = (&'a Shared, bool);

async fn one((shared, ill): Whose<'_>, point: &Point, check: &Check) -> Outcome {
    let _place = shared.place(ill).await;
    let outcome = probe(point, check, &shared.config.source).await;
    count(shared, &outcome);
    outcome
}

async fn through((shared, ill): Whose<'_>, door: &Door, check: &Check) -> Option<Outcome> {
    let _place = shared.place(ill).await;
    let outcome = probe_through(door, check, &shared.config.source).await?;
    count(shared, &outcome);
    Some(outcome)
}

fn count(shared: &Shared, outcome: &Outcome) {
    let counter = if outcome.up { &shared.well } else { &shared.ill };
    counter.inc();
    shared.took.observe(Duration::from_secs_f64(outcome.latency_ms.max(0.0) / 1_000.0));
}

/// Has no opinion of a target any more.
fn forget(shared: &Shared, target: &Target, wanted: &watch::Receiver<Arc<Target>>) {
    let mut opinions = shared.opinions.lock();
    // Whoever removed the target has removed its opinion; another may have come in its place.
    let had = wanted.has_changed().is_ok() && opinions.remove(&target.name).is_some();
    drop(opinions);
    if had {
        shared.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Notes an outcome; whether to look again soon, because it speaks against the opinion.
fn note(shared: &Shared, target: &Target, outcome: &Outcome, wanted: &watch::Receiver<Arc<Target>>) -> bool {
    let now_ms = i64::try_from(clock::since_epoch().as_millis()).unwrap_or(i64::MAX);
    let mut opinions = shared.opinions.lock();
    // Whoever removed the target has removed its opinion, and it must not come back.
    if wanted.has_changed().is_err() {
        return false;
    }
    let opinion = opinions.entry(target.name.clone()).or_default();
    let next = opinion.step(outcome, &target.check, now_ms);
    let changed = opinion.differs(&next);
    let hurry = next.up != Some(outcome.up);
    if changed {
        tracing::info!(target = target.name, up = next.up, reason = next.reason, "an opinion has changed");
    }
    *opinion = next;
    drop(opinions);
    if changed {
        shared.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
    hurry
}

/// Small numbers that differ; nothing depends on their being good ones.
struct Luck(u64);

impl Luck {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// From 0 up to 1.
    fn part(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() % 1_000).unwrap_or(0)) / 1_000.0
    }

    /// About so long.
    fn around(&mut self, pause: Duration) -> Duration {
        let permille = 1_000 - JITTER_PERMILLE + self.next() % (2 * JITTER_PERMILLE);
        pause.mul_f64(f64::from(u32::try_from(permille).unwrap_or(1_000)) / 1_000.0)
    }
}

/// A number from a text.
fn fold(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
