//! Datagrams through a door: a flow for each client, forgotten when it falls silent.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::choose::Chooser;
use super::tcp::Shared;
use crate::gate::{Origin, Passage};
use crate::listen;

/// Flows of one door; datagrams of more clients are dropped.
const FLOWS_MAX: usize = 1_024;

/// How long a flow may be silent.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Datagrams of one flow that wait to be sent; more are dropped, as networks do.
const QUEUE_MAX: usize = 64;

/// The largest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 * 1024;

/// A datagram, and when it arrives.
type Due = (Instant, Vec<u8>);

/// Forwards until the door is closed, and its flows with it.
pub(super) async fn run(
    shared: Shared,
    socket: UdpSocket,
    chooser: Arc<Chooser>,
    closed: impl Future<Output = ()>,
    life: Tasks,
) {
    let socket = Arc::new(socket);
    let forwarding = receive(&shared, socket, &chooser, &life);
    tokio::select! { () = forwarding => {}, () = closed => {}, () = life.stopping() => {} }
    life.stop();
}

async fn receive(shared: &Shared, socket: Arc<UdpSocket>, chooser: &Chooser, life: &Tasks) {
    let mut flows: HashMap<SocketAddr, mpsc::Sender<Due>> = HashMap::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        // Errors are those of earlier answers that found nobody.
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
        let from = Origin::of(client.ip());
        if shared.gate.now().passage(from) != Passage::Open {
            continue;
        }
        let due = Instant::now() + shared.gate.round_trip(from);
        let datagram = (due, buffer.get(..length).unwrap_or_default().to_vec());
        if let Some(flow) = flows.get(&client)
            && !flow.is_closed()
        {
            let _ = flow.try_send(datagram);
            continue;
        }
        flows.retain(|_, flow| !flow.is_closed());
        let endpoint = chooser.choose(client.ip(), clock::instant());
        let Some(endpoint) = endpoint.filter(|_| flows.len() < FLOWS_MAX) else { continue };
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let _ = sender.try_send(datagram);
        flows.insert(client, sender);
        let (socket, dead) = (socket.clone(), life.stopping());
        shared.tasks.spawn_until_stop(async move {
            let flow = flow(socket, client, endpoint, receiver);
            tokio::select! { _ = flow => {}, () = dead => {} }
        });
    }
}

/// One client's datagrams, there and back, until it falls silent or the endpoint is gone.
async fn flow(
    door: Arc<UdpSocket>,
    client: SocketAddr,
    endpoint: SocketAddr,
    mut datagrams: mpsc::Receiver<Due>,
) -> std::io::Result<()> {
    let upstream = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    upstream.connect(listen::real(endpoint)).await?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut next: Option<Due> = None;
    loop {
        let due = next.as_ref().map_or_else(Instant::now, |(due, _)| *due);
        tokio::select! {
            datagram = datagrams.recv(), if next.is_none() => match datagram {
                Some(datagram) => next = Some(datagram),
                None => return Ok(()),
            },
            () = tokio::time::sleep_until(due), if next.is_some() => {
                let (_, datagram) = next.take().unwrap_or((due, Vec::new()));
                upstream.send(&datagram).await?;
            }
            length = upstream.recv(&mut buffer) => {
                let _ = door.send_to(buffer.get(..length?).unwrap_or_default(), client).await;
            }
            () = tokio::time::sleep(IDLE_MAX) => return Ok(()),
        }
    }
}
