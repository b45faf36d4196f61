//! Listening on loopback, with many files open and without root.
//!
//! Where low ports are for root alone, whoever of a simulated member should listen on port 80 listens on 8080, and so
//! on for every low port: [`real`] says where, to those who listen and to those who connect.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// How many open files are enough for everything.
const FILES_ENOUGH: u64 = 1 << 20;

/// Ports below are for root alone, unless the system says otherwise.
const LOW_PORTS_END: u16 = 1024;

/// How much higher low ports are when they cannot be had.
const MOVED_BY: u16 = 8000;

/// An address that no member has, to try a low port on.
const TRIAL: (Ipv4Addr, u16) = (Ipv4Addr::new(127, 255, 255, 254), 1);

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

/// Where an address of a simulated member really is: there, or at a higher port.
pub fn real(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip(), moved(at.port(), low_ports_are_ours()))
}

fn moved(port: u16, low_ports_are_ours: bool) -> u16 {
    if low_ports_are_ours || !(1..LOW_PORTS_END).contains(&port) { port } else { port + MOVED_BY }
}

/// Whether this process may listen on low ports; tried once.
fn low_ports_are_ours() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    *OURS.get_or_init(|| {
        let tried = std::net::TcpListener::bind(TRIAL);
        !tried.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ports_move_where_they_must() {
        for (port, ours, want) in [
            (80, true, 80),
            (80, false, 8080),
            (443, false, 8443),
            (1024, false, 1024),
            (0, false, 0),
            (8080, false, 8080),
        ] {
            assert_eq!(moved(port, ours), want, "{port}");
        }
    }
}
