//! When a controller decides next, and which objects it leaves alone for a while because acting on them failed.
//!
//! Failures are held against the object, never against the controller: one ReplicaSet over its quota keeps no other
//! waiting.

use std::collections::BTreeMap;

use super::action::{Action, Deed};
use super::concern::Concern;
use super::read::Millis;
use crate::view::{Known, controller_uid};

/// How long an object is left alone after a failure at first, and at most.
const RETRY_MS: (Millis, Millis) = (100, 10_000);

/// Whose failure an action's is: what is made is held against its owner, as its own name is another each time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// An object that is there, or has no owner.
    Object(Known, String, String),
    /// The uid of an owner.
    Owner(String),
}

/// When a controller decides next.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// Something it looks at has changed.
    dirty: bool,
    /// Whom that concerns.
    concern: Concern,
    /// Time alone may change its decision then.
    again: Option<Millis>,
    held: BTreeMap<Subject, Held>,
    /// How long it was left alone after it last panicked.
    panicked: Millis,
}

#[derive(Clone, Debug, Default)]
struct Held {
    until: Millis,
    pause: Millis,
}

impl Subject {
    pub(super) fn of(action: &Action) -> Self {
        let owner = match &action.deed {
            Deed::Create(object) => controller_uid(object),
            _ => None,
        };
        let object = || Self::Object(action.known, action.namespace.clone(), action.name.clone());
        owner.map_or_else(object, |uid| Self::Owner(uid.to_owned()))
    }
}

impl Turn {
    /// Everything is new to it.
    pub(super) fn first() -> Self {
        Self { dirty: true, concern: Concern::Everybody, again: None, held: BTreeMap::new(), panicked: 0 }
    }

    pub(super) fn is_due(&self, now: Millis) -> bool {
        self.dirty || self.due().is_some_and(|at| at <= now)
    }

    /// When it decides though nothing changes.
    pub(super) fn due(&self) -> Option<Millis> {
        self.held.values().map(|held| held.until).chain(self.again).min()
    }

    /// Whom it decides about now: those near what has changed, or everybody when its time has come.
    pub(super) fn concern(&mut self, now: Millis) -> Concern {
        let concern = std::mem::replace(&mut self.concern, Concern::nobody());
        if self.due().is_some_and(|at| at <= now) { Concern::Everybody } else { concern }
    }

    /// It has decided about those concerned: `actions` are what it wants. Gives those whose time has come; when it has
    /// decided about everybody, failures of objects that it wants nothing of any more are forgotten.
    pub(super) fn begin(
        &mut self,
        concern: &Concern,
        again: Option<Millis>,
        actions: Vec<Action>,
        now: Millis,
    ) -> Vec<Action> {
        let all = *concern == Concern::Everybody;
        self.dirty = false;
        self.again = if all { again } else { again.into_iter().chain(self.again).min() };
        self.panicked = 0;
        let mut old = std::mem::take(&mut self.held);
        let mut due = Vec::with_capacity(actions.len());
        for action in actions {
            let subject = Subject::of(&action);
            if let Some(held) = old.remove(&subject) {
                self.held.insert(subject.clone(), held);
            }
            if self.may(&subject, now) {
                due.push(action);
            }
        }
        if !all {
            self.held.append(&mut old);
        }
        due
    }

    /// Whether something may be tried with a subject: what failed a moment ago fails again.
    pub(super) fn may(&self, subject: &Subject, now: Millis) -> bool {
        self.held.get(subject).is_none_or(|held| held.until <= now)
    }

    /// What was wanted of a subject is done.
    pub(super) fn done(&mut self, subject: &Subject) {
        self.held.remove(subject);
    }

    /// It is not done. The first time that somebody else was faster it is tried again at once.
    pub(super) fn failed(&mut self, subject: Subject, now: Millis, raced: bool) {
        let first = !self.held.contains_key(&subject);
        let held = self.held.entry(subject).or_default();
        if !(raced && first) {
            held.pause = longer(held.pause);
        }
        held.until = now.saturating_add(held.pause);
    }

