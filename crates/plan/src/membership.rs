//! Membership: whether a member is well, from what probes of its API found.
//!
//! Three failures in a row make it offline, one success brings it back (its `spec.probe` may say otherwise). One lost
//! packet flips nothing. An API that does not answer is no proof that its pods are dead, and the conditions say so.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::reason::Reason;

/// How many probes in a row it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// So many failures: offline.
    pub failures: u32,
    /// So many successes: back.
    pub successes: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { failures: 3, successes: 1 }
    }
}

/// What one probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It answered, and says it is ready.
    Well,
    /// It answered, and says what it lacks; or it is too busy, or answers nonsense.
    Unwell(String),
    /// It answered, but does not accept our credentials.
    Refused(String),
    /// It did not answer in time, or could not be reached.
    Unreachable(String),
}

/// How a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Not probed often enough to say.
    #[default]
    Unknown,
    /// Its API answers and is well.
    Ready,
    /// Its API answers, but is not well or refuses us.
    NotReady,
    /// Its API does not answer.
    Offline,
}

/// What is known of a member's health. The next hub goes on from the conditions: see [`Health::resume`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// How it is.
    pub state: State,
    /// Since when it is so.
    pub since_ms: i64,
    /// When it was last probed.
    pub last_probe_ms: i64,
    /// Probes in a row that spoke for another state than the present one.
    pub against: u32,
    /// What the last probe found, in words.
    pub detail: String,
    /// What the last probe would make of it.
    leaning: State,
}

/// A condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`.
    Unknown,
}

/// One condition of a `Cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `Ready` or `Offline`.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: Truth,
    /// Why.
    pub reason: Reason,
    /// Since when.
    pub since_ms: i64,
}

impl Health {
    /// Goes on from what the conditions of a `Cluster` say, after a change of leader.
    pub fn resume(state: State, since_ms: i64) -> Self {
        Self { state, since_ms, leaning: state, ..Self::default() }
    }

    /// The health after one more probe.
    pub fn after(&self, probe: &Probe, thresholds: Thresholds, now_ms: i64) -> Self {
        let (leaning, detail) = match probe {
            Probe::Well => (State::Ready, "its API is ready".to_owned()),
            Probe::Unwell(what) => (State::NotReady, format!("its API answers, but is not ready: {what}")),
            Probe::Refused(what) => (State::NotReady, format!("its API refuses our credentials: {what}")),
            Probe::Unreachable(what) => (State::Offline, format!("its API does not answer: {what}")),
        };
        let mut next = Self { last_probe_ms: now_ms, detail, leaning, ..self.clone() };
        // A member that answers, well or not, is not about to go offline, and the other way round.
        next.against = match (leaning == self.state, leaning == self.leaning) {
            (true, _) => 0,
            (false, true) => self.against.saturating_add(1),
            (false, false) => 1,
        };
        let needed = match (self.state, leaning) {
            (State::Unknown | State::Offline | State::NotReady, State::Ready) => thresholds.successes,
            (State::Offline, State::NotReady) => thresholds.successes,
            (_, State::NotReady | State::Offline) => thresholds.failures,
            (State::Ready, State::Ready) | (_, State::Unknown) => u32::MAX,
        };
        if next.against >= needed.max(1) && leaning != self.state {
            next.state = leaning;
            next.since_ms = now_ms;
            next.against = 0;
        }
        next
    }

    /// Whether the last probes say something else than those before, and not often enough yet: the next must not wait.
    pub fn is_in_doubt(&self) -> bool {
        self.against > 0
    }

    /// Since when it is offline, if it is.
    pub fn offline_since_ms(&self) -> Option<i64> {
        (self.state == State::Offline).then_some(self.since_ms)
    }

    /// The conditions Ready and Offline.
    pub fn conditions(&self) -> [Condition; 2] {
        let doubt = match self.against {
            0 => String::new(),
            many => format!(" ({many} in a row so far)"),
        };
        let told = format!("{}{doubt}", self.detail);
        let no_proof = format!("{told}; that is no proof that its pods are dead");
        let (ready, ready_reason, offline, offline_reason) = match self.state {
            State::Unknown => (
                Truth::Unknown,
                Reason::new(
                    "ClusterNotProbed",
                    if told.is_empty() { "not probed yet".to_owned() } else { told.clone() },
                ),
                Truth::Unknown,
                Reason::new(
                    "ClusterNotProbed",
                    if told.is_empty() { "not probed yet".to_owned() } else { told },
                ),
            ),
            State::Ready => (
                Truth::True,
                Reason::new("ClusterReady", told),
                Truth::False,
                Reason::new("ClusterReachable", "its API answers"),
            ),
            State::NotReady => (
                Truth::False,
                Reason::new("ClusterNotReady", told),
                Truth::False,
                Reason::new("ClusterReachable", "its API answers"),
            ),
            State::Offline => (
                Truth::Unknown,
                Reason::new("ClusterNotReachable", no_proof.clone()),
                Truth::True,
                Reason::new("ClusterNotReachable", no_proof),
            ),
        };
        [
            Condition { kind: "Ready", status: ready, reason: ready_reason, since_ms: self.since_ms },
            Condition { kind: "Offline", status: offline, reason: offline_reason, since_ms: self.since_ms },
        ]
    }
}

