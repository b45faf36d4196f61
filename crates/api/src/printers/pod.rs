//! The sheet of pods: one word for what all containers together are doing.

use serde_json::{Value, json};

use super::cells::{NONE, age, find, is_true, items, later, name, number, text, text_or};
use super::sheet::{Col, Sheet};
use crate::{age, meta};

pub(super) const POD: Sheet = Sheet {
    columns: &[
        Col::NAME,
        Col::text("Ready", "How many containers are ready, of how many there are."),
        Col::text("Status", "What the containers are doing, in one word."),
        Col::text("Restarts", "How often containers were restarted, and when last."),
        Col::AGE,
        Col::text("IP", "Its address.").wide(),
        Col::text("Node", "The node it runs on.").wide(),
        Col::text("Nominated Node", "The node that is being cleared for it.").wide(),
        Col::text("Readiness Gates", "How many of its readiness gates are open.").wide(),
    ],
    row,
    conditions,
};

fn row(object: &Value, now_s: i64) -> Vec<Value> {
    let seen = Seen::of(object);
    let restarts = match (seen.restarts, age::seconds(seen.last_restart)) {
        (count, Some(_)) if count != 0 => format!("{count} ({} ago)", age::since(seen.last_restart, now_s)),
        (count, _) => count.to_string(),
    };
    vec![
        name(object),
        format!("{}/{}", seen.ready, seen.containers).into(),
        seen.reason.into(),
        restarts.into(),
        age(object, now_s),
        text_or(object, "/status/podIPs/0/ip", NONE).into(),
        text_or(object, "/spec/nodeName", NONE).into(),
        text_or(object, "/status/nominatedNodeName", NONE).into(),
        readiness_gates(object).into(),
    ]
}

fn conditions(object: &Value) -> Vec<Value> {
    let (reason, message) = match text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

fn readiness_gates(object: &Value) -> String {
    let gates = items(object, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let open = gates.iter().filter(|gate| is_true(object, text(gate, "/conditionType"))).count();
    format!("{open}/{}", gates.len())
}

/// What is seen of a pod's containers.
struct Seen<'a> {
    reason: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    last_restart: Option<&'a str>,
}

impl<'a> Seen<'a> {
    fn of(pod: &'a Value) -> Self {
        let phase = text(pod, "/status/phase");
        let mut seen = Self {
            reason: text_or(pod, "/status/reason", phase).to_owned(),
            ready: 0,
            containers: items(pod, "/spec/containers").len(),
            restarts: 0,
            last_restart: None,
        };
        let gated = |c: &Value| text(c, "/type") == "PodScheduled" && text(c, "/reason") == "SchedulingGated";
        if items(pod, "/status/conditions").iter().any(gated) {
            seen.reason = "SchedulingGated".into();
        }
        let sidecars = items(pod, "/spec/initContainers").iter().filter(|c| restarts_always(c)).count();
        seen.containers = seen.containers.saturating_add(sidecars);
        let (initializing, sidecar) = seen.initialize(pod);
        if !initializing || is_true(pod, "Initialized") {
            (seen.restarts, seen.last_restart) = sidecar;
            seen.run(pod);
        }
        if meta::deleting(pod) {
            if text(pod, "/status/reason") == "NodeLost" {
                seen.reason = "Unknown".into();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                seen.reason = "Terminating".into();
            }
        }
        seen
    }

    /// Looks at the init containers up to the first that has not finished. Says whether there is one, and how often
    /// those that keep running beside the others (sidecars) were restarted.
    fn initialize(&mut self, pod: &'a Value) -> (bool, (i64, Option<&'a str>)) {
        let specs = items(pod, "/spec/initContainers");
        let mut sidecars = (0_i64, None);
        for (at, status) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
            let sidecar = specs
                .iter()
                .any(|spec| text(spec, "/name") == text(status, "/name") && restarts_always(spec));
            self.count(status);
            if sidecar {
                sidecars.0 = sidecars.0.saturating_add(number(status, "/restartCount"));
                sidecars.1 = later(sidecars.1, find(status, FINISHED_BEFORE));
            }
            let ended = status.pointer("/state/terminated").filter(|state| state.is_object());
            if ended.is_some_and(|state| number(state, "/exitCode") == 0) {
                continue;
            }
            if sidecar && truth(status, "/started") {
                self.ready = self.ready.saturating_add(usize::from(truth(status, "/ready")));
                continue;
            }
            let waiting = text(status, "/state/waiting/reason");
            self.reason = match (ended, waiting) {
                (Some(state), _) => format!("Init:{}", end_reason(state)),
                (None, "" | "PodInitializing") => format!("Init:{at}/{}", specs.len()),
                (None, waiting) => format!("Init:{waiting}"),
            };
            return (true, sidecars);
        }
        (false, sidecars)
    }

    /// Looks at the main containers, last first, so that the first one's word stays.
    fn run(&mut self, pod: &'a Value) {
        let (mut running, mut failure) = (false, None);
        for status in items(pod, "/status/containerStatuses").iter().rev() {
            self.count(status);
            let waiting = text(status, "/state/waiting/reason");
            let is = |state: &str| status.pointer(state).filter(|state| state.is_object());
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(ended) = is("/state/terminated") {
                self.reason = end_reason(ended);
                if number(ended, "/exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if truth(status, "/ready") && is("/state/running").is_some() {
                running = true;
                self.ready = self.ready.saturating_add(1);
            }
        }
        // One finished container does not make the pod finished.
        if self.reason == "Completed" {
            match failure {
                _ if running && is_true(pod, "Ready") => self.reason = "Running".into(),
                Some(failure) => self.reason = failure,
                None if running => self.reason = "NotReady".into(),
                None => {}
            }
        }
    }

    fn count(&mut self, status: &'a Value) {
        self.restarts = self.restarts.saturating_add(number(status, "/restartCount"));
        self.last_restart = later(self.last_restart, find(status, FINISHED_BEFORE));
    }
}

const FINISHED_BEFORE: &str = "/lastState/terminated/finishedAt";

fn restarts_always(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

fn truth(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer) == Some(&Value::Bool(true))
}

/// Why a container ended: its reason, the signal, or the exit code.
fn end_reason(ended: &Value) -> String {
    match (text(ended, "/reason"), number(ended, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(ended, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
