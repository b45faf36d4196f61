//! The end of a pod: asked to stop, given time, removed.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_api::meta;
use tokio::time::Instant;

use super::{Pod, RETRY};
use crate::agent::container::{Running, What, Which};
use crate::agent::program::{self, Program};
use crate::gate::Faults;

/// The longest that a pod is waited for; what is asked for may be more than clocks can count.
const GRACE_MAX: Duration = Duration::from_secs(365 * 86400);

impl Pod {
    /// Stops everything at once.
    pub(super) async fn kill(&mut self) {
        futures::future::join_all(self.running.values().map(Running::kill)).await;
        self.context.logs.forget(&self.object);
    }

    /// Lets the pod end within its time, then removes it.
    pub(super) async fn terminate(mut self) {
        self.state.ending = true;
        let running: Vec<Which> = self.running.keys().copied().collect();
        for which in &running {
            let Some(container) = self.container(*which) else { continue };
            container.ready = false;
            let name = container.name.clone();
            self.event("Normal", "Killing", &name, format!("Stopping container {name}")).await;
        }
        self.report().await;
        let began = Instant::now();
        let pause =
            running.iter().map(|which| program::pre_stop(&self.spec(*which))).max().unwrap_or_default();
        let mut gone = self.drain(began, tokio::time::sleep(pause.min(GRACE_MAX))).await;
        self.running.values().for_each(Running::terminate);
        let ended = futures::future::join_all(self.running.values().map(Running::ended));
        gone = gone || self.drain(began, ended).await;
        let codes = self.codes(began);
        for which in running {
            self.end(which, codes.get(&which).copied().unwrap_or_default(), String::new()).await;
        }
        self.kill().await;
        while !gone {
            if self.reachable() {
                self.report().await;
            }
            gone = self.remove().await;
        }
    }

    /// What containers that were asked to stop exit with: servers that drain do so well, other programs as they do, and
    /// what does not listen to SIGTERM by that signal, or by SIGKILL after its time.
    fn codes(&mut self, began: Instant) -> BTreeMap<Which, i32> {
        let grace = self.object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(30);
        let late = began.elapsed() >= Duration::from_secs(grace).min(GRACE_MAX);
        let mut codes: BTreeMap<Which, i32> = BTreeMap::new();
        for which in self.running.keys() {
            let program =
                program::decide(&self.spec(*which), self.finite(*which), &self.context.config.programs);
            let code = match program {
                Program::Echo if !late => 0,
                _ if late => 137,
                _ => 143,
            };
            codes.insert(*which, code);
        }
        while let Ok(note) = self.notes.1.try_recv() {
            if let What::Exited { code, .. } = note.what {
                codes.insert(note.which, code);
            }
        }
        codes
    }

    /// Whether this node can speak to the API.
    fn reachable(&self) -> bool {
        let faults = self.context.gate.now();
        !faults.api_down() && !faults.node_lost(&self.node)
    }

    /// Removes the pod from the API, now or later; true when it is done, by whomever, or nobody waits for it.
    async fn remove(&mut self) -> bool {
        let (namespace, name) = (meta::namespace(&self.object), meta::name(&self.object));
        if self.reachable() {
            match self.context.client.delete_pod(namespace, name, meta::uid(&self.object)).await {
                Ok(()) => return true,
                Err(error) => tracing::debug!(pod = name, error = %error.message, "cannot remove a pod"),
            }
        }
        let reachable = |faults: &Faults| !faults.api_down() && !faults.node_lost(&self.node);
        let again = async {
            tokio::time::sleep(RETRY).await;
            self.context.gate.until(reachable).await;
        };
        // An error is the agent itself stopping.
        tokio::select! { () = again => false, _ = self.updates.wait_for(Option::is_none) => true }
    }

    /// Waits until something is done or the pod's time is over; true when the pod is gone from the API.
    async fn drain<T>(&mut self, began: Instant, done: impl Future<Output = T>) -> bool {
        let mut done = std::pin::pin!(done);
        loop {
            let grace = self.object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(30);
            let deadline = began + Duration::from_secs(grace).min(GRACE_MAX);
            tokio::select! {
                _ = &mut done => return false,
                () = tokio::time::sleep_until(deadline) => return false,
                changed = self.updates.changed() => {
                    // The agent itself stops, or somebody was impatient.
                    let latest = changed.ok().and_then(|()| self.updates.borrow_and_update().clone());
                    let Some(object) = latest else { return true };
                    self.object = object;
                }
            }
        }
    }
}
