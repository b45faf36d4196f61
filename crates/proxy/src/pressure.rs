//! How near the memory is to its end, and what is still taken on then: requests are refused (503) before the kernel ends everything.
//!
//! Clients that take nothing of what is there for them are let go sooner. A few are always taken, so that memory which is taken by something else costs speed and not all service. Those that last, such as WebSockets,
//! take no room from them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use landfall_runtime::memory::Memory;

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Percent of the memory from which on no more than a few requests are begun, and from which on no more than a few clients are let in.
const HIGH: u64 = 85;
const FULL: u64 = 93;
/// So many are a few, over all threads.
const FEW: usize = 64;
/// How long is waited for clients that take nothing. A client may divide what it can take among many streams, each of which has its turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// What began before this, and the time before it, is not new any more.
const NEW_MS: u64 = 10_000;

/// How near the memory is to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Level {
    Easy,
    High,
    Full,
}

/// How near the memory is to its end, for all threads to see.
#[derive(Debug, Default)]
pub(crate) struct Pressure(AtomicU8);

impl Pressure {
    /// No more new requests than these at once, for one of so many threads.
    pub(crate) fn new_requests(&self, threads: usize) -> Option<usize> {
        self.is(Level::High).then(|| FEW.div_ceil(threads))
    }

    /// How long a client may take nothing of what is there for it: that takes memory, here and in the windows of whoever sends it.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.is(Level::High).then_some(PATIENCE)
    }

    /// No more new clients than these.
    pub(crate) fn new_clients(&self, threads: usize) -> Option<usize> {
        self.is(Level::Full).then(|| FEW.div_ceil(threads))
    }

    fn is(&self, level: Level) -> bool {
        self.0.load(Ordering::Relaxed) >= level as u8
    }

    fn tell(&self, level: Level, memory: &Memory, used: u64) {
        if self.0.swap(level as u8, Ordering::Relaxed) == level as u8 {
            return;
        }
        let limit = memory.limit;
        match level {
            Level::Easy => tracing::info!(used, limit, "there is memory again"),
            Level::High | Level::Full => {
                tracing::warn!(used, limit, ?level, "memory runs out: most requests are refused");
            }
        }
    }
}

/// How many of something began lately, as one thread knows it: in the ten seconds that are running, and in those before.
#[derive(Debug, Default)]
pub(crate) struct Lately([Cell<(u64, usize)>; 2]);

impl Lately {
    /// One more begins: gives what it is counted under.
    pub(crate) fn begin(&self, now_ms: u64) -> u64 {
        let age = now_ms / NEW_MS;
        let [even, odd] = &self.0;
        let count = if age.is_multiple_of(2) { even } else { odd };
        let (known, before) = count.get();
        count.set((age, if known == age { before + 1 } else { 1 }));
        age
    }

    /// One has ended.
    pub(crate) fn end(&self, age: u64) {
        for count in self.0.iter().filter(|count| count.get().0 == age) {
            count.set((age, count.get().1.saturating_sub(1)));
        }
    }

    /// How many began lately, and have not ended.
    pub(crate) fn count(&self, now_ms: u64) -> usize {
        let age = now_ms / NEW_MS;
        self.0.iter().map(Cell::get).filter(|(known, _)| known + 1 >= age).map(|(_, count)| count).sum()
    }
}

/// Looks at the memory again and again.
pub(crate) async fn follow(pressure: Arc<Pressure>, memory: Memory) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        looks.tick().await;
        let used = memory.used().unwrap_or(0);
        pressure.tell(level(used, memory.limit), &memory, used);
    }
}

fn level(used: u64, limit: u64) -> Level {
    let percent = u128::from(used) * 100 / u128::from(limit.max(1));
    if percent >= FULL.into() {
        Level::Full
    } else if percent >= HIGH.into() {
        Level::High
    } else {
        Level::Easy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_taken_on_the_less_memory_there_is() {
        let taken = |used| {
            let pressure = Pressure::default();
            pressure.tell(level(used, 1000), &Memory::of_process(1000), used);
            (pressure.new_requests(2), pressure.new_clients(1), pressure.patience())
        };
        assert_eq!(taken(0), (None, None, None));
        assert_eq!(taken(849), (None, None, None));
        assert_eq!(taken(850), (Some(32), None, Some(PATIENCE)));
        assert_eq!(taken(930), (Some(32), Some(64), Some(PATIENCE)));
        assert_eq!(taken(5000), (Some(32), Some(64), Some(PATIENCE)));
        assert_eq!(level(1, 0), Level::Full);
    }

    #[test]
    fn what_lasts_is_not_counted_for_ever() {
        let lately = Lately::default();
        let first = lately.begin(0);
        assert_eq!((lately.count(0), lately.count(NEW_MS * 2 - 1), lately.count(NEW_MS * 2)), (1, 1, 0));
        let second = lately.begin(NEW_MS);
        lately.begin(NEW_MS);
        assert_eq!(lately.count(NEW_MS), 3);
        lately.end(first);
        lately.end(second);
        assert_eq!(lately.count(NEW_MS), 1);
        // Its place is another's by now.
        let third = lately.begin(NEW_MS * 2);
        lately.end(first);
        assert_eq!((lately.count(NEW_MS * 2), third), (2, 2));
        lately.end(third);
        assert_eq!(lately.count(NEW_MS * 9), 0);
    }
}
