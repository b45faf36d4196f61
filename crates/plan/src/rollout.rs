//! Rollout: a new version goes from cluster to cluster, and stops where it fails.
//!
//! Without a strategy every cluster gets it at once. With one, a cluster's turn comes when those before it are done and
//! have stood the soak; clusters that are offline are passed over and get it in their turn when they are back.

use serde::Deserialize;
use serde_json::Value;

use crate::reason::Reason;

/// The annotation that holds a strategy as JSON.
pub const ANNOTATION: &str = "landfall.dev/rollout";

/// How a new version goes through the clusters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Strategy {
    /// So many clusters at a time.
    pub parallel: u32,
    /// A failure stops it; otherwise the next cluster's turn comes all the same.
    pub pause_on_failure: bool,
    /// How long a cluster must have been done before the next one's turn comes.
    pub soak_seconds: u32,
    /// Who is first; the others follow by name.
    pub order: Vec<String>,
}

impl Default for Strategy {
    fn default() -> Self {
        Self { parallel: 1, pause_on_failure: true, soak_seconds: 0, order: Vec::new() }
    }
}

/// What is wrong with a strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ANNOTATION}: {0}")]
pub struct StrategyError(pub String);

/// What is seen of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The cluster's name.
    pub cluster: String,
    /// The hash of the template its shard was last given; none when it has no shard.
    pub template: Option<u64>,
    /// Its controller has seen what it was last given.
    pub observed: bool,
    /// How many replicas it shall have.
    pub replicas: u32,
    /// How many are of the newest template.
    pub updated: u32,
    /// How many are available.
    pub available: u32,
    /// Since when it is complete.
    pub complete_since_ms: Option<i64>,
    /// Why it fails: no progress before the deadline, or crashes again and again.
    pub failed: Option<String>,
    /// Its API does not answer.
    pub offline: bool,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has the new version, and has stood the soak.
    Done,
    /// It is at it.
    Running,
    /// It is given the new version now.
    Go,
    /// It keeps the version it has.
    Hold,
    /// It has the new version, and fails.
    Failed,
    /// It is offline and passed over.
    Passed,
}

/// How far the whole is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It goes on.
    Progressing,
    /// It stopped at a failure; a new version, or a recovery, sets it going again.
    Paused,
    /// All that can be reached are done.
    Complete,
}

/// The turns of all clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How far the whole is.
    pub phase: Phase,
    /// One per cluster, in the order they were given.
    pub turns: Vec<(String, Turn, Reason)>,
    /// How it stands, in one sentence.
    pub reason: Reason,
    /// When a soak is over.
    pub look_again_ms: Option<i64>,
}

impl Strategy {
    /// Reads the strategy a federated object carries; none: all clusters at once.
    pub fn of(object: &Value) -> Result<Option<Self>, StrategyError> {
        let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
        let Some(text) = annotations.and_then(|a| a.get(ANNOTATION)).and_then(Value::as_str) else {
            return Ok(None);
        };
        let strategy: Self = serde_json::from_str(text).map_err(|error| StrategyError(error.to_string()))?;
        if strategy.parallel == 0 {
            return Err(StrategyError("parallel: must be at least 1".to_owned()));
        }
        Ok(Some(strategy))
    }
}

/// A shard that keeps the version the member has: the template found there instead of the one that is meant.
pub fn hold(meant: &Value, found: &Value) -> Value {
    let mut held = meant.clone();
    let template = found.get("spec").and_then(|spec| spec.get("template"));
    if let (Some(spec), Some(template)) = (held.get_mut("spec").and_then(Value::as_object_mut), template) {
        spec.insert("template".to_owned(), template.clone());
    }
    held
}

