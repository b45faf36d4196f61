//! What controllers decide: actions with reasons, as plain values.

use std::fmt;

use landfall_api::meta;
use serde_json::{Map, Value};

use super::read::Millis;
use crate::luck::letter;
use crate::view::Known;

/// What a controller wants done about one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The object's kind.
    pub known: Known,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its resourceVersion when it was looked at: a change since then makes the action void. Empty for a new object.
    pub version: String,
    /// What to do.
    pub deed: Deed,
    /// Why, for people who read logs and tests.
    pub why: String,
    /// What to tell once it is done.
    pub note: Option<Note>,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    /// Make it.
    Create(Value),
    /// Set values at JSON pointers outside its status; none removes.
    Set(Vec<(String, Option<Value>)>),
    /// Replace its status.
    Status(Value),
    /// Replace its status, and set annotations along with it.
    Noted(Value, Vec<(String, String)>),
    /// Give a pod its node, with these conditions and labels.
    Bind(String, Value, Vec<(String, String)>),
    /// Delete it; with this grace for a pod, else its own.
    Delete(Option<i64>),
    /// Nothing: there is only something to tell.
    Tell,
}

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// `involvedObject`.
    pub about: About,
    /// Whether something is wrong.
    pub warning: bool,
    /// Such as `SuccessfulCreate`.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
}

/// The object an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// Which part of it, such as `spec.containers{web}`; empty for all.
    pub field: String,
}

/// Actions in order, and when to decide again though nothing changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to do.
    pub actions: Vec<Action>,
    /// When time alone may lead to other actions.
    pub again: Option<Millis>,
}

// === impl Action ===

impl Action {
    /// About an object that was looked at.
    pub fn on(known: Known, object: &Value, deed: Deed, why: impl Into<String>) -> Self {
        Self {
            known,
            namespace: meta::namespace(object).into(),
            name: meta::name(object).into(),
            version: meta::resource_version(object).into(),
            deed,
            why: why.into(),
            note: None,
        }
    }

    /// About a new object.
    pub fn create(known: Known, object: Value, why: impl Into<String>) -> Self {
        Self {
            known,
            namespace: meta::namespace(&object).into(),
            name: meta::name(&object).into(),
            version: String::new(),
            deed: Deed::Create(object),
            why: why.into(),
            note: None,
        }
    }

    /// The same, with something to tell once it is done.
    #[must_use]
    pub fn noting(self, note: Note) -> Self {
        Self { note: Some(note), ..self }
    }
}

/// As tests and logs show it: `create Pod a/x (too few)`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deed = match &self.deed {
            Deed::Create(_) => "create".to_owned(),
            Deed::Set(values) => format!(
                "set {} of",
                values
                    .iter()
                    .map(|(at, value)| match value {
                        Some(value) => format!("{at}={value}"),
                        None => format!("-{at}"),
                    })
                    .collect::<Vec<_>>()
                    .join(",")
            ),
            Deed::Status(_) | Deed::Noted(..) => "status of".to_owned(),
            Deed::Bind(node, ..) => format!("bind to {node}"),
            Deed::Delete(_) => "delete".to_owned(),
            Deed::Tell => "tell about".to_owned(),
        };
        let place = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{deed} {} {}{place}{} ({})", self.known.kind(), self.namespace, self.name, self.why)
    }
}

// === impl Note ===

impl Note {
    /// Something usual about an object.
    pub fn normal(object: &Value, reason: &'static str, message: impl Into<String>) -> Self {
        Self { about: About::of(object), warning: false, reason, message: message.into() }
    }

    /// Something wrong with an object.
    pub fn warning(object: &Value, reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::normal(object, reason, message) }
    }
}

impl About {
    fn of(object: &Value) -> Self {
        let own = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        Self {
            api_version: own("apiVersion"),
            kind: own("kind"),
            namespace: meta::namespace(object).into(),
            name: meta::name(object).into(),
            uid: meta::uid(object).into(),
            version: meta::resource_version(object).into(),
            field: String::new(),
        }
    }
}

// === impl Plan ===

impl Plan {
    /// Adds an action.
    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Replaces an object's status unless it is so already.
    pub fn status(&mut self, known: Known, object: &Value, status: Value, why: &str) {
        let empty = Value::Object(Map::new());
        if object.get("status").unwrap_or(&empty) != &status {
            self.act(Action::on(known, object, Deed::Status(status), why));
        }
    }

    /// Says that time alone may change the decision at `at`.
    pub fn again(&mut self, at: Millis) {
        self.again = Some(self.again.map_or(at, |before| before.min(at)));
    }
}

/// A number that stands for a text (FNV-1a).
pub fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A number as text that holds no words, for names of ReplicaSets.
pub fn safe_number(number: u32) -> String {
    number.to_string().bytes().map(|digit| letter(digit.into())).collect()
}
