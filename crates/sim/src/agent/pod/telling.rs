//! What a pod tells the API: its status and events. A lost node tells nothing.

use landfall_api::{Reason, Status, meta};
use landfall_apiserver::write::update::Part;
use landfall_runtime::clock;
use serde_json::Value;

use super::Pod;
use crate::agent::objects::KUBELET;
use crate::agent::status::{self, is_over};
use crate::controllers::action::Note;
use crate::controllers::events::Source;
use crate::controllers::read::items;

impl Pod {
    pub(super) async fn event(
        &mut self,
        kind: &'static str,
        reason: &'static str,
        container: &str,
        message: String,
    ) {
        if self.context.config.events && !self.lost() {
            let Ok(api) = self.context.client.reachable() else { return };
            let mut note = Note { warning: kind == "Warning", ..Note::normal(&self.object, reason, message) };
            if !container.is_empty() {
                let first = items(&self.object, "/spec/initContainers");
                let is_first = first.iter().any(|c| c["name"] == container);
                let list = if is_first { "initContainers" } else { "containers" };
                note.about.field = format!("spec.{list}{{{container}}}");
            }
            let source = Source { component: KUBELET, host: &self.node };
            self.events.tell(api, &note, source, &self.context.config.luck).await;
        }
    }

    /// Writes the status if it is not what the API has.
    pub(super) async fn report(&mut self) {
        if self.lost() || self.is_reported() && !self.contradicted() {
            return;
        }
        let (pod, state) = (self.object.clone(), &self.state);
        let now_s = clock::epoch_s();
        let change = |old: &Value| {
            if meta::uid(old) != meta::uid(&pod) {
                return Err(Status::new(Reason::NotFound, "another pod of this name"));
            }
            let mut new = old.clone();
            if is_over(old) {
                // It stays so: we look at an older one.
                return Ok(new);
            }
            new["status"] = status::status(old, state, now_s);
            Ok(new)
        };
        let place = (meta::namespace(&pod), meta::name(&pod));
        match self.context.client.update(("", "pods"), place, Part::Status, change).await {
            Ok(revision) => (self.reported, self.told) = (Some(self.state.clone()), revision),
            Err(error) if error.reason == Reason::NotFound => self.reported = Some(self.state.clone()),
            Err(error) => {
                tracing::debug!(pod = place.1, error = %error.message, "cannot report a pod");
            }
        }
    }

    /// Whether the API was told how the pod is.
    pub(super) fn is_reported(&self) -> bool {
        self.reported.as_ref() == Some(&self.state)
    }

    /// Whether somebody has written since, and the condition Ready is not what it should be: a readiness gate was
    /// moved, or the node was taken for lost and the pod with it.
    fn contradicted(&self) -> bool {
        let object = &self.object;
        if meta::resource_version(object).parse::<u64>().is_ok_and(|revision| revision <= self.told) {
            return false;
        }
        let ready = |status: &Value| {
            let found = status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
            Some((found["status"].clone(), found["message"].clone()))
        };
        ready(&status::status(object, &self.state, 0)) != ready(&object["status"])
    }

    fn lost(&self) -> bool {
        self.faults.borrow().node_lost(&self.node)
    }
}
