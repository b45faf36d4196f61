//! What follows from what probes see: a pure step from an opinion and an outcome to the next opinion.

use crate::check::Check;

/// What one probe saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Whether it is well.
    pub up: bool,
    /// Why it is not; empty when it is.
    pub reason: String,
    /// How long it took, in milliseconds.
    pub latency_ms: f64,
}

impl Outcome {
    /// It is well.
    pub const fn up(latency_ms: f64) -> Self {
        Self { up: true, reason: String::new(), latency_ms }
    }

    /// It is not, and why.
    pub fn down(reason: impl Into<String>, latency_ms: f64) -> Self {
        Self { up: false, reason: reason.into(), latency_ms }
    }
}

/// What is thought of a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opinion {
    /// Whether it is up; none until enough was seen.
    pub up: Option<bool>,
    /// Since when it is thought so, in milliseconds since 1970.
    pub since_ms: i64,
    /// Why it is down; empty when it is up.
    pub reason: String,
    /// How long the last probe took, in milliseconds.
    pub latency_ms: f64,
    /// It has been thought to be up at least once.
    pub seen_up: bool,
    /// So many outcomes in a row speak against it, or, before there is one, for the same.
    streak: u32,
    /// What the last outcome was.
    last: Option<bool>,
}

impl Opinion {
    /// The opinion after one more probe. The first success is believed at once: a target is innocent until enough probes in
    /// a row have failed, and what was never seen has no opinion.
    #[must_use]
    pub fn step(&self, outcome: &Outcome, check: &Check, now_ms: i64) -> Self {
        let mut next = self.clone();
        next.latency_ms = outcome.latency_ms;
        next.streak = if self.last == Some(outcome.up) { self.streak.saturating_add(1) } else { 1 };
        next.last = Some(outcome.up);
        let enough = match (self.up, outcome.up) {
            (None, true) => true,
            (_, true) => next.streak >= check.up_threshold,
            (_, false) => next.streak >= check.down_threshold,
        };
        if enough && self.up != Some(outcome.up) {
            next.up = Some(outcome.up);
            next.since_ms = now_ms;
            next.reason.clone_from(&outcome.reason);
            next.seen_up |= outcome.up;
        }
        next
    }

    /// Whether somebody who was told `self` must be told `other`.
    pub fn differs(&self, other: &Self) -> bool {
        (self.up, self.since_ms) != (other.up, other.since_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `+` and `-` are outcomes, one per second; what is expected after each: `u`p, `d`own, or nothing yet (`.`).
    #[track_caller]
    fn check(outcomes: &str, expected: &str) {
        let (mut opinion, mut got) = (Opinion::default(), String::new());
        for (at, outcome) in outcomes.chars().enumerate() {
            let seen = if outcome == '+' { Outcome::up(1.0) } else { Outcome::down("refused", 1.0) };
            opinion = opinion.step(&seen, &Check::default(), i64::try_from(at).expect("few"));
            got.push(match opinion.up {
                Some(true) => 'u',
                Some(false) => 'd',
                None => '.',
            });
        }
        assert_eq!(got, expected, "{outcomes}");
    }

    #[test]
    fn three_are_down_and_two_are_up() {
        check("+", "u");
        check("+--+---", "uuuuuud");
        check("---", "..d");
        check("---+-+", "..dddd");
        check("---++", "..ddu");
        check("--+", "..u");
    }

    proptest! {
        /// An opinion changes only after as many outcomes in a row as its check asks for, tells why it is down and nothing
        /// when it is up, and its time is that of its change.
        #[test]
        fn opinions_are_earned(outcomes in proptest::collection::vec(any::<bool>(), 0..60), down in 1_u32..5, up in 1_u32..5) {
            let check = Check { down_threshold: down, up_threshold: up, ..Check::default() };
            let mut opinion = Opinion::default();
            for (at, seen) in outcomes.iter().enumerate() {
                let now = i64::try_from(at).expect("few");
                let outcome = if *seen { Outcome::up(1.0) } else { Outcome::down("no", 1.0) };
                let next = opinion.step(&outcome, &check, now);
                if next.up != opinion.up {
                    let needed = match (opinion.up, seen) { (None, true) => 1, (_, true) => up, (_, false) => down };
                    let run = outcomes[..=at].iter().rev().take_while(|o| *o == seen).count();
                    prop_assert!(u32::try_from(run).expect("few") >= needed);
                    prop_assert_eq!(next.since_ms, now);
                } else {
                    prop_assert_eq!(next.since_ms, opinion.since_ms);
                }
                prop_assert_eq!(next.up == Some(false), !next.reason.is_empty());
                opinion = next;
            }
        }
    }
}
