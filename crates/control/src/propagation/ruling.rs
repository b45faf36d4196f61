//! Asks `plan` what becomes of one object in all members, and turns the answers into work.

use std::collections::HashMap;
use std::sync::Arc;

use landfall_plan::placement::{self, Selection, Verdict, Wish};
use landfall_plan::propagation::{self, Case, Debt, Decision, Deletion, Intent, Memory, Step};
use landfall_plan::replicas::{self, GOAL_ANNOTATION, Policy, Scalable, Share};
use landfall_plan::{Reason, autoscale, hash, overrides, rollout};
use serde_json::Value;

use super::numbers::{self, TEMPLATE_ANNOTATION};
use super::sight::Sight;
use crate::federation::now_ms;
use crate::kinds::Row;
use crate::shards::{Apply, Job};
use crate::shelf::Key;

/// The annotation of a federated object that forbids to adopt what is there: `false`.
pub const ADOPT_ANNOTATION: &str = "landfall.dev/adopt";

/// The object, and what around it matters.
pub(super) struct Subject<'a> {
    /// Which object.
    pub key: &'a Key,
    /// Its kind.
    pub row: &'a Row,
    /// The object.
    pub object: &'a Value,
    /// Our federation's name.
    pub federation: &'a str,
    /// The annotations of its namespace, whose selection narrows its own.
    pub namespace: Option<&'a Value>,
    /// A federated autoscaler rules its number.
    pub autoscaled: bool,
}

/// What becomes of the object in one member.
pub(super) struct Ruling {
    /// What to do, and why.
    pub decision: Decision,
    /// The same as work, when there is some.
    pub job: Option<Job>,
    /// Whether the cluster has a part in the object.
    pub part: bool,
    /// Why it has the replicas it has.
    pub share: Option<Reason>,
    /// What is there carries the newest intent.
    pub current: bool,
}

/// What is to be done everywhere.
pub(super) struct Rulings {
    /// One per member, in their order.
    pub each: Vec<Ruling>,
    /// When to look again although nothing changes.
    pub look_again_ms: Option<i64>,
    /// How a rollout in turns stands.
    pub rollout: Option<Reason>,
}

/// What is wrong with what the user wrote; nothing is done until it is mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake(pub String);

fn mistake(error: &dyn std::fmt::Display) -> Mistake {
    Mistake(error.to_string())
}

/// What makes one member's shard different from another's, overrides apart. Shards of one form are made once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    replicas: Option<u32>,
    goal: Option<u32>,
    bounds: Option<autoscale::Bounds>,
    /// It is like no other: it keeps something that is there.
    apart: bool,
}

/// What is wanted in one member.
struct Wanted {
    intent: Intent,
    shard: Arc<Value>,
    leave: Option<&'static str>,
}

/// Decides about an object that is there.
pub(super) fn rule(subject: &Subject<'_>, sights: &[Sight]) -> Result<Rulings, Mistake> {
    let deletion = Deletion::of(subject.object);
    let verdicts = verdicts(subject, sights, deletion)?;
    let plans = Plans::new(subject, sights, &verdicts)?;
    // Whatever it wished no longer matters once it is deleted.
    let rules = match deletion {
        Some(_) => Vec::new(),
        None => overrides::read(subject.object).map_err(|error| mistake(&error))?,
    };
    let mut made: HashMap<Form, (Arc<Value>, u64)> = HashMap::new();
    let mut each = Vec::with_capacity(sights.len());
    for (at, (sight, (verdict, reason))) in sights.iter().zip(&verdicts).enumerate() {
        let wanted = if verdict.takes_part() && deletion.is_none() {
            let form = plans.form(at);
            let shared = rules.is_empty() && !form.apart;
            let (shard, hash) = match made.get(&form).filter(|_| shared) {
                Some(known) => known.clone(),
                None => {
                    let shard =
                        match propagation::build(subject.object, &rules, &sight.member.name, &sight.labels())
                        {
                            Ok(shard) => shard,
                            Err(error) => {
                                each.push(unbuildable(&error));
                                continue;
                            }
                        };
                    let shard = plans.finish(at, shard, sight);
                    let hash = hash::value(&shard);
                    let known = (Arc::new(shard), hash);
                    made.insert(form, known.clone());
                    known
                }
            };
            plans.wanted(at, shard, hash)
        } else {
            propagation::intent(*verdict, deletion, 0).map(|intent| Wanted {
                intent,
                shard: Arc::new(Value::Null),
                leave: None,
            })
        };
        let mut ruling = match wanted {
            Some(wanted) => one(subject, sight, &wanted, *verdict, plans.share(at)),
            None => idle(reason.clone()),
        };
        if plans.held(at) {
            // It is as it should be for now, but not what the user asked for in the end.
            ruling.current = false;
            let why = || Reason::new("RolloutHeld", "it keeps its version until its turn comes");
            ruling.share.get_or_insert_with(why);
        }
        each.push(ruling);
    }
    let look_again_ms =
        each.iter().filter_map(|ruling| ruling.decision.look_again_ms).chain(plans.look_again_ms).min();
    Ok(Rulings { each, look_again_ms, rollout: plans.rollout.map(|plan| plan.reason) })
}

