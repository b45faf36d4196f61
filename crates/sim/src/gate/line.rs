//! A long wire: what a client sends arrives a round trip later, so that it waits for every answer as long as the distance
//! costs. The way back is free: what counts is both together.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Bytes on the wire at once; more wait with whoever sends them, as for a TCP window.
const WINDOW_BYTES: usize = 1 << 20;

/// Bytes taken from the system at once.
const CHUNK_BYTES: usize = 16 << 10;

/// Bytes on their way. An empty chunk is the end of them.
pub(super) struct Line {
    round_trip: Duration,
    /// When the handshake is over: the system has answered it already, but far clients have waited for that, too.
    connected: Instant,
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    ended: bool,
    sleep: Pin<Box<Sleep>>,
    scratch: Box<[u8]>,
}

impl Line {
    /// A wire of this length for a connection that begins now.
    pub(super) fn new(round_trip: Duration) -> Self {
        let connected = Instant::now() + round_trip;
        Self {
            round_trip,
            connected,
            chunks: VecDeque::new(),
            bytes: 0,
            ended: false,
            sleep: Box::pin(tokio::time::sleep_until(connected)),
            scratch: vec![0; CHUNK_BYTES].into(),
        }
    }

    /// Reads what has arrived at the end of the wire.
    pub(super) fn poll_read(
        &mut self,
        mut from: Pin<&mut (impl AsyncRead + ?Sized)>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.ended && self.bytes < WINDOW_BYTES {
            let mut chunk = ReadBuf::new(&mut self.scratch);
            let Poll::Ready(read) = from.as_mut().poll_read(context, &mut chunk) else { break };
            read?;
            self.ended = chunk.filled().is_empty();
            self.bytes += chunk.filled().len();
            let due = Instant::now().max(self.connected) + self.round_trip;
            self.chunks.push_back((due, chunk.filled().to_vec()));
        }
        let Some((due, chunk)) = self.chunks.front_mut() else {
            return if self.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        };
        if *due > Instant::now() {
            self.sleep.as_mut().reset(*due);
            ready!(self.sleep.as_mut().poll(context));
        }
        let length = chunk.len().min(buffer.remaining());
        buffer.put_slice(&chunk[..length]);
        chunk.drain(..length);
        self.bytes -= length;
        if chunk.is_empty() {
            self.chunks.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// The far end of a wire.
    struct End(Line, DuplexStream);

    impl AsyncRead for End {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Self(line, from) = &mut *self;
            line.poll_read(Pin::new(from), context, buffer)
        }
    }

    fn wire() -> (DuplexStream, End) {
        let (near, far) = tokio::io::duplex(8 << 20);
        (near, End(Line::new(ROUND_TRIP), far))
    }

    #[tokio::test]
    async fn bytes_come_late_whole_and_in_order() {
        let (mut near, mut far) = wire();
        let began = Instant::now();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        near.write_all(&sent[..10]).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), 0);
        assert!(began.elapsed() >= 2 * ROUND_TRIP, "the handshake, and the byte");
        let asked = Instant::now();
        near.write_all(&sent[10..]).await.unwrap();
        drop(near);
        let mut got = vec![0];
        far.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, sent);
        assert!(asked.elapsed() >= 3 * ROUND_TRIP, "three windows of a megabyte");
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0, "an end stays one");
    }

    #[tokio::test]
    async fn what_is_sent_later_arrives_later() {
        let (mut near, mut far) = wire();
        near.write_u8(1).await.unwrap();
        // Somebody reads all the time, as servers do.
        let mut buffer = [0; 4];
        let first = {
            let mut reading = Box::pin(far.read(&mut buffer));
            assert!(poll_fn(|context| Poll::Ready(reading.as_mut().poll(context).is_pending())).await);
            tokio::time::sleep(ROUND_TRIP * 5 / 2).await;
            reading.await.unwrap()
        };
        assert_eq!(first, 1);
        let asked = Instant::now();
        near.write_u8(2).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), 2);
        assert!(asked.elapsed() >= ROUND_TRIP);
    }
}
