//! Writing to the hub what a look has decided: objects, conditions, Events; at most one write per object at a time.
//!
//! Guarantees: an object is written on top of the version that was looked at, and deleted only with the uid that was seen;
//!             who loses a race looks again
//! Limits:     16 at a time, 10 s each

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::client::{Ask, Trouble, ask, ask_json};
use crate::events::{self, Happening};
use crate::federation::Federation;
use crate::lane::{Lane, Offered};
use crate::queue::Queue;
use crate::shelf::Key;

const WORKERS_MAX: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long after a failed write an object is looked at again.
const AGAIN: Duration = Duration::from_millis(500);
/// The same where the hub says that what was written is wrong: only a change helps.
const AGAIN_WRONG: Duration = Duration::from_secs(30);

/// What one look wants written.
#[derive(Debug)]
pub(crate) struct Work {
    /// What was looked at: it has the source's status, and is looked at again if something fails.
    pub look: Key,
    /// The object, whole.
    pub object: Option<Value>,
    /// It goes, if it has this uid.
    pub delete: Option<String>,
    /// Its status, whole.
    pub status: Option<Value>,
    /// The status of what was looked at, whole.
    pub source_status: Option<Value>,
    /// What happened, and to which object with which uid.
    pub happenings: Vec<(Key, String, Happening)>,
}

impl Work {
    /// Nothing to write yet.
    pub(crate) fn new(look: &Key) -> Self {
        Self {
            look: look.clone(),
            object: None,
            delete: None,
            status: None,
            source_status: None,
            happenings: Vec::new(),
        }
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.object.is_none()
            && self.delete.is_none()
            && self.status.is_none()
            && self.source_status.is_none()
            && self.happenings.is_empty()
    }
}

/// For whom is written.
pub(crate) struct Room {
    /// Their lane.
    pub writer: fn(&Federation) -> &Writer,
    /// Where they look again at what could not be written.
    pub queue: fn(&Federation) -> &Queue,
    /// Takes what the hub answered, so that the next look need not wait for the watch; the object, and not only its status, was
    /// written when that is true.
    pub keep: fn(&Federation, &Key, Value, bool),
    /// A namespace of their own, which is made when it is not there.
    pub namespace: &'static str,
}

/// A lane to the hub.
#[derive(Debug)]
pub(crate) struct Writer {
    lane: Lane<Work>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { lane: Lane::new(WORKERS_MAX) }
    }
}

impl Writer {
    /// Whether something waits or runs for an object.
    pub(crate) fn busy(&self, key: &Key) -> bool {
        self.lane.busy(key)
    }
}

/// Has something written.
pub(crate) fn submit(federation: &Arc<Federation>, room: &'static Room, key: &Key, work: Work) {
    if (room.writer)(federation).lane.offer(key, work) != Offered::StartWorker {
        return;
    }
    let own = federation.clone();
    federation.tasks.spawn_until_stop(async move {
        let lane = &(room.writer)(&own).lane;
        while let Some((key, work)) = lane.next() {
            let written = write(&own, room, &key, &work).await;
            lane.done(&key);
            if let Err(trouble) = written {
                // Who lost a race, or came before the namespace, has better luck the next time.
                let passes = trouble.passes() || matches!(trouble.code(), Some(404 | 409));
                if passes {
                    tracing::debug!(object = key.path(), %trouble, "what was decided could not be written");
                } else {
                    tracing::warn!(object = key.path(), %trouble, "what was decided was refused");
                }
                (room.queue)(&own).push_after(&work.look, if passes { AGAIN } else { AGAIN_WRONG });
            }
        }
    });
}

async fn write(federation: &Arc<Federation>, room: &Room, key: &Key, work: &Work) -> Result<(), Trouble> {
    let client = &federation.client;
    let row = federation.kinds.get(key.kind);
    let path = row.path(&key.namespace, &key.name);
    if let Some(uid) = &work.delete {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
        match ask(client, Ask::with(Method::DELETE, &path, "application/json", &options), TIMEOUT).await {
            Err(trouble) if trouble.code() != Some(404) => return Err(trouble),
            Ok(_) | Err(_) => {}
        }
    }
    if let Some(object) = &work.object {
        let collection = row.collection(&key.namespace);
        let new = object.pointer("/metadata/resourceVersion").is_none();
        let (method, path) = if new { (Method::POST, &collection) } else { (Method::PUT, &path) };
        let written = ask_json(client, Ask::with(method, path, "application/json", object), TIMEOUT).await;
        if let Err(trouble) = &written
            && trouble.code() == Some(404)
            && &*key.namespace == room.namespace
        {
            make_namespace(client, room.namespace).await;
        }
        (room.keep)(federation, key, written?, true);
    }
    if let Some(status) = &work.status {
        (room.keep)(federation, key, put_status(client, &path, status).await?, false);
    }
    if let Some(status) = &work.source_status {
        let row = federation.kinds.get(work.look.kind);
        put_status(client, &row.path(&work.look.namespace, &work.look.name), status).await?;
    }
    for (key, uid, happening) in &work.happenings {
        let (path, event) = events::event(&federation.kinds.get(key.kind), key, uid, happening);
        // What happened has happened, whether it can be told or not.
        let _ = ask(client, Ask::with(Method::POST, &path, "application/json", &event), TIMEOUT).await;
    }
    Ok(())
}

/// Replaces an object's status, also what it has no longer.
async fn put_status(client: &kube::Client, path: &str, status: &Value) -> Result<Value, Trouble> {
    let patch = json!([{"op": "add", "path": "/status", "value": status}]);
    let path = format!("{path}/status");
    ask_json(client, Ask::with(Method::PATCH, &path, "application/json-patch+json", &patch), TIMEOUT).await
}

/// Our own namespaces come with the first that is written there.
async fn make_namespace(client: &kube::Client, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let request = Ask::with(Method::POST, "/api/v1/namespaces", "application/json", &namespace);
    let _ = ask(client, request, TIMEOUT).await;
}
