//! Quorum: whether a target is up, by the majority of the edges that probe it.
//!
//! ```text
//!   roster ─► voters of a target (five, of different clusters)
//!   votes  ─► who is isolated      ├─► verdict: up or down, who said what, since when, why
//!   hub's own probe (a witness) ───┘
//! ```
//!
//! - A verdict changes only when more than half of the target's live voters say so. A voter that has lapsed has no vote; one
//!   that is isolated or has no opinion still counts among those of whom more than half are needed. So what is missing
//!   makes a verdict stay, never change.
//! - The live voters must speak for the federation: more than half of the clusters that have edges must have one that is
//!   alive. Where that fails, the hub itself may sit in as one more, with what its own probe of the member's API says; if
//!   even that is not enough, or if it says something else, the verdict stays as it was.
//!
//!   With two clusters of one edge each that is how one of them is found dead: its edge has lapsed, the other edge says down,
//!   and the hub does not reach it: two of three. An edge that merely stopped takes nothing with it.
//! - A target that nobody outside its cluster can see, because it has no address there and no edge of its cluster lets others in, is
//!   its own edges' affair: the majority of those decides. When they are silent, and the hub does not reach the member either,
//!   it is down. Nobody else is sent there anyway.
//! - Down at once, up again no sooner than [`HOLD_MS`] after it went down: edges have counted probes already, so this is
//!   only against what flaps more slowly.
//!
//! Deliberately absent: breaking ties in favour of anyone. A cluster that one half sees and the other does not stays what
//! it was for all.

mod ballots;
mod group;
mod roster;

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use landfall_api::landfall::{HealthCheck, PlanPort, PlanVote, Verdict};

use crate::reason::Reason;

pub use ballots::Ballots;
pub use group::{group_gone, group_target, target_group};
pub use roster::{Roster, VOTERS_MAX};

/// How long a target that went down stays down at least.
pub const HOLD_MS: i64 = 5_000;

/// The name of a target: what is voted on.
pub fn target(cluster: &str, namespace: &str, service: &str, port: i32) -> String {
    format!("{cluster}/{namespace}/{service}:{port}")
}

/// The cluster in a target's name.
pub fn target_cluster(target: &str) -> Option<&str> {
    target.split_once('/').map(|(cluster, _)| cluster)
}

/// The service in a target's name, as `namespace/name`.
pub fn target_service(target: &str) -> Option<&str> {
    let (_, rest) = target.split_once('/')?;
    rest.rsplit_once(':').map(|(service, _)| service)
}

/// The port that a service is probed at: the one that its health check names, else its first that speaks TCP. A port that is
/// only known inside the pods has no name here and is not found.
pub fn probed_port(check: Option<&HealthCheck>, ports: &[PlanPort]) -> Option<i32> {
    match check.and_then(|check| check.port.as_ref()) {
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => ports.iter().find(|port| port.name == *name).map(|port| port.port),
        None => ports.iter().find(|port| matches!(port.protocol.as_str(), "" | "TCP")).map(|port| port.port),
    }
}

/// What the hub's own probe says about a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Witness {
    /// Nothing: it was not probed often enough.
    #[default]
    Silent,
    /// Its API answers.
    Reached,
    /// Its API does not answer.
    Offline,
}

/// A target whose verdict is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Its name, see [`target`].
    pub target: &'a str,
    /// The verdict so far.
    pub previous: Option<&'a Verdict>,
    /// What the hub's own probe says about the target's member.
    pub witness: Witness,
    /// Nobody outside its cluster can see it, see [`Roster::sees`].
    pub unseen: bool,
}

/// A verdict, and what comes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruling {
    /// The verdict.
    pub verdict: Verdict,
    /// It says something else than the one before.
    pub changed: bool,
    /// When to ask again, although nobody says anything else.
    pub again_ms: Option<i64>,
}

/// What is known of the edges while cases are decided.
#[derive(Clone, Copy, Debug)]
pub struct Court<'a> {
    /// The edges.
    pub roster: &'a Roster,
    /// What they say.
    pub ballots: &'a Ballots,
    /// Whose word does not count, from [`Ballots::isolated`].
    pub isolated: &'a BTreeSet<String>,
}

/// Decides whether a target is up.
pub fn verdict(case: &Case<'_>, court: &Court<'_>, now_ms: i64) -> Ruling {
    let tally = Tally::count(case, court);
    let was_up = case.previous.is_none_or(|verdict| verdict.up);
    let (mut up, mut reason) = match tally.majority() {
        None if case.unseen && tally.voters == 0 && case.witness == Witness::Offline => {
            let why = "no edge there is heard, and the hub sees that its API does not answer";
            (false, Reason::new("Silent", why))
        }
        None => (was_up, tally.undecided()),
        Some(up) => match heard(up, case, court, &tally) {
            Ok(reason) => (up, reason),
            Err(reason) => (was_up, reason),
        },
    };
    let since_ms =
        case.previous.and_then(|verdict| verdict.since.as_ref()).map(|time| time.0.as_millisecond());
    let held_until_ms = since_ms.filter(|_| !was_up).map(|since| since.saturating_add(HOLD_MS));
    let again_ms = held_until_ms.filter(|until| up && *until > now_ms);
    if again_ms.is_some() {
        up = false;
        reason = Reason::new(
            "HeldDown",
            format!("{} of {} edges say up again; it went down a moment ago", tally.up, tally.voters),
        );
    }
    let changed = up != was_up;
    let since = match case.previous.and_then(|verdict| verdict.since.clone()) {
        Some(since) if !changed => since,
        _ => time(now_ms),
    };
    let (votes_up, votes_down) = (narrow(tally.up), narrow(tally.down));
    let reason = tally.with_isolated(&reason);
    let verdict = Verdict { up, since: Some(since), votes_up, votes_down, votes: tally.votes, reason };
    Ruling { verdict, changed, again_ms }
}

