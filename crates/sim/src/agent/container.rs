//! One run of one container: its listeners or its program, its probes, its log.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use landfall_runtime::tasks::Tasks;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::Context;
use super::local;
use super::logs::Log;
use super::probe::{self, Counter, PURPOSES, Probe, Purpose};
use super::program::{Program, Step};
use crate::echo::{self, Echo, Identity, Journal, Load};
use crate::gate::{Effect, Faults, Gate};
use crate::listen;

/// Ports that a container which declares none is expected to listen on.
const USUAL_PORTS: [u16; 2] = [80, 8080];

/// How often a port that is taken is tried again, and after which time.
const BIND_TRIES: u32 = 5;
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// What a program that does not mind being asked to stop exits with, as shells count it.
const TERMINATED: i32 = 143;

/// Which container of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Which {
    /// An init container, by its place.
    Init(usize),
    /// One of the others, by its place.
    Main(usize),
}

/// What a container tells the agent.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) which: Which,
    /// Which run of it: notes of earlier ones are passed over.
    pub(super) run: u64,
    pub(super) what: What,
}

/// What happened to a container.
#[derive(Debug)]
pub(super) enum What {
    /// It ended by itself.
    Exited { code: i32, message: String },
    /// A probe failed, or its verdict changed.
    Probed { purpose: Purpose, result: Result<(), String>, verdict: Option<bool> },
}

/// What a run is made from.
pub(super) struct Setup<'a> {
    pub(super) context: &'a Arc<Context>,
    pub(super) identity: Identity,
    pub(super) pod: &'a Value,
    pub(super) spec: &'a Value,
    pub(super) program: Program,
    pub(super) address: Ipv4Addr,
    pub(super) which: Which,
    pub(super) run: u64,
    pub(super) notes: mpsc::Sender<Note>,
    pub(super) effect: Effect,
}

/// A running container.
pub(super) struct Running {
    pub(super) run: u64,
    pub(super) load: Arc<Load>,
    pub(super) log: Arc<Log>,
    echo: Option<Arc<Echo>>,
    ports: Vec<Port>,
    /// All ports that containers of the pod declare.
    declared: Vec<u16>,
    address: Ipv4Addr,
    /// What it exited with, once it has by itself.
    exited: Arc<OnceLock<i32>>,
    /// What it exits with when it is asked to stop.
    when_asked: i32,
    /// The wires are cut: it is not probed.
    quiet: watch::Sender<bool>,
    /// Accepts connections; ends soon after `serving` stops.
    doors: Tasks,
    /// Stopping it is asking politely: no new connections, requests finish.
    serving: Tasks,
    /// Stopping it is pulling the plug.
    life: Tasks,
    probes: Tasks,
}

/// A port to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    number: u16,
    protocol: Protocol,
    /// Whether a pod goes on without it.
    optional: bool,
}

/// What is spoken at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    Https,
    Tcp,
    Udp,
}

impl Running {
    /// Starts a container; an error says what could not be had.
    pub(super) async fn start(setup: Setup<'_>) -> Result<Self, String> {
        let (load, log) = (Arc::new(Load::default()), Arc::new(Log::default()));
        load.suffer(setup.effect);
        let mut running = Self {
            run: setup.run,
            load: load.clone(),
            log: log.clone(),
            echo: None,
            ports: Vec::new(),
            declared: declared_ports(setup.pod),
            address: setup.address,
            exited: Arc::default(),
            when_asked: if setup.program == Program::Echo { 0 } else { TERMINATED },
            quiet: watch::Sender::new(false),
            doors: Tasks::default(),
            serving: Tasks::default(),
            life: Tasks::default(),
            probes: Tasks::default(),
        };
        let (notes, code) = (setup.notes.clone(), running.exited.clone());
        let exited = Exited { notes, code, which: setup.which, run: setup.run };
        match &setup.program {
            Program::Echo => {
                running.ports = ports(setup.spec, setup.which == Which::Main(0), &running.declared);
                let gate = setup.context.gate.clone();
                let (identity, journal) = (setup.identity.clone(), log.clone());
                let life = running.life.clone();
                load.rate_at(capacity(setup.spec));
                running.echo = Some(Arc::new(Echo { identity, load, journal, gate, life }));
                if let Err(error) = running.open(setup.context).await {
                    // What did open must not stay.
                    running.kill().await;
                    return Err(error);
                }
            }
            Program::Script(steps) => {
                let script = script(steps.clone(), log, exited);
                running.serving.spawn_until_stop(script);
            }
            Program::Local(program) => {
                let child = local::spawn(program, setup.pod, setup.spec, &setup.identity, setup.address)?;
                let (stop, life) = (running.serving.stopping(), running.life.stopping());
                running.serving.spawn(local::mind(child, log, stop, life, exited));
            }
        }
        running.watch_over(&setup);
        Ok(running)
    }

