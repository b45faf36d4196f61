//! TCP (RFC 7766): many questions on one connection, answered in their order; limits on connections, on time, and on each
//! client's share, so that slow ones do not keep others out.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::answer::{Client, Done, respond};
use crate::state::Shared;
use crate::wire::name::Name;
use crate::{signed, transfer};

/// How long one message may take to arrive, and its answer to be taken.
const MESSAGE: Duration = Duration::from_secs(5);
/// How many connections there may be.
const CONNECTIONS_MAX: usize = 1024;
/// How many of them one client may have.
const CLIENT_MAX: usize = 32;
/// How many questions one connection may ask.
const QUESTIONS_MAX: usize = 100_000;

/// Connections by client.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<HashMap<IpAddr, usize>>);

/// One connection, counted as long as it lives.
struct Counted<'a>(&'a Connections, IpAddr);

impl Connections {
    /// Counts a connection in; none if there are too many.
    fn enter(&self, client: IpAddr) -> Option<Counted<'_>> {
        let mut all = self.0.lock();
        let total: usize = all.values().sum();
        let own = all.get(&client).copied().unwrap_or(0);
        if total >= CONNECTIONS_MAX || own >= CLIENT_MAX {
            return None;
        }
        all.insert(client, own + 1);
        Some(Counted(self, client))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut all = self.0.0.lock();
        if let Some(count) = all.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}

/// Takes connections until the server stops; `inside` says that only clients inside our own member come in here.
pub(crate) async fn run(shared: Arc<Shared>, listener: TcpListener, inside: bool, tasks: Tasks) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let shared = shared.clone();
                tasks.spawn_until_stop(async move { serve(&shared, stream, peer, inside).await });
            }
            // Out of descriptors, most likely: others must end first.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn serve(shared: &Shared, mut stream: TcpStream, peer: SocketAddr, inside: bool) {
    let client = peer.ip().to_canonical();
    let Some(_counted) = shared.connections.enter(client) else {
        shared.metrics.tcp_refused.inc();
        return;
    };
    shared.metrics.tcp.inc();
    // A connection that cannot be made quick still works.
    let _ = stream.set_nodelay(true);
    let mut packet = Vec::new();
    let mut out = Vec::new();
    for _ in 0..QUESTIONS_MAX {
        if message(&mut stream, &mut packet, shared.tcp_idle).await.is_none() {
            return;
        }
        let sent = match answer(shared, client, inside, &packet, &mut out) {
            Next::Reply => timeout(MESSAGE, stream.write_all(&out)).await.is_ok_and(|result| result.is_ok()),
            Next::Transfer => transfer::run(shared, client, &packet, &mut stream).await.is_some(),
            Next::Close => false,
        };
        if !sent {
            return;
        }
    }
}

/// Reads one message; none when the client is gone, too slow, or says nothing more.
async fn message(stream: &mut TcpStream, packet: &mut Vec<u8>, idle: Duration) -> Option<()> {
    let mut length = [0; 2];
    timeout(idle, stream.read_exact(&mut length)).await.ok()?.ok()?;
    packet.resize(usize::from(u16::from_be_bytes(length)), 0);
    timeout(MESSAGE, stream.read_exact(packet)).await.ok()?.ok()?;
    Some(())
}

/// What follows a message.
pub(crate) enum Next {
    /// The reply is ready, with its length before it.
    Reply,
    /// A zone is to be sent.
    Transfer,
    /// There is nothing to say to that.
    Close,
}

/// Answers one message.
pub(crate) fn answer(
    shared: &Shared,
    address: IpAddr,
    inside: bool,
    packet: &[u8],
    out: &mut Vec<u8>,
) -> Next {
    shared.metrics.queries_tcp.inc();
    let now = clock::since_epoch();
    #[expect(clippy::cast_possible_truncation, reason = "serial arithmetic is made for it")]
    let now_s = now.as_secs() as u32;
    let client = Client { address, inside, tcp: true, now_s, luck: u64::from(now.subsec_nanos()) };
    out.resize(2 + usize::from(u16::MAX), 0);
    let Some((prefix, room)) = out.split_first_chunk_mut::<2>() else { return Next::Close };
    let snapshot = shared.snapshot.load();
    let length = match respond(&snapshot, &shared.manner, client, packet, &mut Name::root(), room) {
        Done::Silence => return Next::Close,
        Done::Transfer => return Next::Transfer,
        Done::Reply { length, sort, .. } => {
            shared.metrics.count_one(sort);
            length
        }
        Done::Signed if transfer::is_transfer(packet) => return Next::Transfer,
        Done::Signed => match signed::answer(shared, &snapshot, client, packet, room) {
            Some(length) => length,
            None => return Next::Close,
        },
    };
    *prefix = u16::try_from(length).unwrap_or(0).to_be_bytes();
    out.truncate(2 + length);
    Next::Reply
}
