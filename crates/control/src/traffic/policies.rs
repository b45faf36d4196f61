//! What becomes of the policies of one namespace: their conditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_api::landfall::TrafficPolicy;
use landfall_api::rules::read::child;
use landfall_plan::membership::Truth;
use landfall_plan::traffic::policies::{Standing, Subject, standings};
use serde_json::{Value, json};

use super::write::{Work, submit};
use super::{SOON, policies_of};
use crate::federation::{Federation, now_ms, rfc3339};
use crate::kinds::{self, POLICIES};
use crate::shelf::Key;

/// Looks at all policies of a namespace.
pub(super) fn look(federation: &Arc<Federation>, namespace: &Arc<str>) {
    let traffic = &federation.traffic;
    let here = policies_of(namespace);
    let policies = traffic.index.policies(&here);
    if policies.is_empty() {
        return;
    }
    let row = federation.kinds.get(traffic.services);
    let shelf = federation.shelf(traffic.services);
    let services: Vec<(Key, BTreeMap<String, String>)> = shelf
        .keys()
        .into_iter()
        .filter(|key| key.namespace == *namespace)
        .filter_map(|key| {
            let service = shelf.get(&key)?.value();
            let labels = child(child(&service, "metadata"), "labels").clone();
            kinds::eligible(&row, &service).then(|| (key, serde_json::from_value(labels).unwrap_or_default()))
        })
        .collect();
    let subjects: Vec<Subject<'_>> =
        services.iter().map(|(key, labels)| Subject { name: &key.name, labels }).collect();
    for (policy, decided) in policies.iter().zip(standings(&policies, &subjects)) {
        let Some(status) = status(policy, &decided) else { continue };
        let name = policy.metadata.name.clone().unwrap_or_default();
        let key = Key { kind: POLICIES, namespace: namespace.clone(), name: name.into() };
        if traffic.writer.busy(&key) {
            traffic.queue.push_after(&here, SOON);
            continue;
        }
        let work = Work { status: Some(status), ..Work::new(&here) };
        submit(federation, &key, work);
    }
}

/// The status to write; none when it is there already.
fn status(policy: &TrafficPolicy, decided: &[Standing]) -> Option<Value> {
    let before = policy.status.clone().unwrap_or_default().conditions;
    let generation = policy.metadata.generation;
    let mut news = false;
    let conditions: Vec<Value> = decided
        .iter()
        .map(|(kind, truth, reason)| {
            let word = match truth {
                Truth::True => "True",
                Truth::False => "False",
                Truth::Unknown => "Unknown",
            };
            let old = before.iter().find(|condition| condition.type_ == *kind);
            let same = |old: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
                (old.status.as_str(), old.reason.as_str(), old.message.as_str())
                    == (word, reason.code, &*reason.message)
                    && old.observed_generation == generation
            };
            news |= old.filter(same).is_none();
            let since =
                old.filter(|old| old.status == word).map(|old| old.last_transition_time.0.as_millisecond());
            json!({
                "type": kind, "status": word, "reason": reason.code, "message": reason.message,
                "observedGeneration": generation, "lastTransitionTime": rfc3339(since.unwrap_or_else(now_ms)),
            })
        })
        .collect();
    news.then(|| json!({ "conditions": conditions }))
}