    /// Opens the listeners, if there are any, unless it was asked to stop.
    pub(super) async fn open(&self, context: &Context) -> Result<(), String> {
        if self.probes.stopped() {
            return Ok(());
        }
        let result = self.open_all(context).await;
        self.quiet.send_replace(false);
        result
    }

    async fn open_all(&self, context: &Context) -> Result<(), String> {
        let Some(echo) = &self.echo else { return Ok(()) };
        let mut opened = Vec::new();
        for port in &self.ports {
            let wanted = |other: u16| self.declared.contains(&other);
            let at = listen::place(SocketAddr::from((self.address, port.number)), wanted);
            if opened.contains(&(at, port.protocol)) {
                // A low port that moved to where another is: one listener is enough for both.
                continue;
            }
            opened.push((at, port.protocol));
            match self.open_port_patiently(context, echo, at, port.protocol).await {
                Err(error) if !port.optional => return Err(format!("cannot listen on {at}: {error}")),
                Err(_) | Ok(()) => {}
            }
        }
        Ok(())
    }

    /// A process that is just being started holds what we closed a moment ago, until it runs its program.
    async fn open_port_patiently(
        &self,
        context: &Context,
        echo: &Arc<Echo>,
        at: SocketAddr,
        protocol: Protocol,
    ) -> std::io::Result<()> {
        for _ in 0..BIND_TRIES {
            match self.open_port(context, echo, at, protocol) {
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    tokio::time::sleep(BIND_PAUSE).await;
                }
                result => return result,
            }
        }
        self.open_port(context, echo, at, protocol)
    }

    fn open_port(
        &self,
        context: &Context,
        echo: &Arc<Echo>,
        at: SocketAddr,
        protocol: Protocol,
    ) -> std::io::Result<()> {
        let (echo, serving) = (echo.clone(), self.serving.clone());
        match protocol {
            Protocol::Http => self.doors.spawn(echo::run_http(echo, listen::tcp(at)?, None, serving)),
            Protocol::Https => {
                let tls = context.config.tls.clone();
                self.doors.spawn(echo::run_http(echo, listen::tcp(at)?, tls, serving));
            }
            Protocol::Tcp => self.doors.spawn(echo::run_tcp(echo, listen::tcp(at)?, serving)),
            Protocol::Udp => self.doors.spawn(echo::run_udp(echo, listen::udp(at)?, serving)),
        }
        Ok(())
    }

    /// Closes listeners and connections as if the wire were cut; the program knows nothing of it.
    pub(super) async fn cut(&mut self) {
        self.quiet.send_replace(true);
        if let Some(echo) = self.echo.take() {
            self.serving.stop();
            self.life.stop();
            self.doors.join().await;
            (self.doors, self.serving, self.life) = (Tasks::default(), Tasks::default(), Tasks::default());
            let Echo { identity, load, journal, gate, .. } = &*echo;
            self.echo = Some(Arc::new(Echo {
                identity: identity.clone(),
                load: load.clone(),
                journal: journal.clone(),
                gate: gate.clone(),
                life: self.life.clone(),
            }));
        }
    }

    /// Asks it to stop, as SIGTERM does.
    pub(super) fn terminate(&self) {
        self.load.leave();
        self.probes.stop();
        self.serving.stop();
    }

    /// Waits until everything that was asked to stop has.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + use<> {
        let (doors, serving) = (self.doors.clone(), self.serving.clone());
        async move {
            doors.join().await;
            serving.join().await;
        }
    }

    /// What it exits with: what it said, else what follows from stopping `in_time` when asked, or not.
    pub(super) fn code(&self, in_time: bool) -> i32 {
        let asked = if in_time { self.when_asked } else { local::KILLED };
        self.exited.get().copied().unwrap_or(asked)
    }

    /// Pulls the plug. Its ports are free when this returns.
    pub(super) async fn kill(&self) {
        self.terminate();
        self.life.stop();
        self.log.close();
        self.doors.join().await;
    }

    /// Starts its probes.
    fn watch_over(&self, setup: &Setup<'_>) {
        let probes: Vec<(Purpose, Probe)> = PURPOSES
            .into_iter()
            .filter_map(|purpose| Some((purpose, Probe::parse(setup.spec, purpose, setup.address)?)))
            .collect();
        if probes.is_empty() {
            return;
        }
        let (which, run, notes) = (setup.which, setup.run, setup.notes.clone());
        let (gate, pod) = (setup.context.gate.clone(), setup.pod.clone());
        let calm = Calm::new(&gate, setup.identity.node.clone(), self.quiet.subscribe());
        let exec_fails = move || gate.now().effect(&pod) == Effect::Unhealthy;
        self.probes.spawn_until_stop(async move {
            let (startup, others): (Vec<_>, Vec<_>) =
                probes.into_iter().partition(|(purpose, _)| *purpose == Purpose::Startup);
            let tell = |purpose, result, verdict| {
                let note = Note { which, run, what: What::Probed { purpose, result, verdict } };
                let notes = notes.clone();
                async move {
                    let _ = notes.send(note).await;
                }
            };
            for (purpose, probe) in startup {
                watch((purpose, &probe), calm.clone(), &exec_fails, &tell, true).await;
            }
            let all = others
                .iter()
                .map(|(purpose, probe)| watch((*purpose, probe), calm.clone(), &exec_fails, &tell, false));
            futures::future::join_all(all).await;
        });
    }
}

