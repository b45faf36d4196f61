//! The open connections of one thread: who waits for what, and since when. Slow and idle clients are found by looking at all of
//! them now and then, so a request costs no timer.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use slab::Slab;

use crate::config::Limits;
use crate::core::Phase;
use crate::ticker::millis;

/// What a client's connection is at. It is written by the connection's own thread only; it is atomic because hyper asks that
/// what it reads from can be sent.
#[derive(Debug, Default)]
pub(crate) struct State {
    now: AtomicU8,
    /// Requests in flight: several on HTTP/2.
    serving: AtomicU32,
    /// Since when, as the last look saw it; 0: it was not seen yet.
    since_ms: AtomicU64,
    /// Since when the client takes nothing of what is there for it, as the last look saw it; `TAKES`: it does, `STUCK`: it was not
    /// seen yet.
    stuck_ms: AtomicU64,
    order: AtomicU8,
    /// It is HTTP/2's, and can be told that it ends.
    http2: AtomicBool,
    /// On HTTP/2, frames that came and ask for nothing.
    noise: AtomicU32,
}

/// Values of `stuck_ms` that are no time.
const TAKES: u64 = 0;
const STUCK: u64 = u64::MAX;

/// What a connection is at.
const WAITS: u8 = 0;
const READS_HEAD: u8 = 1;
const SERVES: u8 = 2;

/// A client of HTTP/2 may send so many frames that ask for nothing at once, and some more between two looks.
const NOISE_MAX: u32 = 10_000;
const NOISE_PER_LOOK: u32 = 100;

/// How long a client of HTTP/2 that is told that its time is over may send requests: some may be on their way.
const FAREWELL_MS: u64 = 5_000;

/// How long a connection without a request is left alone when the end is near.
const GRACE_MS: u64 = 250;

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// To go on.
    Go,
    /// To end after its request.
    Finish,
    /// To end at once.
    Close,
}

impl State {
    /// It speaks HTTP/2: what has come of it is no part of a request.
    pub(crate) fn speaks_http2(&self) {
        self.http2.store(true, Ordering::Relaxed);
        self.becomes(WAITS);
    }

    /// Bytes came.
    pub(crate) fn reads(&self) {
        if self.now.load(Ordering::Relaxed) == WAITS {
            self.becomes(READS_HEAD);
        }
    }

    /// A request has come whole.
    pub(crate) fn serves(&self) {
        let serving = self.serving.load(Ordering::Relaxed);
        self.serving.store(serving.saturating_add(1), Ordering::Relaxed);
        self.becomes(SERVES);
    }

    /// Its answer has been given.
    pub(crate) fn served(&self) {
        let serving = self.serving.load(Ordering::Relaxed).saturating_sub(1);
        self.serving.store(serving, Ordering::Relaxed);
        if serving == 0 {
            self.becomes(WAITS);
        }
    }

    /// The client takes what is there for it, or does not.
    pub(crate) fn takes(&self, takes: bool) {
        let stuck = self.stuck_ms.load(Ordering::Relaxed) != TAKES;
        if stuck == takes {
            self.stuck_ms.store(if takes { TAKES } else { STUCK }, Ordering::Relaxed);
        }
    }

