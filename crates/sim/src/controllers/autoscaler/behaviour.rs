//! How fast an autoscaler follows the load: stabilisation windows and policies.

use std::time::Duration;

use serde_json::Value;

use crate::controllers::read::{Millis, count, counted, int, items, text};

/// What an autoscaler remembers.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// When it last looked.
    pub(super) looked: Millis,
    /// What was recommended lately, and when.
    pub(super) recommended: Vec<(Millis, i64)>,
    /// By how much it scaled lately, and when.
    pub(super) scaled: Vec<(Millis, i64)>,
}

/// What comes of a recommendation.
pub(super) struct Step {
    pub(super) replicas: i64,
    /// The reason and message of AbleToScale.
    pub(super) able: (&'static str, &'static str),
    /// Whether a limit was met, with its reason and message.
    pub(super) limited: bool,
    pub(super) limit: (&'static str, &'static str),
}

/// The longest window or period that is remembered.
const REMEMBERED_MS: Millis = 3_600_000;

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");

/// The replicas that a recommendation leads to.
pub(super) fn limit(
    scaler: &Value,
    current: i64,
    wanted: i64,
    past: &mut Past,
    now: Millis,
    downscale: Duration,
) -> Step {
    past.recommended.push((now, wanted));
    past.recommended.retain(|(at, _)| now.saturating_sub(*at) <= REMEMBERED_MS);
    past.scaled.retain(|(at, _)| now.saturating_sub(*at) <= REMEMBERED_MS);
    let window = |direction: &str, default: Millis| {
        let seconds = scaler.pointer(&format!("/spec/behavior/{direction}/stabilizationWindowSeconds"));
        seconds.and_then(Value::as_i64).map_or(default, |s| s.saturating_mul(1000))
    };
    let down_ms = window("scaleDown", i64::try_from(downscale.as_millis()).unwrap_or(i64::MAX));
    let up_ms = window("scaleUp", 0);
    let within = |ms: Millis| {
        past.recommended.iter().filter(move |(at, _)| now.saturating_sub(*at) <= ms).map(|(_, count)| *count)
    };
    // Up no further than the least, down no further than the most that was recommended within the window.
    let least = within(up_ms).min().unwrap_or(wanted).min(wanted);
    let most = within(down_ms).max().unwrap_or(wanted).max(wanted);
    let stable = current.max(least).min(most);
    let mut able = READY;
    if stable != wanted {
        able = if wanted < stable {
            (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            )
        } else {
            (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            )
        };
    }
    let (replicas, limited, limit) = bounded(scaler, current, stable, past, now);
    Step { replicas, able, limited, limit }
}

/// minReplicas and maxReplicas.
pub(super) fn bounds(scaler: &Value) -> (i64, i64) {
    let least = counted(scaler.pointer("/spec/minReplicas").and_then(Value::as_i64).unwrap_or(1));
    (least, count(scaler, "/spec/maxReplicas").max(least))
}

/// Within the bounds and what the policies allow now.
fn bounded(
    scaler: &Value,
    current: i64,
    stable: i64,
    past: &Past,
    now: Millis,
) -> (i64, bool, (&'static str, &'static str)) {
    let (least, most) = bounds(scaler);
    let allowed = if stable > current {
        policy(scaler, "scaleUp", current, past, now)
    } else {
        policy(scaler, "scaleDown", current, past, now)
    };
    let mut result = stable;
    let mut limit = (false, WITHIN);
    if stable > current && stable > allowed.max(current) {
        result = allowed.max(current);
        limit = (
            true,
            ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"),
        );
    } else if stable < current && stable < allowed.min(current) {
        result = allowed.min(current);
        limit = (
            true,
            ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"),
        );
    }
    if result > most {
        (result, limit) = (
            most,
            (true, ("TooManyReplicas", "the desired replica count is more than the maximum replica count")),
        );
    } else if result < least {
        (result, limit) = (
            least,
            (true, ("TooFewReplicas", "the desired replica count is less than the minimum replica count")),
        );
    }
    (result, limit.0, limit.1)
}

/// How far the policies of a direction let the replicas go now.
fn policy(scaler: &Value, direction: &str, current: i64, past: &Past, now: Millis) -> i64 {
    let up = direction == "scaleUp";
    let base = format!("/spec/behavior/{direction}");
    let select = text(scaler, &format!("{base}/selectPolicy"));
    if select == "Disabled" {
        return current;
    }
    let changed = |period_s: i64| -> i64 {
        let since = now.saturating_sub(period_s.saturating_mul(1000));
        past.scaled.iter().filter(|(at, change)| *at > since && (*change > 0) == up).map(|(_, c)| *c).sum()
    };
    let reach = |ty: &str, value: i64, period_s: i64| {
        // Where it stood when the period began.
        let start = current.saturating_sub(changed(period_s));
        let by = if ty == "Percent" {
            let part = start.saturating_mul(value);
            if up { part.saturating_add(99) / 100 } else { part / 100 }
        } else {
            value
        };
        if up { start.saturating_add(by) } else { start.saturating_sub(by).max(0) }
    };
    let given = items(scaler, &format!("{base}/policies"));
    let mut reaches: Vec<i64> =
        given.iter().map(|p| reach(text(p, "/type"), int(p, "/value"), int(p, "/periodSeconds"))).collect();
    if reaches.is_empty() {
        reaches = if up {
            vec![reach("Percent", 100, 15), reach("Pods", 4, 15)]
        } else {
            vec![reach("Percent", 100, 15)]
        };
    }
    // The policy that changes the most, unless the one that changes the least is asked for.
    let largest = up == (select != "Min");
    let chosen = if largest { reaches.iter().max() } else { reaches.iter().min() };
    chosen.copied().unwrap_or(current)
}
