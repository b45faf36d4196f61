//! The status of a pod as a kubelet writes it: a pure function from what runs to JSON.

use std::net::Ipv4Addr;

use landfall_api::meta;
use landfall_apiserver::api::rfc3339;
use serde_json::{Map, Value, json};

use crate::controllers::conditions::before_others;

/// Everything an agent knows of a pod it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodState {
    /// The node's address.
    pub(super) host: Option<Ipv4Addr>,
    /// The pod's address.
    pub(super) address: Option<Ipv4Addr>,
    /// When the agent took it up.
    pub(super) started_s: i64,
    /// Init containers, in order.
    pub(super) init: Vec<Container>,
    /// The others, in order.
    pub(super) main: Vec<Container>,
    /// The pod is on its way out, or over: nothing is restarted.
    pub(super) ending: bool,
}

/// One container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Container {
    /// Its name.
    pub(super) name: String,
    /// Its image.
    pub(super) image: String,
    /// An init container that keeps running beside the others.
    pub(super) sidecar: bool,
    /// What it does now.
    pub(super) state: State,
    /// How it ended before.
    pub(super) last: Option<Ended>,
    /// How often it was started again.
    pub(super) restarts: u32,
    /// Its readiness probe succeeds, or it has none and runs.
    pub(super) ready: bool,
    /// Its startup probe has succeeded, or it has none and runs.
    pub(super) started: bool,
    /// Names this run of it; empty before the first.
    pub(super) id: String,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// Nothing yet.
    Waiting {
        /// Why, in one word.
        reason: &'static str,
        /// Why, for people.
        message: String,
    },
    /// It runs.
    Running {
        /// Since when.
        since_s: i64,
    },
    /// It has ended.
    Ended(Ended),
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ended {
    /// Its exit code.
    pub(super) code: i32,
    /// Why, for people.
    pub(super) message: String,
    /// When it had started.
    pub(super) started_s: i64,
    /// When it ended.
    pub(super) finished_s: i64,
    /// Which run it was.
    pub(super) id: String,
}

impl Container {
    /// A container that has not run.
    pub(super) fn new(spec: &Value, reason: &'static str) -> Self {
        let text = |field: &str| spec[field].as_str().unwrap_or("").to_owned();
        Self {
            name: text("name"),
            image: text("image"),
            sidecar: spec["restartPolicy"] == "Always",
            state: State::Waiting { reason, message: String::new() },
            last: None,
            restarts: 0,
            ready: false,
            started: false,
            id: String::new(),
        }
    }

    /// Whether it runs.
    pub(super) const fn running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// How it ended, if it has and was not started again.
    pub(super) const fn ended(&self) -> Option<&Ended> {
        match &self.state {
            State::Ended(ended) => Some(ended),
            State::Waiting { .. } | State::Running { .. } => None,
        }
    }

    /// Whether an init container lets the next one begin.
    fn initialized(&self) -> bool {
        if self.sidecar { self.started } else { self.ended().is_some_and(|ended| ended.code == 0) }
    }

    fn status(&self, init: bool) -> Value {
        let ready = if init && !self.sidecar { self.initialized() } else { self.ready && self.running() };
        let mut status = json!({
            "name": self.name,
            "image": self.image,
            "imageID": if self.id.is_empty() { String::new() } else { format!("sim/{}", self.image) },
            "restartCount": self.restarts,
            "ready": ready,
            "started": self.started && self.running(),
            "state": match &self.state {
                State::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
                State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
                State::Running { since_s } => json!({"running": {"startedAt": rfc3339(*since_s)}}),
                State::Ended(ended) => json!({"terminated": ended.status()}),
            },
            "lastState": self.last.as_ref().map_or_else(|| json!({}), |ended| json!({"terminated": ended.status()})),
        });
        if !self.id.is_empty() {
            status["containerID"] = container_id(&self.id);
        }
        status
    }
}

impl Ended {
    fn status(&self) -> Value {
        let mut status = json!({
            "exitCode": self.code,
            "reason": if self.code == 0 { "Completed" } else { "Error" },
            "startedAt": rfc3339(self.started_s),
            "finishedAt": rfc3339(self.finished_s),
            "containerID": container_id(&self.id),
        });
        if !self.message.is_empty() {
            status["message"] = json!(self.message);
        }
        status
    }
}

fn container_id(id: &str) -> Value {
    format!("sim://{id}").into()
}

