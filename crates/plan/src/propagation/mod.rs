//! Propagation: what to do with one federated object in one member.
//!
//! ```text
//!   federated object ─► strip ─► overrides, replicas ─► shard ─┐
//!   marks, hash, drift of what the member has ─────────────────┼─► decide ─► Step and Reason
//!   whether the member answers, what is owed to it ────────────┘
//! ```
//!
//! Never is anything deleted that does not bear our mark as made by us; never because something could not be seen; and
//! never does a member that does not answer hold up a deletion: what it is owed is remembered.

mod drift;
mod heals;
mod shard;

use serde_json::Value;

use crate::placement::Verdict;
use crate::reason::Reason;

pub use drift::drift;
pub use heals::Heals;
pub use shard::{
    FEDERATION_LABEL, HASH_ANNOTATION, Mark, ORIGIN_ANNOTATION, Origin, build, mark, read_mark, strip,
};

/// What is wanted in the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// A shard with this hash.
    Present {
        /// The hash of the shard without marks.
        hash: u64,
    },
    /// No shard: the object is deleted with its shards, or placement took it away.
    Absent,
    /// The object is deleted or the member let go, but what is there stays, without our marks.
    Released,
}

/// What is seen in the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Not looked yet, or not all the way: a member that just came back.
    Unknown,
    /// Looked, and there is none.
    Missing,
    /// There is one.
    Found(Found),
}

/// An object in a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Its uid.
    pub uid: String,
    /// Its marks.
    pub mark: Option<Mark>,
    /// Where it differs from the shard that is meant (see [`drift`]).
    pub drift: Vec<String>,
    /// It is being deleted.
    pub deleting: bool,
    /// For a namespace: something in it that is not ours and would go with it.
    pub shelters: Option<String>,
}

/// What the federation remembers about the member's shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The uid of the shard when it was last applied. None: never applied.
    pub uid: Option<String>,
    /// It was told to have one, though nobody remembers which: the last leader knew.
    pub told: bool,
    /// Who made it.
    pub origin: Option<Origin>,
    /// The drift that stayed right after it was last applied: what the member writes in its own way. Asking again
    /// would change nothing, over and over.
    pub residue: Vec<String>,
    /// What the member refused, and until when not to try again.
    pub refused: Option<Refused>,
    /// How often it had to be put right lately.
    pub heals: Heals,
}

/// A write that a member refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The hash of the shard it refused.
    pub hash: u64,
    /// What it said.
    pub message: String,
    /// It was not refused for what it is: the member was busy, or not reached.
    pub transient: bool,
    /// Since when nothing that was tried has worked.
    pub since_ms: i64,
    /// When to try again.
    pub retry_ms: i64,
}

/// Everything a decision looks at.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The federation's own identity, as in [`Mark::federation`].
    pub federation: &'a str,
    /// What is wanted.
    pub intent: Intent,
    /// Whether an object that is there already may be adopted.
    pub adopt: bool,
    /// Since when the member does not answer.
    pub offline_since_ms: Option<i64>,
    /// What is seen there.
    pub observed: &'a Observed,
    /// What is remembered of it.
    pub memory: &'a Memory,
    /// The present.
    pub now_ms: i64,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write the shard.
    Apply,
    /// Write the shard over an object that was there before us, and mark it adopted.
    Adopt,
    /// Leave it: it is as it should be.
    Nothing,
    /// Delete the shard with this uid, and no other.
    Delete {
        /// The precondition.
        uid: String,
    },
    /// Take our marks and our hold off the object and leave it there.
    Orphan,
    /// The member cannot be told now: remember it, and go on.
    Owe(Debt),
    /// It cannot be decided, or not be done, now.
    Wait,
}

/// What a member is owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Debt {
    /// The shard as it is meant when the member is back.
    Apply,
    /// To delete its shard.
    Delete {
        /// The uid it had; another object of that name is not ours to delete.
        uid: Option<String>,
    },
    /// To let its shard go.
    Orphan,
}

/// A step and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub step: Step,
    /// Why.
    pub reason: Reason,
    /// When to look again although nothing changes.
    pub look_again_ms: Option<i64>,
}

impl Decision {
    /// Whether it undoes what somebody in the member did.
    pub fn heals(&self) -> bool {
        self.step == Step::Apply && matches!(self.reason.code, "Vanished" | "Unmarked" | "Drifted")
    }

