//! The one place that asks the machine for the time; everything else is given it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "this is the clock that the lint points to")]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Time since 1970.
pub fn since_epoch() -> Duration {
    now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Whole seconds since 1970.
pub fn epoch_s() -> i64 {
    i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX)
}

/// A moment to measure from.
pub fn instant() -> std::time::Instant {
    std::time::Instant::now()
}
