//! Events about pods, as kubelets write them: the same again raises a count.

use std::collections::HashMap;

use landfall_api::{Status, meta};
use landfall_apiserver::api::rfc3339;
use landfall_apiserver::write::update::Part;
use landfall_runtime::clock;
use serde_json::{Value, json};

use super::objects::Client;

/// The most different events remembered of one pod; the rest begin anew.
const REMEMBERED_MAX: usize = 32;

/// Writes the events of one pod.
#[derive(Default)]
pub(super) struct Recorder {
    /// The name of the event with this reason and message.
    known: HashMap<(&'static str, String), String>,
}

impl Recorder {
    /// Writes an event, or counts one more of the same. An event that cannot be written is lost.
    pub(super) async fn record(
        &mut self,
        client: &Client,
        node: &str,
        pod: &Value,
        kind: &'static str,
        (reason, container): (&'static str, &str),
        message: String,
    ) {
        let namespace = meta::namespace(pod).to_owned();
        let known = self.known.get(&(reason, message.clone())).cloned();
        if let Some(name) = known
            && self.again(client, &namespace, &name).await.is_ok()
        {
            return;
        }
        let name = format!("{}.{:x}", meta::name(pod), clock::since_epoch().as_nanos());
        let event = event(pod, node, &name, kind, (reason, container), &message);
        if let Err(status) = client.create("", "events", event).await {
            tracing::debug!(pod = meta::name(pod), reason, error = %status.message, "an event is lost");
            return;
        }
        if self.known.len() >= REMEMBERED_MAX {
            self.known.clear();
        }
        self.known.insert((reason, message), name);
    }

    async fn again(&self, client: &Client, namespace: &str, name: &str) -> Result<(), Status> {
        let now = rfc3339(clock::epoch_s());
        client
            .update(("", "events"), (namespace, name), Part::Main, |old| {
                let mut event = old.clone();
                event["count"] = json!(old["count"].as_i64().unwrap_or(1).saturating_add(1));
                event["lastTimestamp"] = json!(now);
                Ok(event)
            })
            .await
            .map(drop)
    }
}

fn event(
    pod: &Value,
    node: &str,
    name: &str,
    kind: &str,
    (reason, container): (&str, &str),
    message: &str,
) -> Value {
    let now = rfc3339(clock::epoch_s());
    let mut involved = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": meta::namespace(pod), "name": meta::name(pod),
        "uid": meta::uid(pod), "resourceVersion": meta::resource_version(pod),
    });
    if !container.is_empty() {
        involved["fieldPath"] = json!(format!("spec.containers{{{container}}}"));
    }
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": meta::namespace(pod)},
        "involvedObject": involved, "type": kind, "reason": reason, "message": message, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": "kubelet", "host": node},
        "reportingComponent": "kubelet", "reportingInstance": node,
    })
}