    /// Whether this member no longer holds up the deletion of the federated object.
    pub fn lets_go(&self) -> bool {
        match self.step {
            Step::Nothing | Step::Owe(_) => true,
            Step::Apply | Step::Adopt | Step::Delete { .. } | Step::Orphan | Step::Wait => false,
        }
    }
}

/// How a federated object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// With its shards.
    Cascade,
    /// Its shards stay, and are let go.
    Orphan,
}

impl Deletion {
    /// How an object is being deleted, if it is: an `orphan` finalizer is what the API server makes of the
    /// `DeleteOptions` that ask for it.
    pub fn of(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        metadata.get("deletionTimestamp").filter(|time| !time.is_null())?;
        let finalizers = metadata.get("finalizers").and_then(Value::as_array);
        let orphan = finalizers.is_some_and(|list| list.iter().any(|name| name == "orphan"));
        Some(if orphan { Self::Orphan } else { Self::Cascade })
    }
}

/// What is wanted in a member, from what placement says and how the object is being deleted; none: nothing at all.
pub fn intent(verdict: Verdict, deletion: Option<Deletion>, hash: u64) -> Option<Intent> {
    match (deletion, verdict) {
        (Some(Deletion::Cascade), _) | (None, Verdict::Remove) => Some(Intent::Absent),
        (Some(Deletion::Orphan), _) | (None, Verdict::Release) => Some(Intent::Released),
        (None, Verdict::Place | Verdict::Keep | Verdict::Evict) => Some(Intent::Present { hash }),
        (None, Verdict::Skip) => None,
    }
}

/// Who is marked as the maker of a shard that is applied or adopted now.
pub fn origin(observed: &Observed, memory: &Memory) -> Origin {
    let remembered = |found: &Found| memory.origin.filter(|_| memory.uid.as_ref() == Some(&found.uid));
    match observed {
        Observed::Unknown | Observed::Missing => Origin::Created,
        Observed::Found(found) => found
            .mark
            .as_ref()
            .map(|mark| mark.origin)
            .or_else(|| remembered(found))
            .unwrap_or(Origin::Adopted),
    }
}

/// Decides what to do with one object in one member.
pub fn decide(case: &Case<'_>) -> Decision {
    if case.offline_since_ms.is_some() {
        return offline(case);
    }
    match (case.intent, case.observed) {
        (_, Observed::Unknown) => now(Step::Wait, "NotSynced", "the member's objects are not all read yet"),
        (Intent::Present { hash }, observed) => present(case, hash, observed),
        (Intent::Absent | Intent::Released, Observed::Missing) => {
            now(Step::Nothing, "Gone", "there is no shard")
        }
        (Intent::Absent, Observed::Found(found)) => absent(case, found),
        (Intent::Released, Observed::Found(found)) => released(case, found),
    }
}

/// What becomes of a debt when the member is back: what is meant now wins over what was owed then.
pub fn settle(debt: &Debt, meant: Intent) -> Intent {
    match (debt, meant) {
        (_, Intent::Present { .. }) => meant,
        (Debt::Delete { .. }, Intent::Absent | Intent::Released) => Intent::Absent,
        (Debt::Orphan, Intent::Absent | Intent::Released) => Intent::Released,
        (Debt::Apply, Intent::Absent | Intent::Released) => meant,
    }
}

fn offline(case: &Case<'_>) -> Decision {
    // No spans of time in what is told: it would be told anew every second.
    let owe =
        |debt, what: &str| now(Step::Owe(debt), "Offline", format!("{what} when its API answers again"));
    let uid = case.memory.uid.clone();
    // Where nothing was ever written, and nothing of ours was seen, nothing is owed.
    let known = uid.is_some()
        || case.memory.told
        || matches!(case.observed, Observed::Found(found) if ours(case, found));
    match case.intent {
        Intent::Present { .. } => owe(Debt::Apply, "brought up to date"),
        Intent::Absent | Intent::Released if !known => {
            now(Step::Nothing, "NeverThere", "offline, and it never had a shard")
        }
        Intent::Absent => owe(Debt::Delete { uid }, "deleted"),
        Intent::Released => owe(Debt::Orphan, "let go"),
    }
}

