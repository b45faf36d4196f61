//! Propagation: every federated object has its shard in every member it is meant for, and says how that stands.
//!
//! Reads:      federated objects and namespaces at the hub, Cluster, members' shards
//! Decides:    plan::{placement, replicas, autoscale, overrides, rollout, propagation}
//! Writes:     shards in members; finalizer, annotation, status and Events of the object at the hub; debts
//! Wakes on:   any of the above changing, when a plan says so, and every 5 min
//! Guarantees: idempotent; safe to run twice at once; a member that is slow or dead delays no other; never deletes what it
//!             does not own
//! Limits:     one look at a time; writes are the members' lanes'

mod nodeports;
mod numbers;
mod order;
mod ruling;
mod sight;
mod tell;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_plan::propagation::{Debt, Deletion, Refused, Step};
use landfall_plan::truth::{self, Line};
use landfall_runtime::clock;
use serde_json::Value;

use crate::federation::{Federation, now_ms};
use crate::hub::{Update, Writer};
use crate::kinds::{self, NAMESPACES, Row};
use crate::member::Member;
use crate::membership;
use crate::shards::Job;
use crate::shelf::{Key, Seen};
use order::Before;
use ruling::{Mistake, Ruling, Rulings, Subject};
use sight::Sight;

pub use numbers::TEMPLATE_ANNOTATION;
pub use ruling::ADOPT_ANNOTATION;

/// Holds a federated object that is deleted until its shards are gone, let go, or owed.
pub const FINALIZER: &str = "landfall.dev/shards";

/// How often everything is looked at although nothing changed.
const RESYNC: Duration = Duration::from_secs(300);
/// How long that takes: nearly until it begins again, so that it is never much at once and nobody waits behind it.
pub(crate) const RESYNC_SPAN: Duration = Duration::from_secs(280);
/// How often what is owed is looked at although nothing changed: nobody else asks for it.
const DEBTS_EVERY: Duration = Duration::from_secs(10);
/// How soon an object is looked at again while its shards are being written.
const SOON: Duration = Duration::from_millis(100);
/// How often the pods of a shard that is not ready are looked at.
const PODS_EVERY_MS: i64 = 5_000;

/// Looks at objects as they come, for ever.
pub async fn run(federation: &Arc<Federation>) {
    let looks = async {
        loop {
            let key = federation.queue.next().await;
            let began = clock::instant();
            look(federation, &key);
            federation.metrics.looks.inc();
            federation.metrics.look_s.observe(began.elapsed());
            federation.metrics.queue.set(i64::try_from(federation.queue.len()).unwrap_or(i64::MAX));
            // Others have work too.
            tokio::task::yield_now().await;
        }
    };
    let resyncs = async {
        loop {
            tokio::time::sleep(RESYNC).await;
            federation.queue.push_over(&federation.everything(), RESYNC_SPAN);
        }
    };
    let debts = async {
        loop {
            tokio::time::sleep(DEBTS_EVERY).await;
            federation.queue.push_all(federation.debts.keys());
        }
    };
    tokio::join!(looks, resyncs, debts);
}