impl PodState {
    /// The init container whose turn it is; none when all have had theirs.
    pub(super) fn next_init(&self) -> Option<usize> {
        self.init.iter().position(|container| !container.initialized())
    }

    /// Whether the pod is over and stays so; sidecars may have to end yet.
    pub(super) fn over(&self, pod: &Value) -> bool {
        terminal(phase_beside(pod, self, false)).is_some()
    }
}

/// Whether the API says that a pod is over.
pub(super) fn is_over(pod: &Value) -> bool {
    pod["status"]["phase"].as_str().is_some_and(|phase| terminal(phase).is_some())
}

/// `status.phase`: as long as a sidecar runs, a pod is not over.
pub(super) fn phase(pod: &Value, state: &PodState) -> &'static str {
    phase_beside(pod, state, state.init.iter().any(|c| c.sidecar && c.running()))
}

/// The phase when sidecars run beside the others, or not.
fn phase_beside(pod: &Value, state: &PodState, sidecars: bool) -> &'static str {
    let policy = pod["spec"]["restartPolicy"].as_str().unwrap_or("Always");
    let failed = |c: &Container| c.ended().is_some_and(|ended| ended.code != 0);
    if policy == "Never" && state.init.iter().any(|c| !c.sidecar && failed(c)) {
        return "Failed";
    }
    // What has not begun when a pod is ended never will.
    let idle = !state.init.iter().chain(&state.main).any(Container::running);
    let pending = if state.ending && idle { "Failed" } else { "Pending" };
    // Once a container has run, the pod is initialized, whatever becomes of sidecars.
    let begun = state.main.iter().any(|c| !c.id.is_empty());
    if state.next_init().is_some() && !begun {
        return pending;
    }
    let waiting = |c: &Container| matches!(c.state, State::Waiting { .. }) && c.last.is_none();
    if state.main.iter().any(waiting) {
        return pending;
    }
    if sidecars || state.main.iter().any(Container::running) {
        return "Running";
    }
    let all_succeeded = state.main.iter().all(|c| c.ended().is_some_and(|ended| ended.code == 0));
    match policy {
        "Always" if !state.ending => "Running",
        _ if all_succeeded => "Succeeded",
        "OnFailure" if !state.ending => "Running",
        _ => "Failed",
    }
}

/// The whole status: what the agent knows, and what others have written into the old one.
pub(super) fn status(pod: &Value, state: &PodState, now_s: i64) -> Value {
    let old = &pod["status"];
    let mut status: Map<String, Value> = old.as_object().cloned().unwrap_or_default();
    let phase = phase(pod, state);
    status.insert("phase".into(), json!(phase));
    status.insert("startTime".into(), json!(rfc3339(state.started_s)));
    status.insert("observedGeneration".into(), json!(meta::generation(pod).max(1)));
    if let Some(host) = state.host {
        status.insert("hostIP".into(), json!(host));
        status.insert("hostIPs".into(), json!([{"ip": host}]));
    }
    if let Some(address) = state.address {
        status.insert("podIP".into(), json!(address));
        status.insert("podIPs".into(), json!([{"ip": address}]));
    }
    let statuses = |list: &[Container], init| list.iter().map(|c| c.status(init)).collect::<Vec<_>>();
    status.insert("containerStatuses".into(), json!(statuses(&state.main, false)));
    if !state.init.is_empty() {
        status.insert("initContainerStatuses".into(), json!(statuses(&state.init, true)));
    }
    status.insert("conditions".into(), conditions(pod, state, phase, now_s).into());
    status.into()
}

// === conditions ===

/// One condition: its type, whether it is so, and if not why.
struct Condition {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Condition {
    const fn so(kind: &'static str) -> Self {
        Self { kind, holds: true, reason: "", message: String::new() }
    }

    const fn not(kind: &'static str, reason: &'static str, message: String) -> Self {
        Self { kind, holds: false, reason, message }
    }
}

fn conditions(pod: &Value, state: &PodState, phase: &str, now_s: i64) -> Vec<Value> {
    let old: Vec<Value> = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let own = [
        sandbox(state, phase),
        initialized(state, phase),
        ready(pod, state, phase, &old),
        containers_ready(state, phase, "ContainersReady"),
        Condition::so("PodScheduled"),
    ];
    // Others write readiness gates, and whatever else they say of the pod.
    before_others(&old, own.iter().map(|c| written(c, meta::generation(pod), now_s)).collect())
}

fn written(condition: &Condition, generation: i64, now_s: i64) -> Value {
    let status = if condition.holds { "True" } else { "False" };
    let mut value = json!({
        "type": condition.kind,
        "status": status,
        "observedGeneration": generation.max(1),
        "lastProbeTime": null,
        "lastTransitionTime": rfc3339(now_s),
    });
    for (field, text) in [("reason", condition.reason), ("message", &condition.message)] {
        if !text.is_empty() {
            value[field] = json!(text);
        }
    }
    value
}

fn terminal(phase: &str) -> Option<&'static str> {
    match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    }
}

