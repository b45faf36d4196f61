//! Votes and verdicts: stories, and what holds for every input.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use landfall_api::landfall::{Address, PlanCluster, PlanEdge, Verdict, Vote};
use landfall_plan::quorum::{
    Ballots, Case, Court, HOLD_MS, Roster, Ruling, VOTERS_MAX, Witness, own_word, verdict,
};
use proptest::prelude::*;

fn edge(name: &str, cluster: &str, alive: bool) -> PlanEdge {
    PlanEdge { name: name.into(), cluster: cluster.into(), alive, ..PlanEdge::default() }
}

/// Edges as words: `a1 a2 b1`; the first letter is the cluster, and `!` says that it has lapsed.
fn edges(text: &str) -> Vec<PlanEdge> {
    let one = |word: &str| {
        let name = word.trim_end_matches('!');
        edge(name, &name[..1], name == word)
    };
    text.split_whitespace().map(one).collect()
}

/// Votes as words: `a1+` says up, `a1-` says down.
fn ballots(targets: &[(&str, &str)]) -> Ballots {
    let mut by_edge = std::collections::BTreeMap::<String, Vec<Vote>>::new();
    for (target, votes) in targets {
        for word in votes.split_whitespace() {
            let (name, up) = (word.trim_end_matches(['+', '-']), word.ends_with('+'));
            let reason = if up { String::new() } else { "connection refused".into() };
            let vote = Vote { target: (*target).into(), up, reason, ..Vote::default() };
            by_edge.entry(name.into()).or_default().push(vote);
        }
    }
    let mut ballots = Ballots::default();
    for (edge, votes) in &by_edge {
        ballots.set(edge, votes);
    }
    ballots
}

const TARGET: &str = "b/shop/web:80";

struct Story<'a> {
    edges: &'a str,
    votes: &'a [(&'a str, &'a str)],
    was_up: Option<bool>,
    witness: Witness,
    now_ms: i64,
    unseen: bool,
}

impl Story<'_> {
    fn rule(&self) -> Ruling {
        let roster = Roster::new(&edges(self.edges));
        let ballots = ballots(self.votes);
        let isolated = ballots.isolated(&roster);
        let court = Court { roster: &roster, ballots: &ballots, isolated: &isolated };
        let since = Some(Time(Timestamp::UNIX_EPOCH));
        let previous = self.was_up.map(|up| Verdict { up, since, ..Verdict::default() });
        verdict(
            &Case { target: TARGET, previous: previous.as_ref(), witness: self.witness, unseen: self.unseen },
            &court,
            self.now_ms,
        )
    }
}

/// What becomes of a target in b, long after the last change: `was` and the result are `+` or `-`.
#[track_caller]
fn check(edges: &str, votes: &str, was: char, witness: Witness, expected: char, reason: &str) {
    let story = Story {
        edges,
        votes: &[(TARGET, votes)],
        was_up: Some(was == '+'),
        witness,
        now_ms: 1_000_000,
        unseen: false,
    };
    let ruling = story.rule();
    let got = if ruling.verdict.up { '+' } else { '-' };
    assert_eq!((got, ruling.verdict.reason.as_str()), (expected, reason), "{edges}: {votes}");
    assert_eq!(ruling.changed, was != expected);
    let since = ruling.verdict.since.map(|time| time.0.as_millisecond());
    assert_eq!(since, Some(if ruling.changed { 1_000_000 } else { 0 }));
}

#[test]
fn the_majority_decides() {
    let quiet = Witness::Silent;
    check("a1 b1 c1", "a1- b1+ c1-", '+', quiet, '-', "MajorityDown: 2 of 3 edges say down");
    check("a1 b1 c1", "a1- b1- c1+", '-', quiet, '-', "MajorityDown: 2 of 3 edges say down");
    check("a1 b1 c1", "a1+ b1- c1+", '-', quiet, '+', "MajorityUp: 2 of 3 edges say up");
    check("a1 b1 c1", "a1- b1+ c1+", '+', quiet, '+', "MajorityUp: 2 of 3 edges say up");
    let stays = |up: u8, down: u8, of: u8| {
        format!("NoMajority: {up} say up and {down} say down of {of} edges; it stays as it was")
    };
    check("a1 b1", "a1- b1+", '+', quiet, '+', &stays(1, 1, 2));
    check("a1 b1", "a1- b1+", '-', quiet, '-', &stays(1, 1, 2));
    check("a1 b1 c1 d1", "a1- b1+ c1-", '+', quiet, '+', &stays(1, 2, 4));
    check("a1 b1", "", '+', quiet, '+', "NotProbed: none of 2 edges has voted yet; it stays as it was");
    check("", "", '-', quiet, '-', "NoVoters: no edge that is alive votes on it; it stays as it was");
}

