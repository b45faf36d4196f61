//! A way between two places of a simulated world: passes bytes on, as slowly as the distance and as badly as the faults say.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use landfall_runtime::tasks::Tasks;
use landfall_sim::gate::{Gate, Gated, Origin, Passage};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections of one way at once; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 256;
/// How long to wait before accepting again when the system has no more file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the far end of a way.
#[derive(Clone, Copy)]
pub(super) enum Far {
    /// The hub.
    Hub,
    /// Whoever comes in, by their address.
    Caller,
}

/// Listens at `from` and leads to `to`, through the gate of a member.
pub(super) async fn open(
    from: SocketAddr,
    to: SocketAddr,
    gate: Gate,
    far: Far,
    tasks: &Tasks,
) -> Result<()> {
    let listener = TcpListener::bind(from).await.with_context(|| format!("cannot listen on {from}"))?;
    let (room, children) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), tasks.clone());
    tasks.spawn_until_stop(async move {
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let Ok((stream, peer)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let origin = match far {
                Far::Hub => Origin::Hub,
                Far::Caller => Origin::of(peer.ip()),
            };
            let gate = gate.clone();
            children.spawn_until_stop(async move {
                pass(stream, origin, to, &gate).await;
                drop(permit);
            });
        }
    });
    Ok(())
}

async fn pass(near: TcpStream, origin: Origin, to: SocketAddr, gate: &Gate) {
    gate.until(|faults| faults.passage(origin) != Passage::Blackhole).await;
    let far = TcpStream::connect(to).await;
    let (Ok(mut far), true) = (far, gate.now().passage(origin) == Passage::Open) else {
        let _ = near.set_zero_linger();
        return;
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let mut near = Gated::new(near, origin, gate);
    if tokio::io::copy_bidirectional(&mut near, &mut far).await.is_err() {
        near.reset_on_drop();
        let _ = far.set_zero_linger();
    }
}
