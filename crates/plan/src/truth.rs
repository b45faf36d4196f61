//! Truth: what each cluster has of a federated object, as its annotation and its condition tell it.
//!
//! ```text
//! landfall.dev/clusters:
//!   asia-east: Failed, generation 2 (Refused: the member refused it: exceeded quota)
//!   eu-west: Owed, generation 3, 2 of 2 ready (Offline: …)
//!   us-east: Propagated, generation 3, 2 of 2 ready
//! ```
//!
//! An object that cannot be understood says so in a line before those of its clusters, which stay as they are:
//! `Invalid: annotation landfall.dev/overrides: …`. It is how kinds without conditions tell, and how it is known what was told.
//!
//! People read it in `kubectl describe`; a new leader reads it to know what clusters have that do not answer now.

use std::fmt::{self, Display, Write as _};

use crate::propagation::Step;
use crate::reason::Reason;

/// The annotation with one line per cluster.
pub use landfall_api::landfall::CLUSTERS_ANNOTATION as ANNOTATION;

/// The condition that sums it up.
pub const CONDITION: &str = "Propagated";

/// Most clusters that a message names.
const NAMED_MAX: usize = 3;

/// Begins the line about an object that cannot be understood. No cluster has such a name.
const MISTAKE: &str = "Invalid: ";

/// The longest reason that is told: all lines together must fit into an annotation.
const WHY_CHARS_MAX: usize = 300;

/// How a cluster's shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As it should be.
    Propagated,
    /// On its way.
    Pending,
    /// It cannot be told now, and will be.
    Owed,
    /// The member will not have it, or it cannot be made.
    Failed,
    /// It is being taken away.
    Leaving,
}

/// All of them, for reading.
const STATES: &[(State, &str)] = &[
    (State::Propagated, "Propagated"),
    (State::Pending, "Pending"),
    (State::Owed, "Owed"),
    (State::Failed, "Failed"),
    (State::Leaving, "Leaving"),
];

/// Replicas of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many are ready.
    pub ready: u32,
    /// How many it asks for.
    pub wanted: u32,
}

/// One cluster's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The cluster.
    pub cluster: String,
    /// How its shard is.
    pub state: State,
    /// The generation of the federated object that it carries; 0 when it never carried one.
    pub generation: i64,
    /// Its replicas, for kinds that have some.
    pub count: Option<Count>,
    /// Why, when it is not simply as it should be.
    pub why: Option<String>,
}

impl State {
    /// The word for it.
    pub fn word(self) -> &'static str {
        STATES.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| *word)
    }

    /// What a step makes of a shard.
    pub fn of(step: &Step, reason: &Reason) -> Self {
        match step {
            Step::Nothing => Self::Propagated,
            Step::Apply | Step::Adopt => Self::Pending,
            Step::Delete { .. } | Step::Orphan => Self::Leaving,
            Step::Owe(_) => Self::Owed,
            Step::Wait if matches!(reason.code, "Refused" | "Conflict" | "Contested") => Self::Failed,
            Step::Wait => Self::Pending,
        }
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cluster, self.state.word())?;
        if self.generation > 0 {
            write!(f, ", generation {}", self.generation)?;
        }
        if let Some(Count { ready, wanted }) = self.count {
            write!(f, ", {ready} of {wanted} ready")?;
        }
        match &self.why {
            Some(why) => write!(f, " ({})", short(why)),
            None => Ok(()),
        }
    }
}

/// As much of a reason as is told, on one line.
fn short(why: &str) -> String {
    let short: String = why.chars().take(WHY_CHARS_MAX).collect();
    let more = if short.len() < why.len() { "…" } else { "" };
    format!("{}{more}", short.replace(['\n', '\r'], " "))
}

/// The annotation's text: what is wrong with the object, if anything is, and its clusters.
pub fn write(mistake: Option<&str>, lines: &[Line]) -> String {
    let mut text = String::new();
    if let Some(why) = mistake {
        let _ = writeln!(text, "{MISTAKE}{}", short(why));
    }
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text.trim_end().to_owned()
}

/// What an annotation says to be wrong with the object itself.
pub fn mistake(text: &str) -> Option<&str> {
    text.lines().next()?.strip_prefix(MISTAKE)
}

