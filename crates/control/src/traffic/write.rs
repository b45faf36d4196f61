//! Writing what was decided: plans, conditions of policies, Events; at most one write per object at a time.
//!
//! Writes:     TrafficPlans, status of TrafficPolicies, Events
//! Guarantees: a plan is written on top of the version that was looked at; who loses a race looks again
//! Limits:     16 at a time, 10 s each

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use landfall_api::landfall::SYSTEM_NAMESPACE;
use serde_json::{Value, json};

use crate::client::{Ask, Trouble, ask, ask_json};
use crate::events::{self, Happening};
use crate::federation::Federation;
use crate::lane::{Lane, Offered};
use crate::shelf::{Key, Seen, Shelf};

const WORKERS_MAX: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long after a failed write an object is looked at again.
const AGAIN: Duration = Duration::from_millis(500);
/// The same where the hub says that what was written is wrong: only a change helps.
const AGAIN_WRONG: Duration = Duration::from_secs(30);

/// What one look wants written.
#[derive(Debug)]
pub(super) struct Work {
    /// What to look at again if it fails.
    pub look: Key,
    /// The object, whole.
    pub object: Option<Value>,
    /// Its status.
    pub status: Option<Value>,
    /// What happened, and to which object with which uid.
    pub happenings: Vec<(Key, String, Happening)>,
}

/// The lane to the hub.
#[derive(Debug)]
pub(super) struct Writer {
    lane: Lane<Work>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { lane: Lane::new(WORKERS_MAX) }
    }
}

impl Writer {
    /// Whether something waits or runs for an object.
    pub(super) fn busy(&self, key: &Key) -> bool {
        self.lane.busy(key)
    }

    /// Has something written.
    pub(super) fn submit(federation: &Arc<Federation>, key: &Key, work: Work) {
        if federation.traffic.writer.lane.offer(key, work) != Offered::StartWorker {
            return;
        }
        let own = federation.clone();
        federation.tasks.spawn_until_stop(async move {
            while let Some((key, work)) = own.traffic.writer.lane.next() {
                let written = write(&own, &key, &work).await;
                own.traffic.writer.lane.done(&key);
                if let Err(trouble) = written {
                    // Who lost a race, or came before the namespace, has better luck the next time.
                    let passes = trouble.passes() || matches!(trouble.code(), Some(404 | 409));
                    if passes {
                        tracing::debug!(object = key.path(), %trouble, "a plan could not be written");
                    } else {
                        tracing::warn!(object = key.path(), %trouble, "a plan was refused");
                    }
                    own.traffic.queue.push_after(&work.look, if passes { AGAIN } else { AGAIN_WRONG });
                }
            }
        });
    }
}

async fn write(federation: &Arc<Federation>, key: &Key, work: &Work) -> Result<(), Trouble> {
    let client = &federation.client;
    let row = federation.kinds.get(key.kind);
    let path = row.path(&key.namespace, &key.name);
    if let Some(object) = &work.object {
        let collection = row.collection(&key.namespace);
        let new = object.pointer("/metadata/resourceVersion").is_none();
        let (method, path) = if new { (Method::POST, &collection) } else { (Method::PUT, &path) };
        let written = ask_json(client, Ask::with(method, path, "application/json", object), TIMEOUT).await;
        if let Err(trouble) = &written
            && trouble.code() == Some(404)
            && &*key.namespace == SYSTEM_NAMESPACE
        {
            make_namespace(client).await;
        }
        keep(&federation.traffic.plans, key, written?);
        federation.metrics.plans.inc();
    }
    if let Some(status) = &work.status {
        let patch = json!({"status": status});
        let path = format!("{path}/status");
        ask(client, Ask::with(Method::PATCH, &path, "application/merge-patch+json", &patch), TIMEOUT).await?;
    }
    for (key, uid, happening) in &work.happenings {
        let (path, event) = events::event(&federation.kinds.get(key.kind), key, uid, happening);
        // What happened has happened, whether it can be told or not.
        let _ = ask(client, Ask::with(Method::POST, &path, "application/json", &event), TIMEOUT).await;
    }
    Ok(())
}

/// Keeps what the hub answered, so that the next look need not wait for the watch.
fn keep(shelf: &Shelf, key: &Key, object: Value) {
    let seen = Seen::new(&shelf.row, object);
    shelf.put(key, Arc::new(seen));
}

/// Our own namespace comes with the first member; the federation's plan may come before.
async fn make_namespace(client: &kube::Client) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}});
    let request = Ask::with(Method::POST, "/api/v1/namespaces", "application/json", &namespace);
    let _ = ask(client, request, TIMEOUT).await;
}
