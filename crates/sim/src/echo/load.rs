//! How busy a program is, and what it suffers from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landfall_runtime::clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::gate::Effect;

/// No limit on requests at once.
const UNLIMITED: u32 = u32::MAX;

/// How long a request waits for its turn.
const QUEUE_TIME_MAX: Duration = Duration::from_secs(60);

/// Over how long requests are counted to tell how busy it is.
const PACE: Duration = Duration::from_secs(1);

/// Requests that wait for their turn.
const QUEUE_MAX: u32 = 10_000;

/// Counters of one program, and the faults that slow it down.
#[derive(Debug)]
pub struct Load {
    requests: AtomicU64,
    in_flight: AtomicU32,
    waiting: AtomicU32,
    delay_ms: AtomicU32,
    requests_max: AtomicU32,
    queueing: AtomicBool,
    ready: AtomicBool,
    /// How many requests a second are all that it can do; 0 where it does not say.
    capacity: AtomicU32,
    pace: Mutex<Pace>,
    /// Somebody left, or the limit changed.
    room: Notify,
}

/// How many requests came in this while, since when, and in the one before.
#[derive(Debug)]
struct Pace {
    since: Instant,
    now: u32,
    before: u32,
}

/// A request being served; it ends when this is dropped.
#[derive(Debug)]
pub struct Slot(Arc<Load>);

impl Default for Load {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            delay_ms: AtomicU32::new(0),
            requests_max: AtomicU32::new(UNLIMITED),
            queueing: AtomicBool::new(false),
            ready: AtomicBool::new(true),
            capacity: AtomicU32::new(0),
            pace: Mutex::new(Pace { since: clock::instant(), now: 0, before: 0 }),
            room: Notify::new(),
        }
    }
}

impl Load {
    /// Begins a request, at its turn; none when there are too many.
    pub(super) async fn enter(self: &Arc<Self>) -> Option<Slot> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(slot) = self.try_enter() {
            return Some(slot);
        }
        if !self.queueing.load(Ordering::Relaxed) {
            return None;
        }
        let place = Waiting::new(self)?;
        let turn = async {
            loop {
                // Asked for before looking, so that nobody's leaving is missed.
                let room = self.room.notified();
                if let Some(slot) = self.try_enter() {
                    return slot;
                }
                room.await;
            }
        };
        let slot = tokio::time::timeout(QUEUE_TIME_MAX, turn).await.ok();
        drop(place);
        slot
    }

    /// Begins a request at once; none when there are too many.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<Slot> {
        let max = self.requests_max.load(Ordering::Relaxed);
        let more = |taken: u32| (taken < max).then_some(taken + 1);
        let entered = self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        entered.is_ok().then(|| Slot(self.clone()))
    }

    /// Requests since the start.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Requests being served, and those that wait for their turn.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed).saturating_add(self.waiting.load(Ordering::Relaxed))
    }

    /// How much longer every request takes.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms.load(Ordering::Relaxed).into())
    }

    /// What `/readyz` says.
    pub(super) fn ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// So many requests a second are all that it can do; answers tell how much of that is used.
    pub fn rate_at(&self, requests_per_second: u32) {
        self.capacity.store(requests_per_second, Ordering::Relaxed);
    }

    /// How much of what it can do is used, with a request that has come in; none where it does not say.
    pub(super) fn used(&self) -> Option<f64> {
        let capacity = self.capacity.load(Ordering::Relaxed);
        if capacity == 0 {
            return None;
        }
        let mut pace = self.pace.lock();
        let passed = pace.since.elapsed();
        if passed >= PACE {
            // After a while without anybody there is nothing before.
            let before = if passed < PACE * 2 { pace.now } else { 0 };
            *pace = Pace { since: clock::instant(), now: 0, before };
        }
        pace.now = pace.now.saturating_add(1);
        Some(f64::from(pace.before) / f64::from(capacity))
    }

    /// From now on `/readyz` says that the program is on its way out.
    pub fn leave(&self) {
        self.ready.store(false, Ordering::Relaxed);
    }

    /// From now on the program suffers from this, and from nothing else.
    pub fn suffer(&self, effect: Effect) {
        let (delay, requests_max, queueing) = match effect {
            Effect::Slow(delay) => (delay, UNLIMITED, false),
            Effect::Overloaded { requests_max } => (Duration::ZERO, requests_max, false),
            Effect::Queueing { requests_max } => (Duration::ZERO, requests_max, true),
            Effect::None | Effect::Crash | Effect::Unhealthy => (Duration::ZERO, UNLIMITED, false),
        };
        self.delay_ms.store(u32::try_from(delay.as_millis()).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.requests_max.store(requests_max, Ordering::Relaxed);
        self.queueing.store(queueing, Ordering::Relaxed);
        self.room.notify_waiters();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.0.room.notify_one();
    }
}

/// A request's place in the queue.
struct Waiting<'a>(&'a Load);

impl<'a> Waiting<'a> {
    /// Takes a place; none when the queue is full.
    fn new(load: &'a Load) -> Option<Self> {
        let before = load.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(load);
        (before < QUEUE_MAX).then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