/// Reads an annotation; lines that make no sense are left out.
pub fn read(text: &str) -> Vec<Line> {
    text.lines().filter(|line| !line.starts_with(MISTAKE)).filter_map(read_line).collect()
}

fn read_line(line: &str) -> Option<Line> {
    let (cluster, rest) = line.split_once(": ")?;
    let (facts, why) = match rest.split_once(" (") {
        Some((facts, why)) => (facts, why.strip_suffix(')').map(str::to_owned)),
        None => (rest, None),
    };
    let mut facts = facts.split(", ");
    let word = facts.next()?;
    let (state, _) = STATES.iter().find(|(_, known)| *known == word)?;
    let mut line = Line { cluster: cluster.to_owned(), state: *state, generation: 0, count: None, why };
    for fact in facts {
        if let Some(generation) = fact.strip_prefix("generation ") {
            line.generation = generation.parse().ok()?;
        } else if let Some((ready, wanted)) = fact.strip_suffix(" ready").and_then(|f| f.split_once(" of ")) {
            line.count = Some(Count { ready: ready.parse().ok()?, wanted: wanted.parse().ok()? });
        }
    }
    Some(line)
}

/// The condition: whether it holds, and why.
pub fn condition(lines: &[Line]) -> (bool, Reason) {
    let those = |state: State| lines.iter().filter(move |line| line.state == state);
    let all = lines.len();
    for (state, code, what) in [
        (State::Failed, "Failed", "cannot be brought to"),
        (State::Owed, "ClusterOffline", "is owed to"),
        (State::Pending, "Progressing", "is on its way to"),
        (State::Leaving, "Progressing", "is being taken away from"),
    ] {
        let count = those(state).count();
        if count > 0 {
            let named: Vec<String> = those(state).take(NAMED_MAX).map(told).collect();
            let more =
                if count > NAMED_MAX { format!(" and {} more", count - NAMED_MAX) } else { String::new() };
            return (false, Reason::new(code, format!("{what} {}{more}", named.join("; "))));
        }
    }
    match all {
        0 => (false, Reason::new("NoClusters", "no cluster is selected")),
        1 => (true, Reason::new("Propagated", "is in the one cluster selected")),
        all => (true, Reason::new("Propagated", format!("is in all {all} clusters selected"))),
    }
}

fn told(line: &Line) -> String {
    match &line.why {
        Some(why) => format!("{} ({why})", line.cluster),
        None => line.cluster.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let text = "asia-east: Failed, generation 2 (Refused: no (not (at all)): x)\n\
                    eu-west: Owed, generation 3, 1 of 2 ready (Offline: later)\n\
                    us-east: Propagated";
        let lines = read(text);
        assert_eq!(write(None, &lines), text);
        assert_eq!(lines.get(1).and_then(|line| line.count), Some(Count { ready: 1, wanted: 2 }));
        assert_eq!(read("nonsense\n: \na: Flying\nb: Owed, generation x"), []);
    }

    #[test]
    fn a_mistake_is_a_line_before_the_clusters_and_none_of_them() {
        let lines = read("us-east: Propagated, generation 3");
        let text = write(Some("Propagated: no\nsuch thing"), &lines);
        assert_eq!(text, "Invalid: Propagated: no such thing\nus-east: Propagated, generation 3");
        assert_eq!(read(&text), lines);
        assert_eq!((mistake(&text), mistake("a: Owed")), (Some("Propagated: no such thing"), None));
    }

    #[test]
    fn the_worst_is_told_first() {
        let check = |text: &str, expected: &str| {
            let (holds, reason) = condition(&read(text));
            assert_eq!(format!("{holds} {reason}"), expected);
        };
        check("", "false NoClusters: no cluster is selected");
        check("a: Propagated\nb: Propagated", "true Propagated: is in all 2 clusters selected");
        check("a: Propagated\nb: Owed\nc: Failed (x)", "false Failed: cannot be brought to c (x)");
        check("a: Owed\nb: Owed\nc: Owed\nd: Owed", "false ClusterOffline: is owed to a; b; c and 1 more");
    }
}