/// Looks at one object: observes, asks what to do, has it done.
fn look(federation: &Arc<Federation>, key: &Key) {
    let row = federation.kinds.get(key.kind);
    let shelf = federation.shelf(key.kind);
    if !shelf.synced() {
        // What is not read yet is not gone.
        federation.queue.push_after(key, SOON);
        return;
    }
    let Some(seen) = shelf.get(key) else {
        settle(federation, key);
        return;
    };
    if federation.writer.busy(key) {
        // What it is about to be is not what it is.
        federation.queue.push_after(key, SOON);
        return;
    }
    let object = seen.value();
    let finalizers = finalizers(&object);
    let held = finalizers.iter().any(|name| name == FINALIZER);
    if !kinds::eligible(&row, &object) {
        if held {
            release(federation, key, &seen, finalizers, Update::default());
        }
        return;
    }
    let deletion = Deletion::of(&object);
    if !held {
        // Without members there is nothing to hold an object for.
        if deletion.is_none() && !federation.members.read().is_empty() {
            let finalizers = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect();
            let finalizers = Some((finalizers, seen.version.to_string()));
            Writer::submit(federation, key, Update { finalizers, ..Update::default() });
        }
        return;
    }
    let sights = sights(federation, key, &object);
    let debts = federation.debts.of(key);
    if deletion.is_none() && !debts.is_empty() {
        // It is here again: what is meant now wins over what was owed then.
        let debts = debts.into_iter().map(|(cluster, _)| (cluster, None)).collect();
        Writer::submit(federation, key, Update { debts, ..Update::default() });
        return;
    }
    if deletion.is_none()
        && let Some(update) = nodeports::before(federation, key, &row, (&object, &seen.version), &sights)
    {
        Writer::submit(federation, key, update);
        return;
    }
    match rule(federation, key, &row, &object, &sights) {
        Ok(rulings) => {
            let rulings = hold_back(federation, key, &row, &object, &sights, rulings);
            act(federation, key, &sights, &rulings);
            if let Some(at_ms) = rulings.look_again_ms {
                let wait = u64::try_from(at_ms.saturating_sub(now_ms())).unwrap_or(0);
                federation.queue.push_after(key, Duration::from_millis(wait.max(100)));
            }
            match deletion {
                Some(_) => let_go(federation, key, &seen, finalizers, &sights, &rulings),
                None => tell::tell(federation, key, &row, &object, &sights, &Ok(rulings)),
            }
        }
        Err(mistake) => {
            // Nothing is touched, except where the whole cluster leaves.
            sights.iter().filter(|sight| sight.leaving()).for_each(|sight| take_away(federation, key, sight));
            tell::tell(federation, key, &row, &object, &sights, &Err(mistake));
        }
    }
}

/// What every member has of an object, and what was told of it there.
fn sights(federation: &Arc<Federation>, key: &Key, object: &Value) -> Vec<Sight> {
    let text = object.pointer("/metadata/annotations").and_then(|all| all.get(truth::ANNOTATION));
    let lines = truth::read(text.and_then(Value::as_str).unwrap_or("")).into_iter();
    let mut lines: HashMap<String, Line> = lines.map(|line| (line.cluster.clone(), line)).collect();
    let sight = |member: Arc<Member>| {
        let line = lines.remove(&member.name);
        Sight::new(federation, member, key, line)
    };
    federation.all_members().into_iter().map(sight).collect()
}

fn rule(
    federation: &Arc<Federation>,
    key: &Key,
    row: &Row,
    object: &Value,
    sights: &[Sight],
) -> Result<Rulings, Mistake> {
    let namespace = namespace_of(federation, key).map(|seen| seen.value());
    ruling::rule(
        &Subject {
            key,
            row,
            object,
            federation: &federation.config.federation,
            namespace: namespace.as_ref(),
            autoscaled: federation.autoscaled(row, key),
        },
        sights,
    )
}

fn namespace_of(federation: &Arc<Federation>, key: &Key) -> Option<Arc<Seen>> {
    let own = Key { kind: NAMESPACES, namespace: "".into(), name: key.namespace.clone() };
    (!key.namespace.is_empty()).then(|| federation.shelf(NAMESPACES).get(&own)).flatten()
}