/// Decides about what a member is owed of an object that is gone.
pub(super) fn settle(federation: &str, sight: &Sight, debt: &Debt) -> Ruling {
    let intent = propagation::settle(debt, Intent::Absent);
    let Debt::Delete { uid } = debt else {
        return decide(federation, sight, intent, Vec::new(), true, &sight.note.memory);
    };
    let memory = Memory { uid: uid.clone(), ..sight.note.memory.clone() };
    decide(federation, sight, intent, Vec::new(), true, &memory)
}

/// Where the object has a part, from its own wish and its namespace's.
fn verdicts(
    subject: &Subject<'_>,
    sights: &[Sight],
    deletion: Option<Deletion>,
) -> Result<Vec<(Verdict, Reason)>, Mistake> {
    if deletion.is_some() {
        // Whatever it wished no longer matters, nor whether it can be read.
        let reason = Reason::new("Deleted", "the federated object is being deleted");
        return Ok(sights.iter().map(|_| (Verdict::Remove, reason.clone())).collect());
    }
    let wish = Wish {
        selection: Selection::of(subject.object).map_err(|error| mistake(&error))?,
        tolerations: placement::tolerations(subject.object).map_err(|error| mistake(&error))?,
    };
    let around = match subject.namespace {
        Some(namespace) => {
            Selection::of(namespace).map_err(|error| Mistake(format!("its namespace: {error}")))?
        }
        None => Selection::default(),
    };
    let scalable = scalable(subject.row);
    let member = |sight: &Sight| {
        let replicas = scalable.and_then(|scalable| numbers::spec_replicas(scalable, sight.found()?));
        sight.placed(subject.federation, replicas)
    };
    let members: Vec<placement::Member> = sights.iter().map(member).collect();
    let decided = placement::place(&wish, &members).into_iter();
    let judged = decided.zip(sights).zip(&members).map(|((decision, sight), member)| {
        let outside = around.unmet(&member.name, &member.labels);
        match (sight.leaving(), outside) {
            (true, _) => {
                (leave(member.has, sight.stays_when_leaving()), Reason::new("Leaving", "the cluster leaves"))
            }
            (false, Some(unmet)) => {
                let why = format!("its namespace is not selected: {unmet}");
                (leave(member.has, false), Reason::new("NotSelected", why))
            }
            (false, None) => (decision.verdict, decision.reason),
        }
    });
    Ok(judged.collect())
}

fn leave(has: placement::Has, stays: bool) -> Verdict {
    match has {
        placement::Has::Nothing => Verdict::Skip,
        placement::Has::Created if !stays => Verdict::Remove,
        placement::Has::Created | placement::Has::Adopted => Verdict::Release,
    }
}

fn scalable(row: &Row) -> Option<&'static Scalable> {
    let builtin = matches!(row.group.as_str(), "" | "apps" | "batch");
    Scalable::of(&row.kind).filter(|_| builtin)
}

/// The numbers of an object's shards, and whose turn it is.
struct Plans<'a> {
    scalable: Option<&'static Scalable>,
    shares: HashMap<usize, Share>,
    completions: HashMap<usize, u32>,
    parts: HashMap<usize, autoscale::Part>,
    turns: HashMap<usize, rollout::Turn>,
    template: Option<u64>,
    rollout: Option<rollout::Plan>,
    look_again_ms: Option<i64>,
    sights: &'a [Sight],
}

