//! One pod: a task that brings what runs in line with what should, and writes down how it is.
//!
//! ```text
//!   changed, faults, notes of containers, a restart is due ──► settle (start, end, restart) ──► report (status)
//! ```

mod ending;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use landfall_api::{Reason, Status, meta};
use landfall_apiserver::write::update::Part;
use landfall_runtime::clock;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::Context;
use super::addresses::Held;
use super::container::{Note, Running, Setup, What, Which};
use super::events::Recorder;
use super::probe::{Probe, Purpose};
use super::program;
use super::resume;
use super::status::{self, Container, Ended, PodState, State};
use crate::echo::Identity;
use crate::gate::{Effect, Faults};

/// Notes of containers that wait for the agent.
const NOTES_MAX: usize = 64;

/// A container that ran so long has no debts.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// When writing a status is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How often starting and ending go round before others have their turn.
const PASSES_MAX: u32 = 8;

/// A pod as the store has it; none when it is gone.
pub(super) type Latest = Option<Arc<Value>>;

/// See the module.
pub(super) struct Pod {
    context: Arc<Context>,
    node: String,
    updates: watch::Receiver<Latest>,
    faults: watch::Receiver<Arc<Faults>>,
    object: Arc<Value>,
    held: Held,
    state: PodState,
    running: BTreeMap<Which, Running>,
    backoff: HashMap<Which, Backoff>,
    notes: (mpsc::Sender<Note>, mpsc::Receiver<Note>),
    events: Recorder,
    runs: u64,
    /// What the API has, as far as is known.
    reported: Option<PodState>,
    /// Whether the wires are cut.
    cut: bool,
}

/// How long a container waits before it is started again.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    failures: u32,
    due: Instant,
}

/// Why the agent wakes.
enum Wake {
    /// The pod, the faults, or the time.
    Look,
    /// A container says something.
    Note(Note),
}

impl Pod {
    /// A pod that begins to run on a node, or goes on after a restart of the agent.
    pub(super) fn new(
        context: Arc<Context>,
        node: usize,
        object: Arc<Value>,
        updates: watch::Receiver<Latest>,
        held: Held,
    ) -> Self {
        let (name, host) =
            context.node(node).map_or((String::new(), None), |(n, a)| (n.name.clone(), Some(a)));
        let faults = context.gate.subscribe();
        let state = resume::state(&object, host, clock::epoch_s());
        Self {
            context,
            node: name,
            updates,
            faults,
            object,
            held,
            state,
            running: BTreeMap::new(),
            backoff: HashMap::new(),
            notes: mpsc::channel(NOTES_MAX),
            events: Recorder::default(),
            runs: 0,
            reported: None,
            cut: false,
        }
    }

    /// Runs the pod to its end.
    pub(super) async fn run(mut self) {
        loop {
            let Some(object) = self.updates.borrow_and_update().clone() else {
                return self.kill().await;
            };
            let lost = self.faults.borrow_and_update().node_lost(&self.node);
            self.object = object;
            self.wire(lost).await;
            if !lost {
                if meta::deleting(&self.object) {
                    return self.terminate().await;
                }
                // So that everybody sees the beginning.
                self.report().await;
                self.settle().await;
                self.retire().await;
                self.report().await;
            }
            let wake = self.wait(lost).await;
            if let Wake::Note(note) = wake {
                self.note(note).await;
            }
        }
    }

