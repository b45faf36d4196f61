//! Tells at the hub how an object stands in its clusters: annotation, condition, status, Events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use landfall_plan::propagation::{Debt, Origin, Step};
use landfall_plan::replicas::Scalable;
use landfall_plan::status::{self, Federated, Shard};
use landfall_plan::truth::{self, Count, Line, State};
use serde_json::Value;

use super::numbers;
use super::ruling::{Mistake, Ruling, Rulings};
use super::sight::Sight;
use crate::events::Happening;
use crate::federation::{Federation, now_ms, rfc3339};
use crate::hub::{Update, Writer};
use crate::kinds::Row;
use crate::shelf::Key;
use crate::warnings::Warning;

/// Kinds whose status has conditions, or is added up.
const WITH_CONDITIONS: &[&str] = &[
    "DaemonSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "Job",
    "PodDisruptionBudget",
    "ReplicaSet",
    "ReplicationController",
    "Service",
    "StatefulSet",
];
/// Kinds that edges may carry.
const EDGES_CARRY: &[&str] = &["Ingress", "Service"];
/// Most clusters that an Event names.
const NAMED_MAX: usize = 5;
/// How long what is on its way is not told of: most of it has arrived by then.
const SETTLE: Duration = Duration::from_millis(150);

/// Writes what has changed of the truth about an object.
pub(super) fn tell(
    federation: &Arc<Federation>,
    key: &Key,
    row: &Row,
    object: &Value,
    sights: &[Sight],
    rulings: &Result<Rulings, Mistake>,
) {
    let before = object.pointer("/metadata/annotations").and_then(|all| all.get(truth::ANNOTATION));
    let before = before.and_then(Value::as_str);
    let known = truth::read(before.unwrap_or(""));
    let lines = match rulings {
        Ok(rulings) => lines(row, object, sights, &rulings.each),
        // Nothing is touched, so nothing has changed.
        Err(_) => known.clone(),
    };
    // Many shards arrive at once; their arrivals are told together.
    let moving = lines.iter().any(|line| line.state == State::Pending);
    if moving && !federation.patience.ran_out(key) {
        federation.queue.push_after(key, SETTLE);
        return;
    }
    federation.patience.reset(key);
    let mut update = Update::default();
    let mistake = rulings.as_ref().err().map(|mistake| mistake.0.as_str());
    let text = truth::write(mistake, &lines);
    // A mistake that stands there was told when it was written.
    let told = mistake.is_some() && before.and_then(truth::mistake) == truth::mistake(&text);
    if before != Some(text.as_str()) {
        update.annotations.push((truth::ANNOTATION, text));
    }
    let status = new_status(federation, key, row, object, sights, rulings, &lines);
    if status.as_ref() != object.get("status").filter(|status| !status.is_null()) && status.is_some() {
        update.status = status;
    }
    if !told {
        update.events = happenings(&known, &lines, rulings);
    }
    update.events.extend(sights.iter().filter_map(|sight| healed(key, sight)));
    update.events.extend(sights.iter().flat_map(|sight| warned(key, sight)));
    Writer::submit(federation, key, update);
}

fn lines(row: &Row, object: &Value, sights: &[Sight], rulings: &[Ruling]) -> Vec<Line> {
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(1);
    let each = sights.iter().zip(rulings).filter_map(|(sight, ruling)| line(row, generation, sight, ruling));
    each.collect()
}

