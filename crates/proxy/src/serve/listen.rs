//! Sockets that clients come to. Each thread has one of its own for every address, and the kernel spreads clients over them; a
//! second process may listen beside the first, so that one can take over from the other.

use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::config::{Config, StartError};
use crate::handover::spread;

/// Clients that wait to be taken in.
const BACKLOG: i32 = 4096;

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// HTTP.
    Plain,
    /// HTTPS, and TLS that is passed on unopened.
    Tls,
    /// What edges say to each other.
    Peer,
}

/// A thread's listeners.
pub(crate) type Bound = Vec<(Entrance, TcpListener)>;

/// Takes all addresses, for each thread, and tells which they are. Nobody can come there before [`listen`].
pub(crate) fn bind(config: &Config) -> Result<(Vec<Bound>, Vec<SocketAddr>), StartError> {
    let mut threads: Vec<Bound> = (0..config.cores()).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    let plain = config.http.iter().map(|address| (Entrance::Plain, *address));
    let tls = config.https.iter().map(|address| (Entrance::Tls, *address));
    let peer = config.peer.iter().map(|address| (Entrance::Peer, *address));
    for (entrance, mut address) in plain.chain(tls).chain(peer) {
        for thread in &mut threads {
            let failed = |source| StartError::Listen { address, source };
            let listener = take(address).map_err(failed)?;
            // Where port 0 was asked for, all get the one that the first got.
            address = listener.local_addr().map_err(failed)?;
            thread.push((entrance, listener));
        }
        addresses.push(address);
    }
    Ok((threads, addresses))
}

/// Other handles to all of these.
pub(crate) fn handles(threads: &[Bound]) -> Result<Vec<TcpListener>, StartError> {
    let all = threads.iter().flatten().map(|(_, listener)| listener.try_clone());
    all.collect::<std::io::Result<_>>().map_err(StartError::Thread)
}

/// Lets clients come.
pub(crate) fn listen(listener: &TcpListener) -> std::io::Result<()> {
    SockRef::from(listener).listen(BACKLOG)?;
    spread(listener);
    Ok(())
}

fn take(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // Its own: `::` and `0.0.0.0` can then both be listened on.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
