//! What pods would use if their work were real: autoscalers see it as CPU.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::{Agent, Usage};
use crate::member::config::Settings;

/// How often it is reported.
const EVERY: Duration = Duration::from_secs(1);

/// What one request per second costs, in thousandths of a CPU: 10 ms of work each.
const REQUEST_MILLI: u64 = 10;

/// Pods by namespace and name.
type Usages = BTreeMap<(String, String), Usage>;

/// Reports what the pods of a member use until it is dropped.
pub(super) async fn report(agent: Arc<Agent>, settings: Arc<Settings>) {
    let mut before = Usages::new();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let now = agent.usages();
        for ((namespace, pod), usage) in &now {
            let old = before.remove(&(namespace.clone(), pod.clone()));
            settings.loads.set(namespace, pod, cpu_milli(old, *usage, EVERY));
        }
        for (namespace, pod) in before.keys() {
            settings.loads.forget(namespace, pod);
        }
        before = now;
    }
}

/// CPU used between two looks, in thousandths. A pod that is new, or was restarted, counts from zero.
fn cpu_milli(before: Option<Usage>, now: Usage, elapsed: Duration) -> i64 {
    let before = before.map_or(0, |usage| usage.requests);
    let requests = if now.requests < before { now.requests } else { now.requests - before };
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let used = requests.saturating_mul(REQUEST_MILLI).saturating_mul(1000) / elapsed_ms;
    i64::try_from(used).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cost_cpu() {
        let usage = |requests| Usage { requests, ..Usage::default() };
        let second = Duration::from_secs(1);
        for (before, now, elapsed, want) in [
            (None, 0, second, 0),
            (None, 5, second, 50),
            (Some(100), 150, second, 500),
            (Some(100), 150, second * 2, 250),
            (Some(100), 20, second, 200),
            (Some(0), u64::MAX, second, i64::MAX),
            (Some(0), 1, Duration::ZERO, 10_000),
        ] {
            let got = cpu_milli(before.map(usage), usage(now), elapsed);
            // Saturated sums need only be large.
            let fits = if want == i64::MAX { got > 1_000_000_000 } else { got == want };
            assert!(fits, "{before:?} to {now} in {elapsed:?}: {got}");
        }
    }
}
