//! Containers that are started again: whether, when, and what is said meanwhile.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Pod;
use crate::agent::container::Which;
use crate::agent::status::{Container, State};

/// How long a container waits before it is started again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) failures: u32,
    pub(super) due: Instant,
}

impl Pod {
    /// When the next container is to be started again. That may be now: its time may have come since it was looked
    /// at.
    pub(super) fn restart_due(&self) -> Option<Instant> {
        let waits = |which: &Which| match which {
            Which::Init(index) => self.state.init.get(*index).is_some_and(|c| self.starts_again(*which, c)),
            Which::Main(index) => self.state.main.get(*index).is_some_and(|c| self.starts_again(*which, c)),
        };
        soonest(&self.backoff, waits)
    }

    /// Whether a container does not run but has and will again.
    pub(super) fn starts_again(&self, which: Which, container: &Container) -> bool {
        let ended = match &container.state {
            State::Running { .. } => return false,
            State::Waiting { .. } => return container.last.is_some(),
            State::Ended(ended) => ended,
        };
        match (which, self.object["spec"]["restartPolicy"].as_str().unwrap_or("Always")) {
            _ if container.sidecar => true,
            (_, "Never") => false,
            (Which::Main(_), "Always") => true,
            _ => ended.code != 0,
        }
    }

    /// Shows that a container waits to be started again.
    pub(super) async fn hold_back(&mut self, which: Which) {
        let failures = self.backoff.get(&which).map_or(1, |backoff| backoff.failures);
        let delay = self.context.config.pace.restart_delay(failures);
        let who = self.full_name();
        let Some(container) = self.container(which) else { return };
        let State::Ended(ended) = &container.state else { return };
        container.last = Some(ended.clone());
        let name = container.name.clone();
        let message = format!("back-off {} restarting failed container={name} pod={who}", go_duration(delay));
        container.state = State::Waiting { reason: "CrashLoopBackOff", message };
        let message = format!("Back-off restarting failed container {name} in pod {who}");
        self.event("Warning", "BackOff", &name, message).await;
    }
}

/// A duration as Go writes it, in whole seconds and minutes.
fn go_duration(duration: Duration) -> String {
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    if minutes > 0 { format!("{minutes}m{seconds}s") } else { format!("{seconds}s") }
}

/// When the first of those that wait is due.
fn soonest(backoff: &HashMap<Which, Backoff>, waits: impl Fn(&Which) -> bool) -> Option<Instant> {
    backoff.iter().filter(|(which, _)| waits(which)).map(|(_, backoff)| backoff.due).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A restart whose time came between looking and waiting was passed over, and the container never started.
    #[test]
    fn what_is_due_already_is_not_missed() {
        let now = Instant::now();
        let later = now + Duration::from_secs(9);
        let entry = |index, due| (Which::Main(index), Backoff { failures: 1, due });
        let backoff = HashMap::from([entry(0, now), entry(1, later)]);
        assert_eq!(soonest(&backoff, |_| true), Some(now));
        assert_eq!(soonest(&backoff, |which| *which == Which::Main(1)), Some(later), "the other runs");
        assert_eq!(soonest(&backoff, |_| false), None);
    }
}