    /// Frames came, or what explains them went.
    pub(crate) fn noise(&self, now: impl FnOnce(u32) -> u32) {
        self.noise.store(now(self.noise.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    /// Whether it sends far more than it could have a reason for.
    pub(crate) fn is_noisy(&self) -> bool {
        self.noise.load(Ordering::Relaxed) > NOISE_MAX
    }

    /// Whether it has taken nothing for too long.
    fn is_stuck(&self, now_ms: u64, limits: &Limits) -> bool {
        match self.stuck_ms.load(Ordering::Relaxed) {
            TAKES => false,
            STUCK => {
                self.stuck_ms.store(now_ms.max(1), Ordering::Relaxed);
                false
            }
            since_ms => now_ms.saturating_sub(since_ms) > millis(limits.write_timeout),
        }
    }

    fn becomes(&self, now: u8) {
        self.now.store(now, Ordering::Relaxed);
        self.since_ms.store(0, Ordering::Relaxed);
    }

    /// What it is told.
    pub(crate) fn order(&self) -> Order {
        match self.order.load(Ordering::Relaxed) {
            0 => Order::Go,
            1 => Order::Finish,
            _ => Order::Close,
        }
    }

    /// Whether it serves a request, or has waited for one for a while.
    fn may_finish(&self, now_ms: u64) -> bool {
        let since_ms = self.since_ms.load(Ordering::Relaxed);
        let waited_ms = if since_ms == 0 { 0 } else { now_ms.saturating_sub(since_ms) };
        self.now.load(Ordering::Relaxed) == SERVES || waited_ms >= GRACE_MS
    }

    /// What must be done about it: nothing, or close it because its time is over.
    fn look(&self, now_ms: u64, limits: &Limits) -> Order {
        if !self.is_noisy() {
            self.noise(|frames| frames.saturating_sub(NOISE_PER_LOOK));
        }
        if self.is_stuck(now_ms, limits) {
            return Order::Close;
        }
        let since_ms = self.since_ms.load(Ordering::Relaxed);
        if since_ms == 0 {
            self.since_ms.store(now_ms.max(1), Ordering::Relaxed);
            return Order::Go;
        }
        let waited_ms = now_ms.saturating_sub(since_ms);
        match self.now.load(Ordering::Relaxed) {
            // It is still being sent what it asked for.
            WAITS if self.stuck_ms.load(Ordering::Relaxed) != TAKES => {
                self.since_ms.store(now_ms.max(1), Ordering::Relaxed);
                Order::Go
            }
            WAITS if waited_ms > millis(limits.idle_timeout) => {
                let told = self.http2.load(Ordering::Relaxed);
                let over_ms = waited_ms - millis(limits.idle_timeout);
                if told && over_ms <= FAREWELL_MS { Order::Finish } else { Order::Close }
            }
            READS_HEAD if waited_ms > millis(limits.head_timeout) => Order::Close,
            // Requests have deadlines of their own.
            _ => Order::Go,
        }
    }
}

/// The open connections of one thread.
#[derive(Default)]
pub(crate) struct Clients(RefCell<Slab<(Arc<State>, Waker)>>);

impl Clients {
    /// A connection has come.
    pub(crate) fn enter(&self, state: Arc<State>, waker: Waker) -> usize {
        self.0.borrow_mut().insert((state, waker))
    }

    /// It is gone.
    pub(crate) fn leave(&self, place: usize) {
        self.0.borrow_mut().try_remove(place);
    }

    /// Closes those whose time is over, and tells all when the end is near.
    pub(crate) fn look(&self, now_ms: u64, limits: &Limits, phase: Phase) {
        let all = match phase {
            Phase::Closed | Phase::Serving => Order::Go,
            Phase::Draining => Order::Finish,
            Phase::Ending => Order::Close,
        };
        for (_, (state, waker)) in &*self.0.borrow() {
            let own = state.look(now_ms, limits);
            // A request may be on its way to a connection that waits: it is not closed at once.
            let spared = all == Order::Finish && !state.may_finish(now_ms);
            let order = if spared { own } else { own.max(all) };
            if order > state.order() {
                state.order.store(order as u8, Ordering::Relaxed);
                waker.wake_by_ref();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_keep_us_waiting_are_closed() {
        let limits = Limits::default();
        let (idle, head) = (millis(limits.idle_timeout), millis(limits.head_timeout));
        let check = |moves: &[fn(&State)], after_ms: u64, want: Order| {
            let state = State::default();
            moves.iter().for_each(|one| one(&state));
            assert_eq!(state.look(1, &limits), Order::Go);
            assert_eq!(state.look(1 + after_ms, &limits), want, "{after_ms}");
        };
        check(&[], idle, Order::Go);
        check(&[], idle + 1, Order::Close);
        check(&[State::reads], head, Order::Go);
        check(&[State::reads], head + 1, Order::Close);
        check(&[State::reads, State::serves], idle * 9, Order::Go);
        check(&[State::reads, State::serves, State::served], head + 1, Order::Go);
        check(&[State::reads, State::serves, State::reads], idle * 9, Order::Go);
        check(&[State::serves, State::serves, State::served], idle * 9, Order::Go);
        check(&[State::serves, State::serves, State::served, State::served], idle + 1, Order::Close);
        let write = millis(limits.write_timeout);
        let (stuck, takes) = (|state: &State| state.takes(false), |state: &State| state.takes(true));
        check(&[State::serves, stuck], write, Order::Go);
        check(&[State::serves, stuck], write + 1, Order::Close);
        check(&[State::serves, stuck, takes], write * 9, Order::Go);
        // What it was sent last is on its way still.
        check(&[State::serves, State::served, stuck], idle.min(write), Order::Go);
        let (http2, farewell) = (State::speaks_http2 as fn(&State), idle + FAREWELL_MS);
        check(&[http2], idle, Order::Go);
        check(&[http2], idle + 1, Order::Finish);
        check(&[http2], farewell, Order::Finish);
        check(&[http2], farewell + 1, Order::Close);
        check(&[State::reads, http2], head + 1, Order::Go);
        let slow = State::default();
        for now_ms in (1..idle * 3).step_by(usize::try_from(write).unwrap()) {
            slow.takes(false);
            assert_eq!(slow.look(now_ms, &limits), Order::Go, "it takes something now and then");
            slow.takes(true);
        }
    }
}
