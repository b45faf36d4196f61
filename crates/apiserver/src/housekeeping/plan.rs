//! What the garbage collector decides, as pure functions with reasons.

use landfall_api::meta;
use serde_json::Value;

use super::client::Propagation;
use super::graph::{FOREGROUND, ORPHAN, Owner, owners, waits_for_dependents, waits_for_orphans};

/// What is known of one owner, looked up at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there and stays.
    Alive,
    /// It is there, and waits for its dependents to be deleted.
    Waiting,
    /// It is not there, or another object has its name.
    Absent,
}

/// What to do with an object that has owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Keep(&'static str),
    /// Take these owners (uids) out of its references; others keep it.
    Release(Vec<String>),
    /// Delete it. `unblock`: first say in its references that it blocks nobody, to break a circle.
    Delete {
        /// What happens to its own dependents.
        propagation: Propagation,
        /// Whether to break a circle first.
        unblock: bool,
        /// Why.
        reason: &'static str,
    },
}

/// What is known of an object's own dependents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// There are some.
    pub any: bool,
    /// One of them waits for its own dependents: there may be a circle.
    pub waiting: bool,
}

/// Decides about an object with owners. `found` has one entry per owner, in order.
pub fn dependent(object: &Value, found: &[(Owner, Found)], below: Below) -> Action {
    if meta::deleting(object) {
        return Action::Keep("its deletion has begun");
    }
    let of = |wanted: Found| found.iter().filter(move |(_, state)| *state == wanted);
    if found.is_empty() {
        return Action::Keep("it has no owners");
    }
    if of(Found::Alive).next().is_some() {
        let rest = found.iter().filter(|(_, state)| *state != Found::Alive);
        let released: Vec<String> = rest.map(|(owner, _)| owner.uid.to_string()).collect();
        return if released.is_empty() {
            Action::Keep("its owners are there")
        } else {
            Action::Release(released)
        };
    }
    if of(Found::Waiting).next().is_some() && below.any {
        let reason = "an owner waits for its dependents, and it has some itself";
        return Action::Delete { propagation: Propagation::Foreground, unblock: below.waiting, reason };
    }
    let has = |finalizer: &str| meta::finalizers(object).any(|f| f == finalizer);
    let propagation = if has(ORPHAN) {
        Propagation::Orphan
    } else if has(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    Action::Delete { propagation, unblock: false, reason: "none of its owners stays" }
}

/// What to do with an object whose deletion waits for its dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerAction {
    /// Nothing: it does not wait.
    Keep,
    /// Take its references out of all dependents, then remove the orphan finalizer.
    Orphan,
    /// Wait: some dependents block it.
    Wait,
    /// Remove the foreground finalizer.
    Finish,
}

/// Decides about an object whose deletion waits. Orphaning comes first when both are asked for. `orphaning`: it has been
/// seen to wait for that, so that all dependents it had then are known; until it is seen, nothing is done.
pub fn owner(object: &Value, blocked: bool, orphaning: bool) -> OwnerAction {
    if waits_for_orphans(object) {
        if orphaning { OwnerAction::Orphan } else { OwnerAction::Wait }
    } else if !waits_for_dependents(object) {
        OwnerAction::Keep
    } else if blocked {
        OwnerAction::Wait
    } else {
        OwnerAction::Finish
    }
}

/// The object without these owners; none when it names none of them.
pub fn without_owners(object: &Value, uids: &[String]) -> Option<Value> {
    let mut copy = object.clone();
    let metadata = meta::metadata_mut(&mut copy);
    let references = metadata.get_mut("ownerReferences")?.as_array_mut()?;
    let before = references.len();
    references.retain(|reference| {
        let uid = reference.get("uid").and_then(Value::as_str).unwrap_or("");
        !uids.iter().any(|gone| gone == uid)
    });
    let (after, empty) = (references.len(), references.is_empty());
    if empty {
        metadata.remove("ownerReferences");
    }
    (after < before).then_some(copy)
}

/// The object without a finalizer; none when it does not have it.
pub fn without_finalizer(object: &Value, finalizer: &str) -> Option<Value> {
    let mut copy = object.clone();
    let metadata = meta::metadata_mut(&mut copy);
    let finalizers = metadata.get_mut("finalizers")?.as_array_mut()?;
    let before = finalizers.len();
    finalizers.retain(|f| f.as_str() != Some(finalizer));
    let (after, empty) = (finalizers.len(), finalizers.is_empty());
    if empty {
        metadata.remove("finalizers");
    }
    (after < before).then_some(copy)
}

/// The object with references that block nobody; none when none does.
pub fn unblocked(object: &Value) -> Option<Value> {
    if !owners(object).iter().any(|owner| owner.blocks) {
        return None;
    }
    let mut copy = object.clone();
    let references = meta::metadata_mut(&mut copy).get_mut("ownerReferences")?.as_array_mut()?;
    for reference in references.iter_mut().filter_map(Value::as_object_mut) {
        reference.insert("blockOwnerDeletion".into(), false.into());
    }
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn owner_of(uid: &str) -> Owner {
        Owner { uid: uid.into(), group: "".into(), kind: "K".into(), name: uid.into(), blocks: true }
    }

    #[test]
    fn an_object_stays_as_long_as_one_owner_does() {
        use Found::{Absent, Alive, Waiting};
        let plain = json!({"metadata": {"name": "x"}});
        let background =
            |reason| Action::Delete { propagation: Propagation::Background, unblock: false, reason };
        let gone = "none of its owners stays";
        for (states, below, expected) in [
            (vec![], Below::default(), Action::Keep("it has no owners")),
            (vec![Alive], Below::default(), Action::Keep("its owners are there")),
            (vec![Alive, Absent, Waiting], Below::default(), Action::Release(vec!["1".into(), "2".into()])),
            (vec![Absent], Below::default(), background(gone)),
            (vec![Waiting], Below::default(), background(gone)),
            (vec![Absent], Below { any: true, waiting: true }, background(gone)),
            (
                vec![Waiting, Absent],
                Below { any: true, waiting: true },
                Action::Delete {
                    propagation: Propagation::Foreground,
                    unblock: true,
                    reason: "an owner waits for its dependents, and it has some itself",
                },
            ),
        ] {
            let found: Vec<_> =
                states.iter().enumerate().map(|(i, s)| (owner_of(&i.to_string()), *s)).collect();
            assert_eq!(dependent(&plain, &found, below), expected, "{states:?}");
        }
        let orphaning = json!({"metadata": {"finalizers": ["orphan"]}});
        let action = dependent(&orphaning, &[(owner_of("0"), Absent)], Below::default());
        assert!(matches!(action, Action::Delete { propagation: Propagation::Orphan, .. }));
    }

    #[test]
    fn deletion_that_waits_ends_when_nothing_blocks() {
        let waiting = |f: &str| json!({"metadata": {"deletionTimestamp": "t", "finalizers": [f]}});
        assert_eq!(owner(&waiting(FOREGROUND), true, false), OwnerAction::Wait);
        assert_eq!(owner(&waiting(FOREGROUND), false, false), OwnerAction::Finish);
        assert_eq!(owner(&waiting(ORPHAN), true, true), OwnerAction::Orphan);
        assert_eq!(owner(&waiting(ORPHAN), true, false), OwnerAction::Wait, "not all dependents are known");
        assert_eq!(owner(&waiting("mine/x"), false, true), OwnerAction::Keep);
        assert_eq!(owner(&json!({"metadata": {"finalizers": [ORPHAN]}}), false, true), OwnerAction::Keep);
    }
}
