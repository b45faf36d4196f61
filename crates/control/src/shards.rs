//! Writing to members: one shard at a time, exactly as it was decided.
//!
//! Reads:      what the decision gave; the member's object where it must not be written over blindly
//! Decides:    nothing; what an answer means for the next attempt
//! Writes:     shards in members (field manager `landfall`), by server-side apply
//! Guarantees: an object that was there before is never marked as made by us; only the uid that was decided on is deleted
//! Limits:     8 at a time per member, 10 s each; failures wait longer each time, up to 5 min

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use landfall_plan::propagation::{
    self, FEDERATION_LABEL, HASH_ANNOTATION, ORIGIN_ANNOTATION, Origin, Refused,
};
use landfall_plan::replicas::GOAL_ANNOTATION;
use landfall_runtime::clock;
use serde_json::{Value, json};

use crate::brake::Answered;
use crate::client::{Ask, Trouble, ask, ask_json};
use crate::federation::{Federation, now_ms};
use crate::kinds::Row;
use crate::lean::Lean;
use crate::member::Member;
use crate::pods;
use crate::propagation::TEMPLATE_ANNOTATION;
use crate::shelf::{Key, Seen};

/// Our name in `managedFields`.
pub const MANAGER: &str = "landfall";

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The first wait after a refusal, and the longest.
const REFUSED_WAIT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// The first wait after a failure that passes, and the longest.
const FAILED_WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// After so many times of putting a shard right it is asked who changes it.
const ASK_WHO: u32 = 3;

/// Something to do to a shard.
#[derive(Clone, Debug)]
pub enum Job {
    /// Write it.
    Apply(Apply),
    /// Delete the one with this uid.
    Delete {
        /// The uid.
        uid: String,
    },
    /// Take our marks and our hold off it.
    Orphan,
    /// Look at the pods it makes.
    LookAtPods {
        /// Which pods.
        selector: String,
    },
    /// Look for what in a namespace is not ours.
    LookInside,
}

/// A shard to write.
#[derive(Clone, Debug)]
pub struct Apply {
    /// The shard, without marks.
    pub shard: Arc<Value>,
    /// Its hash.
    pub hash: u64,
    /// Who will have made it.
    pub origin: Origin,
    /// Nothing was seen there: look before writing.
    pub first: bool,
    /// The uid of what was seen there: no other object is written to.
    pub uid: Option<String>,
    /// The resourceVersion of what was seen there.
    pub version: Option<Box<str>>,
    /// A field of `spec` that keeps whatever number is there: an autoscaler's.
    pub leave: Option<&'static str>,
    /// What somebody in the member did that it undoes.
    pub heals: Option<String>,
}

impl Job {
    /// What tells one attempt from another.
    pub fn hash(&self) -> u64 {
        match self {
            Self::Apply(apply) => apply.hash,
            Self::Delete { .. } => 1,
            Self::Orphan => 2,
            Self::LookAtPods { .. } => 3,
            Self::LookInside => 4,
        }
    }
}

/// Does one piece of work and remembers how it went; what that says about the member's API.
pub async fn run(
    federation: &Arc<Federation>,
    member: &Arc<Member>,
    client: &kube::Client,
    key: &Key,
    job: Job,
) -> Answered {
    let row = federation.kinds.get(key.kind);
    let to = Place { federation, member, client, key, row: &row };
    let hash = job.hash();
    let writes = matches!(job, Job::Apply(_) | Job::Delete { .. } | Job::Orphan);
    let (applies, deletes) = (matches!(job, Job::Apply(_)), matches!(job, Job::Delete { .. }));
    let done = match job {
        Job::Apply(apply) => to.apply(&apply).await,
        Job::Delete { uid } => to.delete(&uid).await,
        Job::Orphan => to.orphan().await,
        Job::LookAtPods { selector } => pods::look(member, client, key, &selector).await,
        Job::LookInside => pods::look_inside(federation, member, client, key).await,
    };
    let answered = Answered::of(&done);
    match done {
        Ok(()) => member.noting(key, |note| {
            if deletes {
                // What was in it when it was looked at may not be all that is.
                note.shelters = None;
            }
            // A look that works says nothing about writes that do not.
            if !writes {
                return;
            }
            note.failures = 0;
            note.pause = None;
            note.trouble = None;
            note.memory.refused = None;
        }),
        Err(trouble) => {
            if applies && trouble.passes() {
                // It may have come about all the same, with a uid that nobody was told.
                member.noting(key, |note| note.memory.uid = None);
            }
            if deletes {
                member.noting(key, |note| note.shelters = None);
            }
            if writes {
                to.failed(hash, &trouble);
            } else {
                federation.queue.push_after(key, REFUSED_WAIT.0);
            }
        }
    }
    answered
}

