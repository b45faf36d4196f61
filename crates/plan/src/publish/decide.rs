//! What to change in a zone, name by name.

use super::{Found, Held, Sets, Type, Wanted};
use crate::Reason;

/// What is done to a name. The order is that in which it is done: what is wrong goes before what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It is ours and shall be different.
    Replace,
    /// It is ours and shall be gone.
    Remove,
    /// It has nothing, and shall be ours.
    Create,
}

/// What is to be done to one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The name.
    pub name: String,
    /// What is done.
    pub step: Step,
    /// Its records before, of the types that we publish.
    pub before: Sets,
    /// Its records afterwards.
    pub after: Sets,
    /// Why.
    pub reason: Reason,
}

/// What is to be done to a zone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Changes, at most one per name.
    pub changes: Vec<Change>,
    /// Wanted names that are left alone, and why.
    pub conflicts: Vec<(String, Reason)>,
}

/// What to change so that the zone has what is wanted, as far as it is ours; `mark` says who we are.
pub fn decide(mark: &str, wanted: &Wanted, found: &Found) -> Decision {
    let mut decision = Decision::default();
    let (nothing, none) = (Held::default(), Sets::new());
    for (name, sets) in wanted {
        let held = found.get(name).unwrap_or(&nothing);
        match one(mark, sets, held) {
            Verdict::Fine => {}
            Verdict::Change(step, reason) => {
                let after = if step == Step::Remove { none.clone() } else { sets.clone() };
                decision.changes.push(change(name, step, held, after, reason));
            }
            Verdict::Conflict(reason) => decision.conflicts.push((name.clone(), reason)),
        }
    }
    for (name, held) in found {
        if held.owner.as_deref() == Some(mark) && !wanted.contains_key(name) {
            let reason = Reason::new("Unwanted", "no service has this name now");
            decision.changes.push(change(name, Step::Remove, held, Sets::new(), reason));
        }
    }
    decision.changes.sort_by(|one, two| (one.step, &one.name).cmp(&(two.step, &two.name)));
    decision
}

/// Takes over what a change has done.
pub fn apply(mark: &str, found: &mut Found, change: &Change) {
    let held = found.entry(change.name.clone()).or_default();
    held.sets.clone_from(&change.after);
    held.owner = (change.step != Step::Remove).then(|| mark.to_owned());
    if *held == Held::default() {
        found.remove(&change.name);
    }
}

enum Verdict {
    Fine,
    Change(Step, Reason),
    Conflict(Reason),
}

fn one(mark: &str, wanted: &Sets, held: &Held) -> Verdict {
    let blocked = held.others && wanted.contains_key(&Type::Cname);
    match held.owner.as_deref() {
        Some(owner) if owner == mark && blocked => {
            // What we had there is not true any more, and what is true cannot stand beside what others have there.
            let text = "somebody put other records beside it, where only a CNAME may stand";
            Verdict::Change(Step::Remove, Reason::new("NoRoom", text))
        }
        Some(owner) if owner == mark && held.sets == *wanted => Verdict::Fine,
        Some(owner) if owner == mark => {
            Verdict::Change(Step::Replace, Reason::new("Different", "the service has moved"))
        }
        Some(owner) => Verdict::Conflict(Reason::new("OtherOwner", format!("it is marked {owner:?}"))),
        None if held.others || !held.sets.is_empty() => {
            Verdict::Conflict(Reason::new("Foreign", "it has records that are not ours"))
        }
        None => Verdict::Change(Step::Create, Reason::new("Missing", "the zone does not have it")),
    }
}

fn change(name: &str, step: Step, held: &Held, after: Sets, reason: Reason) -> Change {
    Change { name: name.to_owned(), step, before: held.sets.clone(), after, reason }
}
