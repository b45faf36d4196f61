//! Sockets as a name server needs them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use socket2::{Domain, Protocol, Socket, Type};

use super::batch;

/// How much may wait in a socket's queue: a hundredth of a second at a million packets a second.
const QUEUE_BYTES: usize = 8 << 20;
/// How many connections may wait to be taken.
const BACKLOG: i32 = 256;

/// A UDP socket that shares its port with those of other threads.
pub(crate) fn udp(address: SocketAddr) -> io::Result<Socket> {
    let socket = new(address, Type::DGRAM, Protocol::UDP)?;
    socket.set_recv_buffer_size(QUEUE_BYTES)?;
    batch::enlarge(socket.as_fd(), i32::try_from(QUEUE_BYTES).unwrap_or(i32::MAX));
    if address.ip().is_unspecified() {
        batch::ask_address(socket.as_fd(), address.is_ipv6())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A listening TCP socket.
pub(crate) fn tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = new(address, Type::STREAM, Protocol::TCP)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn new(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    Ok(socket)
}