/// Asks again and again and tells of failures and changed verdicts; with `once`, until the first success.
async fn watch<T: Future<Output = ()>>(
    (purpose, probe): (Purpose, &Probe),
    mut calm: Calm,
    exec_fails: &(impl Fn() -> bool + Sync),
    tell: &impl Fn(Purpose, Result<(), String>, Option<bool>) -> T,
    once: bool,
) {
    tokio::time::sleep(probe.initial_delay).await;
    let mut ticks = tokio::time::interval(probe.period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut counter, mut told) = (Counter::default(), None);
    loop {
        ticks.tick().await;
        calm.begin().await;
        let result = probe::once(probe, exec_fails()).await;
        if !calm.lasted() {
            // It says nothing about the container, and nothing before it counts any more.
            counter = Counter::default();
            continue;
        }
        let verdict = counter.step(probe, result.is_ok());
        let news = result.is_err() || verdict.is_some() && verdict != told;
        told = verdict.or(told);
        if news {
            tell(purpose, result, verdict).await;
        }
        if once && verdict == Some(true) {
            return;
        }
    }
}

/// Whether a node is there, so that asking its containers makes sense.
#[derive(Clone)]
struct Calm {
    node: String,
    quiet: watch::Receiver<bool>,
    faults: watch::Receiver<Arc<Faults>>,
}

impl Calm {
    fn new(gate: &Gate, node: String, quiet: watch::Receiver<bool>) -> Self {
        Self { node, quiet, faults: gate.subscribe() }
    }

    /// Waits until the node is there and its wires are mended.
    async fn begin(&mut self) {
        // Errors mean that the container is gone, and who asks with it.
        let _ = self.faults.wait_for(|faults| !faults.node_lost(&self.node)).await;
        let _ = self.quiet.wait_for(|quiet| !quiet).await;
        self.quiet.mark_unchanged();
    }

