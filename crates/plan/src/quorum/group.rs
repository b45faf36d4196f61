//! Whether a group of edges is lost, before its silence alone says so.
//!
//! An edge that the hub does not hear may be cut off from the hub alone, and carry as before. So others look at the group's
//! addresses, and vote: those of its member, which may stand on the same link, and some of all members. Who never saw an
//! address answer has no vote on it, for it may be none of its networks. The group's own edges have none either.

use std::collections::BTreeSet;

use super::Court;

/// So many edges must say that nobody answers: one alone may be wrong about itself.
const WITNESSES_MIN: usize = 2;
/// What stands between member and group in a target's name. No port follows, so it is never a service's.
const MARK: &str = "/group/";

/// The name of what is voted on: the addresses of a group in a member.
pub fn group_target(cluster: &str, group: &str) -> String {
    format!("{cluster}{MARK}{group}")
}

/// Member and group of such a name.
pub fn target_group(target: &str) -> Option<(&str, &str)> {
    target.split_once(MARK).filter(|(_, group)| !group.contains(['/', ':']))
}

/// Whether nobody answers at a group's addresses in a member, as others see it. `own` are the group's edges; `fresh` tells whether an
/// edge has spoken since the last of these did. What others said before that is no witness of what is now.
pub fn group_gone(
    target: &str,
    own: &BTreeSet<&str>,
    court: &Court<'_>,
    fresh: impl Fn(&str) -> bool,
) -> bool {
    let (live, seats) = court.roster.seats();
    let voters = court.roster.group_voters(target, own);
    let counts = |edge: &&str| !court.isolated.contains(*edge);
    let (mut down, mut all) = (0_usize, 0_usize);
    for edge in voters.into_iter().filter(counts) {
        let Some(vote) = court.ballots.get(edge, target) else { continue };
        all += 1;
        down += usize::from(!vote.up && fresh(edge));
    }
    live * 2 > seats && down >= WITNESSES_MIN && down * 2 > all
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::{PlanEdge, Vote};

    use super::*;
    use crate::quorum::{Ballots, Roster, target, target_service};

    #[test]
    fn names_of_groups_are_no_names_of_services() {
        let name = group_target("eu-west", "blue");
        assert_eq!(target_group(&name), Some(("eu-west", "blue")));
        assert_eq!(target_service(&name), None);
        assert_eq!(target_group(&target("eu-west", "group", "blue", 80)), None);
    }

    /// Edges `a-1` and so on; each letter after a colon is a vote on `a`'s group of `a-1` and `a-2`: `u`p, `d`own, `o`ld and down, or none.
    #[track_caller]
    fn check(votes: &str, expected: bool) {
        let (mut told, mut ballots, mut old) = (Vec::new(), Ballots::default(), BTreeSet::new());
        let on = group_target("a", "blue");
        for word in votes.split_whitespace() {
            let (name, vote) = word.split_once(':').unwrap();
            let cluster = name.split('-').next().unwrap().to_owned();
            told.push(PlanEdge { name: name.into(), cluster, alive: true, ..PlanEdge::default() });
            if !vote.is_empty() {
                let vote_on = Vote { target: on.clone(), up: vote == "u", ..Vote::default() };
                ballots.set(name, &[vote_on]);
            }
            if vote == "o" {
                old.insert(name.to_owned());
            }
        }
        let roster = Roster::new(&told);
        let court = Court { roster: &roster, ballots: &ballots, isolated: &BTreeSet::new() };
        let own = BTreeSet::from(["a-1", "a-2"]);
        assert_eq!(group_gone(&on, &own, &court, |edge| !old.contains(edge)), expected, "{votes}");
    }

    #[test]
    fn a_group_is_lost_when_most_of_those_who_saw_it_say_so() {
        check("a-1: a-2: a-3:d b-1:d", true);
        check("a-1: a-2: a-3:d a-4:d", true);
        // One alone may be wrong about itself.
        check("a-1: a-2: a-3:d", false);
        check("a-1: a-2: a-3:d b-1: c-1:", false);
        // Most of those who saw it, not of all.
        check("a-1: a-2: a-3:d a-4:d b-1: c-1: d-1: e-1:", true);
        check("a-1: a-2: a-3:d b-1:u", false);
        check("a-1: a-2: a-3:d b-1:d c-1:u d-1:u", false);
        check("a-1: a-2: a-3:d b-1:d c-1:u", true);
        // Whoever was not heard since says nothing of now.
        check("a-1: a-2: a-3:o b-1:d c-1:o", false);
        // The group's own have no say.
        check("a-1:d a-2:d a-3:u", false);
        check("a-1:d a-2:d", false);
    }

    #[test]
    fn of_many_those_nearby_and_those_far_away_vote() {
        let edge = |cluster: &str, at: usize| PlanEdge {
            name: format!("{cluster}-{at}"),
            cluster: cluster.into(),
            alive: true,
            ..PlanEdge::default()
        };
        let clusters = ["a", "b", "c", "d", "e", "f", "g"];
        let edges: Vec<PlanEdge> =
            clusters.iter().flat_map(|cluster| (0..9).map(move |at| edge(cluster, at))).collect();
        let (roster, own) = (Roster::new(&edges), BTreeSet::from(["a-0", "a-1"]));
        let voters = roster.group_voters(&group_target("a", "blue"), &own);
        assert!(voters.iter().all(|edge| !own.contains(edge)));
        assert_eq!(voters.iter().filter(|edge| edge.starts_with("a-")).count(), 5);
        assert!(voters.len() >= 9, "{voters:?}");
        assert_eq!(voters.iter().collect::<BTreeSet<_>>().len(), voters.len());
    }
}
