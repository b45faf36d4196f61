//! A UDP port: datagrams of one client go to one endpoint for as long as it speaks, and what comes back goes to the client.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::dial::{Datagrams, Wanted, Way};
use super::{Carried, Ports};
use crate::haproxy::Ends;

/// The longest datagram there is.
pub(crate) const DATAGRAM_MAX: usize = 65_535;
/// Datagrams of one client that wait; more are lost, as they may be.
const QUEUE: usize = 64;
/// Datagrams of an endpoint that are taken at once.
const BATCH: usize = 16;
/// How much the kernel keeps for us.
const KERNEL_BUFFER: usize = 1 << 20;

/// The clients of one port.
type Sessions = Arc<Mutex<HashMap<SocketAddr, mpsc::Sender<Bytes>>>>;

/// Listens.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = super::socket(address, socket2::Type::DGRAM)?;
    // As large as the kernel allows: bursts come while we are elsewhere.
    let _ = socket.set_recv_buffer_size(KERNEL_BUFFER);
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// Takes datagrams until it is dropped.
pub(super) async fn serve(ports: Arc<Ports>, socket: UdpSocket, carried: Carried) {
    let (socket, sessions) = (Arc::new(socket), Sessions::default());
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        // An error is what an earlier datagram of ours came back with: it is not the socket's.
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
        let datagram = Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default());
        let mut known = sessions.lock();
        if let Some(session) = known.get(&client) {
            // A full queue loses it.
            let _ = session.try_send(datagram);
            continue;
        }
        if !carried.load().admits(client.ip()) {
            ports.meters.outside.inc();
            continue;
        }
        if known.len() >= ports.config.sessions {
            ports.meters.full.inc();
            continue;
        }
        let (sender, receiver) = mpsc::channel(QUEUE);
        let _ = sender.try_send(datagram);
        known.insert(client, sender);
        drop(known);
        let session =
            Session { ports: ports.clone(), socket: socket.clone(), client, carried: carried.clone() };
        let sessions = sessions.clone();
        ports.spawn_until_stop(async move {
            session.ports.meters.sessions.add(1);
            session.run(receiver).await;
            session.ports.meters.sessions.add(-1);
            sessions.lock().remove(&client);
        });
    }
}

/// One client.
struct Session {
    ports: Arc<Ports>,
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    carried: Carried,
}

impl Session {
    async fn run(&self, mut from_client: mpsc::Receiver<Bytes>) {
        let route = self.carried.load_full();
        let Some(target) = self.ports.target(&route.service) else { return };
        let Ok(server) = self.socket.local_addr() else { return };
        let ends = Ends { client: self.client, server };
        let wanted = Wanted { target: &target, ends, send_proxy: false, own: false };
        let ended = match self.ports.dialer.datagrams(wanted).await {
            Ok((datagrams, way)) => {
                let _counted = self.ports.tally.begin(&target.name, &way.cluster);
                self.carry(datagrams, &way, &mut from_client).await
            }
            Err(error) => Err(io::Error::other(error)),
        };
        if let Err(error) = ended {
            self.ports.meters.failed.inc();
            tracing::debug!(client = %self.client, service = %target.name, %error, "datagrams are not carried");
        }
    }

    async fn carry(
        &self,
        datagrams: Datagrams,
        way: &Way,
        from_client: &mut mpsc::Receiver<Bytes>,
    ) -> io::Result<()> {
        match datagrams {
            Datagrams::Direct(endpoint) => {
                let ended = self.direct(&endpoint, from_client).await;
                if ended.is_err() {
                    // The client's next datagram goes elsewhere.
                    self.ports.dialer.is_gone(way);
                }
                ended
            }
            Datagrams::Tunnel(mut tunnel) => self.tunnel(&mut tunnel, from_client).await,
        }
    }

    /// Carries datagrams until there are none for a while.
    async fn direct(&self, endpoint: &UdpSocket, from_client: &mut mpsc::Receiver<Bytes>) -> io::Result<()> {
        loop {
            tokio::select! {
                datagram = from_client.recv() => {
                    let Some(datagram) = datagram else { return Ok(()) };
                    endpoint.send(&datagram).await?;
                }
                ready = endpoint.readable() => {
                    ready?;
                    for datagram in received(endpoint)? {
                        self.answer(&datagram).await;
                    }
                }
                () = tokio::time::sleep(self.ports.config.session_idle) => return Ok(()),
            }
        }
    }

