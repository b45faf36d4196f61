//! Deployments: what `kubectl rollout status` looks at.
//!
//! It waits until `observedGeneration` has caught up, then for `updatedReplicas` to reach the wanted number and to be
//! all there are, then for them to be available; and it gives up when Progressing says `ProgressDeadlineExceeded`.

use landfall_api::rules::read::{child, int, text};
use serde_json::{Map, Value};

use super::conditions::{Conditions, Said, join, join_bad, quote, with};
use super::counts::{How, Written, add_up, count};
use super::{Picture, counts};

const REPLICAS: &[counts::Count] = &[
    count("replicas", How::All, Written::NotZero),
    count("updatedReplicas", How::Current, Written::NotZero).within("replicas"),
    count("readyReplicas", How::Live, Written::NotZero).within("replicas"),
    count("availableReplicas", How::Live, Written::NotZero).within("readyReplicas"),
    count("unavailableReplicas", How::OrLost("replicas"), Written::NotZero),
    count("terminatingReplicas", How::All, Written::IfGiven),
];

/// The reason by which kubectl knows that a rollout is stuck.
const STUCK: &str = "ProgressDeadlineExceeded";
/// The reason by which Kubernetes says that a rollout is done.
const DONE: &str = "NewReplicaSetAvailable";
/// The reason by which Kubernetes says that a rollout goes on.
const GOES_ON: &str = "ReplicaSetUpdated";

/// The status of a Deployment.
pub(super) fn deployment(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    add_up(picture, REPLICAS, status);
    picture.observe(status);
    let mut conditions = Conditions::of(picture);
    let all = [
        ("Available", available(picture, status)),
        ("Progressing", progressing(picture)),
        ("ReplicaFailure", join_bad(picture, "ReplicaFailure", "FailedCreate")),
    ];
    for (kind, said) in all {
        if conditions.put(kind, said) {
            conditions.updated(kind);
        }
    }
    conditions.reachable("the replicas it last reported are counted, but none as ready or available");
    conditions.write(status);
}

/// All clusters are available, or those that answer have as many replicas available as are wanted in all.
fn available(picture: &Picture<'_>, status: &Map<String, Value>) -> Option<Said> {
    let live = picture.live().count();
    let message = format!("Deployment has minimum availability in {}.", clusters(live));
    let good = Said::new("True", "MinimumReplicasAvailable", message);
    let said = join(picture, "Available", "MinimumReplicasUnavailable", good)?;
    let offline = picture.offline();
    let wanted = child(child(picture.federated.object, "spec"), "replicas").as_i64().unwrap_or(1);
    let enough = status.get("availableReplicas").and_then(Value::as_i64).unwrap_or(0) >= wanted;
    if said.status != "True" || offline.is_empty() || enough {
        return Some(said);
    }
    let message =
        format!("{} offline; nobody knows what is available there", super::conditions::are(&offline));
    Some(Said::new("Unknown", "MembersOffline", message))
}

/// Stuck as soon as one cluster is, done when all are.
fn progressing(picture: &Picture<'_>) -> Option<Said> {
    let stuck: Vec<_> = with(picture, "Progressing", "False");
    let deadline = stuck.iter().any(|shard| text(shard.condition("Progressing"), "reason") == STUCK);
    if deadline {
        return Some(Said::new("False", STUCK, quote(&stuck, "Progressing")));
    }
    let done = |shard: &&super::Seen<'_>| {
        shard.is_observed() && text(shard.condition("Progressing"), "reason") == DONE && settled(shard.status)
    };
    let (live, done) = (picture.live().count(), picture.live().filter(done).count());
    let good = if live == done {
        Said::new("True", DONE, format!("The newest template is rolled out in {}.", clusters(live)))
    } else {
        Said::new("True", GOES_ON, format!("The newest template is rolled out in {done} of {live} clusters."))
    };
    join(picture, "Progressing", STUCK, good)
}

/// Whether all replicas are of the newest template.
fn settled(status: &Value) -> bool {
    int(status, "updatedReplicas") == int(status, "replicas")
}

fn clusters(count: usize) -> String {
    if count == 1 { "1 cluster".to_owned() } else { format!("{count} clusters") }
}
