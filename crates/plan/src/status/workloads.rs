//! ReplicaSets, ReplicationControllers, DaemonSets, StatefulSets and PodDisruptionBudgets: numbers, mostly.

use landfall_api::rules::read::text;
use serde_json::{Map, Value};

use super::Picture;
use super::conditions::{Conditions, Said, join_bad};
use super::counts::{Count, How, Written, add_up, count};

const REPLICA_SET: &[Count] = &[
    count("replicas", How::All, Written::Always),
    count("fullyLabeledReplicas", How::All, Written::NotZero).within("replicas"),
    count("readyReplicas", How::Live, Written::NotZero).within("replicas"),
    count("availableReplicas", How::Live, Written::NotZero).within("readyReplicas"),
    count("terminatingReplicas", How::All, Written::IfGiven),
];

const DAEMON_SET: &[Count] = &[
    count("currentNumberScheduled", How::All, Written::Always),
    count("numberMisscheduled", How::All, Written::Always),
    count("desiredNumberScheduled", How::All, Written::Always),
    count("numberReady", How::Live, Written::Always),
    count("updatedNumberScheduled", How::Current, Written::NotZero),
    count("numberAvailable", How::Live, Written::NotZero),
    count("numberUnavailable", How::OrLost("desiredNumberScheduled"), Written::NotZero),
];

const STATEFUL_SET: &[Count] = &[
    count("replicas", How::All, Written::Always),
    count("readyReplicas", How::Live, Written::NotZero).within("replicas"),
    count("currentReplicas", How::All, Written::NotZero).within("replicas"),
    count("updatedReplicas", How::Current, Written::NotZero).within("replicas"),
    count("availableReplicas", How::Live, Written::Always).within("readyReplicas"),
];

const BUDGET: &[Count] = &[
    count("disruptionsAllowed", How::Live, Written::Always),
    count("currentHealthy", How::Live, Written::Always),
    count("desiredHealthy", How::All, Written::Always),
    count("expectedPods", How::All, Written::Always),
];

const REPLICAS_OLD: &str = "the replicas it last reported are counted, but none as ready or available";

/// The status of a ReplicaSet or ReplicationController.
pub(super) fn replica_set(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    numbers(picture, REPLICA_SET, REPLICAS_OLD, status);
}

/// The status of a DaemonSet.
pub(super) fn daemon_set(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    let consequence = "the pods it last reported are counted, but none as ready or available";
    numbers(picture, DAEMON_SET, consequence, status);
}

/// The status of a StatefulSet.
pub(super) fn stateful_set(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    numbers(picture, STATEFUL_SET, REPLICAS_OLD, status);
    let (current, update) = revisions(picture);
    super::set(status, "currentRevision", current);
    super::set(status, "updateRevision", update);
}

/// The status of a PodDisruptionBudget.
pub(super) fn budget(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    add_up(picture, BUDGET, status);
    picture.observe(status);
    let allowed = status.get("disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0);
    let (holds, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut conditions = Conditions::of(picture);
    conditions.put("DisruptionAllowed", Some(Said::new(holds, reason, "")));
    conditions.reachable("the pods it expects are counted, but none as healthy");
    conditions.write(status);
}

fn numbers(picture: &Picture<'_>, table: &[Count], consequence: &str, status: &mut Map<String, Value>) {
    add_up(picture, table, status);
    picture.observe(status);
    let mut conditions = Conditions::of(picture);
    conditions.put("ReplicaFailure", join_bad(picture, "ReplicaFailure", "FailedCreate"));
    conditions.reachable(consequence);
    conditions.write(status);
}

/// The revisions of a StatefulSet. They are names inside each member, and differ where overrides do; what kubectl asks is
/// whether both are equal, so they are when that is so in every cluster.
fn revisions<'a>(picture: &Picture<'a>) -> (Option<&'a str>, Option<&'a str>) {
    let of = |shard: &super::Seen<'a>, field| Some(text(shard.status, field)).filter(|name| !name.is_empty());
    let pairs: Vec<_> =
        picture.live().map(|shard| (of(shard, "currentRevision"), of(shard, "updateRevision"))).collect();
    let differing = pairs.iter().find(|(current, update)| current != update);
    differing.or_else(|| pairs.first()).copied().unwrap_or((None, None))
}