    /// Whether nothing has come between since then.
    fn lasted(&self) -> bool {
        !self.faults.borrow().node_lost(&self.node) && matches!(self.quiet.has_changed(), Ok(false))
    }
}

/// Tells the agent that a run ended.
pub(super) struct Exited {
    notes: mpsc::Sender<Note>,
    /// For when it is being asked to stop, and nobody listens to notes.
    code: Arc<OnceLock<i32>>,
    which: Which,
    run: u64,
}

impl Exited {
    pub(super) async fn tell(self, code: i32, message: String) {
        let _ = self.code.set(code);
        let note = Note { which: self.which, run: self.run, what: What::Exited { code, message } };
        // An agent that is gone does not need to know.
        let _ = self.notes.send(note).await;
    }
}

/// The longest that is slept at once; timers have their limits too.
const SLEEP_MAX: Duration = Duration::from_secs(365 * 86400);

async fn script(steps: Vec<Step>, log: Arc<Log>, exited: Exited) {
    for step in steps {
        match step {
            Step::Sleep(time) => tokio::time::sleep(time.unwrap_or(SLEEP_MAX).min(SLEEP_MAX)).await,
            Step::Print(text) => log.line(&text),
            Step::Exit(code) => return exited.tell(code, String::new()).await,
        }
    }
    exited.tell(0, String::new()).await;
}

/// All ports that containers of a pod declare.
fn declared_ports(pod: &Value) -> Vec<u16> {
    let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array());
    let ports = lists.into_iter().flatten().flatten().filter_map(|container| container["ports"].as_array());
    ports.flatten().filter_map(|port| port["containerPort"].as_u64()?.try_into().ok()).collect()
}

/// The ports of a container: those it declares, else the usual ones if it is the `first` of its pod and nobody else
/// in the pod asks for them.
/// How many requests a second the echo program shall say are all that it can do; 0 where nothing is said.
fn capacity(spec: &Value) -> u32 {
    let said = spec["env"].as_array().into_iter().flatten().find(|one| one["name"] == echo::CAPACITY);
    said.and_then(|one| one["value"].as_str()?.parse().ok()).unwrap_or(0)
}

fn ports(spec: &Value, first: bool, others: &[u16]) -> Vec<Port> {
    let declared: Vec<Port> = spec["ports"].as_array().into_iter().flatten().filter_map(declared).collect();
    if !declared.is_empty() || !first {
        return declared;
    }
    let usual = USUAL_PORTS.into_iter().filter(|number| !others.contains(number));
    usual.map(|number| Port { number, protocol: Protocol::Http, optional: true }).collect()
}

fn declared(port: &Value) -> Option<Port> {
    let number = port["containerPort"].as_u64()?.try_into().ok()?;
    let name = port["name"].as_str().unwrap_or("");
    let protocol = match port["protocol"].as_str() {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => return None,
        _ if name.starts_with("tcp") => Protocol::Tcp,
        _ if name.starts_with("https") || matches!(number, 443 | 8443) => Protocol::Https,
        _ => Protocol::Http,
    };
    Some(Port { number, protocol, optional: false })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_listened_on() {
        let check = |list: Value, first: bool, want: &[(u16, Protocol)]| {
            let spec = json!({"ports": list});
            let found: Vec<_> =
                ports(&spec, first, &[9090, 80]).iter().map(|p| (p.number, p.protocol)).collect();
            assert_eq!(found, want, "{spec}");
        };
        check(json!([]), true, &[(8080, Protocol::Http)]);
        check(json!([]), false, &[]);
        check(json!([{"containerPort": 9000}]), true, &[(9000, Protocol::Http)]);
        check(json!([{"containerPort": 53, "protocol": "UDP"}]), true, &[(53, Protocol::Udp)]);
        check(json!([{"containerPort": 9, "name": "tcp-raw"}]), true, &[(9, Protocol::Tcp)]);
        check(json!([{"containerPort": 8443}]), true, &[(8443, Protocol::Https)]);
        check(json!([{"containerPort": 1, "protocol": "SCTP"}, {"containerPort": 70000}]), false, &[]);
    }
}