fn sandbox(state: &PodState, phase: &str) -> Condition {
    let kind = "PodReadyToStartContainers";
    if state.address.is_some() && terminal(phase).is_none() {
        Condition::so(kind)
    } else {
        Condition::not(kind, "", String::new())
    }
}

fn initialized(state: &PodState, phase: &str) -> Condition {
    let kind = "Initialized";
    if phase == "Succeeded" {
        return Condition { reason: "PodCompleted", ..Condition::so(kind) };
    }
    let incomplete: Vec<&str> =
        state.init.iter().filter(|c| !c.initialized()).map(|c| c.name.as_str()).collect();
    if incomplete.is_empty() || state.main.iter().any(|c| !c.id.is_empty()) {
        return Condition::so(kind);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Condition::not(kind, "ContainersNotInitialized", message)
}

fn containers_ready(state: &PodState, phase: &str, kind: &'static str) -> Condition {
    if let Some(reason) = terminal(phase) {
        return Condition::not(kind, reason, String::new());
    }
    let counted = state.init.iter().filter(|c| c.sidecar).chain(&state.main);
    let unready: Vec<&str> = counted.filter(|c| !(c.ready && c.running())).map(|c| c.name.as_str()).collect();
    if unready.is_empty() {
        return Condition::so(kind);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Condition::not(kind, "ContainersNotReady", message)
}

fn ready(pod: &Value, state: &PodState, phase: &str, conditions: &[Value]) -> Condition {
    let containers = containers_ready(state, phase, "Ready");
    if !containers.holds {
        return containers;
    }
    let gates = pod["spec"]["readinessGates"].as_array().into_iter().flatten();
    let wrong: Vec<String> = gates
        .filter_map(|gate| gate["conditionType"].as_str())
        .filter_map(|gate| match conditions.iter().find(|c| c["type"] == gate) {
            None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
            Some(found) if found["status"] == "True" => None,
            Some(found) => {
                let status = found["status"].as_str().unwrap_or("");
                Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {status}"))
            }
        })
        .collect();
    if wrong.is_empty() {
        return Condition::so("Ready");
    }
    Condition::not("Ready", "ReadinessGatesNotReady", wrong.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container by its last word: `new`, `up`, `ready`, `done` (0), `bad` (1) or `loop` (bad, waiting again).
    fn container(word: &str) -> Container {
        let mut container = Container::new(&json!({"name": word, "image": "i"}), "ContainerCreating");
        let ended = |code| Ended { code, ..Ended::default() };
        match word {
            "up" => container.state = State::Running { since_s: 1 },
            "ready" => {
                container.state = State::Running { since_s: 1 };
                (container.ready, container.started) = (true, true);
            }
            "done" => container.state = State::Ended(ended(0)),
            "bad" => container.state = State::Ended(ended(1)),
            "loop" => container.last = Some(ended(1)),
            _ => return container,
        }
        container.id = word.into();
        container
    }

    fn pod_state(init: &[&str], main: &[&str]) -> PodState {
        let all = |words: &[&str]| words.iter().map(|word| container(word)).collect();
        PodState { init: all(init), main: all(main), ..PodState::default() }
    }

    #[test]
    fn phases() {
        let check = |policy: &str, init: &[&str], main: &[&str], ending: bool, want: &str| {
            let pod = json!({"spec": {"restartPolicy": policy}});
            let state = PodState { ending, ..pod_state(init, main) };
            assert_eq!(phase(&pod, &state), want, "{policy} {init:?} {main:?} {ending}");
        };
        check("Always", &[], &["new"], false, "Pending");
        check("Always", &[], &["up", "new"], false, "Pending");
        check("Always", &[], &["up"], false, "Running");
        check("Always", &["up"], &["new"], false, "Pending");
        check("Always", &["done"], &["up"], false, "Running");
        check("Always", &["bad"], &["new"], false, "Pending");
        check("Never", &["bad"], &["new"], false, "Failed");
        check("Always", &[], &["loop"], false, "Running");
        check("Always", &[], &["done"], false, "Running");
        check("Always", &[], &["done"], true, "Succeeded");
        check("Always", &[], &["bad"], true, "Failed");
        check("OnFailure", &[], &["done"], false, "Succeeded");
        check("OnFailure", &[], &["bad"], false, "Running");
        check("OnFailure", &[], &["done", "up"], false, "Running");
        check("Never", &[], &["done", "bad"], false, "Failed");
        check("Never", &[], &["done", "done"], false, "Succeeded");
        check("Always", &[], &["new"], true, "Failed");
        check("Always", &["new"], &["new"], true, "Failed");
        check("Always", &["up"], &["new"], true, "Pending");
    }

    /// A Job's pod with a sidecar is over when what it is for is done, and says so when the sidecar has ended.
    #[test]
    fn a_sidecar_is_waited_for() {
        let pod = json!({"spec": {"restartPolicy": "Never"}});
        let mut state = pod_state(&["ready"], &["done"]);
        state.init[0].sidecar = true;
        assert_eq!((phase(&pod, &state), state.over(&pod)), ("Running", true));
        state.init[0].state = State::Ended(Ended { code: 143, ..Ended::default() });
        assert_eq!((phase(&pod, &state), state.over(&pod)), ("Succeeded", true));
    }

    #[test]
    fn conditions_as_a_kubelet_says_them() {
        let check = |policy: &str, init: &[&str], main: &[&str], kind: &str, want: &str| {
            let pod = json!({"spec": {"restartPolicy": policy}});
            let status = status(&pod, &pod_state(init, main), 0);
            let found = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap();
            let texts = ["status", "reason", "message"].map(|field| found[field].as_str().unwrap_or("-"));
            assert_eq!(texts.join(" | "), want, "{init:?} {main:?} {kind}");
        };
        check("Always", &[], &["ready"], "Ready", "True | - | -");
        let unready = "False | ContainersNotReady | containers with unready status: [up new]";
        check("Always", &[], &["up", "new", "ready"], "Ready", unready);
        check("Always", &[], &["up", "new", "ready"], "ContainersReady", unready);
        let incomplete = "False | ContainersNotInitialized | containers with incomplete status: [up]";
        check("Always", &["done", "up"], &["new"], "Initialized", incomplete);
        check("Never", &[], &["done"], "Ready", "False | PodCompleted | -");
        check("Never", &[], &["done"], "Initialized", "True | PodCompleted | -");
        check("Never", &[], &["bad"], "ContainersReady", "False | PodFailed | -");
    }

    #[test]
    fn what_was_so_keeps_its_time_and_what_others_say_stays() {
        let old = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Initialized", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "example.com/gate", "status": "True"}]}});
        let status = status(&old, &pod_state(&[], &["ready"]), 1_000_000_000);
        let time = |kind: &str| {
            let found = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind);
            found.unwrap()["lastTransitionTime"].clone()
        };
        assert_eq!(time("Ready"), "2020-01-01T00:00:00Z");
        assert_eq!(time("Initialized"), "2001-09-09T01:46:40Z");
        assert_eq!(time("example.com/gate"), Value::Null);
    }

    #[test]
    fn a_status_is_read_back() {
        for words in [&["ready", "new"][..], &["bad", "loop"], &["done"]] {
            let specs: Vec<Value> = words.iter().map(|word| json!({"name": word, "image": "i"})).collect();
            let mut pod = json!({"metadata": {"uid": "u"}, "spec": {"containers": specs}});
            let state = PodState { started_s: 5, ..pod_state(&[], words) };
            pod["status"] = status(&pod, &state, 7);
            let again = crate::agent::resume::state(&pod, None, 9);
            assert_eq!(again.started_s, 5);
            for (before, after) in state.main.iter().zip(&again.main) {
                assert_eq!(
                    (&after.name, after.restarts, &after.id),
                    (&before.name, before.restarts, &before.id)
                );
                let code = after.ended().map(|ended| ended.code);
                let want = match before.name.as_str() {
                    "ready" => Some(255),
                    "bad" | "loop" => Some(1),
                    "done" => Some(0),
                    _ => None,
                };
                assert_eq!(code, want, "{}", before.name);
            }
        }
    }
}
