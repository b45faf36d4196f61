//! How long news are held back to be told together: not longer than a second, whatever else arrives.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use landfall_runtime::clock;
use parking_lot::Mutex;

use crate::shelf::Key;

/// The longest that news of an object wait.
const LONGEST: Duration = Duration::from_secs(1);

/// Since when news of objects are held back.
#[derive(Debug, Default)]
pub struct Patience {
    since: Mutex<HashMap<Key, Instant>>,
}

impl Patience {
    /// Whether the news of an object have waited long enough; the first question begins the wait.
    pub fn ran_out(&self, key: &Key) -> bool {
        let now = clock::instant();
        let since = *self.since.lock().entry(key.clone()).or_insert(now);
        now.duration_since(since) >= LONGEST
    }

    /// Says that the news were told.
    pub fn reset(&self, key: &Key) {
        self.since.lock().remove(key);
    }
}
