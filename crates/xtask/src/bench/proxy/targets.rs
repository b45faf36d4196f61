//! What should be reached, and whether it was.

use serde_json::{Value, json};

use super::{Changes, Figured, Figures, ROUTES};
use crate::shell::say;

/// What many routes may weigh.
const RESIDENT_MB: f64 = 40.0;
/// How long a changed route may take until a client sees it.
const LIVE_MS: f64 = 20.0;
/// What a client that asks nothing may weigh: twenty thousand then fit into 100 MB, whatever they asked before.
const IDLE_KB: f64 = 5.0;

/// A figure, and what it may be at most.
pub(super) struct Target {
    what: String,
    /// None where it was not told.
    got: Option<f64>,
    most: f64,
}

impl Target {
    fn is_reached(&self) -> bool {
        self.got.is_some_and(|got| got <= self.most)
    }

    fn word(&self) -> &'static str {
        if self.is_reached() { "PASS" } else { "miss" }
    }
}

/// All of them.
pub(super) fn of(figured: &Figured) -> Vec<Target> {
    let Figured { table, idle, changes } = figured;
    let mut all = Vec::new();
    for (load, rows) in table {
        let of = |name| rows.iter().find(|(server, _)| *server == name).map(|(_, figures)| *figures);
        if let (Some(ours), Some(nginx)) = (of("landfall"), of("nginx")) {
            all.extend(beside(load, &ours, &nginx));
        }
    }
    for ours in idle.iter().filter(|one| one.server == "landfall") {
        let what = format!("{} idle clients, KB each", ours.clients);
        all.push(Target { what, got: Some(ours.kb_each()), most: IDLE_KB });
    }
    all.extend(changes.iter().flat_map(with_changes));
    all
}

fn beside(load: &str, ours: &Figures, nginx: &Figures) -> [Target; 4] {
    let target =
        |what: &str, got: f64, most: f64| Target { what: format!("{load}: {what}"), got: Some(got), most };
    [
        target("CPU per request, µs, at most nginx's", ours.cpu_us, nginx.cpu_us),
        target("p99, ms, at most nginx's", ours.p99.ms, nginx.p99.ms),
        target("p99 at an easy pace, ms, at most nginx's", ours.paced_p99.ms, nginx.paced_p99.ms),
        target("failed requests", count(ours.failed), 0.0),
    ]
}

fn with_changes(changes: &Changes) -> [Target; 4] {
    let times = changes.times;
    let target = |what: String, got: Option<f64>, most: f64| Target { what, got, most };
    [
        target(format!("{ROUTES} routes, MB resident"), Some(changes.resident_mb), RESIDENT_MB),
        target(
            format!("{times} changes, ten a second, those while the host took no time: live P99, ms"),
            changes.figure("quiet_p99_ms"),
            LIVE_MS,
        ),
        target(
            format!("{times} changes, ten a second, those while the host took no time: slowest, ms"),
            changes.figure("quiet_max_ms"),
            LIVE_MS,
        ),
        target(format!("{times} changes: failed requests"), Some(count(changes.figures.failed)), 0.0),
    ]
}

fn count(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

/// Prints them.
pub(super) fn show(targets: &[Target]) {
    say("");
    say("| target | got | at most | |\n|---|--:|--:|---|");
    for target in targets {
        let Target { what, got, most } = target;
        let got = got.map_or_else(|| "not told".to_owned(), |got| format!("{got:.2}"));
        say(&format!("| {what} | {got} | {most:.2} | {} |", target.word()));
    }
}

/// As JSON.
pub(super) fn json(targets: &[Target]) -> Value {
    let one = |target: &Target| json!({"what": target.what, "got": target.got, "most": target.most, "reached": target.is_reached()});
    targets.iter().map(one).collect()
}
