//! Jobs: how many completions each cluster's Job is for.
//!
//! `parallelism` is divided like replicas. `completions` cannot be changed once a Job exists, so what was given to a
//! cluster stays there; the rest is divided by parallelism, so that nobody is given work it may not start.

use super::divide::{Slot, divide, order};

/// One cluster's Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobShard {
    /// The cluster's name.
    pub cluster: String,
    /// The parallelism planned for it.
    pub parallelism: u32,
    /// The completions of the Job that is there already.
    pub given: Option<u32>,
}

/// Divides a federated Job's completions; the answers stand in the order of the shards.
pub fn completions(total: u32, key: &str, shards: &[JobShard]) -> Vec<u32> {
    let given = shards.iter().filter_map(|shard| shard.given).fold(0, u32::saturating_add);
    let weight = |shard: &JobShard| if shard.given.is_some() { 0 } else { shard.parallelism };
    let order = order(key, shards.iter().map(|shard| (shard.cluster.as_str(), weight(shard))));
    let sorted = order.iter().filter_map(|at| shards.get(*at));
    let mut slots: Vec<Slot> =
        sorted.map(|shard| Slot { weight: weight(shard), ..Slot::default() }).collect();
    divide(total.saturating_sub(given), true, &mut slots);
    let mut answers: Vec<u32> = shards.iter().map(|shard| shard.given.unwrap_or(0)).collect();
    for (at, slot) in order.into_iter().zip(slots) {
        if let Some(answer) = answers.get_mut(at) {
            *answer += slot.planned;
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(total: u32, shards: &[(&str, u32, Option<u32>)], expected: &[u32]) {
        let of = |(cluster, parallelism, given): &(&str, u32, Option<u32>)| JobShard {
            cluster: (*cluster).to_owned(),
            parallelism: *parallelism,
            given: *given,
        };
        assert_eq!(completions(total, "", &shards.iter().map(of).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn completions_follow_parallelism_and_what_was_given_stays() {
        check(9, &[("A", 1, None), ("B", 2, None), ("C", 0, None)], &[3, 6, 0]);
        check(10, &[("A", 1, Some(5)), ("B", 1, None), ("C", 4, None)], &[5, 1, 4]);
        check(4, &[("A", 1, Some(5)), ("B", 1, None)], &[5, 0]);
        check(4, &[], &[]);
    }
}
