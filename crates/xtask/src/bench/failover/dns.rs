//! Just enough DNS to ask an edge: one question, and the addresses and TTL of its answer.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};

/// How long an edge may take before it counts as silent.
const TIMEOUT: Duration = Duration::from_millis(250);

/// What an edge answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::bench) struct Answer {
    /// Addresses, in their order.
    pub(in crate::bench) addresses: Vec<Ipv4Addr>,
    /// How long they are good, in seconds.
    pub(in crate::bench) ttl_s: u32,
}

/// Asks for a name's addresses; none when nobody answers.
pub(in crate::bench) fn ask(edge: SocketAddr, name: &str) -> Result<Option<Answer>> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("no socket")?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(edge)?;
    let mut packet = vec![0x4c, 0x46, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).context("a label is too long")?);
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    let mut reply = [0; 1500];
    // A dead edge refuses or is silent.
    let Ok(length) = socket.send(&packet).and_then(|_| socket.recv(&mut reply)) else { return Ok(None) };
    Ok(read(reply.get(..length).unwrap_or_default(), packet.len()))
}

/// The addresses in a reply whose question ends at `at`.
fn read(reply: &[u8], mut at: usize) -> Option<Answer> {
    let count = u16::from_be_bytes([*reply.get(6)?, *reply.get(7)?]);
    let mut answer = Answer::default();
    for _ in 0..count {
        at = skip_name(reply, at)?;
        let head = reply.get(at..at + 10)?;
        let (kind, length) = ([head[0], head[1]], usize::from(u16::from_be_bytes([head[8], head[9]])));
        let data = reply.get(at + 10..at + 10 + length)?;
        if let ([0, 1], Ok(address)) = (kind, <[u8; 4]>::try_from(data)) {
            answer.addresses.push(address.into());
            answer.ttl_s = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        }
        at += 10 + length;
    }
    Some(answer)
}

/// Where a name ends.
fn skip_name(reply: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *reply.get(at)? {
            0 => return Some(at + 1),
            length if length >= 0xC0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read() {
        let mut reply = vec![0, 0, 0x84, 0, 0, 1, 0, 2, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
        let end = reply.len();
        for last in [1, 2] {
            reply.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 180, 0, 4, 192, 0, 2, last]);
        }
        let answer = read(&reply, end).unwrap();
        assert_eq!(answer.ttl_s, 180);
        assert_eq!(answer.addresses, [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)]);
        assert_eq!(read(&reply[..end + 20], end), None, "cut off");
    }
}
