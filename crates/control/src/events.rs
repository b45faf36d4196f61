//! Events at the federation: what happened to an object in its clusters.

use landfall_runtime::clock;
use serde_json::{Value, json};

use crate::federation::{now_ms, rfc3339};
use crate::kinds::Row;
use crate::shelf::Key;

/// The program that tells them.
const SOURCE: &str = "landfall-hub";

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Whether someone should look at it.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// The path to post an Event to, and the Event.
pub fn event(row: &Row, key: &Key, uid: &str, happening: &Happening) -> (String, Value) {
    let namespace = if key.namespace.is_empty() { "default" } else { &*key.namespace };
    let now = rfc3339(now_ms());
    let object = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name(&key.name), "namespace": namespace},
        "involvedObject": {
            "apiVersion": row.api_version(), "kind": row.kind, "namespace": &*key.namespace, "name": &*key.name, "uid": uid,
        },
        "type": if happening.warning { "Warning" } else { "Normal" },
        "reason": happening.reason, "message": happening.message,
        "source": {"component": SOURCE}, "reportingComponent": SOURCE,
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    (format!("/api/v1/namespaces/{namespace}/events"), object)
}

/// A name that no other Event has: the object's, cut to what fits, and the time.
fn name(object: &str) -> String {
    let object: String = object.chars().take(200).collect();
    format!("{object}.{:x}", clock::since_epoch().as_nanos())
}