impl Answered {
    fn of<T>(done: &Result<T, Trouble>) -> Self {
        match done {
            Err(trouble) if trouble.passes() => {
                Self::Strained { asked: trouble.retry_after(), said: trouble.to_string() }
            }
            // Also a no is an answer.
            Ok(_) | Err(_) => Self::Well,
        }
    }
}

/// One shard's place.
struct Place<'a> {
    federation: &'a Arc<Federation>,
    member: &'a Arc<Member>,
    client: &'a kube::Client,
    key: &'a Key,
    row: &'a Row,
}

impl Place<'_> {
    fn path(&self) -> String {
        self.row.path(&self.key.namespace, &self.key.name)
    }

    /// Keeps an object as the member tells it.
    fn keep(&self, object: Value) -> Arc<Seen> {
        let seen = Arc::new(Seen::new(self.row, object));
        self.member.shelf(self.federation, self.key.kind).put(self.key, seen.clone());
        seen
    }

    async fn get(&self) -> Result<Option<Value>, Trouble> {
        match ask_json(self.client, Ask::new(Method::GET, &self.path()), TIMEOUT).await {
            Ok(object) => Ok(Some(object)),
            Err(trouble) if trouble.code() == Some(404) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// Whether it was written while the decision to write it was under way: by the work before this one, which had not been
    /// answered when it was looked at.
    fn written_meanwhile(&self, apply: &Apply) -> bool {
        let there = self.member.shelf(self.federation, self.key.kind).get(self.key);
        there.is_some_and(|there| {
            let carries = there.mark.as_ref().and_then(|mark| mark.hash) == Some(apply.hash);
            carries && apply.version.as_ref() != Some(&there.version)
        })
    }

    async fn apply(&self, apply: &Apply) -> Result<(), Trouble> {
        if self.written_meanwhile(apply) {
            // Whether anything is left to do is for the next look to decide.
            return Ok(());
        }
        if apply.first
            && let Some(there) = self.get().await?
        {
            // It was there, though not as a shard: what becomes of it is for the next look to decide.
            self.keep(there);
            return Ok(());
        }
        let by = if apply.heals.is_some() { self.other_hand().await? } else { None };
        let status = match self.write(apply, apply.origin).await {
            // Another object has its name now, or somebody wrote meanwhile: look again.
            Err(trouble) if !apply.first && uid_differs(&trouble) => return self.look_again().await,
            written => written?,
        };
        if apply.first && status != StatusCode::CREATED {
            // Somebody made it a moment before us.
            self.write(apply, Origin::Adopted).await?;
        }
        if apply.heals.is_some() {
            self.member.noting(self.key, |note| {
                note.memory.heals = note.memory.heals.after(now_ms(), by);
                note.healed.clone_from(&apply.heals);
            });
        }
        Ok(())
    }

    /// Who changed a shard last, once it is clear that somebody keeps doing it.
    async fn other_hand(&self) -> Result<Option<String>, Trouble> {
        if self.member.note(self.key).memory.heals.count < ASK_WHO {
            return Ok(None);
        }
        Ok(self.get().await?.as_ref().and_then(last_hand))
    }

    async fn write(&self, apply: &Apply, origin: Origin) -> Result<StatusCode, Trouble> {
        let mut body = (*apply.shard).clone();
        propagation::mark(&mut body, &self.federation.config.federation, origin, apply.hash);
        self.leave(apply, &mut body);
        if let (Some(uid), Some(metadata)) =
            (&apply.uid, body.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("uid".into(), uid.clone().into());
        }
        let path = format!("{}?fieldManager={MANAGER}&force=true", self.path());
        let request = Ask::with(Method::PATCH, &path, "application/apply-patch+yaml", &body);
        self.federation.metrics.writes.inc();
        let (status, answer) = ask(self.client, request, TIMEOUT).await?;
        let Lean(object) = serde_json::from_slice(&answer)
            .map_err(|error| Trouble::Failed(format!("the answer is not JSON: {error}")))?;
        let residue = propagation::drift(&apply.shard, &object);
        let seen = self.keep(object);
        self.member.noting(self.key, |note| {
            note.memory.uid = Some(seen.uid.to_string());
            note.memory.origin = Some(origin);
            note.memory.residue = residue;
        });
        Ok(status)
    }

    /// Puts the number that is there into what is written, so that giving the rest does not take the number away.
    fn leave(&self, apply: &Apply, body: &mut Value) {
        let Some(field) = apply.leave else { return };
        let shelf = self.member.shelf(self.federation, self.key.kind);
        let there = shelf.get(self.key).and_then(|seen| seen.value().get("spec")?.get(field).cloned());
        let spec = body.get_mut("spec").and_then(Value::as_object_mut);
        if let (Some(there), Some(spec)) = (there, spec) {
            spec.insert(field.to_owned(), there);
        }
    }

    async fn delete(&self, uid: &str) -> Result<(), Trouble> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": uid}, "propagationPolicy": "Background",
        });
        let path = self.path();
        self.federation.metrics.writes.inc();
        let request = Ask::with(Method::DELETE, &path, "application/json", &options);
        match ask(self.client, request, TIMEOUT).await {
            Ok(_) => Ok(()),
            Err(trouble) if matches!(trouble.code(), Some(404 | 409)) => self.look_again().await,
            Err(trouble) => Err(trouble),
        }
    }

    /// What is there is not what was thought.
    async fn look_again(&self) -> Result<(), Trouble> {
        match self.get().await? {
            Some(object) => drop(self.keep(object)),
            None => drop(self.member.shelf(self.federation, self.key.kind).take(self.key, None)),
        }
        Ok(())
    }

    /// Lets go of an object: every field stays, nothing of it is ours. An apply of nothing would take our fields away.
    async fn orphan(&self) -> Result<(), Trouble> {
        let Some(object) = self.get().await? else { return self.look_again().await };
        let patch = letting_go(&object);
        let path = format!("{}?fieldManager={MANAGER}", self.path());
        self.federation.metrics.writes.inc();
        let request = Ask::with(Method::PATCH, &path, "application/json-patch+json", &patch);
        let object = ask_json(self.client, request, TIMEOUT).await?;
        // It leaves the watch with its label; the shelf must not wait for that.
        let seen = Seen::new(self.row, object);
        self.member.shelf(self.federation, self.key.kind).take(self.key, Some(&seen));
        Ok(())
    }

    fn failed(&self, hash: u64, trouble: &Trouble) {
        let passes = trouble.passes() || trouble.code() == Some(409);
        let (first, longest) = if passes { FAILED_WAIT } else { REFUSED_WAIT };
        let asked = trouble.retry_after().unwrap_or_default();
        self.federation.metrics.failures.inc();
        let wait = self.member.noting(self.key, |note| {
            let wait = first.saturating_mul(1 << note.failures.min(10)).min(longest).max(asked);
            note.failures = note.failures.saturating_add(1);
            note.pause = Some((hash, clock::instant() + wait));
            note.trouble = Some(trouble.to_string());
            let retry_ms = now_ms().saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
            let message = trouble.to_string();
            let since_ms = note.memory.refused.as_ref().map_or_else(now_ms, |before| before.since_ms);
            note.memory.refused = Some(Refused { hash, message, transient: passes, since_ms, retry_ms });
            wait
        });
        tracing::debug!(cluster = self.member.name, object = self.key.path(), %trouble, "a write failed");
        self.federation.queue.push_after(self.key, wait);
    }
}