/// Keeps work back that another object must come before: a shard waits for its namespace, and a namespace goes after all
/// that is in it.
fn hold_back(
    federation: &Arc<Federation>,
    key: &Key,
    row: &Row,
    object: &Value,
    sights: &[Sight],
    mut rulings: Rulings,
) -> Rulings {
    let before = OnceCell::new();
    for (sight, ruling) in sights.iter().zip(&mut rulings.each) {
        let wait = match &ruling.job {
            Some(Job::Apply(_)) => {
                before.get_or_init(|| Before::of(federation, key, object)).missing(federation, sight)
            }
            Some(Job::Delete { .. }) if row.id == NAMESPACES => before_delete(federation, key, sight),
            _ => None,
        };
        if row.id == NAMESPACES && ruling.part {
            // What was found inside when it was last to go is old by the time it goes.
            sight.member.noting(key, |note| note.shelters = None);
        }
        if let Some(reason) = wait {
            // What it waits for does not call it.
            federation.queue.push_after(key, Duration::from_secs(1));
            ruling.job = None;
            ruling.decision.step = Step::Wait;
            ruling.decision.reason = reason;
        }
        if let (Some(why), Some(_)) = (sight.member.strained(), &ruling.job) {
            let told = format!("it is tried again when the member's API is not too busy or broken: {why}");
            ruling.decision.reason = landfall_plan::Reason::new("Retrying", told);
        }
        if ruling.job.is_none() && ruling.part {
            ruling.job = pods(sight, key, row);
        }
    }
    rulings
}

/// What must be known or done before a namespace goes.
fn before_delete(federation: &Arc<Federation>, key: &Key, sight: &Sight) -> Option<landfall_plan::Reason> {
    let mut inside = false;
    for row in federation.kinds.all().iter().filter(|row| row.namespaced) {
        for other in
            sight.member.shards(federation, row.id).iter().filter(|other| other.namespace == key.name)
        {
            inside = true;
            let here = federation.shelf(row.id);
            if here.synced() && here.get(other).is_none() && federation.debts.of(other).is_empty() {
                // Nobody knows it any more: it is let go, and then counts as a stranger.
                sight.member.submit(federation, other, Job::Orphan);
            }
        }
    }
    if inside {
        federation.queue.push_after(key, Duration::from_secs(1));
        return Some(landfall_plan::Reason::new("NotEmpty", "the shards in it go first"));
    }
    if sight.note.shelters.is_none() {
        sight.member.submit(federation, key, Job::LookInside);
        return Some(landfall_plan::Reason::new("LookingInside", "what is in it is looked at first"));
    }
    None
}

/// A look at the pods of a shard that is not ready, when one is due.
fn pods(sight: &Sight, key: &Key, row: &Row) -> Option<Job> {
    landfall_plan::replicas::Scalable::of(&row.kind)?;
    let found = sight.found().filter(|_| sight.synced)?;
    let scalable = landfall_plan::replicas::Scalable::of(&row.kind)?;
    let short =
        numbers::ready(found) < numbers::spec_replicas(scalable, found).unwrap_or(0) && row.kind != "Job";
    if short != sight.note.unready_since_ms.is_some() {
        let since_ms = short.then(now_ms);
        sight.member.noting(key, |note| note.unready_since_ms = since_ms);
    }
    let since = sight.note.unready_since_ms.or_else(|| Some(now_ms())).filter(|_| short)?;
    let last = sight.note.pods.as_ref().map_or(since, |pods| pods.at_ms.max(since));
    if now_ms() - last < PODS_EVERY_MS {
        return None;
    }
    Some(Job::LookAtPods { selector: numbers::pod_selector(found)? })
}

/// Has done what was decided.
fn act(federation: &Arc<Federation>, key: &Key, sights: &[Sight], rulings: &Rulings) {
    let mut unready = false;
    for (sight, ruling) in sights.iter().zip(&rulings.each) {
        if let Some(job) = &ruling.job {
            sight.member.submit(federation, key, job.clone());
        }
        if ruling.current && sight.synced && sight.note.memory.refused.is_some() {
            // It has what is meant now; what it refused before matters to nobody.
            sight.member.noting(key, |note| note.memory.refused = None);
        }
        if ruling.part && ruling.decision.reason.code == "Conflict" && sight.note.memory.refused.is_none() {
            // Nobody refused it, but it cannot be there either: its share is for others, too.
            let (message, now) = (ruling.decision.reason.message.to_string(), now_ms());
            let refused = Refused { hash: 0, message, transient: false, since_ms: now, retry_ms: now };
            sight.member.noting(key, |note| note.memory.refused = Some(refused));
            federation.queue.push_soon(key);
        }
        unready |= ruling.part && sight.member.unready(key);
    }
    if unready {
        federation
            .queue
            .push_after(key, Duration::from_millis(u64::try_from(PODS_EVERY_MS).unwrap_or(5_000)));
    }
}

