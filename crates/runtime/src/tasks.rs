//! A set of background tasks that are told to stop together and joined on shutdown.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// Spawns tasks; cloning gives another handle to the same set.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: Arc<watch::Sender<bool>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { tracker: TaskTracker::new(), stop: Arc::new(watch::channel(false).0) }
    }
}

impl Tasks {
    /// Runs a task until it ends by itself; it should end soon after [`Tasks::stopping`].
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Runs a task that is dropped at its next await once the set stops.
    pub fn spawn_until_stop(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stopping();
        self.tracker.spawn(async move {
            tokio::select! { () = task => {}, () = stop => {} }
        });
    }

    /// Waits until the set is told to stop.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            // An error means that the set itself is gone, which is a stop too.
            let _ = stop.wait_for(|stopped| *stopped).await;
        }
    }

    /// Whether the set has been told to stop.
    pub fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Tells every task to stop, without waiting.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Tells every task to stop and waits for all of them.
    pub async fn join(&self) {
        self.stop();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
