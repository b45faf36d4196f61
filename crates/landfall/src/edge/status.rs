//! What this edge says of itself at the hub: its `Edge` object's status, whole or only that it is alive.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use landfall_api::landfall::{EdgeStatus, RoundTrip, Vote};
use landfall_health::Opinion;
use serde_json::{Value, json};

/// So many votes are told at most: an object has a limit, and so has what others read.
const VOTES_MAX: usize = 5_000;

/// What is told.
pub(crate) struct Report<'a> {
    /// What this edge thinks of its targets.
    pub(crate) opinions: &'a BTreeMap<String, Opinion>,
    /// How far other members are, in milliseconds.
    pub(crate) round_trips: &'a BTreeMap<String, f64>,
    /// Since when this edge runs, in milliseconds since 1970.
    pub(crate) began_ms: i64,
    /// Whether it follows plans.
    pub(crate) follows: bool,
}

/// A merge patch that says only that the edge is alive.
pub(crate) fn alive(now_ms: i64) -> Value {
    json!({"status": {"heartbeatTime": micro_time(now_ms)}})
}

/// A merge patch that says everything.
pub(crate) fn everything(report: &Report<'_>, now_ms: i64) -> Value {
    let votes: Vec<Vote> = report.opinions.iter().take(VOTES_MAX).filter_map(vote).collect();
    let round_trips: Vec<RoundTrip> = report
        .round_trips
        .iter()
        .map(|(cluster, ms)| RoundTrip { cluster: cluster.clone(), milliseconds: rounded(*ms) })
        .collect();
    let (status, reason, message) = match report.follows {
        true => ("True", "Serving", "it follows the hub's plans"),
        false => ("False", "NoPlans", "it has seen no plan of the federation yet"),
    };
    let ready = Condition {
        type_: "Ready".into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: time(report.began_ms),
        observed_generation: None,
    };
    let status = EdgeStatus {
        version: Some(env!("CARGO_PKG_VERSION").into()),
        heartbeat_time: Some(micro_time(now_ms)),
        votes,
        round_trips,
        conditions: vec![ready],
        ..EdgeStatus::default()
    };
    let mut status = serde_json::to_value(status).unwrap_or_default();
    // A merge patch leaves alone what it does not name: what is empty now may not have been.
    for list in ["votes", "roundTrips"] {
        if status.get(list).is_none() {
            status[list] = json!([]);
        }
    }
    json!({"status": status})
}

fn vote((target, opinion): (&String, &Opinion)) -> Option<Vote> {
    Some(Vote {
        target: target.clone(),
        up: opinion.up?,
        since: Some(time(opinion.since_ms)),
        reason: opinion.reason.clone(),
        latency_ms: Some(rounded(opinion.latency_ms)),
    })
}

/// No more digits than are known.
fn rounded(ms: f64) -> f64 {
    (ms * 100.0).round() / 100.0
}

fn time(ms: i64) -> Time {
    Time(Timestamp::from_second(ms.div_euclid(1_000)).unwrap_or_default())
}

fn micro_time(ms: i64) -> MicroTime {
    MicroTime(Timestamp::from_millisecond(ms).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use landfall_health::{Check, Outcome};

    use super::*;

    #[test]
    fn everything_is_told_also_that_there_is_nothing() {
        let nothing = Report {
            opinions: &BTreeMap::new(),
            round_trips: &BTreeMap::new(),
            began_ms: 1_000,
            follows: false,
        };
        let told = everything(&nothing, 1_234);
        assert_eq!(told["status"]["votes"], json!([]));
        assert_eq!(told["status"]["heartbeatTime"], "1970-01-01T00:00:01.234000Z");
        assert_eq!(told["status"]["conditions"][0]["status"], "False");
        let check = Check { down_threshold: 1, ..Check::default() };
        let opinion = Opinion::default().step(&Outcome::down("refused", 1.2345), &check, 5_000);
        let opinions =
            [("a/default/web:80".to_owned(), opinion), ("unsure".to_owned(), Opinion::default())].into();
        let round_trips = [("b".to_owned(), 12.3456)].into();
        let told = everything(&Report { opinions: &opinions, round_trips: &round_trips, ..nothing }, 0);
        assert_eq!(
            told["status"]["votes"],
            json!([{"target": "a/default/web:80", "up": false, "since": "1970-01-01T00:00:05Z", "reason": "refused",
                "latencyMs": 1.23}])
        );
        assert_eq!(told["status"]["roundTrips"], json!([{"cluster": "b", "milliseconds": 12.35}]));
    }
}