/// Decides whose turn it is.
pub fn sequence(strategy: Option<&Strategy>, template: u64, clusters: &[Observation], now_ms: i64) -> Plan {
    let soak_ms = strategy.map_or(0, |strategy| i64::from(strategy.soak_seconds) * 1000);
    let mut turns: Vec<Option<Turn>> =
        clusters.iter().map(|seen| begun(seen, template, soak_ms, now_ms)).collect();
    let failed = turns.contains(&Some(Turn::Failed));
    let paused = failed && strategy.is_some_and(|strategy| strategy.pause_on_failure);
    let running = turns.iter().filter(|turn| **turn == Some(Turn::Running)).count();
    let at_once = strategy.map_or(usize::MAX, |s| usize::try_from(s.parallel).unwrap_or(usize::MAX));
    let mut free = if paused { 0 } else { at_once.saturating_sub(running) };
    for at in order(strategy, clusters) {
        let (Some(turn), Some(seen)) = (turns.get_mut(at), clusters.get(at)) else { continue };
        if turn.is_some() {
            continue;
        }
        // A first shard replaces nothing: it need not wait for its turn.
        let first = seen.template.is_none() && !paused;
        if !first {
            free = if free > 0 {
                free - 1
            } else {
                *turn = Some(Turn::Hold);
                continue;
            };
        }
        *turn = Some(Turn::Go);
    }
    let turns: Vec<Turn> = turns.into_iter().map(|turn| turn.unwrap_or(Turn::Hold)).collect();
    conclude(&turns, clusters, paused, soak_ms, now_ms)
}

/// How far a cluster is that has the new version, or cannot be given it; none for one whose turn may come.
fn begun(seen: &Observation, template: u64, soak_ms: i64, now_ms: i64) -> Option<Turn> {
    if seen.template != Some(template) {
        return seen.offline.then_some(Turn::Passed);
    }
    let complete = seen.observed && seen.updated >= seen.replicas && seen.available >= seen.replicas;
    if complete {
        let soaked =
            seen.complete_since_ms.is_some_and(|since_ms| since_ms.saturating_add(soak_ms) <= now_ms);
        return Some(if soaked || soak_ms == 0 { Turn::Done } else { Turn::Running });
    }
    match (seen.offline, &seen.failed) {
        (true, _) => Some(Turn::Passed),
        (false, Some(_)) => Some(Turn::Failed),
        (false, None) => Some(Turn::Running),
    }
}

/// Those that were named first, then by name.
fn order(strategy: Option<&Strategy>, clusters: &[Observation]) -> Vec<usize> {
    let named = strategy.map_or(&[][..], |strategy| &strategy.order);
    let rank = |seen: &Observation| named.iter().position(|name| *name == seen.cluster).unwrap_or(usize::MAX);
    let mut ranks: Vec<_> =
        clusters.iter().enumerate().map(|(at, seen)| (rank(seen), &seen.cluster, at)).collect();
    ranks.sort_unstable();
    ranks.into_iter().map(|(.., at)| at).collect()
}

fn conclude(turns: &[Turn], clusters: &[Observation], paused: bool, soak_ms: i64, now_ms: i64) -> Plan {
    let count = |wanted: Turn| turns.iter().filter(|turn| **turn == wanted).count();
    let done = count(Turn::Done);
    let told = format!(
        "{done} of {} clusters done, {} under way, {} waiting, {} failed, {} offline",
        turns.len(),
        count(Turn::Running) + count(Turn::Go),
        count(Turn::Hold),
        count(Turn::Failed),
        count(Turn::Passed)
    );
    let (phase, reason) = if paused {
        (Phase::Paused, Reason::new("RolloutPaused", told))
    } else if done + count(Turn::Passed) == turns.len() {
        (Phase::Complete, Reason::new("RolloutComplete", told))
    } else {
        (Phase::Progressing, Reason::new("RolloutProgressing", told))
    };
    let soaks = clusters
        .iter()
        .filter_map(|seen| seen.complete_since_ms)
        .map(|since_ms| since_ms.saturating_add(soak_ms));
    let look_again_ms = soaks.filter(|time| *time > now_ms).min();
    let told =
        turns.iter().zip(clusters).map(|(turn, seen)| (seen.cluster.clone(), *turn, explain(*turn, seen)));
    Plan { phase, turns: told.collect(), reason, look_again_ms }
}