    /// It panicked: it is left alone for a while, whatever changes.
    pub(super) fn panicked(&mut self, now: Millis) {
        self.panicked = longer(self.panicked);
        self.dirty = false;
        self.concern = Concern::Everybody;
        self.held.clear();
        self.again = Some(now.saturating_add(self.panicked));
    }

    /// Something it looks at has changed; `whom` adds those whom it concerns.
    pub(super) fn touch(&mut self, whom: impl FnOnce(&mut Concern)) {
        // After a panic the pause holds: the same objects are still there.
        self.dirty |= self.panicked == 0;
        whom(&mut self.concern);
    }
}

/// The pause after another failure.
pub(super) fn longer(pause: Millis) -> Millis {
    pause.saturating_mul(2).clamp(RETRY_MS.0, RETRY_MS.1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod_of(owner: &str) -> Action {
        let pod: Value = json!({"metadata": {"name": format!("{owner}-luck"), "namespace": "a",
            "ownerReferences": [{"uid": owner, "controller": true}]}});
        Action::create(Known::Pod, pod, "too few")
    }

    fn names(actions: &[Action]) -> Vec<&str> {
        actions.iter().map(|action| action.name.as_str()).collect()
    }

    /// One ReplicaSet over its quota made all others wait for up to ten seconds.
    #[test]
    fn one_that_fails_holds_back_nobody_else() {
        let mut turn = Turn::first();
        let both = || vec![pod_of("full"), pod_of("fine")];
        assert_eq!(names(&turn.begin(&Concern::Everybody, None, both(), 0)), ["full-luck", "fine-luck"]);
        turn.failed(Subject::of(&pod_of("full")), 0, false);
        assert!(!turn.may(&Subject::of(&pod_of("full")), 0), "its other pods are not tried in this turn");
        assert!(!turn.is_due(99) && turn.is_due(100) && turn.due() == Some(100));
        turn.touch(|_| ());
        assert!(turn.is_due(50), "others have changed");
        assert_eq!(names(&turn.begin(&Concern::Everybody, None, both(), 50)), ["fine-luck"]);
        assert!(!turn.is_due(99), "nothing to do until then");
        for (now, next) in [(100, 300), (300, 700), (700, 1500), (100_000, 101_600), (200_000, 203_200)] {
            assert_eq!(
                names(&turn.begin(&Concern::Everybody, None, both(), now)),
                ["full-luck", "fine-luck"]
            );
            turn.failed(Subject::of(&pod_of("full")), now, false);
            assert_eq!(turn.due(), Some(next), "twice as long each time");
        }
        assert_eq!(
            names(&turn.begin(&Concern::Everybody, None, vec![pod_of("fine")], 300_000)),
            ["fine-luck"]
        );
        assert_eq!(turn.due(), None, "nothing is wanted of it any more");
    }

    #[test]
    fn a_race_is_run_again_at_once_but_not_for_ever() {
        let (mut turn, subject) = (Turn::first(), Subject::of(&pod_of("r")));
        turn.begin(&Concern::Everybody, None, vec![pod_of("r")], 0);
        turn.failed(subject.clone(), 0, true);
        assert!(turn.is_due(0));
        assert_eq!(turn.begin(&Concern::Everybody, None, vec![pod_of("r")], 0).len(), 1);
        turn.failed(subject.clone(), 0, true);
        assert_eq!(turn.due(), Some(100));
        assert_eq!(turn.begin(&Concern::Everybody, None, vec![pod_of("r")], 100).len(), 1);
        turn.done(&subject);
        assert_eq!(turn.due(), None);
    }

    #[test]
    fn a_panic_is_paused_after_whatever_changes() {
        let mut turn = Turn::first();
        for (now, next) in [(0, 100), (100, 300)] {
            turn.panicked(now);
            turn.touch(|_| ());
            assert!(!turn.is_due(next - 1) && turn.is_due(next));
        }
        turn.begin(&Concern::Everybody, None, Vec::new(), 300);
        turn.touch(|_| ());
        assert!(turn.is_due(300), "it has recovered");
    }
}