/// The same for a target in b that only b's own edges can see.
#[track_caller]
fn check_unseen(edges: &str, votes: &str, was: char, witness: Witness, expected: char, reason: &str) {
    let votes = &[(TARGET, votes)];
    let story = Story { edges, votes, was_up: Some(was == '+'), witness, now_ms: 1_000_000, unseen: true };
    let ruling = story.rule();
    let got = if ruling.verdict.up { '+' } else { '-' };
    assert_eq!((got, ruling.verdict.reason.as_str()), (expected, reason), "{edges}: {votes:?}");
}

#[test]
fn what_nobody_else_sees_is_its_own_edges_affair() {
    let alone = "; those of others cannot see it";
    let one =
        |up: &str| format!("Majority{}{}: 1 of 1 edges say {up}{alone}", up[..1].to_uppercase(), &up[1..]);
    check_unseen("a1 b1 c1", "b1-", '+', Witness::Reached, '-', &one("down"));
    check_unseen("a1 b1 c1", "b1+", '-', Witness::Reached, '+', &one("up"));
    // Whatever others say: they cannot know.
    check_unseen("a1 b1 c1", "a1- b1+ c1-", '+', Witness::Reached, '+', &one("up"));
    let stays = "NoMajority: 1 say up and 1 say down of 2 edges; it stays as it was";
    check_unseen("a1 b1 b2", "b1- b2+", '+', Witness::Reached, '+', stays);
    let silent = "Silent: no edge there is heard, and the hub sees that its API does not answer";
    check_unseen("a1 b1! c1", "b1+", '+', Witness::Offline, '-', silent);
    let nobody = "NoVoters: no edge that is alive votes on it; it stays as it was";
    check_unseen("a1 b1! c1", "b1+", '+', Witness::Reached, '+', nobody);
    check_unseen("a1 b1! c1", "b1+", '-', Witness::Silent, '-', nobody);
}

#[test]
fn others_see_what_has_an_address_or_an_edge_that_lets_them_in() {
    let linked = |name: &str, linked: bool, alive: bool| PlanEdge {
        linked,
        peer_address: Some("192.0.2.1:5".into()),
        ..edge(name, &name[..1], alive)
    };
    let roster =
        Roster::new(&[linked("a1", true, true), linked("b1", true, false), linked("c1", false, true)]);
    let cluster = |name: &str, ip: Option<&str>| PlanCluster {
        name: name.into(),
        addresses: ip.map(|ip| Address { ip: Some(ip.into()), hostname: None }).into_iter().collect(),
        ..PlanCluster::default()
    };
    let check = |name: &str, ip, voters: &[&str]| {
        let mut got = roster.voters_on(&format!("{name}/shop/web:80"), &cluster(name, ip));
        got.sort_unstable();
        assert_eq!(got, voters, "{name} {ip:?}");
    };
    check("a", None, &["a1", "c1"]);
    // Its edge is silent: that is what the others find out.
    check("b", None, &["a1", "c1"]);
    check("c", None, &["c1"]);
    check("c", Some("192.0.2.9"), &["a1", "c1"]);
    check("d", None, &[]);
}

#[test]
fn who_has_lapsed_has_no_vote() {
    // Its last word was down; the two that are alive say up.
    check("a1! b1 c1", "a1- b1+ c1+", '-', Witness::Silent, '+', "MajorityUp: 2 of 2 edges say up");
    check("a1 b1! c1", "a1- b1+ c1-", '+', Witness::Silent, '-', "MajorityDown: 2 of 2 edges say down");
}

