//! Status: what members report about the shards, added up to what the federated object says of itself.
//!
//! Sums are honest. What a member that is offline last reported still counts as existing (nobody saw it go), but not
//! as ready or available (nobody sees it work), and the condition [`MEMBERS_REACHABLE`] says so. Whatever is not
//! added up here, such as conditions of other types, stays as it is.
//!
//! `observedGeneration` rises only when every member that answers carries the newest intent and its own controller has
//! seen it, so that `kubectl rollout status` waits for all of them.

use landfall_api::landfall::Address;
use landfall_api::rules::read::{child, int, list};
use serde_json::{Map, Value};

mod addresses;
mod autoscaler;
mod conditions;
mod counts;
mod jobs;
mod rollout;
#[cfg(test)]
mod tests;
mod workloads;

pub use conditions::set_condition;

/// The condition that tells whose numbers are old. It is there, and `False`, while a member is offline.
pub const MEMBERS_REACHABLE: &str = "MembersReachable";

/// One shard, as last seen in its member.
#[derive(Clone, Copy, Debug)]
pub struct Shard<'a> {
    /// The member's name.
    pub cluster: &'a str,
    /// The object there; `null` where it was not seen yet.
    pub object: &'a Value,
    /// The member does not answer: what is known is old.
    pub offline: bool,
    /// It carries the newest intent.
    pub current: bool,
}

/// The federated object.
#[derive(Clone, Copy, Debug)]
pub struct Federated<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// The object at the hub, with its present status.
    pub object: &'a Value,
    /// The name under which the federation serves it: Services only.
    pub hostname: Option<&'a str>,
    /// Where edges that carry it are reached: Ingresses and Services.
    pub edges: &'a [Address],
    /// The present in RFC 3339, for `lastTransitionTime`.
    pub now: &'a str,
}

/// Writes one kind's part of the status.
type Write = fn(&Picture<'_>, &mut Map<String, Value>);

/// Kinds whose status is added up; of all others it is their own.
const KINDS: &[(&str, Write)] = &[
    ("CronJob", jobs::cron_job),
    ("DaemonSet", workloads::daemon_set),
    ("Deployment", rollout::deployment),
    ("HorizontalPodAutoscaler", autoscaler::autoscaler),
    ("Ingress", addresses::ingress),
    ("Job", jobs::job),
    ("PodDisruptionBudget", workloads::budget),
    ("ReplicaSet", workloads::replica_set),
    ("ReplicationController", workloads::replica_set),
    ("Service", addresses::service),
    ("StatefulSet", workloads::stateful_set),
];

/// Whether what members report matters for an object's status.
pub fn adds_up(kind: &str, object: &Value) -> bool {
    // Only load balancers have something to report.
    let silent =
        kind == "Service" && object.pointer("/spec/type").and_then(Value::as_str) != Some("LoadBalancer");
    !silent && KINDS.iter().any(|(known, _)| *known == kind)
}

/// The whole new status of a federated object; none for kinds without one that is added up. Give a shard for every
/// member that takes part. The same input gives the same status, and so does its own output.
pub fn aggregate(federated: &Federated<'_>, shards: &[Shard<'_>]) -> Option<Value> {
    let (_, write) = KINDS.iter().find(|(kind, _)| *kind == federated.kind)?;
    let mut shards: Vec<Seen<'_>> = shards.iter().map(Seen::new).collect();
    shards.sort_by_key(|shard| shard.cluster);
    let mut status = child(federated.object, "status").as_object().cloned().unwrap_or_default();
    write(&Picture { federated: *federated, shards }, &mut status);
    Some(Value::Object(status))
}

/// Everything that is seen of one federated object; the shards are in order of their clusters.
struct Picture<'a> {
    federated: Federated<'a>,
    shards: Vec<Seen<'a>>,
}

/// A shard, with what is looked at again and again.
struct Seen<'a> {
    cluster: &'a str,
    object: &'a Value,
    offline: bool,
    current: bool,
    status: &'a Value,
    conditions: &'a [Value],
}

impl<'a> Picture<'a> {
    /// The federated object's present status.
    fn before(&self) -> &'a Value {
        child(self.federated.object, "status")
    }

    /// Shards in members that answer.
    fn live(&self) -> impl Iterator<Item = &Seen<'a>> {
        self.shards.iter().filter(|shard| !shard.offline)
    }

    /// Names of members that do not answer.
    fn offline(&self) -> Vec<&'a str> {
        self.shards.iter().filter(|shard| shard.offline).map(|shard| shard.cluster).collect()
    }

    /// Writes `observedGeneration`.
    fn observe(&self, status: &mut Map<String, Value>) {
        let seen =
            self.shards.is_empty() || (self.live().next().is_some() && self.live().all(Seen::is_observed));
        let generation = int(child(self.federated.object, "metadata"), "generation");
        if seen && generation > 0 {
            status.insert("observedGeneration".into(), generation.into());
        }
    }
}

impl<'a> Seen<'a> {
    fn new(shard: &Shard<'a>) -> Self {
        let Shard { cluster, object, offline, current } = *shard;
        let status = child(object, "status");
        Self { cluster, object, offline, current, status, conditions: list(status, "conditions") }
    }

    /// Whether it carries the newest intent, and the member's controller knows it. Kinds whose controllers do not tell
    /// (Jobs) are known by being there.
    fn is_observed(&self) -> bool {
        let metadata = child(self.object, "metadata");
        self.current
            && self.object.is_object()
            && int(self.status, "observedGeneration") >= int(metadata, "generation")
    }

    /// A condition of the shard; `null` when it is not there.
    fn condition(&self, kind: &str) -> &'a Value {
        conditions::find(self.conditions, kind)
    }
}

/// A time as Kubernetes writes it (`2026-01-02T03:04:05Z`); their order as texts is their order. Anything else is not
/// believed.
fn time<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let text = child(object, field).as_str()?;
    let fits = |(byte, form): (u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form };
    (text.len() == FORM.len() && text.bytes().zip(FORM).all(fits)).then_some(text)
}

/// Writes a field, or takes it away.
fn set(status: &mut Map<String, Value>, field: &str, value: Option<impl Into<Value>>) {
    match value {
        Some(value) => _ = status.insert(field.to_owned(), value.into()),
        None => _ = status.remove(field),
    }
}