impl<'a> Plans<'a> {
    fn new(
        subject: &Subject<'_>,
        sights: &'a [Sight],
        verdicts: &[(Verdict, Reason)],
    ) -> Result<Self, Mistake> {
        let mut plans = Self {
            scalable: scalable(subject.row),
            shares: HashMap::new(),
            completions: HashMap::new(),
            parts: HashMap::new(),
            turns: HashMap::new(),
            template: None,
            rollout: None,
            look_again_ms: None,
            sights,
        };
        let part: Vec<usize> = verdicts
            .iter()
            .enumerate()
            .filter(|(_, (verdict, _))| verdict.takes_part())
            .map(|(at, _)| at)
            .collect();
        if Deletion::of(subject.object).is_some() {
            return Ok(plans);
        }
        if let Some(scalable) = plans.scalable {
            plans.replicas(subject, scalable, verdicts, &part)?;
        }
        if subject.row.kind == "HorizontalPodAutoscaler" && subject.row.group == "autoscaling" {
            plans.autoscale(subject, &part);
        }
        if subject.row.kind == "Deployment" && subject.row.group == "apps" {
            plans.rollout(subject, &part)?;
        }
        Ok(plans)
    }

    fn replicas(
        &mut self,
        subject: &Subject<'_>,
        scalable: &Scalable,
        verdicts: &[(Verdict, Reason)],
        part: &[usize],
    ) -> Result<(), Mistake> {
        let wrong = |name: &str, error: &dyn std::fmt::Display| Mistake(format!("{name}: {error}"));
        let preferences =
            scalable.preferences(subject.object).map_err(|error| wrong(scalable.annotation, &error))?;
        let policy = subject
            .object
            .pointer("/metadata/annotations")
            .and_then(|all| all.get(replicas::POLICY_ANNOTATION));
        let policy = match policy.and_then(Value::as_str) {
            Some(text) => Policy::read(text).map_err(|error| wrong(replicas::POLICY_ANNOTATION, &error))?,
            None => Policy::default(),
        };
        let evicted = |at: usize| verdicts.get(at).is_some_and(|(verdict, _)| *verdict == Verdict::Evict);
        let observe = |at: &usize| Some(numbers::replicas(scalable, self.sights.get(*at)?, evicted(*at)));
        let clusters: Vec<replicas::Observation> = part.iter().filter_map(observe).collect();
        let key = subject.key.path();
        let plan = replicas::plan(&replicas::Request {
            key: &key,
            replicas: scalable.wanted(subject.object),
            preferences: &preferences,
            policy: &policy,
            autoscaled: subject.autoscaled,
            clusters: &clusters,
            now_ms: now_ms(),
        });
        self.look_again_ms = plan.look_again_ms;
        for (at, share) in part.iter().zip(&plan.shares) {
            if let (Some(room), Some(sight)) = (share.shows, self.sights.get(*at)) {
                sight.member.noting(subject.key, |note| note.showed = Some((room, now_ms())));
            }
        }
        if scalable.kind == "Job" {
            self.completions(subject, &key, part, &plan.shares);
        }
        self.shares = part.iter().copied().zip(plan.shares).collect();
        Ok(())
    }

    fn completions(&mut self, subject: &Subject<'_>, key: &str, part: &[usize], shares: &[Share]) {
        let number = |object: &Value| u32::try_from(object.pointer("/spec/completions")?.as_i64()?).ok();
        let Some(total) = number(subject.object) else { return };
        let shard = |(at, share): (&usize, &Share)| replicas::JobShard {
            cluster: share.cluster.clone(),
            parallelism: share.goal,
            given: self.sights.get(*at).and_then(|sight| sight.found()).and_then(number),
        };
        let shards: Vec<replicas::JobShard> = part.iter().zip(shares).map(shard).collect();
        self.completions = part.iter().copied().zip(replicas::completions(total, key, &shards)).collect();
    }

    fn autoscale(&mut self, subject: &Subject<'_>, part: &[usize]) {
        let number = |field: &str| subject.object.pointer(&format!("/spec/{field}")).and_then(Value::as_u64);
        let number = |field: &str| number(field).and_then(|n| u32::try_from(n).ok());
        let clusters: Vec<autoscale::Observation> =
            part.iter().filter_map(|at| self.sights.get(*at)).map(numbers::autoscaler).collect();
        let plan = autoscale::split(&autoscale::Request {
            key: &subject.key.path(),
            min: number("minReplicas").unwrap_or(1),
            max: number("maxReplicas").unwrap_or(1),
            clusters: &clusters,
            hold_down_ms: 60_000,
            window_ms: autoscale::WINDOW_MS,
            now_ms: now_ms(),
        });
        self.look_again_ms = plan.look_again_ms;
        self.parts = part.iter().copied().zip(plan.parts).collect();
        if part.iter().filter_map(|at| self.sights.get(*at)).any(Sight::unread) {
            // While somebody is not read yet, bounds stay: their sum cannot be known.
            for (part, seen) in part.iter().zip(&clusters) {
                if let (Some(part), Some(bounds)) = (self.parts.get_mut(part), seen.bounds) {
                    part.step = autoscale::Step::Set(bounds);
                }
            }
        }
    }