/// Where a member stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Its region.
    pub region: Option<String>,
    /// Its zones, sorted.
    pub zones: Vec<String>,
}

/// Finds region and zones from the labels of a member's nodes. What is given wins; what is not found now stays as it was:
/// a cluster that is offline, or whose nodes lost a label, has not moved.
pub fn topology(given: &Topology, before: &Topology, nodes: &[BTreeMap<String, String>]) -> Topology {
    let label = |node: &BTreeMap<String, String>, name: &str| {
        let of =
            |prefix: &str| node.get(&format!("{prefix}/{name}")).filter(|value| !value.is_empty()).cloned();
        of("topology.kubernetes.io").or_else(|| of("failure-domain.beta.kubernetes.io"))
    };
    let mut regions: BTreeMap<String, usize> = BTreeMap::new();
    for region in nodes.iter().filter_map(|node| label(node, "region")) {
        *regions.entry(region).or_default() += 1;
    }
    // The region of most nodes; of several, the first by name.
    let most =
        regions.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map(|(region, _)| region.clone());
    let zones: BTreeSet<String> = nodes.iter().filter_map(|node| label(node, "zone")).collect();
    let zones = if zones.is_empty() { before.zones.clone() } else { zones.into_iter().collect() };
    Topology {
        region: given.region.clone().or(most).or_else(|| before.region.clone()),
        zones: if given.zones.is_empty() { zones } else { given.zones.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes as letters: w well, u unwell, r refused, x unreachable; one state letter per probe comes out.
    #[track_caller]
    fn check(from: State, probes: &str, expected: &str) {
        let mut health = Health::resume(from, 0);
        let mut states = String::new();
        for (at, letter) in probes.chars().enumerate() {
            let probe = match letter {
                'w' => Probe::Well,
                'u' => Probe::Unwell("etcd".into()),
                'r' => Probe::Refused("401".into()),
                _ => Probe::Unreachable("timeout".into()),
            };
            health = health.after(&probe, Thresholds::default(), i64::try_from(at).unwrap());
            states.push(match health.state {
                State::Unknown => '?',
                State::Ready => 'R',
                State::NotReady => 'N',
                State::Offline => 'O',
            });
        }
        assert_eq!(states, expected, "{probes}");
    }

    #[test]
    fn three_failures_and_one_success() {
        check(State::Unknown, "www", "RRR");
        check(State::Unknown, "xxx", "??O");
        check(State::Ready, "xxwxxx", "RRRRRO");
        check(State::Offline, "xxw", "OOR");
        check(State::Offline, "xr", "ON");
        check(State::Ready, "uxuxuxx", "RRRRRRR");
        check(State::Ready, "uuu", "RRN");
        check(State::NotReady, "xxxxw", "NNOOR");
    }

    #[test]
    fn conditions_say_what_is_known_and_what_is_not() {
        let mut health = Health::resume(State::Ready, 5);
        health = health.after(&Probe::Unreachable("timed out after 2 s".into()), Thresholds::default(), 10);
        let [ready, _] = health.conditions();
        assert_eq!((ready.status, ready.since_ms), (Truth::True, 5));
        assert_eq!(ready.reason.message, "its API does not answer: timed out after 2 s (1 in a row so far)");
        for now in [11, 12] {
            health = health.after(&Probe::Unreachable("timed out".into()), Thresholds::default(), now);
        }
        let [ready, offline] = health.conditions();
        assert_eq!((ready.status, offline.status, offline.since_ms), (Truth::Unknown, Truth::True, 12));
        assert!(offline.reason.message.ends_with("that is no proof that its pods are dead"));
        assert_eq!(health.offline_since_ms(), Some(12));
    }

    #[test]
    fn topology_survives() {
        let node = |region: &str, zone: &str| {
            let label =
                |name: &str, value: &str| (format!("topology.kubernetes.io/{name}"), value.to_owned());
            BTreeMap::from([label("region", region), label("zone", zone)])
        };
        let none = Topology::default();
        let found =
            topology(&none, &none, &[node("eu", "b"), node("us", "a"), node("eu", "b"), BTreeMap::new()]);
        assert_eq!(
            (found.region.as_deref(), found.zones.as_slice()),
            (Some("eu"), &["a".into(), "b".into()][..])
        );
        assert_eq!(topology(&none, &found, &[]), found, "offline: nothing is lost");
        let given = Topology { region: Some("asia".into()), zones: vec![] };
        assert_eq!(topology(&given, &found, &[node("eu", "c")]).region.as_deref(), Some("asia"));
    }
}