    async fn tunnel(
        &self,
        tunnel: &mut crate::peer::tunnel::Tunnel,
        from_client: &mut mpsc::Receiver<Bytes>,
    ) -> io::Result<()> {
        let (mut reader, mut writer) = tokio::io::split(tunnel);
        let mut frames = Frames::default();
        loop {
            tokio::select! {
                datagram = from_client.recv() => {
                    let Some(datagram) = datagram else { return Ok(()) };
                    write_frame(&mut writer, &datagram).await?;
                }
                frame = frames.next(&mut reader) => match frame? {
                    Some(datagram) => self.answer(&datagram).await,
                    None => return Ok(()),
                },
                () = tokio::time::sleep(self.ports.config.session_idle) => return Ok(()),
            }
        }
    }

    async fn answer(&self, datagram: &[u8]) {
        if let Err(error) = self.socket.send_to(datagram, self.client).await {
            tracing::debug!(client = %self.client, %error, "an answer is lost");
        }
    }
}

/// Carries the datagrams of a tunnel, at the edge where it ends.
pub(crate) async fn carry_frames<IO>(
    tunnel: IO,
    endpoint: &UdpSocket,
    idle: std::time::Duration,
) -> io::Result<()>
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite,
{
    let (mut reader, mut writer) = tokio::io::split(tunnel);
    let mut frames = Frames::default();
    loop {
        tokio::select! {
            frame = frames.next(&mut reader) => match frame? {
                Some(datagram) => { endpoint.send(&datagram).await?; }
                None => return Ok(()),
            },
            ready = endpoint.readable() => {
                ready?;
                for datagram in received(endpoint)? {
                    write_frame(&mut writer, &datagram).await?;
                }
            }
            () = tokio::time::sleep(idle) => return Ok(()),
        }
    }
}

/// What has come, a few at a time. The room for it is on the stack: thousands of clients wait, and one receives.
fn received(endpoint: &UdpSocket) -> io::Result<Vec<Bytes>> {
    let (mut room, mut all) = ([0; DATAGRAM_MAX], Vec::new());
    while all.len() < BATCH {
        match endpoint.try_recv(&mut room) {
            Ok(length) => all.push(Bytes::copy_from_slice(room.get(..length).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Datagrams on a stream: each with its length before it, in two bytes. What was read of one stays when the reader is called
/// away.
#[derive(Default)]
struct Frames(Vec<u8>);

impl Frames {
    async fn next(&mut self, reader: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
        loop {
            if let Some((head, rest)) = self.0.split_at_checked(2) {
                let length = head.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                if let Some(datagram) = rest.get(..length) {
                    let datagram = Bytes::copy_from_slice(datagram);
                    self.0.drain(..2 + length);
                    return Ok(Some(datagram));
                }
            }
            if reader.read_buf(&mut self.0).await? == 0 {
                return Ok(None);
            }
        }
    }
}

async fn write_frame(writer: &mut (impl tokio::io::AsyncWrite + Unpin), datagram: &[u8]) -> io::Result<()> {
    let length = u16::try_from(datagram.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(datagram);
    writer.write_all(&frame).await?;
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_as_they_went() {
        let (mut near, mut far) = tokio::io::duplex(7);
        let datagrams: [&[u8]; 4] = [b"one", b"", &[7; 300], b"last"];
        let sending = async {
            for datagram in datagrams {
                write_frame(&mut near, datagram).await.unwrap();
            }
            drop(near);
        };
        let reading = async {
            let (mut frames, mut all) = (Frames::default(), Vec::new());
            while let Some(datagram) = frames.next(&mut far).await.unwrap() {
                all.push(datagram);
            }
            all
        };
        let (_, all) = tokio::join!(sending, reading);
        assert_eq!(all, datagrams);
        let (mut near, _far) = tokio::io::duplex(7);
        assert!(write_frame(&mut near, &[0; DATAGRAM_MAX + 1]).await.is_err());
    }
}
