//! Conditions: those of shards joined to one, and how one is written.

use landfall_api::rules::read::{list, text};
use serde_json::{Map, Value, json};

use super::{MEMBERS_REACHABLE, Picture, Seen};

/// How many clusters a message names before it only counts them.
const NAMED_MAX: usize = 5;
/// How much of a member's own message is repeated.
const QUOTED_CHARS_MAX: usize = 200;

/// Writes a condition. `lastTransitionTime` stays unless the status changes; when nothing changes, nothing is written.
/// Whether anything was.
pub fn set_condition(
    conditions: &mut Vec<Value>,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) -> bool {
    let Some(at) = conditions.iter().position(|condition| text(condition, "type") == kind) else {
        conditions.push(json!({
            "type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message,
        }));
        return true;
    };
    let Some(condition) = conditions.get_mut(at).and_then(Value::as_object_mut) else { return false };
    let mut changed = false;
    for (field, value) in [("status", status), ("reason", reason), ("message", message)] {
        if condition.get(field).and_then(Value::as_str).unwrap_or("") != value {
            condition.insert(field.to_owned(), value.into());
            if field == "status" {
                condition.insert("lastTransitionTime".into(), now.into());
            }
            changed = true;
        }
    }
    changed
}

/// A condition of a list; `null` when it is not there.
pub(super) fn find<'a>(conditions: &'a [Value], kind: &str) -> &'a Value {
    conditions.iter().find(|condition| text(condition, "type") == kind).unwrap_or(&Value::Null)
}

/// The conditions of a status that is being written. They go back with [`Conditions::write`].
pub(super) struct Conditions<'a> {
    picture: &'a Picture<'a>,
    list: Vec<Value>,
}

/// A condition as it shall be.
#[derive(Clone, Debug)]
pub(super) struct Said {
    /// `True`, `False` or `Unknown`.
    pub(super) status: &'static str,
    /// One word.
    pub(super) reason: String,
    /// One sentence.
    pub(super) message: String,
}

impl<'a> Conditions<'a> {
    /// Those that the federated object has.
    pub(super) fn of(picture: &'a Picture<'a>) -> Self {
        Self { picture, list: list(picture.before(), "conditions").to_vec() }
    }

    /// Whether a condition holds at the federation.
    pub(super) fn holds(&self, kind: &str) -> bool {
        text(find(&self.list, kind), "status") == "True"
    }

    /// Whether a condition is there.
    pub(super) fn has(&self, kind: &str) -> bool {
        !find(&self.list, kind).is_null()
    }

    /// What a condition that holds at the federation says.
    pub(super) fn said(&self, kind: &str) -> Option<Said> {
        let found = find(&self.list, kind);
        self.holds(kind).then(|| Said::new("True", text(found, "reason"), text(found, "message")))
    }

    /// Writes a condition, or takes it away. Whether anything changed.
    pub(super) fn put(&mut self, kind: &str, said: Option<Said>) -> bool {
        let Some(said) = said else {
            let before = self.list.len();
            self.list.retain(|condition| text(condition, "type") != kind);
            return before != self.list.len();
        };
        let now = self.picture.federated.now;
        set_condition(&mut self.list, kind, said.status, &said.reason, &said.message, now)
    }

    /// Notes when a condition was last written, for kinds that tell.
    pub(super) fn updated(&mut self, kind: &str) {
        let now = self.picture.federated.now;
        let found = self.list.iter_mut().find(|condition| text(condition, "type") == kind);
        if let Some(condition) = found.and_then(Value::as_object_mut) {
            condition.insert("lastUpdateTime".into(), now.into());
        }
    }

    /// Says who does not answer, and what that does to the numbers; nothing while all answer.
    pub(super) fn reachable(&mut self, consequence: &str) {
        let offline = self.picture.offline();
        let message = || format!("{} offline: {consequence}", are(&offline));
        let said = (!offline.is_empty()).then(|| Said::new("False", "MembersOffline", message()));
        self.put(MEMBERS_REACHABLE, said);
    }

