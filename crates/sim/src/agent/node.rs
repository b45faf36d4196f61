//! Heartbeats of nodes: a Lease and conditions, and silence when a node is lost. The Node itself is made with its
//! member; like a kubelet, an agent does not bring back one that somebody deleted.

use std::sync::Arc;
use std::time::Duration;

use landfall_api::{Reason, Status};
use landfall_apiserver::api::rfc3339_micro;
use landfall_apiserver::write::update::Part;
use landfall_runtime::clock;
use serde_json::{Value, json};

use super::Context;
use crate::controllers::conditions::before_others;
use crate::controllers::driver;
use crate::controllers::read::{items, set};
use crate::member::nodes::{self, LEASES};

/// How often conditions are written though nothing changed: once in so many heartbeats.
const STATUS_EVERY: u64 = 30;

/// When a heartbeat that failed is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Keeps a node alive until it is dropped.
pub(super) async fn run(context: Arc<Context>, index: usize) {
    let Some((node, _)) = context.node(index) else { return };
    let (mut beat, mut healthy) = (0_u64, false);
    loop {
        context.gate.until(|faults| !faults.node_lost(&node.name) && !faults.api_down()).await;
        let result = heartbeat(&context, &node.name, !healthy || beat.is_multiple_of(STATUS_EVERY)).await;
        healthy = result.is_ok();
        if let Err(status) = result {
            tracing::debug!(node = node.name, error = %status.message, "cannot report a node");
        }
        beat = beat.wrapping_add(1);
        let lost = context.gate.until(|faults| faults.node_lost(&node.name) || faults.api_down());
        let pause = if healthy { context.config.pace.heartbeat } else { RETRY };
        // A node that comes back says so at once, and all of it.
        if tokio::time::timeout(pause, lost).await.is_ok() {
            healthy = false;
        }
    }
}

async fn heartbeat(context: &Context, node: &str, whole: bool) -> Result<(), Status> {
    if whole {
        let fresh = nodes::conditions(driver::now());
        let change = |old: &Value| {
            let mut new = old.clone();
            let conditions = before_others(items(old, "/status/conditions"), fresh.clone());
            set(&mut new, &["status", "conditions"], json!(conditions));
            Ok(new)
        };
        context.client.update(("", "nodes"), ("", node), Part::Status, change).await?;
    }
    renew(context, node).await
}

async fn renew(context: &Context, node: &str) -> Result<(), Status> {
    let now = rfc3339_micro(clock::since_epoch());
    let change = |old: &Value| {
        let mut lease = old.clone();
        lease["spec"]["renewTime"] = json!(now);
        Ok(lease)
    };
    let kind = ("coordination.k8s.io", "leases");
    match context.client.update(kind, (LEASES, node), Part::Main, change).await {
        Err(status) if status.reason == Reason::NotFound => {}
        result => return result.map(drop),
    }
    context.client.create(kind.0, kind.1, nodes::lease(node, driver::now())).await
}
