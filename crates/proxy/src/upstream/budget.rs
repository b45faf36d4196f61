//! How often requests may be tried again: a share of all requests, so that a service that fails everywhere is not buried.

use std::cell::Cell;

/// Tries that are left, in hundredths.
pub(crate) struct Budget(Cell<u64>);

/// What there is for a service with few requests, again every second.
const LEAST: u64 = 10 * 100;
/// What can be saved up: a cluster that dies under load takes what it had in flight with it.
const MOST: u64 = 2_000 * 100;

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

    /// A moment has gone by.
    pub(crate) fn refill(&self) {
        self.0.set(self.0.get().max(LEAST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_five_requests_may_be_tried_again() {
        let budget = Budget::new();
        while budget.spend() {}
        let mut again = 0;
        for _ in 0..1_000 {
            budget.earn(20);
            again += u32::from(budget.spend());
        }
        assert_eq!(again, 200);
        budget.refill();
        assert!(budget.spend());
    }
}