/// Lets a deleted object go once no member holds it up; what is owed is written down first.
fn let_go(
    federation: &Arc<Federation>,
    key: &Key,
    seen: &Seen,
    finalizers: Vec<String>,
    sights: &[Sight],
    rulings: &Rulings,
) {
    if !rulings.each.iter().all(|ruling| ruling.decision.lets_go()) {
        return;
    }
    let owed = |(sight, ruling): (&Sight, &Ruling)| match &ruling.decision.step {
        // Who is forgotten is owed nothing.
        Step::Owe(_) if membership::forgotten(&sight.cluster) => None,
        Step::Owe(debt) => Some((sight.member.name.clone(), Some(debt.clone()))),
        _ => None,
    };
    let debts = sights.iter().zip(&rulings.each).filter_map(owed).collect();
    for sight in sights {
        sight.member.forget(key);
    }
    release(federation, key, seen, finalizers, Update { debts, ..Update::default() });
}

fn release(federation: &Arc<Federation>, key: &Key, seen: &Seen, finalizers: Vec<String>, update: Update) {
    let kept = finalizers.into_iter().filter(|name| name != FINALIZER).collect();
    let finalizers = Some((kept, seen.version.to_string()));
    Writer::submit(federation, key, Update { finalizers, ..update });
}

/// Does what is owed of an object that is gone.
fn settle(federation: &Arc<Federation>, key: &Key) {
    let mut struck = Vec::new();
    for (cluster, debt) in federation.debts.of(key) {
        let Some(member) = federation.members.read().get(&cluster).cloned() else { continue };
        let sight = Sight::new(federation, member, key, None);
        if sight.offline_since_ms.is_some() {
            continue;
        }
        let ruling = ruling::settle(&federation.config.federation, &sight, &debt);
        if let Some(job) = ruling.job {
            let namespace = key.kind == NAMESPACES && matches!(job, Job::Delete { .. });
            if !(namespace && before_delete(federation, key, &sight).is_some()) {
                sight.member.submit(federation, key, job);
            }
        } else if ruling.decision.step == Step::Nothing {
            struck.push((cluster, None));
        }
    }
    if federation.debts.of(key).is_empty() {
        federation.patience.reset(key);
        federation.all_members().iter().for_each(|member| member.forget(key));
    }
    if !struck.is_empty() {
        Writer::submit(federation, key, Update { debts: struck, ..Update::default() });
    }
}

/// Takes a shard out of a cluster that leaves, or lets it go where it shall stay.
fn take_away(federation: &Arc<Federation>, key: &Key, sight: &Sight) {
    let stays = sight.stays_when_leaving();
    let debt = if stays { Debt::Orphan } else { Debt::Delete { uid: None } };
    let ruling = ruling::settle(&federation.config.federation, sight, &debt);
    let Some(job) = ruling.job else { return };
    let namespace = key.kind == NAMESPACES && matches!(job, Job::Delete { .. });
    if !(namespace && before_delete(federation, key, sight).is_some()) {
        sight.member.submit(federation, key, job);
    }
}

/// Takes away what a leaving cluster has of objects that the hub does not have.
pub(crate) fn take_strays(federation: &Arc<Federation>, member: &Arc<Member>) {
    for row in federation.kinds.all() {
        let here = federation.shelf(row.id);
        let strays = member
            .shards(federation, row.id)
            .into_iter()
            .filter(|key| here.synced() && here.get(key).is_none());
        for key in strays {
            take_away(federation, &key, &Sight::new(federation, member.clone(), &key, None));
        }
    }
}

fn finalizers(object: &Value) -> Vec<String> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