    /// Waits until there may be something to do.
    async fn wait(&mut self, lost: bool) -> Wake {
        let now = Instant::now();
        let due = self.backoff.iter().filter(|(which, _)| self.holds_back(**which));
        let due = due.map(|(_, backoff)| backoff.due).min();
        let retry = (self.reported.as_ref() != Some(&self.state)).then(|| now + RETRY);
        let due = due.into_iter().chain(retry).min().filter(|_| !lost);
        let until = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.updates.changed() => if changed.is_err() { self.object_gone() },
            _ = self.faults.changed() => {}
            () = until => {}
            Some(note) = self.notes.1.recv(), if !lost => return Wake::Note(note),
        }
        Wake::Look
    }

    /// The agent forgot this pod, which it does only when it stops.
    fn object_gone(&mut self) {
        self.updates = watch::channel(None).1;
    }

    /// Cuts or mends the wires of everything that listens.
    async fn wire(&mut self, cut: bool) {
        if cut == self.cut {
            return;
        }
        self.cut = cut;
        for running in self.running.values_mut() {
            if cut {
                running.cut().await;
            } else if let Err(error) = running.open(&self.context).await {
                tracing::warn!(pod = meta::name(&self.object), error, "cannot listen again");
            }
        }
    }

    // === starting and ending ===

    /// Brings what runs in line with what should.
    async fn settle(&mut self) {
        let effect = self.effect();
        self.running.values().for_each(|running| running.load.suffer(effect));
        for _ in 0..PASSES_MAX {
            if self.state.over(&self.object) || !self.pass(effect).await {
                return;
            }
        }
    }

    /// A pod that is over needs its sidecars and its address no more; its log stays until it is deleted.
    async fn retire(&mut self) {
        if !self.state.over(&self.object) {
            return;
        }
        let left: Vec<Which> = self.running.keys().copied().collect();
        for which in left {
            self.end(which, 0, String::new()).await;
        }
        self.held.release();
    }

    fn effect(&self) -> Effect {
        self.faults.borrow().effect(&self.object)
    }

    /// Once over all containers; whether something changed.
    async fn pass(&mut self, effect: Effect) -> bool {
        let before = self.state.clone();
        if effect == Effect::Crash {
            let victims: Vec<Which> =
                self.running.keys().copied().filter(|which| matches!(which, Which::Main(_))).collect();
            for which in victims {
                self.end(which, 1, "crashed on command".into()).await;
            }
        }
        let begun = self.state.main.iter().any(|c| !c.id.is_empty());
        match self.state.next_init() {
            Some(index) if !begun => self.bring(Which::Init(index)).await,
            _ => {
                for index in 0..self.state.init.len() {
                    if self.state.init[index].sidecar {
                        self.bring(Which::Init(index)).await;
                    }
                }
                for index in 0..self.state.main.len() {
                    self.bring(Which::Main(index)).await;
                }
            }
        }
        self.state != before
    }

    /// Whether a container waits for its time to be started again.
    fn holds_back(&self, which: Which) -> bool {
        let container = match which {
            Which::Init(index) => self.state.init.get(index),
            Which::Main(index) => self.state.main.get(index),
        };
        container.is_some_and(|container| {
            matches!(container.state, State::Waiting { .. }) && container.last.is_some()
        })
    }

    fn container(&mut self, which: Which) -> Option<&mut Container> {
        match which {
            Which::Init(index) => self.state.init.get_mut(index),
            Which::Main(index) => self.state.main.get_mut(index),
        }
    }

    /// Starts a container if it should run and its time has come.
    async fn bring(&mut self, which: Which) {
        let policy = self.object["spec"]["restartPolicy"].as_str().unwrap_or("Always").to_owned();
        let Some(container) = self.container(which) else { return };
        let again = match &container.state {
            State::Running { .. } => return,
            State::Waiting { .. } => container.last.is_some(),
            State::Ended(ended) => {
                let restart = match (which, &*policy) {
                    _ if container.sidecar => true,
                    (_, "Never") => false,
                    (Which::Main(_), "Always") => true,
                    _ => ended.code != 0,
                };
                if !restart {
                    return;
                }
                true
            }
        };
        if again && self.backoff.get(&which).is_some_and(|backoff| backoff.due > Instant::now()) {
            return self.hold_back(which).await;
        }
        self.start(which, again).await;
    }

    /// Shows that a container waits to be started again.
    async fn hold_back(&mut self, which: Which) {
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

    /// As kubelets write a pod: `name_namespace(uid)`.
    fn full_name(&self) -> String {
        let pod = &self.object;
        format!("{}_{}({})", meta::name(pod), meta::namespace(pod), meta::uid(pod))
    }

    fn spec(&self, which: Which) -> Value {
        let spec = &self.object["spec"];
        match which {
            Which::Init(index) => spec["initContainers"][index].clone(),
            Which::Main(index) => spec["containers"][index].clone(),
        }
    }

    async fn start(&mut self, which: Which, again: bool) {
        self.runs += 1;
        let (run, spec) = (self.runs, self.spec(which));
        let id = format!("{}-{}-{run}", meta::uid(&self.object), spec["name"].as_str().unwrap_or(""));
        self.state.address = Some(self.held.address());
        let now_s = clock::epoch_s();
        let Some(container) = self.container(which) else { return };
        if let State::Ended(ended) = &container.state {
            container.last = Some(ended.clone());
        }
        if again {
            container.restarts = container.restarts.saturating_add(1);
        }
        let (name, image) = (container.name.clone(), container.image.clone());
        container.id = id;
        container.state = State::Running { since_s: now_s };
        let finite = self.finite(which);
        let has = |purpose| Probe::parse(&spec, purpose, self.held.address()).is_some();
        let (startup, readiness) = (has(Purpose::Startup), has(Purpose::Readiness));
        let setup = Setup {
            context: &self.context,
            identity: self.identity(),
            pod: &self.object,
            program: program::decide(&spec, finite, &self.context.config.programs),
            spec: &spec,
            address: self.held.address(),
            which,
            run,
            notes: self.notes.0.clone(),
            effect: self.effect(),
        };
        let started = Running::start(setup).await;
        let message =
            format!("Container image {image:?} already present on machine and can be accessed by the pod");
        self.event("Normal", "Pulled", &name, message).await;
        self.event("Normal", "Created", &name, "Container created".into()).await;
        match started {
            Ok(running) => {
                let (log, load) = (running.log.clone(), running.load.clone());
                self.context.logs.began(&self.object, &name, log, load);
                self.running.insert(which, running);
                if let Some(container) = self.container(which) {
                    (container.started, container.ready) = (!startup, !startup && !readiness);
                }
                self.event("Normal", "Started", &name, "Container started".into()).await;
            }
            Err(error) => {
                self.event("Warning", "Failed", &name, format!("Error: {error}")).await;
                self.end(which, 128, error).await;
            }
        }
    }

    /// Whether a container is expected to end by itself.
    fn finite(&self, which: Which) -> bool {
        let sidecar =
            matches!(which, Which::Init(index) if self.state.init.get(index).is_some_and(|c| c.sidecar));
        matches!(which, Which::Init(_)) && !sidecar || self.object["spec"]["restartPolicy"] != "Always"
    }

    fn identity(&self) -> Identity {
        Identity {
            pod: meta::name(&self.object).into(),
            namespace: meta::namespace(&self.object).into(),
            node: self.node.clone(),
            cluster: self.context.config.cluster.clone(),
        }
    }

    /// A container has ended, or is made to: with this code, for this reason.
    async fn end(&mut self, which: Which, code: i32, message: String) {
        if let Some(running) = self.running.remove(&which) {
            running.kill().await;
        }
        let now_s = clock::epoch_s();
        let Some(container) = self.container(which) else { return };
        let started_s = match container.state {
            State::Running { since_s } => since_s,
            State::Waiting { .. } | State::Ended(_) => now_s,
        };
        let id = container.id.clone();
        container.state = State::Ended(Ended { code, message, started_s, finished_s: now_s, id });
        (container.ready, container.started) = (false, false);
        let ran = Duration::from_secs(u64::try_from(now_s - started_s).unwrap_or(0));
        let before = self.backoff.get(&which).map_or(0, |backoff| backoff.failures);
        let failures = if ran >= FORGIVEN_AFTER { 0 } else { before };
        let due = Instant::now() + self.context.config.pace.restart_delay(failures);
        self.backoff.insert(which, Backoff { failures: failures.saturating_add(1), due });
    }

    // === what containers say ===

    async fn note(&mut self, note: Note) {
        let current = self.running.get(&note.which).is_some_and(|running| running.run == note.run);
        if !current {
            return;
        }
        match note.what {
            What::Exited { code, message } => self.end(note.which, code, message).await,
            What::Probed { purpose, result, verdict } => {
                self.probed(note.which, purpose, result, verdict).await;
            }
        }
    }

    async fn probed(
        &mut self,
        which: Which,
        purpose: Purpose,
        result: Result<(), String>,
        verdict: Option<bool>,
    ) {
        let readiness = self.spec(which).get(Purpose::Readiness.field()).is_some();
        let Some(container) = self.container(which) else { return };
        let name = container.name.clone();
        match (purpose, verdict) {
            (Purpose::Readiness, Some(ready)) => container.ready = ready && container.started,
            (Purpose::Startup, Some(true)) => {
                (container.started, container.ready) = (true, !readiness);
            }
            _ => {}
        }
        if let Err(why) = result {
            let message = format!("{} probe failed: {why}", purpose.title());
            self.event("Warning", "Unhealthy", &name, message).await;
        }
        if verdict == Some(false) && purpose != Purpose::Readiness {
            let kind = purpose.title().to_lowercase();
            let message = format!("Container {name} failed {kind} probe, will be restarted");
            self.event("Normal", "Killing", &name, message).await;
            // As after SIGTERM; the requests it was serving are of a program that does not answer.
            self.end(which, 143, String::new()).await;
        }
    }

    async fn event(&mut self, kind: &'static str, reason: &'static str, container: &str, message: String) {
        if self.context.config.events {
            let (client, about) = (&self.context.client, (reason, container));
            self.events.record(client, &self.node, &self.object, kind, about, message).await;
        }
    }

    // === telling ===

    /// Writes the status if it is not what the API has.
    async fn report(&mut self) {
        if self.reported.as_ref() == Some(&self.state) && !self.ready_moved() {
            return;
        }
        let (pod, state) = (self.object.clone(), &self.state);
        let now_s = clock::epoch_s();
        let change = |old: &Value| {
            if meta::uid(old) != meta::uid(&pod) {
                return Err(Status::new(Reason::NotFound, "another pod of this name"));
            }
            let mut new = old.clone();
            new["status"] = status::status(old, state, now_s);
            Ok(new)
        };
        let place = (meta::namespace(&pod), meta::name(&pod));
        match self.context.client.update(("", "pods"), place, Part::Status, change).await {
            Ok(()) => self.reported = Some(self.state.clone()),
            Err(error) if error.reason == Reason::NotFound => self.reported = Some(self.state.clone()),
            Err(error) => {
                tracing::debug!(pod = place.1, error = %error.message, "cannot report a pod");
            }
        }
    }

    /// Whether the Ready condition should change though nothing of ours did: somebody moved a readiness gate, or took
    /// the node for lost and the pod for not ready meanwhile.
    fn ready_moved(&self) -> bool {
        let object = &self.object;
        let ready = |status: &Value| {
            let found = status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
            Some((found["status"].clone(), found["message"].clone()))
        };
        ready(&status::status(object, &self.state, 0)) != ready(&object["status"])
    }
}

/// A duration as Go writes it, in whole seconds and minutes.
fn go_duration(duration: Duration) -> String {
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    if minutes > 0 { format!("{minutes}m{seconds}s") } else { format!("{seconds}s") }
}
