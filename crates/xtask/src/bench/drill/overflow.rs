//! Overflow: three times what the nearest cluster can carry comes in there; who answers.

use std::time::Duration;

use anyhow::Result;
use landfall_sim::clients::{Asking, Clients};
use serde_json::{Value, json};

use super::{PATIENCE, Place};
use crate::shell::say;

/// What one endpoint can carry, and how many each cluster has.
const CAPACITY: u32 = 100;
const ENDPOINTS: u32 = 2;
/// How long the edges may take to see what comes, and how long is counted then.
const SETTLE: Duration = Duration::from_secs(15);
const COUNTED: Duration = Duration::from_secs(20);

/// Who answered.
pub(super) struct Overflow {
    /// Clusters, the nearest first, and requests a second.
    by: Vec<(String, f64)>,
    failed: usize,
}

/// Offers three times what the first cluster can carry.
pub(super) fn run(place: &dyn Place) -> Result<Overflow> {
    place.limit(&policy(place.service()))?;
    let (address, host) = place.ours();
    let asking = Asking {
        addresses: vec![address],
        host: host.to_owned(),
        path: "/".into(),
        per_second: 3 * CAPACITY * ENDPOINTS,
        patience: PATIENCE,
    };
    let clients = Clients::begin(asking)?;
    std::thread::sleep(SETTLE);
    let since = clients.elapsed();
    std::thread::sleep(COUNTED);
    let until = clients.elapsed();
    let answers = clients.end();
    let counted = || answers.iter().filter(|answer| answer.due >= since && answer.due < until);
    let seconds = (until - since).as_secs_f64();
    let rate = |cluster: &str| {
        let count = counted().filter(|answer| answer.by.as_deref() == Ok(cluster)).count();
        u32::try_from(count).map_or(0.0, f64::from) / seconds
    };
    let [near, next] = place.clusters();
    let by = [place.entrance(), near, next].map(|cluster| (cluster.to_owned(), rate(cluster))).into();
    Ok(Overflow { by, failed: answers.iter().filter(|answer| answer.by.is_err()).count() })
}

impl Overflow {
    pub(super) fn show(&self) {
        let (offered, room) = (3 * CAPACITY * ENDPOINTS, CAPACITY * ENDPOINTS);
        say("");
        say(&format!(
            "| {offered} requests/s come in at the first, each cluster can carry {room} | requests/s | percent of all |"
        ));
        say("|---|--:|--:|");
        for (cluster, rate) in &self.by {
            say(&format!("| {cluster} | {rate:.0} | {:.0} |", rate * 100.0 / f64::from(offered)));
        }
        say(&format!("| failed | {} | |", self.failed));
    }

    pub(super) fn json(&self) -> Value {
        json!({"capacity": CAPACITY * ENDPOINTS, "perSecond": self.by, "failed": self.failed})
    }
}

fn policy(service: &str) -> String {
    format!(
        "
apiVersion: landfall.dev/v1alpha1
kind: TrafficPolicy
metadata: {{name: {service}}}
spec:
  targetRefs: [{{kind: Service, name: {service}}}]
  capacity: {{requestsPerSecond: {CAPACITY}}}
"
    )
}