/// Whether the edges of a target's own cluster see it up; none when they do not agree, or none of them votes. Clients inside
/// a cluster need not leave it because others do not reach it.
pub fn own_word(target: &str, verdict: &Verdict, roster: &Roster) -> Option<bool> {
    let own = target_cluster(target);
    let mine = verdict.votes.iter().filter(|vote| own.is_some() && roster.cluster_of(&vote.edge) == own);
    let balance: i32 = mine.map(|vote| if vote.up { 1 } else { -1 }).sum();
    match balance {
        0 => None,
        balance => Some(balance > 0),
    }
}

/// Whether the majority of a target's live voters speaks for the federation; why it is heard, or not.
fn heard(up: bool, case: &Case<'_>, court: &Court<'_>, tally: &Tally) -> Result<Reason, Reason> {
    let (live, seats) = court.roster.seats();
    let (code, word) = if up { ("MajorityUp", "up") } else { ("MajorityDown", "down") };
    let count = if up { tally.up } else { tally.down };
    let told = format!("{count} of {} edges say {word}", tally.voters);
    if case.unseen {
        return Ok(Reason::new(code, format!("{told}; those of others cannot see it")));
    }
    if live * 2 > seats {
        return Ok(Reason::new(code, told));
    }
    let few = format!("{told}, but only {live} of {seats} clusters with edges can be heard");
    let agrees = match case.witness {
        Witness::Silent => false,
        Witness::Reached => up,
        Witness::Offline => !up,
    };
    // The hub sits in as one more.
    if (live + 1) * 2 <= seats + 1 {
        return Err(Reason::new("TooFewVoters", format!("{few}; it stays as it was")));
    }
    if !agrees {
        return Err(Reason::new(
            "TooFewVoters",
            format!("{few}, and the hub's probe does not say so; it stays as it was"),
        ));
    }
    let api = if up { "answers" } else { "does not answer" };
    Ok(Reason::new(code, format!("{told}, and the hub sees that its API {api}")))
}

/// The votes on one target, counted.
struct Tally {
    /// Live voters, whether they said something or not.
    voters: usize,
    up: usize,
    down: usize,
    votes: Vec<PlanVote>,
    isolated: Vec<String>,
}

impl Tally {
    fn count(case: &Case<'_>, court: &Court<'_>) -> Self {
        let roster = court.roster;
        let mut voters =
            if case.unseen { roster.own_voters(case.target) } else { roster.voters(case.target) };
        voters.sort_unstable();
        let mut tally =
            Self { voters: voters.len(), up: 0, down: 0, votes: Vec::new(), isolated: Vec::new() };
        for edge in voters {
            let Some(vote) = court.ballots.get(edge, case.target) else { continue };
            match (court.isolated.contains(edge), vote.up) {
                (true, _) => tally.isolated.push(edge.to_owned()),
                (false, true) => tally.up += 1,
                (false, false) => tally.down += 1,
            }
            let told = PlanVote {
                edge: edge.to_owned(),
                up: vote.up,
                since: vote.since.clone(),
                reason: vote.reason.clone(),
            };
            tally.votes.push(as_before(case.previous, told));
        }
        tally
    }

    /// What more than half of the live voters say.
    fn majority(&self) -> Option<bool> {
        let most = |count: usize| count * 2 > self.voters;
        match (most(self.up), most(self.down)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            (false, false) => None,
        }
    }

    /// Why nothing was decided.
    fn undecided(&self) -> Reason {
        match (self.voters, self.votes.len()) {
            (0, _) => Reason::new("NoVoters", "no edge that is alive votes on it; it stays as it was"),
            (voters, 0) => {
                Reason::new("NotProbed", format!("none of {voters} edges has voted yet; it stays as it was"))
            }
            (voters, _) => Reason::new(
                "NoMajority",
                format!(
                    "{} say up and {} say down of {voters} edges; it stays as it was",
                    self.up, self.down
                ),
            ),
        }
    }

    fn with_isolated(&self, reason: &Reason) -> String {
        match self.isolated.as_slice() {
            [] => reason.to_string(),
            edges => format!("{reason}; not counted, because isolated: {}", edges.join(", ")),
        }
    }
}

/// A vote that says the same as before keeps its words: these may tell times and counts that mean nothing new.
fn as_before(previous: Option<&Verdict>, mut vote: PlanVote) -> PlanVote {
    let votes = previous.map(|verdict| verdict.votes.as_slice()).unwrap_or_default();
    let same = |old: &&PlanVote| (&old.edge, old.up, &old.since) == (&vote.edge, vote.up, &vote.since);
    if let Some(old) = votes.iter().find(same) {
        vote.reason.clone_from(&old.reason);
    }
    vote
}

/// A time as objects keep it: without fractions of seconds, so that it is the same after it was written and read.
pub(crate) fn time(ms: i64) -> Time {
    Time(Timestamp::from_second(ms.div_euclid(1000)).unwrap_or_default())
}

fn narrow(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
