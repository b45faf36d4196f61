//! Which keys expire when.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 stands for never.
pub(super) type Expiry = u64;

/// Never.
pub(super) const NEVER: Expiry = 0;

/// Keys with a time to live, by key and by time.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    by_key: HashMap<Arc<str>, Expiry>,
    by_time: BTreeSet<(Expiry, Arc<str>)>,
}

impl Expiries {
    /// Sets or clears ([`NEVER`]) when a key expires.
    pub(super) fn set(&mut self, key: &Arc<str>, expiry: Expiry) {
        let before = match expiry {
            NEVER => self.by_key.remove(key),
            _ => self.by_key.insert(Arc::clone(key), expiry),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, Arc::clone(key)));
        }
        if expiry != NEVER {
            self.by_time.insert((expiry, Arc::clone(key)));
        }
    }

    /// The keys that expired by `now`, oldest first.
    pub(super) fn due(&self, now: Expiry) -> impl Iterator<Item = &Arc<str>> {
        self.by_time.iter().take_while(move |(expiry, _)| *expiry <= now).map(|(_, key)| key)
    }

    /// When the next key expires.
    pub(super) fn next(&self) -> Option<Expiry> {
        self.by_time.first().map(|(expiry, _)| *expiry)
    }
}

/// A time as milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> Expiry {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// When something expires that lives for `ttl` from `now` on; at least a millisecond, since 0 is never.
pub(super) fn after(now: Expiry, ttl: Option<Duration>) -> Expiry {
    ttl.map_or(NEVER, |ttl| now.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)).max(1))
}
