//! The way from the hub to a member's API: an address of its own, which can fall silent while users, who stand outside,
//! still reach the API itself.
//!
//! It passes bytes on and nothing else: TLS is between the hub and the API server. While the two are cut from each other,
//! connections stand still, new ones before anything else happens; the system completes their TCP handshake all the
//! same, as dropping packets is for root alone. While the API is down, connections are refused as they are there.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::gate::{Faults, Gate, Gated, Origin, Passage};
use crate::listen;

/// Connections of one member at once; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 1_024;

/// How long to wait before accepting again when the system has no more file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The backbone address of one member.
pub(super) struct Backbone {
    at: SocketAddr,
    api: SocketAddr,
    gate: Gate,
    /// What listens and what is connected; none while it is shut.
    open: Mutex<Option<Tasks>>,
}

impl Backbone {
    /// Listens there and leads to the API.
    pub(super) fn open(at: SocketAddr, api: SocketAddr, gate: Gate) -> io::Result<Self> {
        let this = Self { at, api, gate, open: Mutex::default() };
        this.listen()?;
        Ok(this)
    }

    /// Opens or shuts as the faults say; those of the API are seen here too.
    pub(super) async fn follow(&self) -> io::Result<()> {
        if answers(&self.gate.now()) {
            return self.listen();
        }
        self.shut().await;
        Ok(())
    }

    /// Refuses new connections and ends the others.
    pub(super) async fn shut(&self) {
        let open = self.open.lock().take();
        if let Some(tasks) = open {
            tasks.join().await;
        }
    }

    fn listen(&self) -> io::Result<()> {
        let mut open = self.open.lock();
        if open.is_none() {
            let (tasks, listener) = (Tasks::default(), listen::tcp(self.at)?);
            tasks.spawn_until_stop(accept(listener, self.api, self.gate.clone(), tasks.clone()));
            *open = Some(tasks);
        }
        Ok(())
    }
}

/// Whoever is cut off cannot even see that the API is down.
fn answers(faults: &Faults) -> bool {
    !faults.api_down() || !faults.dead && faults.cut.contains(&Origin::Hub)
}

async fn accept(listener: TcpListener, api: SocketAddr, gate: Gate, tasks: Tasks) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let gate = gate.clone();
                tasks.spawn_until_stop(async move {
                    connection(stream, Origin::on_backbone(peer.ip()), api, &gate).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection from the hub");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(client: TcpStream, from: Origin, api: SocketAddr, gate: &Gate) {
    gate.until(|faults| faults.passage(from) != Passage::Blackhole).await;
    let Ok(mut upstream) = TcpStream::connect(api).await else {
        // As if it had come to the API itself.
        let _ = client.set_zero_linger();
        return;
    };
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let mut client = Gated::new(client, from, gate);
    if tokio::io::copy_bidirectional(&mut client, &mut upstream).await.is_err() {
        client.reset_on_drop();
        let _ = upstream.set_zero_linger();
    }
}
