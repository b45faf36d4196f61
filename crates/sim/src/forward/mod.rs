//! The forwarder of one member: what kube-proxy and a load balancer do, in user space.
//!
//! ```text
//!   Services, EndpointSlices ──► plan (pure: doors and where they lead) ──► doors opened, changed, closed
//!   client ──► door (clusterIP, load balancer, node port) ──► choose ──► tcp │ udp ──► pod
//! ```
//!
//! A door without an endpoint is closed, so that clients are refused. Changing one Service touches no connection of
//! another. A connection lives as long as its two ends, not as long as its endpoint is listed.

mod choose;
mod plan;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_apiserver::api::Api;
use landfall_runtime::tasks::Tasks;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::agent::objects::{Change, Client};
use crate::controllers::action::Note;
use crate::controllers::events::{Recorder, Source};
use crate::gate::{Faults, Gate};
use crate::listen;
use crate::luck::Luck;
use choose::Chooser;
use plan::{Door, Protocol, Target};
use tcp::Shared;

/// Connections of one member at once.
const CONNECTIONS_MAX: usize = 16_384;

/// How many different events are remembered for counting.
const EVENTS_KEPT_MAX: usize = 64;

/// When opening a door that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// What the forwarder of a member is given.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Names and addresses of nodes, for node ports.
    pub nodes: Vec<(String, Ipv4Addr)>,
    /// What names of events are made from.
    pub luck: Arc<Luck>,
}

/// The running forwarder of a member.
pub struct Forwarder {
    tasks: Tasks,
}

/// Starts forwarding for the Services of a member.
pub fn start(api: &Arc<Api>, gate: Gate, config: Config) -> Forwarder {
    let tasks = Tasks::default();
    let client = Client::new(api.clone(), gate.clone());
    let shared = Shared { gate, room: Arc::new(Semaphore::new(CONNECTIONS_MAX)), tasks: tasks.clone() };
    tasks.spawn_until_stop(run(client, shared, config));
    Forwarder { tasks }
}

impl Forwarder {
    /// Closes every door and every connection.
    pub async fn stop(&self) {
        self.tasks.join().await;
    }
}

/// A door that is open.
struct Open {
    /// Where it really is.
    at: SocketAddr,
    chooser: Arc<Chooser>,
    /// Stopping it closes the door; connections go on.
    door: Tasks,
    /// Stopping it ends the connections too.
    life: Tasks,
}

/// Follows Services and EndpointSlices and keeps the doors as they should be.
async fn run(client: Client, shared: Shared, config: Config) {
    let mut follow = client.follow(&[("", "services"), ("discovery.k8s.io", "endpointslices")]);
    let mut faults = shared.gate.subscribe();
    let mut objects: BTreeMap<Arc<str>, Arc<Value>> = BTreeMap::new();
    let mut open: BTreeMap<Door, Open> = BTreeMap::new();
    let mut wanted = BTreeMap::new();
    let mut failed = false;
    let mut recorder = Recorder::new(EVENTS_KEPT_MAX);
    loop {
        tokio::select! {
            changes = follow.next() => {
                let Some(changes) = changes else { return };
                changes.into_iter().for_each(|change| remember(&mut objects, change));
                let of = |prefix: &'static str| {
                    objects.iter().filter(move |(key, _)| key.starts_with(prefix)).map(|(_, object)| object)
                };
                wanted = plan::plan(of("core/services/"), of("discovery.k8s.io/endpointslices/"), &config.nodes);
            }
            _ = faults.changed() => {}
            () = tokio::time::sleep(RETRY), if failed => {}
        }
        let now = faults.borrow_and_update().clone();
        let settled = settle(&shared, &mut open, &wanted, &now, &config);
        failed = settled.failed;
        for moved in settled.moved {
            tell_moved(&client, &mut recorder, &objects, moved, &config.luck).await;
        }
    }
}

fn remember(objects: &mut BTreeMap<Arc<str>, Arc<Value>>, Change { key, object }: Change) {
    match object {
        Some(object) => objects.insert(key, object),
        None => objects.remove(&key),
    };
}

/// What came of opening doors.
#[derive(Default)]
struct Settled {
    /// One could not be opened.
    failed: bool,
    /// Services whose load balancer listens at a higher port than it should, and the words about it.
    moved: Vec<(String, String)>,
}

