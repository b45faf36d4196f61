//! The end of a pod: asked to stop, given time, removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::meta;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Pod, RETRY};
use crate::agent::container::{Running, Which};
use crate::agent::program;
use crate::gate::Faults;

/// The longest that a pod is waited for; what is asked for may be more than clocks can count.
const GRACE_MAX: Duration = Duration::from_secs(365 * 86400);

/// How long a pod is given that does not say.
const GRACE_S: u64 = 30;

impl Pod {
    /// Stops everything at once.
    pub(super) async fn kill(&mut self) {
        futures::future::join_all(self.running.values().map(Running::kill)).await;
        self.context.logs.forget(&self.object);
    }

    /// The pod is over: its sidecars end, its address is given back, its logs stay. True when the API knows.
    pub(super) async fn rest(&mut self) -> bool {
        let gone = self.stop().await;
        self.held = None;
        self.report().await;
        !gone && self.is_reported()
    }

    /// Lets the pod end within its time, then removes it.
    pub(super) async fn terminate(mut self) {
        self.state.ending = true;
        let mut gone = self.stop().await;
        self.kill().await;
        self.held = None;
        while !gone {
            gone = self.reachable().await || {
                self.report().await;
                self.remove().await
            };
        }
    }

    /// Lets everything end that runs, within the pod's time; true when the pod is gone from the API.
    async fn stop(&mut self) -> bool {
        let running: Vec<Which> = self.running.keys().copied().collect();
        for which in &running {
            let Some(container) = self.container(*which) else { continue };
            container.ready = false;
            let name = container.name.clone();
            self.event("Normal", "Killing", &name, format!("Stopping container {name}")).await;
        }
        self.report().await;
        if running.is_empty() {
            return false;
        }
        let began = Instant::now();
        let pause =
            running.iter().map(|which| program::pre_stop(&self.spec(*which))).max().unwrap_or_default();
        let mut gone = self.drain(began, tokio::time::sleep(pause.min(GRACE_MAX))).await;
        self.running.values().for_each(Running::terminate);
        let in_time: Arc<Mutex<BTreeSet<Which>>> = Arc::default();
        let ended = futures::future::join_all(self.running.iter().map(|(which, running)| {
            let (which, ended, in_time) = (*which, running.ended(), in_time.clone());
            async move {
                ended.await;
                in_time.lock().insert(which);
            }
        }));
        gone = gone || self.drain(began, ended).await;
        for which in running {
            let in_time = in_time.lock().contains(&which);
            let Some(code) = self.running.get(&which).map(|running| running.code(in_time)) else { continue };
            self.end(which, code, String::new()).await;
        }
        gone
    }

    /// Waits until the API hears of the node again; true when the pod is gone from there, or nobody waits for it.
    async fn reachable(&mut self) -> bool {
        let both = |faults: &Faults| !faults.api_down() && !faults.node_lost(&self.node);
        let reachable = self.context.gate.until(both);
        // An error is the agent itself stopping.
        tokio::select! { () = reachable => false, _ = self.updates.wait_for(Option::is_none) => true }
    }

    /// Removes the pod from the API, or waits a moment; true when it is done, by whomever, or nobody waits for it.
    async fn remove(&mut self) -> bool {
        let (namespace, name) = (meta::namespace(&self.object), meta::name(&self.object));
        match self.context.client.delete_pod(namespace, name, meta::uid(&self.object)).await {
            Ok(()) => return true,
            Err(error) => tracing::debug!(pod = name, error = %error.message, "cannot remove a pod"),
        }
        let pause = tokio::time::sleep(RETRY);
        tokio::select! { () = pause => false, _ = self.updates.wait_for(Option::is_none) => true }
    }

    /// Waits until something is done or the pod's time is over; true when the pod is gone from the API.
    async fn drain<T>(&mut self, began: Instant, done: impl Future<Output = T>) -> bool {
        let mut done = std::pin::pin!(done);
        loop {
            let deadline = began + self.grace();
            tokio::select! {
                _ = &mut done => return false,
                () = tokio::time::sleep_until(deadline) => return false,
                _ = self.faults.changed() => {
                    let lost = self.faults.borrow_and_update().node_lost(&self.node);
                    self.wire(lost).await;
                }
                // Nobody looks at probes any more, and runs remember what they exited with.
                Some(_) = self.notes.1.recv() => {}
                changed = self.updates.changed() => {
                    // The agent itself stops, or somebody was impatient.
                    let latest = changed.ok().and_then(|()| self.updates.borrow_and_update().clone());
                    let Some(object) = latest else { return true };
                    self.object = object;
                }
            }
        }
    }

    /// How long the pod is given to end.
    fn grace(&self) -> Duration {
        let asked = self.object["metadata"]["deletionGracePeriodSeconds"].as_u64();
        let own = || self.object["spec"]["terminationGracePeriodSeconds"].as_u64();
        Duration::from_secs(asked.or_else(own).unwrap_or(GRACE_S)).min(GRACE_MAX)
    }
}
