//! What is told of a zone at the hub: conditions, counts, Events; and the finalizer that holds it until our records are out.

use std::time::Duration;

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use landfall_api::landfall::{DNSZone, DNSZoneStatus};
use landfall_plan::publish::{Decision, Found};
use serde_json::{Value, json};

use super::publisher::{Applied, Fault};
use super::zone::Zone;
use crate::client::{Ask, Trouble, ask, ask_json};
use crate::events::{self, Happening};
use crate::federation::{now_ms, rfc3339};

/// Holds a `DNSZone` that is deleted until our records are taken out of the zone.
pub(super) const FINALIZER: &str = "landfall.dev/published";

const PUBLISHED: &str = "Published";
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many conflicts are named.
const CONFLICTS_MAX: usize = 10;

/// What a pass found and did.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Names of ours that the zone has.
    pub(super) names: i32,
    /// Record sets of ours that the zone has.
    pub(super) records: i32,
    /// Something was changed there.
    pub(super) changed: bool,
    /// Something there was not what it was thought to be.
    pub(super) moved: bool,
    conflicts: Vec<String>,
    conflicts_total: usize,
}

impl News {
    /// What has become of a decision.
    pub(super) fn new(mark: &str, found: &Found, decision: &Decision, applied: &Applied) -> Self {
        let ours = || found.values().filter(|held| held.owner.as_deref() == Some(mark));
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let conflicts = decision.conflicts.iter().take(CONFLICTS_MAX);
        Self {
            names: number(ours().count()),
            records: number(ours().map(|held| held.sets.len()).sum()),
            changed: !applied.done.is_empty(),
            moved: !applied.moved.is_empty(),
            conflicts: conflicts.map(|(name, _)| name.clone()).collect(),
            conflicts_total: decision.conflicts.len(),
        }
    }
}

/// Whether the object is held.
pub(super) fn held(zone: &DNSZone) -> bool {
    zone.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

/// Holds the object.
pub(super) async fn hold(worker: &Zone, zone: &DNSZone) -> Result<(), Trouble> {
    let others = zone.metadata.finalizers.iter().flatten().map(String::as_str);
    finalizers(worker, zone, others.chain([FINALIZER]).collect()).await
}

/// Lets the object go.
pub(super) async fn release(worker: &Zone, zone: &DNSZone) -> Result<(), Trouble> {
    let others = zone.metadata.finalizers.iter().flatten().map(String::as_str);
    finalizers(worker, zone, others.filter(|name| *name != FINALIZER).collect()).await
}

async fn finalizers(worker: &Zone, zone: &DNSZone, names: Vec<&str>) -> Result<(), Trouble> {
    let patch = json!({"metadata": {"finalizers": names, "resourceVersion": zone.metadata.resource_version}});
    let path = worker.path();
    let request = Ask::with(Method::PATCH, &path, "application/merge-patch+json", &patch);
    ask_json(&worker.federation.client, request, TIMEOUT).await.map(|_| ())
}

/// Tells how a pass ended: writes the status if it is different, and an Event if the reason is.
pub(super) async fn tell(worker: &Zone, zone: &DNSZone, outcome: &Result<News, Fault>) {
    let before = zone.status.clone().unwrap_or_default();
    let reason_before =
        before.conditions.iter().find(|condition| condition.type_ == PUBLISHED).map(|c| c.reason.clone());
    let (fine, reason, message) = sentence(outcome);
    let status = status(zone, &before, outcome, (fine, reason, &message));
    if status != before {
        let patch = json!({"status": status});
        let path = format!("{}/status", worker.path());
        let request = Ask::with(Method::PATCH, &path, "application/merge-patch+json", &patch);
        if let Err(trouble) = ask_json(&worker.federation.client, request, TIMEOUT).await {
            tracing::debug!(zone = zone.spec.zone, %trouble, "the status of a zone could not be written");
        }
    }
    if reason_before.as_deref() != Some(reason) {
        happen(worker, zone, Happening { warning: !fine, reason, message }).await;
    }
}

/// Tells that our records are left behind.
pub(super) async fn left(worker: &Zone, zone: &DNSZone, fault: &Fault) {
    let message = format!("our records could not be taken out and are left in the zone: {fault}");
    happen(worker, zone, Happening { warning: true, reason: "RecordsLeft", message }).await;
}

async fn happen(worker: &Zone, zone: &DNSZone, happening: Happening) {
    let uid = zone.metadata.uid.as_deref().unwrap_or_default();
    let (path, event) = events::event(&worker.publish.zones.row, &worker.key, uid, &happening);
    let request = Ask::with(Method::POST, &path, "application/json", &event);
    // What happened has happened, whether it can be told or not.
    let _ = ask(&worker.federation.client, request, TIMEOUT).await;
}

fn sentence(outcome: &Result<News, Fault>) -> (bool, &'static str, String) {
    match outcome {
        Err(fault) => (false, fault.reason(), fault.to_string()),
        Ok(news) if news.conflicts_total > 0 => {
            let more = if news.conflicts_total > news.conflicts.len() { ", …" } else { "" };
            let names = news.conflicts.join(", ");
            let text = format!(
                "{} names are not published, because somebody else has them: {names}{more}",
                news.conflicts_total
            );
            (false, "Conflict", text)
        }
        Ok(_) => (true, PUBLISHED, "the zone has all names that it shall have".to_owned()),
    }
}

fn status(
    zone: &DNSZone,
    before: &DNSZoneStatus,
    outcome: &Result<News, Fault>,
    (fine, reason, message): (bool, &str, &str),
) -> DNSZoneStatus {
    let mut status = before.clone();
    if let Ok(news) = outcome {
        (status.names, status.records) = (Some(news.names), Some(news.records));
        status.conflicts.clone_from(&news.conflicts);
        if news.changed || status.last_publish_time.is_none() {
            status.last_publish_time = time();
        }
    }
    status.observed_generation = zone.metadata.generation;
    let truth = if fine { "True" } else { "False" };
    let known = before.conditions.iter().find(|condition| condition.type_ == PUBLISHED);
    let since = known.filter(|known| known.status == truth).map(|known| known.last_transition_time.clone());
    let Some(since) = since.or_else(time) else { return status };
    let condition = Condition {
        type_: PUBLISHED.into(),
        status: truth.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: since,
        observed_generation: zone.metadata.generation,
    };
    status.conditions.retain(|condition| condition.type_ != PUBLISHED);
    status.conditions.push(condition);
    status
}

/// The present, to the second, as objects have it.
fn time() -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time> {
    serde_json::from_value(Value::from(rfc3339(now_ms()))).ok()
}
