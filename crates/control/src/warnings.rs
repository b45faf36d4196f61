//! Warnings: what a member's own Events warn of is told at the federated object that it is about, whether its replicas are
//! ready or not.
//!
//! Reads:      Events of type Warning in members, shards, and whose a pod is
//! Decides:    nothing
//! Writes:     what the next look at the object tells (Events `WarningInCluster`)
//! Wakes on:   such Events
//! Guarantees: nothing is told of what is not ours; losing one costs nobody more than a sentence
//! Limits:     per shard five reasons, each once in ten minutes; per member one pod a second is asked whose it is, ten at once

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use landfall_runtime::clock;
use serde_json::Value;

use crate::client::{Ask, ask_json};
use crate::federation::{Federation, now_ms};
use crate::kinds::EVENTS;
use crate::member::{Member, Note};
use crate::shelf::Key;
use crate::watch::{Arrived, timeout_s};

/// How long a pod may take to say whose it is.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What happened longer ago was told when it happened.
const FRESH_MS: i64 = 60_000;
/// How long it takes until the same is told of a shard again.
const AGAIN_MS: i64 = 600_000;
/// Most reasons that are told of a shard in that time.
const REASONS_MAX: usize = 5;
/// How much of a member's own words is repeated.
const QUOTED_CHARS_MAX: usize = 300;
/// How often pods are asked whose they are, and how many at once.
const ASK_EVERY: Duration = Duration::from_secs(1);
const ASKED_AT_ONCE: u32 = 10;

/// Something that a member warns of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// One word.
    pub reason: String,
    /// What it is about, and one sentence.
    pub message: String,
}

impl Note {
    /// Keeps a warning until it is told; whether it is not known yet.
    fn warn(&mut self, warning: Warning, now_ms: i64) -> bool {
        self.warned.retain(|(_, at_ms)| now_ms < at_ms.saturating_add(AGAIN_MS));
        if self.warned.len() >= REASONS_MAX || self.warned.iter().any(|(reason, _)| *reason == warning.reason)
        {
            return false;
        }
        self.warned.push((warning.reason.clone(), now_ms));
        self.warnings.push(warning);
        true
    }
}

/// Hears what a member warns of, for ever.
pub(crate) async fn follow(federation: &Arc<Federation>, member: &Weak<Member>, client: kube::Client) {
    let api: Api<Arrived> = Api::all_with(client.clone(), &federation.kinds.get(EVENTS).resource());
    let config = watcher::Config::default().fields("type=Warning").timeout(timeout_s());
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut pace = Pace::new(clock::instant());
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Apply(event) | watcher::Event::InitApply(event))) => {
                let Some(heard) = Heard::read(&event.value).filter(|heard| heard.fresh(now_ms())) else {
                    continue;
                };
                let Some(member) = member.upgrade() else { return };
                hear(federation, &member, &client, &mut pace, &heard).await;
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => tracing::debug!(%error, "Events of a member cannot be watched"),
        }
    }
}

async fn hear(
    federation: &Arc<Federation>,
    member: &Arc<Member>,
    client: &kube::Client,
    pace: &mut Pace,
    heard: &Heard,
) {
    let maker = if heard.about.kind == "Pod" {
        // A flood of them says nothing new.
        if !pace.admit(clock::instant()) {
            return;
        }
        maker(client, &heard.namespace, &heard.about.name).await
    } else {
        Some(heard.about.clone())
    };
    let Some(key) = maker.and_then(|maker| shard(federation, member, &heard.namespace, &maker)) else {
        return;
    };
    if member.noting(&key, |note| note.warn(heard.warning(), now_ms())) {
        federation.queue.push_soon(&key);
    }
}

/// What an Event says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heard {
    namespace: String,
    about: Thing,
    reason: String,
    message: String,
    at_ms: i64,
}

/// Something in a member, by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    group: String,
    kind: String,
    name: String,
}

impl Heard {
    fn read(event: &Value) -> Option<Self> {
        let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or("");
        let time =
            |path: &str| text(path).parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond);
        let times =
            ["/lastTimestamp", "/eventTime", "/series/lastObservedTime", "/metadata/creationTimestamp"];
        Some(Self {
            namespace: text("/involvedObject/namespace").to_owned(),
            about: Thing::named(
                text("/involvedObject/apiVersion"),
                text("/involvedObject/kind"),
                text("/involvedObject/name"),
            ),
            reason: text("/reason").to_owned(),
            message: text("/message").chars().take(QUOTED_CHARS_MAX).collect(),
            at_ms: times.into_iter().filter_map(time).max()?,
        })
    }

    fn fresh(&self, now_ms: i64) -> bool {
        now_ms < self.at_ms.saturating_add(FRESH_MS)
    }

    fn warning(&self) -> Warning {
        let Thing { kind, name, .. } = &self.about;
        Warning { reason: self.reason.clone(), message: format!("{kind} {name}: {}", self.message) }
    }
}