/// What is told about one cluster; nothing when it has no part and nothing of ours.
fn line(row: &Row, generation: i64, sight: &Sight, ruling: &Ruling) -> Option<Line> {
    let leaving = matches!(
        ruling.decision.step,
        Step::Delete { .. } | Step::Orphan | Step::Owe(Debt::Delete { .. } | Debt::Orphan)
    );
    if !ruling.part && !leaving {
        return unserved(row, sight, ruling);
    }
    let state = State::of(&ruling.decision.step, &ruling.decision.reason);
    let carried = sight.line.as_ref().map_or(0, |line| line.generation);
    let count = Scalable::of(&row.kind).and_then(|scalable| count(scalable, sight));
    let adopted = sight
        .seen
        .as_ref()
        .and_then(|seen| seen.mark.as_ref())
        .is_some_and(|mark| mark.origin == Origin::Adopted);
    let why = match (state, &ruling.share) {
        (State::Propagated, Some(share)) => Some(share.to_string()),
        (State::Propagated, None) if adopted => Some("adopted".to_owned()),
        (State::Propagated, None) => None,
        (State::Owed, Some(share)) => Some(format!("{}; {share}", ruling.decision.reason)),
        (State::Failed | State::Pending, Some(share)) if share.code == "RefusedHeld" => {
            Some(format!("{}; {share}", ruling.decision.reason))
        }
        (State::Owed | State::Pending | State::Failed | State::Leaving, _) => {
            Some(ruling.decision.reason.to_string())
        }
    };
    let generation = if ruling.current { generation } else { carried };
    Some(Line { cluster: sight.member.name.clone(), state, generation, count, why })
}

/// A cluster that would have the object, but whose API does not know the kind: an older Kubernetes, or a kind of users' own
/// whose definition is still on its way.
fn unserved(row: &Row, sight: &Sight, ruling: &Ruling) -> Option<Line> {
    let reason = &ruling.decision.reason;
    let state = if row.builtin() { State::Failed } else { State::Pending };
    (reason.code == "NotServed").then(|| Line {
        cluster: sight.member.name.clone(),
        state,
        generation: 0,
        count: None,
        why: Some(reason.to_string()),
    })
}

fn count(scalable: &Scalable, sight: &Sight) -> Option<Count> {
    // Nobody knows how many are ready where nobody can look.
    let silent = sight.offline_since_ms.is_some() || !sight.synced;
    let last = sight.line.as_ref().and_then(|line| line.count);
    match sight.found() {
        Some(found) => {
            let wanted = numbers::spec_replicas(scalable, found)?;
            Some(Count { ready: if silent { 0 } else { numbers::ready(found) }, wanted })
        }
        None if silent => last.map(|last| Count { ready: 0, ..last }),
        None => None,
    }
}

fn new_status(
    federation: &Federation,
    key: &Key,
    row: &Row,
    object: &Value,
    sights: &[Sight],
    rulings: &Result<Rulings, Mistake>,
    lines: &[Line],
) -> Option<Value> {
    let now = rfc3339(now_ms());
    let mut status = object.get("status").cloned();
    let carried = if EDGES_CARRY.contains(&row.kind.as_str()) {
        federation.routes.addresses(federation, key)
    } else {
        Some(Vec::new())
    };
    // While nobody knows who carries it, it is reached where it was.
    if let (Ok(rulings), Some(edges)) = (rulings, &carried) {
        let hostname = federation.config.hostname(&key.name, &key.namespace);
        let hostname = hostname.as_deref().filter(|_| row.kind == "Service");
        let part = sights.iter().zip(&rulings.each).filter(|(_, ruling)| ruling.part);
        let read = status::adds_up(&row.kind, object);
        let shards: Vec<Shard<'_>> = part
            .map(|(sight, ruling)| Shard {
                cluster: &sight.member.name,
                object: if read { sight.found().unwrap_or(&Value::Null) } else { &Value::Null },
                offline: sight.offline_since_ms.is_some() || !sight.synced,
                current: ruling.current,
            })
            .collect();
        let federated = Federated { kind: &row.kind, object, hostname, edges, now: &now };
        status = status::aggregate(&federated, &shards).or(status);
    }
    if !WITH_CONDITIONS.contains(&row.kind.as_str()) {
        return status;
    }
    let (holds, reason) = match rulings {
        Ok(_) => truth::condition(lines),
        Err(mistake) => (false, landfall_plan::Reason::new("Invalid", mistake.0.clone())),
    };
    let mut whole = status.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let conditions = whole.get("conditions").and_then(Value::as_array).cloned();
    let mut conditions = conditions.unwrap_or_default();
    let word = if holds { "True" } else { "False" };
    status::set_condition(&mut conditions, truth::CONDITION, word, reason.code, &reason.message, &now);
    if let Some(rollout) = rulings.as_ref().ok().and_then(|rulings| rulings.rollout.as_ref()) {
        let going = if rollout.code == "RolloutComplete" { "False" } else { "True" };
        status::set_condition(&mut conditions, "RollingOut", going, rollout.code, &rollout.message, &now);
    }
    whole["conditions"] = conditions.into();
    Some(whole)
}

