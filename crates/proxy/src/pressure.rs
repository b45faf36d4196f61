//! How near the memory is to its end, and what is still taken on then: requests are refused (503) before the kernel ends everything.
//!
//! A few are always taken, so that memory which is taken by something else costs speed and not all service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use landfall_runtime::memory::Memory;

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Percent of the memory from which on no more than a few requests are carried at once, and from which on no more than a few clients are let in.
const HIGH: u64 = 85;
const FULL: u64 = 93;
/// So many are a few, over all threads.
pub(crate) const FEW: usize = 64;

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
    /// No more requests than these at once, of so many that would be.
    pub(crate) fn requests(&self, most: usize, threads: usize) -> usize {
        if self.is(Level::High) { most.min(FEW.div_ceil(threads)) } else { most }
    }

    /// No more clients than these, of so many that would be.
    pub(crate) fn connections(&self, most: usize) -> usize {
        if self.is(Level::Full) { most.min(FEW) } else { most }
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
            (pressure.requests(20_000, 2), pressure.connections(50_000))
        };
        assert_eq!(taken(0), (20_000, 50_000));
        assert_eq!(taken(849), (20_000, 50_000));
        assert_eq!(taken(850), (32, 50_000));
        assert_eq!(taken(930), (32, 64));
        assert_eq!(taken(5000), (32, 64));
        let pressure = Pressure::default();
        pressure.tell(Level::Full, &Memory::of_process(1), 1);
        assert_eq!((pressure.requests(3, 1), pressure.connections(1)), (3, 1), "never more than without");
        assert_eq!(level(1, 0), Level::Full);
    }
}
