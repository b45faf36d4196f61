//! Time, for all that can run out on one thread. Requests come and go by the ten thousand while deadlines are seconds away, so
//! a deadline is a place in a list that one tick looks through, not a timer of its own.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use slab::Slab;

/// How often is looked. Deadlines are late by so much at the most.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// So much of the time between two ticks counts at the most. A thread that had no turn for longer could not see what came
/// meanwhile: nobody is to be given up for that.
const COUNTS_MAX_MS: u64 = 200;

/// One thread's clock and deadlines.
pub(crate) struct Ticker {
    began: Instant,
    now_ms: Cell<u64>,
    /// The time that deadlines go by: that in which the thread had its turn.
    waited_ms: Cell<u64>,
    waiting: RefCell<Slab<(u64, Waker)>>,
}

/// A moment that is waited for.
pub(crate) struct Deadline {
    ticker: Rc<Ticker>,
    at_ms: u64,
    place: Option<usize>,
}

impl Ticker {
    pub(crate) fn new(began: Instant) -> Self {
        let ticker =
            Self { began, now_ms: Cell::new(0), waited_ms: Cell::new(0), waiting: RefCell::default() };
        ticker.tick();
        ticker
    }

    /// The time of the last tick.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// Looks at the time, and wakes those whose moment has come.
    pub(crate) fn tick(&self) {
        self.advance(millis(self.began.elapsed()));
        let waited_ms = self.waited_ms.get();
        for (_, (at_ms, waker)) in &*self.waiting.borrow() {
            if *at_ms <= waited_ms {
                waker.wake_by_ref();
            }
        }
    }

    fn advance(&self, now_ms: u64) {
        let step_ms = now_ms.saturating_sub(self.now_ms.replace(now_ms));
        self.waited_ms.set(self.waited_ms.get() + step_ms.min(COUNTS_MAX_MS));
    }

    /// A moment from now.
    pub(crate) fn after(self: &Rc<Self>, wait: Duration) -> Deadline {
        // One tick more: the last one may be long ago.
        let at_ms = self.waited_ms.get().saturating_add(millis(wait)).saturating_add(millis(TICK));
        Deadline { ticker: self.clone(), at_ms, place: None }
    }
}

impl Deadline {
    /// Whether it has come.
    pub(crate) fn is_over(&self) -> bool {
        self.at_ms <= self.ticker.waited_ms.get()
    }

    /// Moves it.
    pub(crate) fn reset(&mut self, wait: Duration) {
        self.at_ms = self.ticker.waited_ms.get().saturating_add(millis(wait)).saturating_add(millis(TICK));
        let mut waiting = self.ticker.waiting.borrow_mut();
        if let Some(known) = self.place.and_then(|place| waiting.get_mut(place)) {
            known.0 = self.at_ms;
        }
    }
}

impl Future for Deadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        let entry = (self.at_ms, cx.waker());
        let place = {
            let mut waiting = self.ticker.waiting.borrow_mut();
            match self.place.and_then(|place| Some((place, waiting.get_mut(place)?))) {
                Some((place, known)) => {
                    known.0 = entry.0;
                    if !known.1.will_wake(entry.1) {
                        known.1.clone_from(entry.1);
                    }
                    place
                }
                None => waiting.insert((entry.0, entry.1.clone())),
            }
        };
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.ticker.waiting.borrow_mut().try_remove(place);
        }
    }
}

/// Whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_comes_late_by_no_more_than_two_ticks_and_leaves_nothing_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ticker = Rc::new(Ticker::new(landfall_runtime::clock::instant()));
        runtime.block_on(async {
            let mut moment = ticker.after(Duration::from_millis(1));
            let ticks = async {
                loop {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    ticker.tick();
                }
            };
            tokio::select! { () = &mut moment => {}, () = ticks => {} }
            assert!(ticker.now_ms() >= 1);
            drop(moment);
            assert!(ticker.waiting.borrow().is_empty());
        });
    }

    #[test]
    fn a_deadline_that_is_moved_is_not_seen_at_its_old_time() {
        let ticker = Rc::new(Ticker::new(landfall_runtime::clock::instant()));
        let mut moment = ticker.after(Duration::ZERO);
        moment.reset(Duration::from_secs(3600));
        ticker.waited_ms.set(1_000_000);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut moment).poll(&mut cx).is_pending());
        ticker.waited_ms.set(4_000_000);
        assert!(Pin::new(&mut moment).poll(&mut cx).is_ready());
    }

    #[test]
    fn time_without_a_turn_counts_for_little() {
        let ticker = Rc::new(Ticker::new(landfall_runtime::clock::instant()));
        let moment = ticker.after(Duration::from_millis(500));
        let mut now_ms = ticker.now_ms();
        // The thread stands still for ten seconds, and then has its turns again.
        for (step_ms, over) in [(10_000, false), (50, false), (200, false), (50, false), (50, true)] {
            now_ms += step_ms;
            ticker.advance(now_ms);
            assert_eq!(moment.is_over(), over, "after {now_ms} ms");
        }
        assert_eq!(ticker.now_ms(), now_ms);
    }
}