fn present(case: &Case<'_>, hash: u64, observed: &Observed) -> Decision {
    if let Some(refused) = case.memory.refused.as_ref().filter(|r| r.hash == hash && r.retry_ms > case.now_ms)
    {
        let reason = if refused.transient {
            Reason::new("Retrying", format!("it did not work and is tried again: {}", refused.message))
        } else {
            Reason::new("Refused", format!("the member refused it: {}", refused.message))
        };
        return Decision { step: Step::Wait, reason, look_again_ms: Some(refused.retry_ms) };
    }
    let Observed::Found(found) = observed else {
        if case.memory.uid.is_none() {
            return now(Step::Apply, "Missing", "the shard is made");
        }
        return heal(case, "Vanished", "it is deleted", "the shard is gone: it is made again".to_owned());
    };
    if found.deleting {
        return now(Step::Wait, "Terminating", "an object of that name is still being deleted there");
    }
    match &found.mark {
        Some(mark) if mark.federation != case.federation => {
            now(Step::Wait, "Conflict", format!("it belongs to the federation {:?}", mark.federation))
        }
        None if case.memory.uid.as_ref() == Some(&found.uid) => {
            let why = "our marks were taken off: they are put back".to_owned();
            heal(case, "Unmarked", "our marks are taken off", why)
        }
        None if !case.adopt => {
            now(Step::Wait, "Conflict", "an object of that name is there and may not be adopted")
        }
        None => now(Step::Adopt, "Adopted", "an object of that name was there: it is adopted"),
        Some(mark) if mark.hash != Some(hash) => {
            now(Step::Apply, "Outdated", "the shard is brought up to date")
        }
        Some(_) if found.drift.is_empty() => now(Step::Nothing, "InSync", "the shard is as it should be"),
        Some(_) if found.drift == case.memory.residue => {
            let paths = found.drift.join(", ");
            now(
                Step::Nothing,
                "InSync",
                format!("the shard is as it should be; the member writes {paths} in its own way"),
            )
        }
        Some(_) => {
            let paths = found.drift.join(", ");
            heal(case, "Drifted", &format!("{paths} is changed"), format!("changed in the member: {paths}"))
        }
    }
}

/// Puts right what somebody in the member changed; with more and more patience when it is done again and again.
fn heal(case: &Case<'_>, code: &'static str, what: &str, why: String) -> Decision {
    let until_ms = case.memory.heals.rest_until_ms();
    if until_ms <= case.now_ms {
        return now(Step::Apply, code, why);
    }
    let by = match &case.memory.heals.by {
        Some(manager) => format!(" (last by {manager:?})"),
        None => String::new(),
    };
    let told = format!("{what} in the member again and again{by}; it is put right less and less often");
    Decision { step: Step::Wait, reason: Reason::new("Contested", told), look_again_ms: Some(until_ms) }
}

fn absent(case: &Case<'_>, found: &Found) -> Decision {
    match &found.mark {
        Some(mark) if mark.federation == case.federation => match mark.origin {
            Origin::Created if found.deleting => now(Step::Wait, "Terminating", "the shard is being deleted"),
            Origin::Created if case.memory.uid.as_ref().is_some_and(|uid| *uid != found.uid) => now(
                Step::Orphan,
                "Replaced",
                "someone made it anew, marks and all: it is let go and not deleted",
            ),
            Origin::Created if found.shelters.is_some() => {
                let what = found.shelters.as_deref().unwrap_or_default();
                now(
                    Step::Orphan,
                    "Shelters",
                    format!("it is let go and not deleted: {what} in it is not ours"),
                )
            }
            Origin::Created => {
                now(Step::Delete { uid: found.uid.clone() }, "Deleted", "the shard is deleted: we made it")
            }
            Origin::Adopted => {
                now(Step::Orphan, "Released", "it was there before us: it is let go and not deleted")
            }
        },
        Some(_) | None => now(Step::Nothing, "NotOurs", "there is an object of that name that is not ours"),
    }
}

fn released(case: &Case<'_>, found: &Found) -> Decision {
    if ours(case, found) {
        return now(Step::Orphan, "Released", "the shard is let go and stays");
    }
    now(Step::Nothing, "NotOurs", "there is an object of that name that is not ours")
}

fn ours(case: &Case<'_>, found: &Found) -> bool {
    found.mark.as_ref().is_some_and(|mark| mark.federation == case.federation)
}

fn now(step: Step, code: &'static str, message: impl Into<std::borrow::Cow<'static, str>>) -> Decision {
    Decision { step, reason: Reason::new(code, message), look_again_ms: None }
}
