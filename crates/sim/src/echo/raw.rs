//! TCP and UDP: every byte comes back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use landfall_runtime::tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::Echo;
use super::serve::accept;
use crate::gate::{Gated, Origin, Passage};

/// How long a client may be silent.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// The bytes moved at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// Datagrams of one socket that wait to be answered late; more are dropped, as networks do.
const LATE_MAX: usize = 1_024;

/// The largest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 * 1024;

/// Echoes TCP until `connections` is told to stop; open connections go on until their clients end them.
pub async fn run_tcp(echo: Arc<Echo>, listener: TcpListener, connections: Tasks) {
    let life = echo.life.clone();
    accept(listener, &connections, &life, |stream, peer| connection(echo.clone(), stream, peer)).await;
}

async fn connection(echo: Arc<Echo>, stream: TcpStream, peer: SocketAddr) {
    let Some(_slot) = echo.load.enter().await else { return };
    let mut stream = Gated::to_pod(stream, peer, &echo.gate);
    let (mut buffer, mut total) = (vec![0; BUFFER_BYTES], 0_u64);
    while let Ok(Ok(length @ 1..)) = tokio::time::timeout(IDLE_MAX, stream.read(&mut buffer)).await {
        tokio::time::sleep(echo.load.delay()).await;
        if stream.write_all(buffer.get(..length).unwrap_or_default()).await.is_err() {
            break;
        }
        total += length as u64;
    }
    let _ = stream.shutdown().await;
    echo.journal.line(&format!("{peer} \"TCP\" {total} bytes"));
}

/// Echoes UDP until `connections` is told to stop.
pub async fn run_udp(echo: Arc<Echo>, socket: UdpSocket, connections: Tasks) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let socket = &socket;
    let echoing = async {
        let mut late = FuturesUnordered::new();
        loop {
            let received = tokio::select! {
                received = socket.recv_from(&mut buffer) => received,
                Some(()) = late.next() => continue,
            };
            // Errors are those of earlier answers that found nobody.
            let Ok((length, peer)) = received else { continue };
            let from = Origin::of(peer.ip());
            let open = echo.gate.now().passage(from) == Passage::Open;
            let Some(slot) = echo.load.try_enter().filter(|_| open) else { continue };
            let (datagram, delay) =
                (buffer.get(..length).unwrap_or_default(), echo.load.delay() + echo.gate.round_trip(from));
            if delay.is_zero() {
                let _ = socket.send_to(datagram, peer).await;
            } else if late.len() < LATE_MAX {
                let datagram = datagram.to_vec();
                late.push(async move {
                    tokio::time::sleep(delay).await;
                    let _ = socket.send_to(&datagram, peer).await;
                    drop(slot);
                });
            }
        }
    };
    tokio::select! { () = echoing => {}, () = connections.stopping() => {} }
}
