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
mod doors;
mod plan;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_apiserver::api::Api;
use landfall_runtime::tasks::Tasks;
#[cfg(test)]
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::agent::objects::{Change, Client};
use crate::controllers::action::Note;
use crate::controllers::events::{Recorder, Source};
use crate::gate::{Faults, Gate};
use crate::listen;
use crate::luck::Luck;
use choose::Chooser;
use doors::Doors;
use plan::{Door, Protocol, Target};
use tcp::Shared;

/// Connections of one member at once. Each has two files open, and a process may often open no more than some ten thousand: what a member
/// that has fallen silent holds must leave some for the others.
const CONNECTIONS_MAX: usize = 4_096;

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
    let mut open: BTreeMap<Door, Open> = BTreeMap::new();
    let mut wanted = Doors::default();
    let mut failed = false;
    let mut recorder = Recorder::new(EVENTS_KEPT_MAX);
    loop {
        let touched: BTreeSet<Door> = tokio::select! {
            changes = follow.next() => {
                let Some(changes) = changes else { return };
                let each = changes.into_iter();
                each.flat_map(|Change { key, object }| wanted.change(&key, object, &config.nodes)).collect()
            }
            _ = faults.changed() => wanted.all().collect(),
            () = tokio::time::sleep(RETRY), if failed => wanted.all().collect(),
        };
        let now = faults.borrow_and_update().clone();
        let settled = settle(&shared, &mut open, &wanted, &touched, &now, &config);
        // One that could not be opened may be among those that nobody touched now.
        failed = settled.failed || failed && touched.len() < wanted.len();
        for moved in settled.moved {
            tell_moved(&client, &mut recorder, &wanted, moved, &config.luck).await;
        }
    }
}

/// What came of opening doors.
#[derive(Default)]
struct Settled {
    /// One could not be opened.
    failed: bool,
    /// Services whose load balancer listens at a higher port than it should, and the words about it.
    moved: Vec<(String, String)>,
}

/// Opens, changes and closes the doors that something touched.
fn settle(
    shared: &Shared,
    open: &mut BTreeMap<Door, Open>,
    wanted: &Doors,
    touched: &BTreeSet<Door>,
    faults: &Faults,
    config: &Config,
) -> Settled {
    for door in touched {
        let Some(there) = open.get(door) else { continue };
        let target = wanted.get(*door);
        let gone = target.is_some_and(|target| lost(*door, target, faults, config));
        // Somebody may ask for the very port that a low one had moved to.
        let moved = place(*door, wanted) != there.at;
        if gone || moved || target.is_none_or(|target| target.endpoints.is_empty()) {
            there.door.stop();
            if gone {
                there.life.stop();
            }
            open.remove(door);
        }
    }
    let mut settled = Settled::default();
    for door in touched {
        let Some(target) = wanted.get(*door) else { continue };
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
fn place(door: Door, wanted: &Doors) -> SocketAddr {
    listen::place(door.at, |port| {
        let at = SocketAddr::new(door.at.ip(), port);
        [Protocol::Tcp, Protocol::Udp]
            .iter()
            .any(|protocol| wanted.get(Door { at, protocol: *protocol }).is_some())
    })
}

/// Says at a Service where its load balancer listens.
async fn tell_moved(
    client: &Client,
    recorder: &mut Recorder,
    wanted: &Doors,
    (service, why): (String, String),
    luck: &Luck,
) {
    let Some(object) = wanted.service(&service) else { return };
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
