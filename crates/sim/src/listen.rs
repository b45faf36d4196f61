//! Listening on loopback, without root and with many files open.

use std::io;
use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// How many open files are enough for everything.
const FILES_ENOUGH: u64 = 1 << 20;

/// Listens at an address, which may have been used a moment ago.
pub fn tcp(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// A datagram socket at an address.
pub fn udp(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// Allows this process as many open files as the system lets it have; how many that is.
pub fn raise_open_files() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.unwrap_or(FILES_ENOUGH).min(FILES_ENOUGH);
    let limit = Rlimit { current: Some(wanted), maximum: now.maximum };
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => wanted,
        Err(_) => now.current.unwrap_or(FILES_ENOUGH),
    }
}
