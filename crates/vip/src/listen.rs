//! Hearing others before speaking.
//!
//! Where adverts go from node to node and not to the whole link, a newcomer hears nothing until the holder has learnt of it. It
//! would take the address for free, and two would hold it. So it waits until it hears an advert, or until nobody answers at the
//! address: then there is no holder.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpStream, UdpSocket};

use crate::Wanted;

/// VRRP's number among the protocols of IP.
const VRRP: i32 = 112;
/// How long an answer at the address may take.
const ANSWER: Duration = Duration::from_millis(500);
/// So often nobody answers until there is nobody.
const SILENCES: u32 = 3;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Waits until it is safe to take part.
pub(crate) async fn first(wanted: Wanted) {
    if wanted.peers.is_empty() {
        // Everybody hears everybody.
        return;
    }
    tokio::select! {
        () = advert(&wanted) => tracing::info!(group = wanted.group, "another of the group is heard"),
        () = nobody(&wanted) => tracing::info!(group = wanted.group, "nobody holds the address"),
    }
}

/// Waits for an advert of one of the others.
async fn advert(wanted: &Wanted) {
    let heard = async || -> io::Result<()> {
        let v6 = wanted.peers.iter().any(IpAddr::is_ipv6);
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(VRRP)))?;
        socket.set_nonblocking(true)?;
        // The kernel treats it as any other socket that takes packets.
        let socket = UdpSocket::from_std(socket.into())?;
        let mut buffer = [0; 256];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await?;
            let packet = buffer.get(..length).unwrap_or_default();
            if wanted.peers.contains(&from.ip()) && router_id(packet, v6) == Some(wanted.router_id) {
                return Ok(());
            }
        }
    };
    if let Err(error) = heard().await {
        tracing::warn!(%error, "adverts cannot be heard; waiting until nobody answers at the address");
        std::future::pending().await
    }
}

/// The group's number in a packet; IPv4 packets come with their header.
fn router_id(packet: &[u8], v6: bool) -> Option<u8> {
    let header = if v6 { 0 } else { usize::from(packet.first()? & 0x0f) * 4 };
    packet.get(header.checked_add(1)?).copied()
}

/// Waits until nobody answers at the first address. A refusal is an answer, too.
async fn nobody(wanted: &Wanted) {
    let Some(vip) = wanted.vips.first() else { return };
    let port = wanted.check.map_or(80, |check| check.port());
    let mut silences = 0;
    while silences < SILENCES {
        let connected = tokio::time::timeout(ANSWER, TcpStream::connect((*vip, port))).await;
        let answered = match connected {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
            Err(_) => false,
        };
        silences = if answered { 0 } else { silences + 1 };
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_with_and_without_a_header() {
        let advert = [0x31, 7, 200, 1, 0, 10, 0, 0];
        assert_eq!(router_id(&advert, true), Some(7));
        let mut packet = vec![0x46; 24];
        packet.extend(advert);
        assert_eq!(router_id(&packet, false), Some(7));
        for cut in 0..24 {
            assert_eq!(router_id(packet.get(..cut).unwrap(), false), None);
        }
    }
}
