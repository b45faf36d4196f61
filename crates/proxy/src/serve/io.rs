//! A client's bytes, as hyper reads them: tells when a request begins, and gives back what was looked at before.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::clients::State;

/// A client's stream.
pub(super) struct Io<S> {
    inner: TokioIo<S>,
    /// Read already, and not yet taken.
    before: Vec<u8>,
    /// Told when bytes come; none for HTTP/2, where bytes may be anything.
    state: Option<Arc<State>>,
}

impl<S> Io<S> {
    pub(super) fn new(stream: S, before: Vec<u8>, state: Option<Arc<State>>) -> Self {
        Self { inner: TokioIo::new(stream), before, state }
    }
}

impl<S: AsyncRead + Unpin> Read for Io<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            let count = self.before.len().min(buf.remaining());
            buf.put_slice(&self.before[..count]);
            self.before.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        if let (Poll::Ready(Ok(())), Some(state)) = (&read, &this.state) {
            state.reads();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> Write for Io<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
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
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
}
