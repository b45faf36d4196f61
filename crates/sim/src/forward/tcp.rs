//! Connections through a door: bytes both ways, each direction closed on its own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::choose::Chooser;
use crate::gate::{Gate, Gated, Origin, Passage, Relayed};
use crate::listen;

/// How long connecting to an endpoint may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How long to wait before accepting again when the system has no more file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What every connection of a member needs.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) gate: Gate,
    /// Connections at once, of all doors; more are refused.
    pub(super) room: Arc<Semaphore>,
    /// Runs connections, which outlive their door.
    pub(super) tasks: Tasks,
}

impl Shared {
    /// Room for one more, if there is some. Whoever is cut off from here is not even refused: it waits, and others wait behind it.
    async fn room(&self, peer: IpAddr) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.room.clone().try_acquire_owned() {
            return Some(permit);
        }
        let origin = Origin::of(peer);
        tokio::select! {
            biased;
            () = self.gate.until(|faults| faults.passage(origin) != Passage::Blackhole) => None,
            permit = self.room.clone().acquire_owned() => permit.ok(),
        }
    }
}

/// Accepts until the door is closed. Connections go on; they end when `life` does.
pub(super) async fn run(
    shared: Shared,
    listener: TcpListener,
    chooser: Arc<Chooser>,
    closed: impl Future<Output = ()>,
    life: Tasks,
) {
    let mut closed = pin!(closed);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut closed => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Only now: a door that nobody comes through takes no room.
                let permit = tokio::select! {
                    permit = shared.room(peer.ip()) => permit,
                    () = &mut closed => return,
                };
                let Some(permit) = permit else {
                    let _ = stream.set_zero_linger();
                    continue;
                };
                // Here, so that turns follow the order of arrival.
                let endpoint = chooser.choose(peer.ip(), clock::instant());
                let (gate, life) = (shared.gate.clone(), life.clone());
                shared.tasks.spawn_until_stop(async move {
                    // It keeps `life` alive: letting go of the last handle would be a stop.
                    connection(&gate, endpoint, stream, peer, life.stopping()).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to a service");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    gate: &Gate,
    endpoint: Option<SocketAddr>,
    client: TcpStream,
    peer: SocketAddr,
    dead: impl Future<Output = ()>,
) {
    let upstream = match endpoint {
        Some(endpoint) => connect(listen::real(endpoint), peer.ip(), gate).await,
        None => Err(io::ErrorKind::ConnectionRefused.into()),
    };
    let Ok((mut upstream, _relayed)) = upstream else {
        // What a client sees when the packets really went to the endpoint.
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let mut client = Gated::new(client, Origin::of(peer.ip()), gate);
    let lost = tokio::select! {
        moved = tokio::io::copy_bidirectional(&mut client, &mut upstream) => moved.is_err(),
        () = dead => true,
    };
    if lost {
        client.reset_on_drop();
        let _ = upstream.set_zero_linger();
    }
}

/// Connects to an endpoint with the client's own address, which all of loopback can have; else with any.
async fn connect(
    endpoint: SocketAddr,
    client: IpAddr,
    gate: &Gate,
) -> io::Result<(TcpStream, Option<Relayed>)> {
    let from_client = async {
        let (socket, mut relayed) = (TcpSocket::new_v4()?, None);
        if let (IpAddr::V4(client), true) = (client, endpoint.is_ipv4()) {
            // Otherwise a client could have only as many connections as there are free ports.
            socket.set_reuseaddr(true)?;
            socket.bind(SocketAddr::from((client, 0)))?;
            // Before the endpoint sees it. It is near, however far the client.
            relayed = gate.relay(socket.local_addr()?);
        }
        Ok::<_, io::Error>((socket.connect(endpoint).await?, relayed))
    };
    let connecting = async {
        match from_client.await {
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                Ok((TcpStream::connect(endpoint).await?, None))
            }
            result => result,
        }
    };
    tokio::time::timeout(CONNECT_MAX, connecting)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
