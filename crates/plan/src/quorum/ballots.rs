//! What the edges say, and whose word does not count.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use landfall_api::landfall::Vote;

use super::roster::Roster;
use super::target_cluster;

/// An edge is judged isolated by no fewer targets than this.
const TARGETS_MIN: usize = 2;
/// So much of what an edge votes on must be down in its eyes, and up in those of others, in percent.
const MOST_PERCENT: usize = 80;

/// All votes of all edges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ballots {
    edges: BTreeMap<String, HashMap<String, Vote>>,
}

impl Ballots {
    /// Takes over all that an edge says now; gives the targets that it says something else about than before.
    pub fn set(&mut self, edge: &str, votes: &[Vote]) -> Vec<String> {
        let said = self.edges.get(edge);
        let same = |vote: &Vote| said.and_then(|said| said.get(&vote.target)) == Some(vote);
        if said.map_or(0, HashMap::len) == votes.len() && votes.iter().all(same) {
            // A heartbeat, and nothing else.
            return Vec::new();
        }
        let now: HashMap<String, Vote> =
            votes.iter().map(|vote| (vote.target.clone(), vote.clone())).collect();
        let before = self.edges.remove(edge).unwrap_or_default();
        let gone = before.keys().filter(|target| !now.contains_key(*target)).cloned();
        let word = |vote: &Vote| (vote.up, vote.since.clone());
        let differs = |(target, vote): &(&String, &Vote)| before.get(*target).map(word) != Some(word(vote));
        let news = gone.chain(now.iter().filter(differs).map(|(target, _)| target.clone())).collect();
        if !now.is_empty() {
            self.edges.insert(edge.to_owned(), now);
        }
        news
    }

    /// What an edge says about a target.
    pub fn get(&self, edge: &str, target: &str) -> Option<&Vote> {
        self.edges.get(edge)?.get(target)
    }

    /// The edges whose word does not count: nearly everything is down in their eyes, and up in those of the others who
    /// vote on it. Such an edge is cut off, and what it says is about itself.
    ///
    /// An edge sees its own cluster even then, so only the others' targets are looked at, if there are any. For the same
    /// reason a target's own edges are no witnesses: they see it even when nobody else does, and what they said last stands
    /// until they lapse.
    pub fn isolated(&self, roster: &Roster) -> BTreeSet<String> {
        roster.alive().filter(|edge| self.is_isolated(edge, roster)).map(str::to_owned).collect()
    }

    fn is_isolated(&self, edge: &str, roster: &Roster) -> bool {
        let Some(votes) = self.edges.get(edge) else { return false };
        let own = roster.cluster_of(edge);
        let abroad = votes.keys().any(|target| target_cluster(target) != own);
        let mine = || votes.values().filter(|vote| !abroad || target_cluster(&vote.target) != own);
        let most = |part: usize, of: usize| part * 100 >= of * MOST_PERCENT;
        let (all, down) = (mine().count(), mine().filter(|vote| !vote.up).count());
        if all < TARGETS_MIN || !most(down, all) {
            return false;
        }
        let alone =
            mine().filter(|vote| !vote.up && self.others_see_it_up(edge, &vote.target, roster)).count();
        most(alone, down)
    }

    /// Whether most others who vote on a target, and do not stand in its cluster, say that it is up.
    fn others_see_it_up(&self, edge: &str, target: &str, roster: &Roster) -> bool {
        let elsewhere = |other: &&str| roster.cluster_of(other) != target_cluster(target);
        let others = roster.voters(target).into_iter().filter(|other| *other != edge).filter(elsewhere);
        let balance: i32 =
            others.filter_map(|other| self.get(other, target)).map(|vote| if vote.up { 1 } else { -1 }).sum();
        balance > 0
    }
}