/// The field manager, other than us, who last wrote to an object, its status apart.
fn last_hand(object: &Value) -> Option<String> {
    let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let entries = object.pointer("/metadata/managedFields")?.as_array()?.iter();
    let others =
        entries.filter(|entry| text(entry, "manager") != MANAGER && text(entry, "subresource") != "status");
    let last = others.max_by_key(|entry| text(entry, "time"))?;
    Some(text(last, "manager")).filter(|manager| !manager.is_empty())
}

/// Whether an apply met another object than it was meant for.
fn uid_differs(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::Refused { code: 409 | 422, message, .. } => message.to_lowercase().contains("uid"),
        Trouble::Refused { .. } | Trouble::Failed(_) => false,
    }
}

/// The JSON patch that takes our marks and our hold off an object.
fn letting_go(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let version = metadata.get("resourceVersion").cloned().unwrap_or_default();
    let mut steps = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
    let fields = metadata.get("managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    let ours = |entry: &Value| entry.get("manager").and_then(Value::as_str) == Some(MANAGER);
    let mut kept: Vec<Value> = fields.into_iter().filter(|entry| !ours(entry)).collect();
    if kept.is_empty() {
        // An empty list changes nothing; one empty entry empties it.
        kept.push(json!({}));
    }
    steps.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": kept}));
    let marks = [
        ("labels", FEDERATION_LABEL),
        ("annotations", ORIGIN_ANNOTATION),
        ("annotations", HASH_ANNOTATION),
        ("annotations", GOAL_ANNOTATION),
        ("annotations", TEMPLATE_ANNOTATION),
    ];
    for (place, mark) in marks {
        if metadata.get(place).is_some_and(|map| map.get(mark).is_some()) {
            let escaped = mark.replace('~', "~0").replace('/', "~1");
            steps.push(json!({"op": "remove", "path": format!("/metadata/{place}/{escaped}")}));
        }
    }
    Value::Array(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hand_is_whoever_wrote_last_and_is_not_us() {
        let entry = |manager: &str, time: &str, subresource: &str| json!({"manager": manager, "time": time, "subresource": subresource});
        let object = json!({"metadata": {"managedFields": [
            entry("kubectl", "2026-01-01T00:00:01Z", ""),
            entry("horizontal-pod-autoscaler", "2026-01-01T00:00:05Z", "scale"),
            entry("kube-controller-manager", "2026-01-01T00:00:09Z", "status"),
            entry("landfall", "2026-01-01T00:00:08Z", ""),
        ]}});
        assert_eq!(last_hand(&object).as_deref(), Some("horizontal-pod-autoscaler"));
        assert_eq!(last_hand(&json!({})), None);
    }

    #[test]
    fn letting_go_takes_our_marks_and_nothing_else() {
        let object = json!({"metadata": {
            "resourceVersion": "5", "labels": {FEDERATION_LABEL: "prod", "app": "web"},
            "annotations": {ORIGIN_ANNOTATION: "Adopted", "mine": "yes"},
            "managedFields": [{"manager": "landfall", "operation": "Apply"}, {"manager": "kubectl"}],
        }});
        let expected = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "5"},
            {"op": "replace", "path": "/metadata/managedFields", "value": [{"manager": "kubectl"}]},
            {"op": "remove", "path": "/metadata/labels/landfall.dev~1federation"},
            {"op": "remove", "path": "/metadata/annotations/landfall.dev~1origin"},
        ]);
        assert_eq!(letting_go(&object), expected);
        let bare = letting_go(&json!({"metadata": {"resourceVersion": "5"}}));
        assert_eq!(bare[1]["value"], json!([{}]));
    }
}