    /// Puts the conditions into a status.
    pub(super) fn write(self, status: &mut Map<String, Value>) {
        let conditions = (!self.list.is_empty()).then_some(self.list);
        super::set(status, "conditions", conditions);
    }
}

impl Said {
    /// A condition from its three parts.
    pub(super) fn new(status: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), message: message.into() }
    }
}

/// Live shards whose condition has this status.
pub(super) fn with<'p, 'a>(picture: &'p Picture<'a>, kind: &str, status: &str) -> Vec<&'p Seen<'a>> {
    picture.live().filter(|shard| text(shard.condition(kind), "status") == status).collect()
}

/// The first reason that one of the shards gives, if any.
pub(super) fn reason<'a>(shards: &[&Seen<'a>], kind: &str) -> Option<&'a str> {
    shards.iter().map(|shard| text(shard.condition(kind), "reason")).find(|reason| !reason.is_empty())
}

/// What shards say in a condition, each with the name of its cluster.
pub(super) fn quote(shards: &[&Seen<'_>], kind: &str) -> String {
    let one = |shard: &&Seen<'_>| {
        let message = text(shard.condition(kind), "message");
        let message = if message.is_empty() { text(shard.condition(kind), "reason") } else { message };
        let message: String = message.chars().take(QUOTED_CHARS_MAX).collect();
        format!("{}: {message}", shard.cluster)
    };
    let mut quotes: Vec<String> = shards.iter().take(NAMED_MAX).map(one).collect();
    if shards.len() > NAMED_MAX {
        quotes.push(format!("and {} more", shards.len() - NAMED_MAX));
    }
    quotes.join("; ")
}

/// Names of clusters, with the verb: `a is`, `a and b are`, `a, b, … and 3 more are`.
pub(super) fn are(clusters: &[&str]) -> String {
    let named = clusters.get(..NAMED_MAX).filter(|_| clusters.len() > NAMED_MAX);
    match (named, clusters) {
        (Some(named), _) => format!("{} and {} more are", named.join(", "), clusters.len() - NAMED_MAX),
        (None, [one]) => format!("{one} is"),
        (None, [most @ .., last]) => format!("{} and {last} are", most.join(", ")),
        (None, []) => "nobody is".to_owned(),
    }
}

/// Joins a condition that is good when it holds: any shard's `False` makes it `False`, all shards' `True` make it
/// `True`. None while no shard has it.
pub(super) fn join(picture: &Picture<'_>, kind: &str, reason_false: &str, good: Said) -> Option<Said> {
    let (mut no, mut other, mut yes) = (Vec::new(), Vec::new(), 0);
    for shard in picture.live() {
        match text(shard.condition(kind), "status") {
            "True" => yes += 1,
            "False" => no.push(shard),
            _ => other.push(shard),
        }
    }
    if !no.is_empty() {
        let reason = reason(&no, kind).unwrap_or(reason_false).to_owned();
        return Some(Said { status: "False", reason, message: quote(&no, kind) });
    }
    if other.is_empty() && yes > 0 {
        return Some(good);
    }
    let known = yes > 0 || !find(list(picture.before(), "conditions"), kind).is_null();
    known.then(|| match reason(&other, kind) {
        Some(reason) => Said::new("Unknown", reason, quote(&other, kind)),
        None if other.is_empty() => {
            Said::new("Unknown", "MembersOffline", format!("{} offline", are(&picture.offline())))
        }
        None => {
            let silent: Vec<&str> = other.iter().map(|shard| shard.cluster).collect();
            Said::new("Unknown", "MembersSilent", format!("{} yet to say", are(&silent)))
        }
    })
}

/// Joins a condition that is bad when it holds: any shard's `True` makes it `True`. None when no shard has it so.
pub(super) fn join_bad(picture: &Picture<'_>, kind: &str, usual: &str) -> Option<Said> {
    let yes = with(picture, kind, "True");
    let reason = reason(&yes, kind).unwrap_or(usual).to_owned();
    (!yes.is_empty()).then(|| Said { status: "True", reason, message: quote(&yes, kind) })
}