#[test]
fn of_two_clusters_one_dies() {
    let few = "1 of 1 edges say down, but only 1 of 2 clusters with edges can be heard";
    // b is dead: its edge has lapsed, and the hub does not reach it.
    let both = "MajorityDown: 1 of 1 edges say down, and the hub sees that its API does not answer";
    check("a1 b1!", "a1- b1+", '+', Witness::Offline, '-', both);
    // Only b's edge is dead, and a does not reach b.
    let alone = format!("TooFewVoters: {few}, and the hub's probe does not say so; it stays as it was");
    check("a1 b1!", "a1- b1+", '+', Witness::Reached, '+', &alone);
    check("a1 b1!", "a1- b1+", '+', Witness::Silent, '+', &alone);
    // The hub is cut off from b, but a sees it.
    let seen = "TooFewVoters: 1 of 1 edges say up, but only 1 of 2 clusters with edges can be heard, \
                and the hub's probe does not say so; it stays as it was";
    check("a1 b1!", "a1+ b1+", '+', Witness::Offline, '+', seen);
    // It is back, but its edge is not.
    let back = "MajorityUp: 1 of 1 edges say up, and the hub sees that its API answers";
    check("a1 b1!", "a1+", '-', Witness::Reached, '+', back);
}

#[test]
fn a_minority_changes_nothing_whoever_agrees_with_it() {
    // The hub and a are cut off from b, c and d.
    let few = "TooFewVoters: 1 of 1 edges say down, but only 1 of 4 clusters with edges can be heard; it stays as it was";
    check("a1 b1! c1! d1!", "a1-", '+', Witness::Offline, '+', few);
    let few = "TooFewVoters: 2 of 2 edges say down, but only 1 of 3 clusters with edges can be heard; it stays as it was";
    check("a1 a2 b1! c1!", "a1- a2-", '+', Witness::Offline, '+', few);
}

#[test]
fn an_edge_that_sees_everything_down_is_not_heard() {
    // a sees nobody; with the doubtful c it would be a majority.
    let story = Story {
        edges: "a1 b1 c1",
        votes: &[
            (TARGET, "a1- b1+ c1-"),
            ("b/shop/api:80", "a1- b1+ c1+"),
            ("c/shop/web:80", "a1- b1+ c1+"),
            ("c/shop/api:80", "a1- b1+ c1+"),
            ("c/shop/db:80", "a1- b1+ c1+"),
            ("a/shop/web:80", "a1+ b1- c1-"),
        ],
        was_up: Some(true),
        witness: Witness::Reached,
        now_ms: 1_000_000,
        unseen: false,
    };
    let ruling = story.rule();
    assert!(ruling.verdict.up);
    assert_eq!(
        ruling.verdict.reason,
        "NoMajority: 1 say up and 1 say down of 3 edges; it stays as it was; not counted, because isolated: a1"
    );
    let said: Vec<String> = ruling
        .verdict
        .votes
        .iter()
        .map(|vote| format!("{} {} {}", vote.edge, vote.up, vote.reason))
        .collect();
    assert_eq!(said, ["a1 false connection refused", "b1 true ", "c1 false connection refused"]);
    // A cluster that is really cut off is down in the eyes of all others, who see each other.
    let cut = Story {
        votes: &[(TARGET, "a1- b1+ c1-"), ("a/shop/web:80", "a1+ b1- c1+"), ("c/shop/web:80", "a1+ b1- c1+")],
        ..story
    };
    let ruling = cut.rule();
    assert_eq!(
        (ruling.verdict.up, ruling.verdict.reason.as_str()),
        (false, "MajorityDown: 2 of 3 edges say down; not counted, because isolated: b1")
    );
}

#[test]
fn the_last_words_of_a_dead_cluster_isolate_nobody() {
    // b is dead, and its two edges have not lapsed yet. The services are in a and b only, so a sees nothing else of others.
    let story = Story {
        edges: "a1 a2 b1 b2 c1",
        votes: &[
            (TARGET, "a1- a2- b1+ b2+ c1-"),
            ("b/shop/api:80", "a1- a2- b1+ b2+ c1-"),
            ("a/shop/web:80", "a1+ a2+ b1+ b2+ c1+"),
            ("a/shop/api:80", "a1+ a2+ b1+ b2+ c1+"),
        ],
        was_up: Some(true),
        witness: Witness::Reached,
        now_ms: 1_000_000,
        unseen: false,
    };
    let ruling = story.rule();
    assert_eq!(
        (ruling.verdict.up, ruling.verdict.reason.as_str()),
        (false, "MajorityDown: 3 of 5 edges say down")
    );
}

