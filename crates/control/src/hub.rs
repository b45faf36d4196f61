//! Writing to the hub: marks, what is told about an object, its status, Events; at most one write per object at a time.
//!
//! Reads:      what a look gave
//! Decides:    nothing
//! Writes:     finalizers and annotations of federated objects, their status, Events, debts
//! Guarantees: debts are written before the object that they are about is let go; finalizers are changed only on top of the
//!             version that was looked at
//! Limits:     16 at a time, 10 s each

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use landfall_plan::propagation::Debt;
use serde_json::{Map, Value, json};

use crate::client::{Ask, Trouble, ask, ask_json};
use crate::debts;
use crate::events::{self, Happening};
use crate::federation::Federation;
use crate::lane::{Lane, Offered};
use crate::propagation::FINALIZER;
use crate::shelf::{Key, Seen};

const WORKERS_MAX: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long after a failed write an object is looked at again.
const AGAIN: Duration = Duration::from_secs(1);

/// Everything that one look wants written to the hub.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// The finalizers it shall have, on top of this resourceVersion.
    pub finalizers: Option<(Vec<String>, String)>,
    /// The annotations it shall have.
    pub annotations: Vec<(&'static str, String)>,
    /// The ports of a Service, with node ports that were chosen for it, on top of this resourceVersion.
    pub ports: Option<(Value, String)>,
    /// Its status.
    pub status: Option<Value>,
    /// Debts to write down, or to strike out, first.
    pub debts: Vec<(String, Option<Debt>)>,
    /// What happened.
    pub events: Vec<Happening>,
}

impl Update {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The lane to the hub.
pub struct Writer {
    client: kube::Client,
    lane: Lane<Update>,
}

impl Writer {
    /// A lane to the hub.
    pub fn new(client: kube::Client) -> Self {
        Self { client, lane: Lane::new(WORKERS_MAX) }
    }

    /// Whether something waits or runs for an object.
    pub fn busy(&self, key: &Key) -> bool {
        self.lane.busy(key)
    }

    /// Has something written.
    pub fn submit(federation: &Arc<Federation>, key: &Key, update: Update) {
        if update.is_empty() || federation.writer.lane.offer(key, update) != Offered::StartWorker {
            return;
        }
        let own = federation.clone();
        federation.tasks.spawn_until_stop(async move {
            while let Some((key, update)) = own.writer.lane.next() {
                let written = write(&own, &key, update).await;
                own.writer.lane.done(&key);
                match written {
                    Ok(()) => own.queue.push(key),
                    // Somebody else wrote first, or it is gone: the watch tells, and it is looked at again.
                    Err(trouble) => {
                        tracing::debug!(object = key.path(), %trouble, "a write to the hub failed");
                        own.queue.push_after(&key, AGAIN);
                    }
                }
            }
        });
    }
}

async fn write(federation: &Arc<Federation>, key: &Key, update: Update) -> Result<(), Trouble> {
    let client = &federation.writer.client;
    for (cluster, debt) in &update.debts {
        let known = (&federation.debts, &federation.kinds);
        debts::write(client, known, cluster, key, debt.as_ref()).await?;
    }
    let row = federation.kinds.get(key.kind);
    let path = row.path(&key.namespace, &key.name);
    if let Some(patch) = patch(&update) {
        let request = Ask::with(Method::PATCH, &path, "application/merge-patch+json", &patch);
        let object = ask_json(client, request, TIMEOUT).await?;
        // An object that is let go may be gone: the watch tells, and may have told already.
        if update.finalizers.as_ref().is_none_or(|(kept, _)| kept.iter().any(|name| name == FINALIZER)) {
            keep(federation, key, object);
        }
    }
    if let Some(status) = &update.status {
        let patch = json!([{"op": "add", "path": "/status", "value": status}]);
        let path = format!("{path}/status");
        let request = Ask::with(Method::PATCH, &path, "application/json-patch+json", &patch);
        keep(federation, key, ask_json(client, request, TIMEOUT).await?);
    }
    for happening in &update.events {
        let Some(seen) = federation.shelf(key.kind).get(key) else { break };
        let (path, event) = events::event(&row, key, &seen.uid, happening);
        // What happened has happened, whether it can be told or not.
        let _ = ask(client, Ask::with(Method::POST, &path, "application/json", &event), TIMEOUT).await;
    }
    Ok(())
}

/// Keeps what the hub answered, so that the next look need not wait for the watch.
fn keep(federation: &Federation, key: &Key, object: Value) {
    let shelf = federation.shelf(key.kind);
    let seen = Seen::new(&shelf.row, object);
    shelf.put(key, Arc::new(seen));
}

fn patch(update: &Update) -> Option<Value> {
    let mut metadata = Map::new();
    if let Some((finalizers, version)) = &update.finalizers {
        metadata.insert("finalizers".into(), json!(finalizers));
        metadata.insert("resourceVersion".into(), version.clone().into());
    }
    if !update.annotations.is_empty() {
        let entry = |(name, text): &(&str, String)| ((*name).to_owned(), Value::from(text.clone()));
        let annotations: Map<String, Value> = update.annotations.iter().map(entry).collect();
        metadata.insert("annotations".into(), annotations.into());
    }
    if let Some((_, version)) = &update.ports {
        metadata.insert("resourceVersion".into(), version.clone().into());
    }
    let mut patch = Map::new();
    if !metadata.is_empty() {
        patch.insert("metadata".into(), metadata.into());
    }
    if let Some((ports, _)) = &update.ports {
        patch.insert("spec".into(), json!({"ports": ports}));
    }
    (!patch.is_empty()).then(|| patch.into())
}