    fn rollout(&mut self, subject: &Subject<'_>, part: &[usize]) -> Result<(), Mistake> {
        let Some(strategy) = rollout::Strategy::of(subject.object).map_err(|error| mistake(&error))? else {
            return Ok(());
        };
        let template = hash::value(subject.object.pointer("/spec/template").unwrap_or(&Value::Null));
        let clusters: Vec<rollout::Observation> =
            part.iter().filter_map(|at| self.sights.get(*at)).map(numbers::rollout).collect();
        let plan = rollout::sequence(Some(&strategy), template, &clusters, now_ms());
        self.look_again_ms = [self.look_again_ms, plan.look_again_ms].into_iter().flatten().min();
        // While somebody is not read yet, nobody's turn begins: the last leader may have begun one there.
        let unread = part.iter().filter_map(|at| self.sights.get(*at)).any(Sight::unread);
        let turn = |turn: rollout::Turn| if unread { rollout::Turn::Hold } else { turn };
        self.turns = part.iter().copied().zip(plan.turns.iter().map(|(_, own, _)| turn(*own))).collect();
        (self.template, self.rollout) = (Some(template), Some(plan));
        Ok(())
    }

    /// A member's form.
    fn form(&self, at: usize) -> Form {
        let share = self.shares.get(&at);
        let held = self.held(at);
        let bounds = match self.parts.get(&at).map(|part| part.step) {
            Some(autoscale::Step::Set(bounds)) => Some(bounds),
            Some(autoscale::Step::None | autoscale::Step::Leave) | None => None,
        };
        Form {
            replicas: share.and_then(|share| share.replicas),
            goal: share.filter(|share| share.replicas.is_some()).map(|share| share.noted),
            bounds,
            apart: held || self.completions.contains_key(&at),
        }
    }

    /// Whether a member keeps the template it has until its turn comes.
    fn held(&self, at: usize) -> bool {
        self.turns.get(&at) == Some(&rollout::Turn::Hold)
    }

    /// Puts a member's numbers into its shard.
    fn finish(&self, at: usize, mut shard: Value, sight: &Sight) -> Value {
        if let (Some(scalable), Some(share)) = (self.scalable, self.shares.get(&at)) {
            scalable.set(&mut shard, share.replicas);
            // Where somebody else rules the number, its changes are no changes of the shard.
            if share.replicas.is_some() {
                annotate(&mut shard, GOAL_ANNOTATION, share.noted.to_string());
            }
        }
        if let Some(completions) = self.completions.get(&at) {
            set(&mut shard, "completions", *completions);
        }
        if let Some(autoscale::Step::Set(bounds)) = self.parts.get(&at).map(|part| part.step) {
            set(&mut shard, "minReplicas", bounds.min);
            set(&mut shard, "maxReplicas", bounds.max);
        }
        let Some(template) = self.template else { return shard };
        let before = sight
            .found()
            .and_then(|found| found.pointer("/metadata/annotations")?.get(TEMPLATE_ANNOTATION)?.as_str());
        match (self.turns.get(&at), sight.found()) {
            (Some(rollout::Turn::Hold), Some(found)) => {
                let mut held = rollout::hold(&shard, found);
                annotate(&mut held, TEMPLATE_ANNOTATION, before.unwrap_or("0").to_owned());
                held
            }
            _ => {
                annotate(&mut shard, TEMPLATE_ANNOTATION, format!("{template:016x}"));
                shard
            }
        }
    }

    fn wanted(&self, at: usize, shard: Arc<Value>, hash: u64) -> Option<Wanted> {
        let present = Some(Wanted { intent: Intent::Present { hash }, shard, leave: self.left(at) });
        match self.parts.get(&at).map(|part| part.step) {
            None | Some(autoscale::Step::Set(_)) => present,
            Some(autoscale::Step::None) => {
                Some(Wanted { intent: Intent::Absent, shard: Arc::new(Value::Null), leave: None })
            }
            Some(autoscale::Step::Leave) => {
                present.filter(|_| self.sights.get(at).is_some_and(|sight| sight.offline_since_ms.is_some()))
            }
        }
    }

    /// The number that a member's own autoscaler keeps.
    fn left(&self, at: usize) -> Option<&'static str> {
        let share = self.shares.get(&at)?;
        share.replicas.is_none().then_some(self.scalable?.field)
    }

    fn share(&self, at: usize) -> Option<Reason> {
        let share = self.shares.get(&at).map(|share| share.reason.clone());
        let ordinary = |reason: &Reason| matches!(reason.code, "Spread" | "New" | "Divided");
        share
            .or_else(|| self.parts.get(&at).map(|part| part.reason.clone()))
            .filter(|reason| !ordinary(reason))
    }
}