#[test]
fn down_at_once_and_up_after_a_while() {
    let story = |was_up, votes, now_ms| Story {
        edges: "a1 b1 c1",
        votes,
        was_up: Some(was_up),
        witness: Witness::Silent,
        now_ms,
        unseen: false,
    };
    assert!(!story(true, &[(TARGET, "a1- b1- c1-")], 1).rule().verdict.up);
    let held = story(false, &[(TARGET, "a1+ b1+ c1+")], HOLD_MS - 1).rule();
    assert_eq!((held.verdict.up, held.changed, held.again_ms), (false, false, Some(HOLD_MS)));
    assert_eq!(held.verdict.reason, "HeldDown: 3 of 3 edges say up again; it went down a moment ago");
    let back = story(false, &[(TARGET, "a1+ b1+ c1+")], HOLD_MS).rule();
    assert_eq!((back.verdict.up, back.changed, back.again_ms), (true, true, None));
}

#[test]
fn a_vote_that_says_the_same_keeps_its_words() {
    let roster = Roster::new(&edges("a1 b1 c1"));
    let word = |reason: &str| {
        let mut ballots = Ballots::default();
        let vote = Vote { target: TARGET.into(), reason: reason.into(), ..Vote::default() };
        let news = ballots.set("a1", &[vote]);
        assert_eq!(news, [TARGET]);
        ballots
    };
    let isolated = BTreeSet::<String>::new();
    let rule = |ballots: &Ballots, previous: Option<&Verdict>| {
        let court = Court { roster: &roster, ballots, isolated: &isolated };
        verdict(&Case { target: TARGET, previous, witness: Witness::Silent, unseen: false }, &court, 5_000)
            .verdict
    };
    let first = rule(&word("timeout after 801 ms"), None);
    assert_eq!(rule(&word("timeout after 805 ms"), Some(&first)), first);
    let mut same = word("timeout after 801 ms");
    let again = Vote { target: TARGET.into(), reason: "timeout after 812 ms".into(), ..Vote::default() };
    assert_eq!(same.set("a1", &[again]), Vec::<String>::new());
    assert_eq!(same.set("a1", &[]), [TARGET]);
}

#[test]
fn a_clusters_own_edges_speak_for_its_own_clients() {
    let story = Story {
        edges: "a1 b1 c1",
        votes: &[(TARGET, "a1- b1+ c1-")],
        was_up: Some(true),
        witness: Witness::Reached,
        now_ms: 1_000_000,
        unseen: false,
    };
    let roster = Roster::new(&edges(story.edges));
    let told = story.rule().verdict;
    assert_eq!((told.up, own_word(TARGET, &told, &roster)), (false, Some(true)));
    assert_eq!(own_word("d/shop/web:80", &told, &roster), None);
}

#[test]
fn voters_stand_in_different_clusters() {
    let roster = Roster::new(&edges("a1 a2 a3 b1 b2 c1! d1"));
    let voters = roster.voters(TARGET);
    assert_eq!(voters.len(), VOTERS_MAX);
    let clusters: BTreeSet<&str> = voters.iter().take(3).map(|name| &name[..1]).collect();
    assert_eq!(clusters.into_iter().collect::<String>(), "abd", "{voters:?}");
    assert!(!voters.contains(&"c1"));
    // The edges and the hub must agree for ever: these are written down.
    assert_eq!(voters, roster.voters(TARGET));
    let six = Roster::new(&edges("a1 b1 c1 d1 e1 f1 g1 h1"));
    assert_eq!(six.voters("b/shop/web:80").join(" "), VECTOR);
}

const VECTOR: &str = "d1 f1 g1 b1 h1";

fn any_roster() -> impl Strategy<Value = Vec<PlanEdge>> {
    prop::collection::btree_map("[a-j][0-9]", any::<bool>(), 0..24)
        .prop_map(|all| all.iter().map(|(name, alive)| edge(name, &name[..1], *alive)).collect())
}

