//! Listening on loopback, with many files open and without root.
//!
//! Where low ports are for root alone, whoever of a simulated member should listen on port 80 listens on 8080, and so
//! on for every low port. Where 8080 is asked for as well, it belongs to who asked for it, and 80 is at 18080.
//! [`place`] decides for those who listen; [`real`] tells those who connect.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{LazyLock, OnceLock};

use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Ports below are for root alone, unless the system says otherwise.
const LOW_PORTS_END: u16 = 1024;

/// How much higher low ports are when they cannot be had: the first that nobody else wants.
const MOVED_BY: [u16; 6] = [8000, 18_000, 28_000, 38_000, 48_000, 58_000];

/// Low ports that are not where they usually are, which only who listens there knows. It belongs to the process, as
/// the addresses do. An entry that is left behind does no harm: whoever listens there next decides anew.
static ELSEWHERE: LazyLock<RwLock<HashMap<SocketAddr, u16>>> = LazyLock::new(RwLock::default);

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

/// Decides where to listen for an address of a simulated member: there, or at a higher port that is not `wanted` at
/// the same address. From then on [`real`] says so.
pub fn place(at: SocketAddr, wanted: impl Fn(u16) -> bool) -> SocketAddr {
    let usual = moved(at.port(), low_ports_are_ours(), |_| false);
    let port = moved(at.port(), low_ports_are_ours(), wanted);
    if port != usual {
        ELSEWHERE.write().insert(at, port);
    } else if port != at.port() && ELSEWHERE.read().contains_key(&at) {
        ELSEWHERE.write().remove(&at);
    }
    SocketAddr::new(at.ip(), port)
}

/// Where an address of a simulated member really is: there, or at a higher port.
pub fn real(at: SocketAddr) -> SocketAddr {
    let usual = moved(at.port(), low_ports_are_ours(), |_| false);
    if usual == at.port() {
        return at;
    }
    SocketAddr::new(at.ip(), ELSEWHERE.read().get(&at).copied().unwrap_or(usual))
}

fn moved(port: u16, low_ports_are_ours: bool, wanted: impl Fn(u16) -> bool) -> u16 {
    if low_ports_are_ours || !(1..LOW_PORTS_END).contains(&port) {
        return port;
    }
    let mut free = MOVED_BY.iter().map(|by| port + by).filter(|port| !wanted(*port));
    free.next().unwrap_or(port + MOVED_BY[0])
}

/// Whether this process may listen on low ports; tried once.
fn low_ports_are_ours() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    *OURS.get_or_init(|| {
        let tried = std::net::TcpListener::bind(TRIAL);
        !tried.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ports_move_where_they_must() {
        for (port, ours, others, want) in [
            (80, true, &[8080_u16][..], 80),
            (80, false, &[], 8080),
            (443, false, &[80], 8443),
            (80, false, &[8080], 18080),
            (80, false, &[8080, 18080], 28080),
            (1024, false, &[1024], 1024),
            (1023, false, &[9023, 19023, 29023, 39023, 49023], 59023),
            (0, false, &[], 0),
            (8080, false, &[8080], 8080),
        ] {
            assert_eq!(moved(port, ours, |port| others.contains(&port)), want, "{port} beside {others:?}");
        }
    }

    /// As root nothing moves; without it, what connects follows what listens, there and back.
    #[test]
    fn who_connects_finds_who_listens() {
        let at: SocketAddr = "127.255.255.253:80".parse().unwrap();
        for others in [&[8080][..], &[8080, 18080], &[]] {
            assert_eq!(real(at), place(at, |port| others.contains(&port)), "{others:?}");
        }
        assert_eq!(real("127.255.255.253:8080".parse().unwrap()).port(), 8080);
    }
}
