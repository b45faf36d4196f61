//! How often requests may be tried again: a share of all requests, so that a service that fails everywhere is not buried.

use std::cell::Cell;

/// Tries that are left, in hundredths.
pub(crate) struct Budget(Cell<u64>);

/// What a service with few requests gets every second, and what it has at first and can save up of that: ten seconds' worth, so that
/// those in flight survive the loss of a cluster, and whoever fails everywhere is asked ten times more a second at the most.
const EACH_SECOND: u64 = 10 * 100;
const LEAST: u64 = 10 * EACH_SECOND;
/// What can be saved up: a cluster that is lost under load takes what it had in flight with it, which is all that came within the
/// second that it takes to notice its silence.
const MOST: u64 = 10_000 * 100;

impl Budget {
    pub(crate) fn new() -> Self {
        Self(Cell::new(LEAST))
    }

    /// A request has come.
    pub(crate) fn earn(&self, percent: u32) {
        self.0.set((self.0.get() + u64::from(percent)).min(MOST));
    }

    /// Takes one try, if there is one.
    pub(crate) fn spend(&self) -> bool {
        let left = self.0.get().checked_sub(100);
        left.inspect(|left| self.0.set(*left)).is_some()
    }

    /// Whether there is one.
    pub(crate) fn is_left(&self) -> bool {
        self.0.get() >= 100
    }

    /// A second has gone by.
    pub(crate) fn refill(&self) {
        let left = self.0.get();
        self.0.set(left.max((left + EACH_SECOND).min(LEAST)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_five_requests_may_be_tried_again() {
        let budget = Budget::new();
        while budget.is_left() {
            assert!(budget.spend());
        }
        assert!(!budget.spend());
        let mut again = 0;
        for _ in 0..1_000 {
            budget.earn(20);
            again += u32::from(budget.spend());
        }
        assert_eq!(again, 200);
        budget.refill();
        let mut tries = 0;
        while budget.spend() {
            tries += 1;
        }
        assert_eq!(tries, 10, "after a second without a request");
        (0..1_000).for_each(|_| budget.refill());
        assert_eq!(budget.0.get(), LEAST);
    }
}
