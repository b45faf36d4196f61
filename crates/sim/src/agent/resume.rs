//! Where a pod stands when an agent takes it up: at its beginning, or where its status says an earlier agent left it.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::status::{Container, Ended, PodState, State};

/// The state of a pod taken up now.
pub(super) fn state(pod: &Value, host: Option<Ipv4Addr>, now_s: i64) -> PodState {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let has_init = spec["initContainers"].as_array().is_some_and(|list| !list.is_empty());
    let containers = |list: &str, statuses: &str, reason| {
        let list = spec[list].as_array().into_iter().flatten();
        list.map(|spec| container(spec, &status[statuses], reason, now_s)).collect()
    };
    let waiting = if has_init { "PodInitializing" } else { "ContainerCreating" };
    let over = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
    PodState {
        host,
        address: status["podIP"].as_str().and_then(|address| address.parse().ok()),
        started_s: time(&status["startTime"]).unwrap_or(now_s),
        init: containers("initContainers", "initContainerStatuses", "PodInitializing"),
        main: containers("containers", "containerStatuses", waiting),
        ending: over,
    }
}

/// A container with what its status remembers. What ran when the earlier agent went has ended since.
fn container(spec: &Value, statuses: &Value, reason: &'static str, now_s: i64) -> Container {
    let mut container = Container::new(spec, reason);
    let statuses = statuses.as_array().map_or(&[][..], Vec::as_slice);
    let Some(status) = statuses.iter().find(|s| s["name"] == spec["name"]) else { return container };
    let id = status["containerID"].as_str().unwrap_or("").trim_start_matches("sim://").to_owned();
    container.restarts = status["restartCount"].as_u64().and_then(|n| n.try_into().ok()).unwrap_or(0);
    container.last = ended(&status["lastState"]["terminated"]);
    if let Some(ended) = ended(&status["state"]["terminated"]) {
        container.state = State::Ended(ended);
    } else if let Some(running) = status["state"].get("running") {
        let started_s = time(&running["startedAt"]).unwrap_or(now_s);
        let message = "the node was restarted".into();
        container.state =
            State::Ended(Ended { code: 255, message, started_s, finished_s: now_s, id: id.clone() });
    } else if let Some(last) = container.last.clone() {
        // It waited to be started again.
        container.state = State::Ended(last);
    }
    container.id = id;
    container
}

fn ended(terminated: &Value) -> Option<Ended> {
    terminated.as_object()?;
    let text = |field: &str| terminated[field].as_str().unwrap_or("").to_owned();
    Some(Ended {
        code: terminated["exitCode"].as_i64().and_then(|code| code.try_into().ok()).unwrap_or(0),
        message: text("message"),
        started_s: time(&terminated["startedAt"]).unwrap_or(0),
        finished_s: time(&terminated["finishedAt"]).unwrap_or(0),
        id: text("containerID").trim_start_matches("sim://").to_owned(),
    })
}

fn time(value: &Value) -> Option<i64> {
    value.as_str()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}