fn explain(turn: Turn, seen: &Observation) -> Reason {
    let Observation { replicas, updated, available, failed, .. } = seen;
    match turn {
        Turn::Done => Reason::new("RolledOut", "it has the new version"),
        Turn::Running => {
            Reason::new("RollingOut", format!("{updated} of {replicas} updated, {available} available"))
        }
        Turn::Go => Reason::new("RollingOut", "it is given the new version"),
        Turn::Hold => Reason::new("RolloutHeld", "it keeps its version until its turn comes"),
        Turn::Failed => Reason::new("RolloutFailed", failed.clone().unwrap_or_else(|| "it fails".to_owned())),
        Turn::Passed => {
            Reason::new("RolloutOffline", "it is offline and gets the new version when it is back")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Clusters by letter: o old, n none yet, r running, c complete, f failing, x offline with the old version;
    /// turns as letters: D, R, G, H, F, P; and the phase.
    #[track_caller]
    fn check(strategy: &str, clusters: &str, expected: &str) {
        let object = json!({ "metadata": { "annotations": { ANNOTATION: strategy } } });
        let strategy = if strategy.is_empty() { None } else { Strategy::of(&object).expect("a strategy") };
        let read = |(at, letter): (usize, char)| Observation {
            cluster: format!("c{at}"),
            template: match letter {
                'o' | 'x' => Some(1),
                'n' => None,
                _ => Some(2),
            },
            observed: true,
            replicas: 2,
            updated: if letter == 'c' { 2 } else { 1 },
            available: 2,
            complete_since_ms: (letter == 'c').then_some(95_000),
            failed: (letter == 'f').then(|| "crash-looping".to_owned()),
            offline: letter == 'x',
        };
        let clusters: Vec<Observation> = clusters.chars().enumerate().map(read).collect();
        let plan = sequence(strategy.as_ref(), 2, &clusters, 100_000);
        let letter = |(_, turn, _): &(String, Turn, Reason)| match turn {
            Turn::Done => 'D',
            Turn::Running => 'R',
            Turn::Go => 'G',
            Turn::Hold => 'H',
            Turn::Failed => 'F',
            Turn::Passed => 'P',
        };
        let turns: String = plan.turns.iter().map(letter).collect();
        assert_eq!(format!("{turns} {:?}", plan.phase), expected);
    }

    #[test]
    fn one_after_the_other_and_no_further_than_a_failure() {
        check("", "ooo", "GGG Progressing");
        check("", "foo", "FGG Progressing");
        check("{}", "ooo", "GHH Progressing");
        check("{}", "roo", "RHH Progressing");
        check("{}", "coo", "DGH Progressing");
        check("{}", "cfo", "DFH Paused");
        check("{}", "ccc", "DDD Complete");
        check("{}", "cxo", "DPG Progressing");
        check("{}", "cxc", "DPD Complete");
        check("{}", "nnn", "GGG Progressing");
        check(r#"{"parallel":2}"#, "oooo", "GGHH Progressing");
        check(r#"{"order":["c2"]}"#, "ooo", "HHG Progressing");
        check(r#"{"soakSeconds":60}"#, "coo", "RHH Progressing");
        check(r#"{"soakSeconds":5}"#, "coo", "DGH Progressing");
        check(r#"{"pauseOnFailure":false}"#, "foo", "FGH Progressing");
    }

    #[test]
    fn bad_strategies_are_named() {
        let of = |text: &str| Strategy::of(&json!({ "metadata": { "annotations": { ANNOTATION: text } } }));
        assert_eq!(
            of(r#"{"parallel":0}"#).unwrap_err().to_string(),
            "landfall.dev/rollout: parallel: must be at least 1"
        );
        assert!(of(r#"{"paralel":1}"#).unwrap_err().to_string().contains("unknown field `paralel`"));
        assert_eq!(Strategy::of(&json!({})), Ok(None));
    }

    #[test]
    fn a_held_shard_keeps_its_template_and_takes_the_rest() {
        let held = hold(
            &json!({ "spec": { "replicas": 3, "template": { "v": 2 } } }),
            &json!({ "spec": { "replicas": 1, "template": { "v": 1 } } }),
        );
        assert_eq!(held, json!({ "spec": { "replicas": 3, "template": { "v": 1 } } }));
    }
}
