//! Groups that are lost before their edges lapse.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use landfall_plan::quorum::{Court, group_gone, group_target};

use super::{Edges, Known};

/// An edge of a group is silent when it has not spoken for so long: it speaks every second. Others are asked then.
const SILENT: Duration = Duration::from_millis(1_200);

impl Edges {
    /// Finds edges of groups that have missed a heartbeat; whether there are any that were not known to.
    pub(in crate::traffic) fn hush(&self, now: Instant) -> bool {
        let mut news = false;
        for known in self.inner.lock().known.values_mut() {
            let missed = now.saturating_duration_since(known.heard) > SILENT;
            let silent = known.alive && missed && known.spec.ingress_replica_set.is_some();
            news |= silent && !known.silent;
            known.silent |= silent;
        }
        news
    }

    /// Whether a group is lost although its edges have not lapsed: all of them are silent, and others see that nobody answers at
    /// its addresses.
    pub(crate) fn lost(&self, group: &str) -> bool {
        let inner = self.inner.lock();
        let ours = |known: &Known| known.spec.ingress_replica_set.as_deref() == Some(group);
        let own: BTreeMap<&str, &Known> =
            inner.known.iter().filter(|(_, known)| ours(known)).map(|(name, one)| (&**name, one)).collect();
        let names: BTreeSet<&str> = own.keys().copied().collect();
        let alive = || own.values().filter(|known| known.alive);
        let Some(last) = alive().map(|known| known.heard).max().filter(|_| alive().all(|one| one.silent))
        else {
            return false;
        };
        let fresh = |edge: &str| inner.known.get(edge).is_some_and(|known| known.heard > last);
        let court = Court { roster: &inner.roster, ballots: &inner.ballots, isolated: &inner.isolated };
        let clusters: BTreeSet<&str> = alive().map(|known| known.spec.cluster.as_str()).collect();
        clusters.iter().all(|cluster| group_gone(&group_target(cluster, group), &names, &court, fresh))
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::{Edge, Vote};

    use super::super::tests::edge;
    use super::*;

    /// An edge, alone in its group if it has one, that says whether somebody answers at the addresses of `blue` in `a`.
    fn witness(cluster: &str, group: Option<&str>, beat: u32, up: bool) -> Edge {
        let mut edge = edge(cluster, beat, true, 0.0);
        edge.spec.ingress_replica_set = group.map(str::to_owned);
        let vote = Vote { target: group_target("a", "blue"), up, ..Vote::default() };
        edge.status.as_mut().expect("a status").votes = vec![vote];
        edge
    }

    #[test]
    fn a_group_is_lost_when_it_is_silent_and_others_say_so() {
        let edges = Edges::default();
        let begin = landfall_runtime::clock::instant();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        edges.set_members(["a".to_owned(), "b".to_owned()].into());
        let hear = |name: &str, edge: &Edge, ms: u64| edges.hear(name, Some(edge), None, at(ms)).groups;
        let blue = |beat: u32| witness("a", Some("blue"), beat, true);
        hear("blue-1", &blue(1), 0);
        hear("blue-2", &blue(1), 300);
        hear("y", &witness("b", None, 1, true), 0);
        hear("z", &witness("b", None, 1, true), 0);
        assert!(!edges.hush(at(1_100)) && !edges.lost("blue"));
        assert!(edges.hush(at(1_250)), "the first has missed a beat");
        assert!(!edges.lost("blue"), "the second has not");
        // Others say that nobody answers before the group is silent: it may be moving.
        assert!(hear("y", &witness("b", None, 2, false), 1_300));
        assert!(!edges.lost("blue"));
        assert!(edges.hush(at(1_600)) && !edges.hush(at(1_600)));
        assert!(!edges.lost("blue"), "one alone may be wrong about itself");
        assert!(hear("z", &witness("b", None, 2, false), 1_650));
        assert!(edges.lost("blue") && !edges.lost("green"));
        assert!(hear("blue-2", &blue(2), 1_700), "it is heard again");
        assert!(!edges.lost("blue"));
        // What others said before it was last heard says nothing of now.
        assert!(edges.hush(at(3_000)) && !edges.lost("blue"));
        assert!(!hear("y", &witness("b", None, 3, false), 3_100), "nothing new");
        hear("z", &witness("b", None, 3, false), 3_100);
        assert!(edges.lost("blue"));
    }
}
