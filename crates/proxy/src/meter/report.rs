//! What the hub is told: how much goes to each cluster for each service, since it was last told.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_api::landfall::{Load, ServiceLoad};

use super::{BOUNDS_US, Meters, Sum};

/// What was told last.
#[derive(Default)]
pub(super) struct Told {
    at_ms: u64,
    sums: BTreeMap<(Arc<str>, Arc<str>), Sum>,
    last: Vec<ServiceLoad>,
}

/// Nothing is told anew before so much time has gone by: rates of shorter times say nothing.
const LEAST_MS: u64 = 200;

impl Meters {
    /// The load since the last call, by service and cluster. Requests of other edges are theirs to tell of.
    pub(crate) fn report(&self, now_ms: u64) -> Vec<ServiceLoad> {
        let mut told = self.told.lock();
        let span_ms = now_ms.saturating_sub(told.at_ms);
        if span_ms < LEAST_MS {
            return told.last.clone();
        }
        let mut sums: BTreeMap<(Arc<str>, Arc<str>), Sum> = BTreeMap::new();
        for (whose, sum) in self.sums() {
            if whose.plan != 0 && !whose.cluster.is_empty() {
                sums.entry((whose.service, whose.cluster)).or_default().join(&sum);
            }
        }
        let load = |(of, sum): (&(Arc<str>, Arc<str>), &Sum)| {
            let before = told.sums.get(of).copied().unwrap_or_default();
            ServiceLoad {
                service: of.0.to_string(),
                cluster: of.1.to_string(),
                load: load(&before, sum, span_ms),
            }
        };
        let loads: Vec<ServiceLoad> = sums.iter().map(load).collect();
        *told = Told { at_ms: now_ms, sums, last: loads.clone() };
        loads
    }
}

impl Sum {
    fn join(&mut self, other: &Self) {
        self.began += other.began;
        self.took_us += other.took_us;
        self.used += other.used;
        self.used_told += other.used_told;
        self.ended.iter_mut().zip(other.ended).for_each(|(sum, number)| *sum += number);
        self.took.iter_mut().zip(other.took).for_each(|(sum, number)| *sum += number);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of one moment are far below 2^52")]
fn load(before: &Sum, now: &Sum, span_ms: u64) -> Load {
    let seconds = span_ms as f64 / 1e3;
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let mut took = [0; BOUNDS_US.len() + 1];
    for ((took, now), before) in took.iter_mut().zip(now.took).zip(before.took) {
        *took = u64::saturating_sub(now, before);
    }
    // Little's law: what is in flight is what comes in times how long it stays.
    let busy_us = now.took_us.saturating_sub(before.took_us) as f64;
    Load {
        requests_per_second: Some(rate(before.began, now.began)),
        errors_per_second: Some(rate(before.ended[4], now.ended[4])),
        concurrency: Some(busy_us / 1e6 / seconds),
        latency_ms: median_us(&took).map(|us| us / 1e3),
        utilization: used(before, now),
        ..Load::default()
    }
}

/// How busy endpoints said they were, on average; none where nobody said anything.
#[expect(clippy::cast_precision_loss, reason = "counts of one moment are far below 2^52")]
fn used(before: &Sum, now: &Sum) -> Option<f64> {
    let told = now.used_told.saturating_sub(before.used_told);
    let used = now.used.saturating_sub(before.used);
    (told > 0).then(|| (used as f64 / told as f64).round() / 1e6)
}

/// The median, as far as the buckets tell.
#[expect(clippy::cast_precision_loss, reason = "counts of one moment are far below 2^52")]
fn median_us(took: &[u64; BOUNDS_US.len() + 1]) -> Option<f64> {
    let half = took.iter().sum::<u64>() as f64 / 2.0;
    if half == 0.0 {
        return None;
    }
    let (mut below, mut floor) = (0.0, 0.0);
    for (number, bound) in took.iter().zip(BOUNDS_US) {
        let (number, bound) = (*number as f64, bound as f64);
        if below + number >= half && number > 0.0 {
            return Some(floor + (bound - floor) * (half - below) / number);
        }
        (below, floor) = (below + number, bound);
    }
    Some(floor)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;
    use landfall_plan::choose::Why;

    use super::*;
    use crate::table::Plan;

    fn plan(id: u64) -> Plan {
        Plan { id, name: "shop/cart".into(), hsts: None, proxy_header: false, clients: None }
    }

    #[test]
    fn the_hub_is_told_of_rates_since_the_last_time() {
        let meters = Meters::default();
        let service: Arc<str> = "shop/cart".into();
        for thread in 0..2 {
            let meter = meters.meter(thread, &plan(1), &service, "paris".into());
            for _ in 0..50 {
                meter.began(0, Why::Local);
                meter.ended(StatusCode::OK, Duration::from_millis(20));
            }
        }
        let meter = meters.meter(0, &plan(1), &service, "paris".into());
        meter.began(1, Why::Retry);
        meter.ended(StatusCode::BAD_GATEWAY, Duration::from_millis(20));
        meters.meter(0, &plan(0), &service, "paris".into()).began(0, Why::Local);
        let told = meters.report(1_000);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].service.as_str(), told[0].cluster.as_str()), ("shop/cart", "paris"));
        let load = &told[0].load;
        assert_eq!((load.requests_per_second, load.errors_per_second), (Some(101.0), Some(1.0)));
        assert!((load.concurrency.unwrap() - 2.02).abs() < 1e-9, "{load:?}");
        assert!((10.0..=25.0).contains(&load.latency_ms.unwrap()), "{load:?}");
        assert_eq!(meters.report(2_000)[0].load.requests_per_second, Some(0.0));
    }

    #[test]
    fn what_is_gone_is_told_no_more() {
        let meters = Meters::default();
        meters.meter(0, &plan(7), &"a/b".into(), "x".into()).began(0, Why::Local);
        meters.forget(&[7]);
        let mut text = String::new();
        meters.render(&mut text);
        assert_eq!((meters.report(1_000).len(), text.contains("a/b")), (0, false), "{text}");
    }
}
