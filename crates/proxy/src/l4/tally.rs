//! What ports carry, for the hub: connections and clients of datagrams, by service and cluster.

use std::collections::HashMap;
use std::sync::Arc;

use landfall_api::landfall::{Load, ServiceLoad};
use parking_lot::Mutex;

/// Services and clusters are counted apart up to this number; what comes later is not counted.
const MOST: usize = 50_000;
/// Nothing is told anew before so much time has gone by: rates of shorter times say nothing.
const LEAST_MS: u64 = 200;

/// What is carried.
#[derive(Default)]
pub(crate) struct Tally(Mutex<State>);

/// A service and a cluster.
type Whose = (Arc<str>, Arc<str>);

#[derive(Default)]
struct State {
    counts: HashMap<Whose, Count>,
    told_ms: u64,
    last: Vec<ServiceLoad>,
}

#[derive(Default)]
struct Count {
    open: u32,
    /// Since it was last told.
    opened: u32,
}

/// Something that is carried; it is counted as long as it lives.
pub(crate) struct Carries<'a> {
    tally: &'a Tally,
    whose: Whose,
}

impl Tally {
    /// A connection begins.
    pub(crate) fn begin(&self, service: &Arc<str>, cluster: &Arc<str>) -> Option<Carries<'_>> {
        let whose = (service.clone(), cluster.clone());
        let counts = &mut self.0.lock().counts;
        if counts.len() >= MOST && !counts.contains_key(&whose) {
            return None;
        }
        let count = counts.entry(whose.clone()).or_default();
        count.open = count.open.saturating_add(1);
        count.opened = count.opened.saturating_add(1);
        Some(Carries { tally: self, whose })
    }

    /// The load since the last call.
    pub(crate) fn report(&self, now_ms: u64) -> Vec<ServiceLoad> {
        let state = &mut *self.0.lock();
        let span_ms = now_ms.saturating_sub(state.told_ms);
        if span_ms < LEAST_MS {
            return state.last.clone();
        }
        let seconds = f64::from(u32::try_from(span_ms).unwrap_or(u32::MAX)) / 1e3;
        let told = state.counts.iter().map(|((service, cluster), count)| ServiceLoad {
            service: service.to_string(),
            cluster: cluster.to_string(),
            load: Load {
                requests_per_second: Some(f64::from(count.opened) / seconds),
                concurrency: Some(f64::from(count.open)),
                ..Load::default()
            },
        });
        state.last = told.collect();
        state.last.sort_by(|one, two| (&one.service, &one.cluster).cmp(&(&two.service, &two.cluster)));
        state.told_ms = now_ms;
        state.counts.retain(|_, count| {
            // What is over was told of once.
            let keeps = count.open > 0 || count.opened > 0;
            count.opened = 0;
            keeps
        });
        state.last.clone()
    }
}

impl Drop for Carries<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.tally.0.lock().counts.get_mut(&self.whose) {
            count.open = count.open.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_and_what_was_opened_is_told() {
        let tally = Tally::default();
        let (web, lyon): Whose = ("shop/web".into(), "lyon".into());
        let told = |now_ms: u64| {
            let loads = tally.report(now_ms).into_iter();
            let rates =
                loads.map(|one| (one.load.requests_per_second.unwrap(), one.load.concurrency.unwrap()));
            rates.collect::<Vec<_>>()
        };
        let kept = tally.begin(&web, &lyon);
        drop(tally.begin(&web, &lyon));
        assert_eq!(told(1_000), [(2.0, 1.0)]);
        assert_eq!(told(1_001), [(2.0, 1.0)], "a moment says nothing");
        assert_eq!(told(2_000), [(0.0, 1.0)]);
        drop(kept);
        assert_eq!(told(3_000), [(0.0, 0.0)], "that it is over is told once");
        assert_eq!(told(4_000), []);
    }
}