/// What happened between what was told before and what is told now.
fn happenings(before: &[Line], now: &[Line], rulings: &Result<Rulings, Mistake>) -> Vec<Happening> {
    if let Err(mistake) = rulings {
        return vec![Happening { warning: true, reason: "Invalid", message: mistake.0.clone() }];
    }
    let told: HashMap<&str, &Line> = before.iter().map(|line| (line.cluster.as_str(), line)).collect();
    let known: HashSet<&str> = now.iter().map(|line| line.cluster.as_str()).collect();
    let old = |line: &Line| told.get(line.cluster.as_str()).copied();
    let was = |line: &Line| old(line).map_or(0, |old| old.generation);
    let mut all = Vec::new();
    let mut group = |reason: &'static str, what: &str, lines: Vec<&Line>| {
        if !lines.is_empty() {
            all.push(Happening { warning: false, reason, message: format!("{what} {}", named(&lines)) });
        }
    };
    let arrived = |line: &&Line| line.state == State::Propagated && was(line) == 0;
    let adopted = |line: &&Line| line.why.as_deref() == Some("adopted");
    group(
        "CreateInCluster",
        "created in",
        now.iter().filter(arrived).filter(|line| !adopted(line)).collect(),
    );
    group("AdoptInCluster", "adopted in", now.iter().filter(arrived).filter(adopted).collect());
    let updated =
        |line: &&Line| line.state == State::Propagated && was(line) > 0 && was(line) < line.generation;
    group("UpdateInCluster", "updated in", now.iter().filter(updated).collect());
    let gone = |line: &&Line| !known.contains(line.cluster.as_str());
    group("DeleteInCluster", "no longer in", before.iter().filter(gone).collect());
    for line in now {
        let changed = old(line).is_none_or(|old| old.state != line.state || old.why != line.why);
        let (State::Failed | State::Owed, Some(why)) = (line.state, &line.why) else { continue };
        if changed {
            let reason = if line.state == State::Failed { "FailedInCluster" } else { "ClusterOffline" };
            all.push(Happening { warning: true, reason, message: format!("{}: {why}", line.cluster) });
        }
    }
    let moved = |line: &&Line| {
        let (Some(old), Some(new)) = (old(line).and_then(|old| old.count), line.count) else { return false };
        old.wanted != new.wanted
    };
    let moves: Vec<String> = now
        .iter()
        .filter(moved)
        .filter_map(|line| {
            Some(format!("{} {} to {}", line.cluster, old(line)?.count?.wanted, line.count?.wanted))
        })
        .collect();
    if !moves.is_empty() {
        all.push(Happening {
            warning: false,
            reason: "ScaleInCluster",
            message: format!("replicas: {}", moves.join(", ")),
        });
    }
    all
}

/// What was put right in a member since it was last told.
fn healed(key: &Key, sight: &Sight) -> Option<Happening> {
    sight.note.healed.as_ref()?;
    let what = sight.member.noting(key, |note| note.healed.take())?;
    let message = format!("{}: {what}", sight.member.name);
    Some(Happening { warning: false, reason: "HealInCluster", message })
}

/// What a member warns of since it was last told.
fn warned(key: &Key, sight: &Sight) -> Vec<Happening> {
    if sight.note.warnings.is_empty() {
        return Vec::new();
    }
    let all = sight.member.noting(key, |note| std::mem::take(&mut note.warnings));
    let told = |warning: Warning| Happening {
        warning: true,
        reason: "WarningInCluster",
        message: format!("{}: {}: {}", sight.member.name, warning.reason, warning.message),
    };
    all.into_iter().map(told).collect()
}

fn named(lines: &[&Line]) -> String {
    let names: Vec<&str> = lines.iter().take(NAMED_MAX).map(|line| line.cluster.as_str()).collect();
    match lines.len().saturating_sub(NAMED_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
