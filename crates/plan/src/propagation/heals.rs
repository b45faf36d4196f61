//! Heals: how often a shard had to be put right, and how long it rests before it is put right again.
//!
//! A hand that changes a shard is healed at once. A program that keeps changing it (an autoscaler, another deployer) would be
//! answered for ever, each write causing the next: after a few times the federation waits, longer each time, and says so.

/// So many times it is put right at once.
const FREE: u32 = 5;
/// The first rest, and the longest.
const REST_MS: (i64, i64) = (10_000, 300_000);
/// Who was left alone for so long after a rest is trusted again.
const QUIET_MS: i64 = 600_000;

/// How often a shard was put right lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heals {
    /// So many times.
    pub count: u32,
    /// When last.
    pub last_ms: i64,
    /// The field manager who had changed it then, where that is known.
    pub by: Option<String>,
}

impl Heals {
    /// The same after it was put right once more.
    #[must_use]
    pub fn after(&self, now_ms: i64, by: Option<String>) -> Self {
        let trusted = self.rest_until_ms().saturating_add(QUIET_MS) < now_ms;
        let count = if trusted { 1 } else { self.count.saturating_add(1) };
        Self { count, last_ms: now_ms, by }
    }

    /// Until when it is not put right again.
    pub fn rest_until_ms(&self) -> i64 {
        let Some(more) = self.count.checked_sub(FREE) else { return self.last_ms };
        let (first, longest) = REST_MS;
        self.last_ms.saturating_add(first.saturating_mul(1 << more.min(16)).min(longest))
    }

    /// Whether somebody works against us.
    pub fn contested(&self) -> bool {
        self.count >= FREE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_and_end() {
        let mut heals = Heals::default();
        let mut now_ms = 1_000_000;
        let mut rests = Vec::new();
        for _ in 0..12 {
            heals = heals.after(now_ms, None);
            rests.push((heals.rest_until_ms() - now_ms) / 1000);
            now_ms = heals.rest_until_ms() + 1;
        }
        assert_eq!(rests, [0, 0, 0, 0, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert!(heals.contested());
        let after = heals.after(now_ms + QUIET_MS, Some("hpa".into()));
        assert_eq!((after.count, after.contested(), after.by.as_deref()), (1, false, Some("hpa")));
    }
}