fn any_votes() -> impl Strategy<Value = Vec<(String, Vec<Vote>)>> {
    let vote =
        ("[a-c]/n/[st]:80", any::<bool>()).prop_map(|(target, up)| Vote { target, up, ..Vote::default() });
    prop::collection::vec(("[a-j][0-9]", prop::collection::vec(vote, 0..6)), 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn voters_are_few_alive_and_spread(edges in any_roster(), target in "[a-j]/n/[a-z]{1,4}:80") {
        let roster = Roster::new(&edges);
        let voters = roster.voters(&target);
        let alive: Vec<&PlanEdge> = edges.iter().filter(|edge| edge.alive).collect();
        prop_assert_eq!(voters.len(), alive.len().min(VOTERS_MAX));
        let distinct: BTreeSet<&str> = voters.iter().copied().collect();
        prop_assert_eq!(distinct.len(), voters.len());
        prop_assert!(voters.iter().all(|name| alive.iter().any(|edge| edge.name == *name)));
        let clusters = |names: &[&str]| names.iter().map(|name| name[..1].to_owned()).collect::<BTreeSet<_>>().len();
        let all: Vec<&str> = alive.iter().map(|edge| edge.name.as_str()).collect();
        prop_assert_eq!(clusters(&voters), clusters(&all).min(VOTERS_MAX));
        let mut shuffled = edges.clone();
        shuffled.reverse();
        let other = Roster::new(&shuffled);
        prop_assert_eq!(other.voters(&target), voters);
    }

    #[test]
    fn one_edge_less_changes_one_voter_at_most(edges in any_roster(), at in any::<prop::sample::Index>(), target in "[a-j]/n/[a-z]{1,4}:80") {
        prop_assume!(!edges.is_empty());
        let gone = at.index(edges.len());
        let mut fewer = edges.clone();
        fewer[gone].alive = false;
        let (before, after) = (Roster::new(&edges), Roster::new(&fewer));
        let (before, after): (BTreeSet<&str>, BTreeSet<&str>) =
            (before.voters(&target).into_iter().collect(), after.voters(&target).into_iter().collect());
        let lost: Vec<_> = before.difference(&after).collect();
        prop_assert!(lost.iter().all(|name| **name == edges[gone].name.as_str()), "{:?}", lost);
        prop_assert!(after.difference(&before).count() <= lost.len());
    }

    #[test]
    fn a_verdict_changes_by_majority_only(
        edges in any_roster(), votes in any_votes(), was_up: bool,
        witness in prop::sample::select(vec![Witness::Silent, Witness::Reached, Witness::Offline]),
    ) {
        let roster = Roster::new(&edges);
        let mut ballots = Ballots::default();
        for (edge, votes) in &votes {
            ballots.set(edge, votes);
        }
        let isolated = ballots.isolated(&roster);
        let court = Court { roster: &roster, ballots: &ballots, isolated: &isolated };
        let target = "a/n/s:80";
        let previous = Verdict { up: was_up, ..Verdict::default() };
        let ruling = verdict(&Case { target, previous: Some(&previous), witness, unseen: false }, &court, 7);
        let voters = roster.voters(target);
        if ruling.changed {
            let agree = voters.iter().filter(|edge| ballots.get(edge, target).is_some_and(|vote| vote.up != was_up));
            prop_assert!(agree.count() * 2 > voters.len());
            let (live, seats) = roster.seats();
            let agrees = witness == if was_up { Witness::Offline } else { Witness::Reached };
            prop_assert!(live * 2 > seats || agrees && (live + 1) * 2 > seats + 1);
        }
        prop_assert_eq!(ruling.changed, ruling.verdict.up != was_up);
        let counted = ruling.verdict.votes_up + ruling.verdict.votes_down;
        prop_assert!(usize::try_from(counted).unwrap() <= ruling.verdict.votes.len());
        // Asked again, it says the same.
        let again = verdict(&Case { target, previous: Some(&ruling.verdict), witness, unseen: false }, &court, 7);
        prop_assert_eq!(again.verdict.up && again.changed, false);
        if ruling.verdict.up == was_up {
            prop_assert_eq!(again.verdict, ruling.verdict);
        }
    }
}
