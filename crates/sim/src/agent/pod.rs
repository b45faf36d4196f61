//! One pod: a task that brings what runs in line with what should, and writes down how it is.
//!
//! ```text
//!   changed, faults, notes of containers, a restart is due ──► settle (start, end, restart) ──► report (status)
//! ```

mod again;
mod ending;
mod telling;

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::meta;
use landfall_runtime::clock;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use again::Backoff;

use super::Context;
use super::address;
use super::addresses::Held;
use super::container::{Note, Running, Setup, What, Which};
use super::probe::{Probe, Purpose};
use super::program;
use super::resume;
use super::status::{Container, Ended, PodState, State};
use crate::controllers::events::Recorder;
use crate::echo::Identity;
use crate::gate::{Effect, Faults};

/// Notes of containers that wait for the agent.
const NOTES_MAX: usize = 64;
/// The most different events remembered of one pod, for counting.
const EVENTS_KEPT_MAX: usize = 32;

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
    /// Which node that is.
    index: usize,
    updates: watch::Receiver<Latest>,
    faults: watch::Receiver<Arc<Faults>>,
    object: Arc<Value>,
    /// Its address; none while all are taken, and once it is over.
    held: Option<Held>,
    /// Moves when an address is given back.
    freed: Option<watch::Receiver<u64>>,
    state: PodState,
    running: BTreeMap<Which, Running>,
    backoff: HashMap<Which, Backoff>,
    notes: (mpsc::Sender<Note>, mpsc::Receiver<Note>),
    events: Recorder,
    runs: u64,
    /// What the API has, as far as is known.
    reported: Option<PodState>,
    /// The revision of that.
    told: u64,
    /// Whether the wires are cut.
    cut: bool,
    /// It has been told that no address is left.
    homeless: bool,
}

/// How the task of a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The pod is over, but still there.
    Over,
    /// The pod is gone, or the agent.
    Gone,
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
        held: Option<Held>,
    ) -> Self {
        let (name, host) =
            context.node(node).map_or((String::new(), None), |(n, a)| (n.name.clone(), Some(a)));
        let faults = context.gate.subscribe();
        let freed = context.addresses.get(node).map(|addresses| addresses.freed());
        let state = resume::state(&object, host, clock::epoch_s());
        Self {
            context,
            node: name,
            index: node,
            updates,
            faults,
            object,
            held,
            freed,
            state,
            running: BTreeMap::new(),
            backoff: HashMap::new(),
            notes: mpsc::channel(NOTES_MAX),
            events: Recorder::new(EVENTS_KEPT_MAX),
            runs: 0,
            reported: None,
            told: 0,
            cut: false,
            homeless: false,
        }
    }

    /// Runs the pod to its end.
    pub(super) async fn run(mut self) -> End {
        loop {
            let Some(object) = self.updates.borrow_and_update().clone() else {
                self.kill().await;
                return End::Gone;
            };
            let lost = self.faults.borrow_and_update().node_lost(&self.node);
            self.object = object;
            self.wire(lost).await;
            if !lost {
                if meta::deleting(&self.object) {
                    self.terminate().await;
                    return End::Gone;
                }
                // So that everybody sees the beginning.
                self.report().await;
                if self.housed().await {
                    self.settle().await;
                }
                self.report().await;
                if self.state.over(&self.object) && self.rest().await {
                    return End::Over;
                }
            }
            let wake = self.wait(lost).await;
            if let Wake::Note(note) = wake {
                self.note(note).await;
            }
        }
    }

    /// Whether the pod has all it needs to run; takes an address if it has none.
    async fn housed(&mut self) -> bool {
        if self.held.is_some() || self.state.over(&self.object) {
            return true;
        }
        // Before looking, so that none is missed that is given back afterwards.
        self.freed.iter_mut().for_each(watch::Receiver::mark_unchanged);
        self.held = address(&self.context, self.index, &self.object);
        if self.held.is_none() && !self.homeless {
            self.homeless = true;
            let range = self.context.addresses.get(self.index).map(|addresses| addresses.ends());
            let range = match range {
                Some((Some(first), Some(last))) => format!("{first}-{last}"),
                _ => String::new(),
            };
            let message = format!(
                "Failed to create pod sandbox: no IP addresses available in range set: {range}; \
                 waiting until one is free"
            );
            self.event("Warning", "FailedCreatePodSandBox", "", message).await;
        }
        self.held.is_some()
    }

    /// Where the containers listen.
    fn address(&self) -> Ipv4Addr {
        self.held.as_ref().map_or(Ipv4Addr::UNSPECIFIED, Held::address)
    }

    /// Waits until there may be something to do.
    async fn wait(&mut self, lost: bool) -> Wake {
        let over = self.state.over(&self.object);
        let homeless = !over && self.held.is_none();
        let restart = if over || homeless { None } else { self.restart_due() };
        let retry = (!self.is_reported()).then(|| Instant::now() + RETRY);
        let due = restart.into_iter().chain(retry).min().filter(|_| !lost);
        let until = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let freed = async {
            match &mut self.freed {
                Some(freed) if homeless && !lost => freed.changed().await.is_ok(),
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.updates.changed() => if changed.is_err() { self.object_gone() },
            _ = self.faults.changed() => {}
            () = until => {}
            _ = freed => {}
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
        // What probes found before and meanwhile is about the wires; what has exited has.
        let mut exited = Vec::new();
        while let Ok(note) = self.notes.1.try_recv() {
            if matches!(note.what, What::Exited { .. }) {
                exited.push(note);
            }
        }
        for note in exited {
            self.note(note).await;
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

    fn container(&mut self, which: Which) -> Option<&mut Container> {
        match which {
            Which::Init(index) => self.state.init.get_mut(index),
            Which::Main(index) => self.state.main.get_mut(index),
        }
    }

    /// Starts a container if it should run and its time has come.
    async fn bring(&mut self, which: Which) {
        let Some(container) = self.container(which) else { return };
        let first = matches!(container.state, State::Waiting { .. }) && container.last.is_none();
        let container = container.clone();
        if first {
            return self.start(which, false).await;
        }
        if !self.starts_again(which, &container) {
            return;
        }
        if self.backoff.get(&which).is_some_and(|backoff| backoff.due > Instant::now()) {
            return self.hold_back(which).await;
        }
        self.start(which, true).await;
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
        self.state.address = Some(self.address());
        let now_s = clock::epoch_s();
        let Some(container) = self.container(which) else { return };
        if let State::Ended(ended) = &container.state {
            container.last = Some(ended.clone());
        }
        if again {
            container.restarts = container.restarts.saturating_add(1);
        }
        let (name, image, sidecar) = (container.name.clone(), container.image.clone(), container.sidecar);
        container.id = id;
        container.state = State::Running { since_s: now_s };
        let finite =
            matches!(which, Which::Init(_)) && !sidecar || self.object["spec"]["restartPolicy"] != "Always";
        let has = |purpose| Probe::parse(&spec, purpose, self.address()).is_some();
        let (startup, readiness) = (has(Purpose::Startup), has(Purpose::Readiness));
        let setup = Setup {
            context: &self.context,
            identity: self.identity(),
            pod: &self.object,
            program: program::decide(&spec, finite, &self.context.config.programs),
            spec: &spec,
            address: self.address(),
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
            let code = self.running.get(&which).map_or(0, |running| running.code(true));
            self.end(which, code, String::new()).await;
        }
    }
}
