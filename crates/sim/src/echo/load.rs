//! How busy a program is, and what it suffers from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::gate::Effect;

/// No limit on requests at once.
const UNLIMITED: u32 = u32::MAX;

/// Counters of one program, and the faults that slow it down.
#[derive(Debug)]
pub struct Load {
    requests: AtomicU64,
    in_flight: AtomicU32,
    delay_ms: AtomicU32,
    requests_max: AtomicU32,
    ready: AtomicBool,
}

/// A request being served; it ends when this is dropped.
#[derive(Debug)]
pub struct Slot(Arc<Load>);

impl Default for Load {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            delay_ms: AtomicU32::new(0),
            requests_max: AtomicU32::new(UNLIMITED),
            ready: AtomicBool::new(true),
        }
    }
}

impl Load {
    /// Begins a request; none when there are too many.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Slot> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let slot = Slot(self.clone());
        (before < self.requests_max.load(Ordering::Relaxed)).then_some(slot)
    }

    /// Requests since the start.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Requests being served.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// How much longer every request takes.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms.load(Ordering::Relaxed).into())
    }

    /// What `/readyz` says.
    pub(super) fn ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// From now on `/readyz` says that the program is on its way out.
    pub fn leave(&self) {
        self.ready.store(false, Ordering::Relaxed);
    }

    /// From now on the program suffers from this, and from nothing else.
    pub fn suffer(&self, effect: Effect) {
        let (delay_ms, requests_max) = match effect {
            Effect::Slow(delay) => (u32::try_from(delay.as_millis()).unwrap_or(u32::MAX), UNLIMITED),
            Effect::Overloaded { requests_max } => (0, requests_max),
            Effect::None | Effect::Crash | Effect::Unhealthy => (0, UNLIMITED),
        };
        self.delay_ms.store(delay_ms, Ordering::Relaxed);
        self.requests_max.store(requests_max, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
