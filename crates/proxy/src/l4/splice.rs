//! Two streams become one: bytes go both ways, each end may close its half, and silence is not waited for for ever.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is under way in one direction.
const BUFFER: usize = 16 << 10;

/// How a connection went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Both ends have closed: so many bytes to the endpoint, and from it.
    Whole(u64, u64),
    /// Nothing came for too long.
    Idle,
}

/// Carries bytes both ways until both ends have closed.
pub(crate) async fn splice<A, B>(client: A, endpoint: B, idle: Duration) -> io::Result<Ended>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let moved = AtomicBool::new(false);
    let (mut client, mut endpoint) =
        (Watched { io: client, moved: &moved }, Watched { io: endpoint, moved: &moved });
    let carrying = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut endpoint, BUFFER, BUFFER);
    let silence = async {
        // Whatever moves between two looks is enough: no timer is set for every piece.
        loop {
            tokio::time::sleep(idle).await;
            if !moved.swap(false, Ordering::Relaxed) {
                return;
            }
        }
    };
    tokio::select! {
        carried = carrying => carried.map(|(there, back)| Ended::Whole(there, back)),
        () = silence => Ok(Ended::Idle),
    }
}

/// Notes when something was read.
struct Watched<'a, IO> {
    io: IO,
    moved: &'a AtomicBool,
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<'_, IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_read(cx, buf);
        if result.is_ready() {
            self.moved.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Watched<'_, IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test]
    async fn a_half_that_is_closed_leaves_the_other_open() {
        let ((mut client, near), (far, mut endpoint)) = (duplex(64), duplex(64));
        let talk = async {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut asked = String::new();
            endpoint.read_to_string(&mut asked).await.unwrap();
            endpoint.write_all(format!("answer to {asked}").as_bytes()).await.unwrap();
            drop(endpoint);
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let (ended, answer) = tokio::join!(splice(near, far, Duration::from_secs(60)), talk);
        assert_eq!(answer, "answer to question");
        assert_eq!(ended.unwrap(), Ended::Whole(8, 18));
    }

    #[tokio::test]
    async fn silence_ends_it() {
        let ((mut client, near), (far, mut endpoint)) = (duplex(64), duplex(64));
        let talk = async {
            client.write_all(b"x").await.unwrap();
            assert_eq!(endpoint.read_u8().await.unwrap(), b'x');
            // Both are kept, and silent.
            (client, endpoint)
        };
        let (ended, _kept) = tokio::join!(splice(near, far, Duration::from_millis(20)), talk);
        assert_eq!(ended.unwrap(), Ended::Idle);
    }
}
