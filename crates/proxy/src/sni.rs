//! Streams whose first bytes were looked at: TLS that is passed on unopened begins with the bytes that told its name.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Remembers what is read from a stream, until it is told to forget. How much that is, the reader of the hello limits.
pub struct Recorder<IO> {
    io: IO,
    /// None: nothing is remembered any longer.
    seen: Option<Vec<u8>>,
}

/// A stream that begins with bytes that were read before.
pub struct Prefixed<IO> {
    prefix: Vec<u8>,
    at: usize,
    io: IO,
}

// === impl Recorder ===

impl<IO> Recorder<IO> {
    /// Remembers from here on.
    pub fn new(io: IO) -> Self {
        Self { io, seen: Some(Vec::new()) }
    }

    /// Remembers nothing more, and forgets what was.
    pub fn forget(&mut self) {
        self.seen = None;
    }

    /// The stream from its beginning.
    pub fn rewind(self) -> Prefixed<IO> {
        Prefixed::new(self.seen.unwrap_or_default(), self.io)
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &IO {
        &self.io
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Recorder<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.io).poll_read(cx, buf);
        if let Some(seen) = &mut self.seen {
            seen.extend_from_slice(buf.filled().get(before..).unwrap_or_default());
        }
        result
    }
}

// === impl Prefixed ===

impl<IO> Prefixed<IO> {
    /// The bytes, then the stream.
    pub fn new(prefix: Vec<u8>, io: IO) -> Self {
        Self { prefix, at: 0, io }
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &IO {
        &self.io
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Prefixed<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.prefix.get(self.at..).unwrap_or_default();
        if left.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let count = left.len().min(buf.remaining());
        buf.put_slice(left.get(..count).unwrap_or_default());
        self.at += count;
        if self.at >= self.prefix.len() {
            (self.prefix, self.at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

/// Writing is the stream's own.
macro_rules! write_through {
    ($name:ident) => {
        impl<IO: AsyncWrite + Unpin> AsyncWrite for $name<IO> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.io).poll_write(cx, bytes)
            }
            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.io).poll_flush(cx)
            }
            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.io).poll_shutdown(cx)
            }
            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                parts: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.io).poll_write_vectored(cx, parts)
            }
            fn is_write_vectored(&self) -> bool {
                self.io.is_write_vectored()
            }
        }
    };
}

write_through!(Recorder);
write_through!(Prefixed);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn what_was_seen_comes_again() {
        let mut recorder = Recorder::new(&b"hello, world"[..]);
        let mut first = [0; 5];
        recorder.read_exact(&mut first).await.unwrap();
        let mut all = String::new();
        recorder.rewind().read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "hello, world");
    }

    #[tokio::test]
    async fn what_was_forgotten_does_not() {
        let mut recorder = Recorder::new(&b"hello, world"[..]);
        let mut first = [0; 7];
        recorder.read_exact(&mut first).await.unwrap();
        recorder.forget();
        let mut all = String::new();
        recorder.rewind().read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "world");
    }
}
