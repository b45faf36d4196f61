//! A client's bytes, as they are read: tells when a request begins, and gives back what was looked at before.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clients::State;

/// A client's stream.
pub(super) struct Io<S> {
    inner: S,
    /// Read already, and not yet taken.
    before: Vec<u8>,
    /// Told when bytes come, and when they do not go.
    state: Arc<State>,
    /// On HTTP/2, bytes that come may be anything.
    http2: bool,
}

impl<S> Io<S> {
    pub(super) fn new(inner: S, before: Vec<u8>, state: Arc<State>, http2: bool) -> Self {
        Self { inner, before, state, http2 }
    }

    /// Tells whether the client takes what is written.
    fn told<T>(&self, written: Poll<T>) -> Poll<T> {
        self.state.takes(written.is_ready());
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Io<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            let count = self.before.len().min(buf.remaining());
            buf.put_slice(&self.before[..count]);
            self.before.drain(..count);
            if self.before.is_empty() {
                self.before = Vec::new();
            }
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) && !this.http2 {
            this.state.reads();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Io<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.told(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS may hold bytes back until here.
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.told(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.told(written)
    }
}