fn set(shard: &mut Value, field: &str, number: u32) {
    if let Some(spec) = shard.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(field.to_owned(), number.into());
    }
}

fn annotate(shard: &mut Value, name: &str, text: String) {
    let Some(metadata) = shard.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(name.to_owned(), text.into());
    }
}

/// Decides about one member.
fn one(
    subject: &Subject<'_>,
    sight: &Sight,
    wanted: &Wanted,
    verdict: Verdict,
    share: Option<Reason>,
) -> Ruling {
    let annotations = subject.object.pointer("/metadata/annotations");
    let adopt =
        annotations.and_then(|all| all.get(ADOPT_ANNOTATION)).and_then(Value::as_str) != Some("false");
    let drift = match wanted.intent {
        Intent::Present { hash } => sight.drift(subject.key, &wanted.shard, hash),
        Intent::Absent | Intent::Released => Vec::new(),
    };
    let mut ruling = decide(subject.federation, sight, wanted.intent, drift, adopt, &sight.note.memory);
    ruling.part = verdict.takes_part();
    if sight.synced && sight.seen.is_none() && finished_job(subject) {
        // It has done its work; whoever took it away did not ask for more.
        ruling.decision.step = Step::Nothing;
        ruling.decision.reason = Reason::new("Finished", "the Job has ended and was taken away there");
        ruling.current = true;
    }
    ruling.share = share;
    if let (Step::Apply | Step::Adopt, Intent::Present { hash }) = (&ruling.decision.step, wanted.intent) {
        let observed = sight.observed(Vec::new());
        ruling.job = Some(Job::Apply(Apply {
            shard: wanted.shard.clone(),
            hash,
            origin: propagation::origin(&observed, &sight.note.memory),
            first: sight.seen.is_none(),
            uid: sight.seen.as_ref().map(|seen| seen.uid.to_string()),
            version: sight.seen.as_ref().map(|seen| seen.version.clone()),
            leave: wanted.leave,
            heals: ruling.decision.heals().then(|| ruling.decision.reason.message.to_string()),
        }));
    }
    ruling
}

/// Whether the object is a Job that has ended.
fn finished_job(subject: &Subject<'_>) -> bool {
    let conditions = subject.object.pointer("/status/conditions").and_then(Value::as_array);
    let ended = |condition: &Value| {
        let text = |key: &str| condition.get(key).and_then(Value::as_str);
        matches!(text("type"), Some("Complete" | "Failed")) && text("status") == Some("True")
    };
    subject.row.kind == "Job" && conditions.is_some_and(|all| all.iter().any(ended))
}

fn decide(
    federation: &str,
    sight: &Sight,
    intent: Intent,
    drift: Vec<String>,
    adopt: bool,
    memory: &Memory,
) -> Ruling {
    let observed = sight.observed(drift);
    let decision = propagation::decide(&Case {
        federation,
        intent,
        adopt,
        offline_since_ms: sight.offline_since_ms,
        observed: &observed,
        memory,
        now_ms: now_ms(),
    });
    let job = match &decision.step {
        Step::Delete { uid } => Some(Job::Delete { uid: uid.clone() }),
        Step::Orphan => Some(Job::Orphan),
        Step::Apply | Step::Adopt | Step::Nothing | Step::Owe(_) | Step::Wait => None,
    };
    // A member that does not answer carries what it was last seen to carry.
    let carried = sight.seen.as_ref().and_then(|seen| seen.mark.as_ref()).and_then(|mark| mark.hash);
    let current = match (&decision.step, intent) {
        (Step::Nothing, Intent::Present { .. }) => true,
        (Step::Owe(_), Intent::Present { hash }) => carried == Some(hash),
        _ => false,
    };
    Ruling { decision, job, part: false, share: None, current }
}

/// A cluster that has no part in the object.
fn idle(reason: Reason) -> Ruling {
    let decision = Decision { step: Step::Nothing, reason, look_again_ms: None };
    Ruling { decision, job: None, part: false, share: None, current: false }
}

/// A shard that cannot be made: what is there stays as it is.
fn unbuildable(error: &dyn std::fmt::Display) -> Ruling {
    let reason = Reason::new("Conflict", error.to_string());
    let decision = Decision { step: Step::Wait, reason, look_again_ms: None };
    Ruling { decision, job: None, part: true, share: None, current: false }
}