/// Opens, changes and closes doors.
fn settle(
    shared: &Shared,
    open: &mut BTreeMap<Door, Open>,
    wanted: &BTreeMap<Door, Target>,
    faults: &Faults,
    config: &Config,
) -> Settled {
    open.retain(|door, open| {
        let target = wanted.get(door);
        if target.is_none_or(|target| target.endpoints.is_empty()) {
            open.door.stop();
            return false;
        }
        if target.is_some_and(|target| lost(*door, target, faults, config)) {
            open.door.stop();
            open.life.stop();
            return false;
        }
        // Somebody asks for the very port that a low one had moved to.
        if place(*door, wanted) != open.at {
            open.door.stop();
            return false;
        }
        true
    });
    let mut settled = Settled::default();
    for (door, target) in wanted {
        if target.endpoints.is_empty() || lost(*door, target, faults, config) {
            continue;
        }
        if let Some(open) = open.get(door) {
            open.chooser.set(target.clone());
            continue;
        }
        match open_door(shared, *door, place(*door, wanted), target) {
            Ok(opened) => {
                let real = opened.at;
                if target.balancer && real != door.at {
                    let port = door.at.port();
                    let why = format!("port {port} is for root on this machine: {real} leads here instead");
                    settled.moved.push((target.service.clone(), why));
                }
                open.insert(*door, opened);
            }
            Err(error) => {
                tracing::warn!(service = target.service, at = %door.at, %error, "cannot listen for a service");
                settled.failed = true;
            }
        }
    }
    settled
}

/// Where a door really is: a low port may have to move, but not to where another door of its address is.
fn place(door: Door, wanted: &BTreeMap<Door, Target>) -> SocketAddr {
    listen::place(door.at, |port| {
        let at = SocketAddr::new(door.at.ip(), port);
        [Protocol::Tcp, Protocol::Udp]
            .iter()
            .any(|protocol| wanted.contains_key(&Door { at, protocol: *protocol }))
    })
}

/// Says at a Service where its load balancer listens.
async fn tell_moved(
    client: &Client,
    recorder: &mut Recorder,
    objects: &BTreeMap<Arc<str>, Arc<Value>>,
    (service, why): (String, String),
    luck: &Luck,
) {
    let Some(object) = objects.get(format!("core/services/{service}").as_str()) else { return };
    let Ok(api) = client.reachable() else { return };
    let source = Source { component: "service-controller", host: "" };
    recorder.tell(api, &Note::warning(object, "PortMoved", why), source, luck).await;
}

/// Whether a fault has taken the address of a door away.
fn lost(door: Door, target: &Target, faults: &Faults, config: &Config) -> bool {
    let IpAddr::V4(address) = door.at.ip() else { return faults.dead };
    let node = config.nodes.iter().find(|(_, node)| *node == address);
    faults.dead
        || target.balancer && faults.address_lost(address)
        || node.is_some_and(|(name, _)| faults.node_lost(name))
}

fn open_door(shared: &Shared, door: Door, at: SocketAddr, target: &Target) -> std::io::Result<Open> {
    let chooser = Arc::new(Chooser::new(target.clone()));
    let (tasks, life) = (Tasks::default(), Tasks::default());
    let closed = tasks.stopping();
    match door.protocol {
        Protocol::Tcp => {
            let listener = listen::tcp(at)?;
            shared.tasks.spawn_until_stop(tcp::run(
                shared.clone(),
                listener,
                chooser.clone(),
                closed,
                life.clone(),
            ));
        }
        Protocol::Udp => {
            let socket = listen::udp(at)?;
            shared.tasks.spawn_until_stop(udp::run(
                shared.clone(),
                socket,
                chooser.clone(),
                closed,
                life.clone(),
            ));
        }
    }
    Ok(Open { at, chooser, door: tasks, life })
}

/// Plans for objects that may make no sense.
#[cfg(test)]
pub(crate) fn hostile_plan(services: &[Arc<Value>], slices: &[Arc<Value>]) {
    let _ = plan::plan(services, slices, &[("n".into(), Ipv4Addr::LOCALHOST)]);
}