impl Thing {
    fn named(api_version: &str, kind: &str, name: &str) -> Self {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        Self { group: group.into(), kind: kind.into(), name: name.into() }
    }

    /// Who may have made it, by its name: a Deployment its ReplicaSets, a CronJob its Jobs.
    fn maker(&self) -> Option<Self> {
        let kind = match self.kind.as_str() {
            "ReplicaSet" => "Deployment",
            "Job" => "CronJob",
            _ => return None,
        };
        let (name, _) = self.name.rsplit_once('-')?;
        Some(Self { group: self.group.clone(), kind: kind.into(), name: name.into() })
    }
}

/// Who made a pod.
async fn maker(client: &kube::Client, namespace: &str, name: &str) -> Option<Thing> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let pod = ask_json(client, Ask::new(Method::GET, &path), TIMEOUT).await.ok()?;
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))?;
    let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or("");
    Some(Thing::named(text("apiVersion"), text("kind"), text("name")))
}

/// The shard that something is, or was made by.
fn shard(federation: &Arc<Federation>, member: &Arc<Member>, namespace: &str, thing: &Thing) -> Option<Key> {
    let own = |thing: &Thing| {
        let row = federation.kinds.find(&thing.group, &thing.kind)?;
        let namespace = if row.namespaced { namespace } else { "" };
        let key = Key { kind: row.id, namespace: namespace.into(), name: thing.name.as_str().into() };
        let seen = member.shelf(federation, row.id).get(&key)?;
        let marked = seen.mark.as_ref().is_some_and(|mark| mark.federation == federation.config.federation);
        marked.then_some(key)
    };
    own(thing).or_else(|| own(&thing.maker()?))
}

/// How many questions may be asked now.
struct Pace {
    left: u32,
    since: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { left: ASKED_AT_ONCE, since: now }
    }

    fn admit(&mut self, now: Instant) -> bool {
        while self.left < ASKED_AT_ONCE && self.since + ASK_EVERY <= now {
            (self.left, self.since) = (self.left + 1, self.since + ASK_EVERY);
        }
        if self.left == ASKED_AT_ONCE {
            self.since = now;
        }
        let admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_reason_is_told_once_in_a_while_and_not_too_many() {
        let mut note = Note::default();
        let mut warn = |reason: &str, now_ms: i64| {
            note.warn(Warning { reason: reason.into(), message: String::new() }, now_ms)
        };
        assert!(warn("BackOff", 0));
        assert!(!warn("BackOff", 1));
        assert!(["a", "b", "c", "d"].iter().all(|reason| warn(reason, 2)));
        assert!(!warn("one too many", 3));
        assert!(warn("BackOff", AGAIN_MS), "after a while it is news again");
        assert!(!warn("one too many", AGAIN_MS));
        assert!(warn("another", AGAIN_MS + 2));
        assert_eq!(note.warnings.len(), 7);
    }

    #[test]
    fn events_of_both_kinds_are_read() {
        let old = json!({
            "involvedObject": {"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web"},
            "reason": "SyncLoadBalancerFailed", "message": "no quota", "lastTimestamp": "1970-01-01T00:00:05Z",
            "metadata": {"creationTimestamp": "1970-01-01T00:00:01Z"},
        });
        let heard = Heard::read(&old).unwrap();
        assert_eq!((heard.at_ms, heard.about.group.as_str()), (5_000, ""));
        assert_eq!(heard.warning().message, "Service web: no quota");
        assert!(heard.fresh(64_999) && !heard.fresh(65_000));
        let new = json!({
            "involvedObject": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f"},
            "eventTime": "1970-01-01T00:00:02.500000Z",
        });
        let heard = Heard::read(&new).unwrap();
        assert_eq!(
            (heard.at_ms, heard.about.maker()),
            (2_500, Some(Thing::named("apps/v1", "Deployment", "web")))
        );
        assert_eq!(Heard::read(&json!({"reason": "x"})), None);
    }

    #[test]
    fn a_flood_of_pods_is_not_asked_one_by_one() {
        let now = clock::instant();
        let mut pace = Pace::new(now);
        let admitted = (0..1000).filter(|_| pace.admit(now)).count();
        assert_eq!(admitted, 10);
        assert!(pace.admit(now + ASK_EVERY) && !pace.admit(now + ASK_EVERY));
        let later = now + ASK_EVERY * 100;
        assert_eq!((0..1000).filter(|_| pace.admit(later)).count(), 10);
    }
}
