//! A client's bytes, as they are read: tells when a request begins, and gives back what was looked at before.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::noise::Noise;
use crate::clients::State;

/// A client's stream.
pub(super) struct Io<S> {
    inner: S,
    /// Read already, and not yet taken.
    before: Vec<u8>,
    /// Told when bytes come, and when they do not go.
    state: Arc<State>,
    hears: Hears,
}

/// What bytes are that come.
pub(super) enum Hears {
    /// A request, on HTTP/1.1.
    Request,
    /// Anything, on HTTP/2: it is watched how much of it asks for nothing.
    Frames(Noise),
    /// Anything, from another edge, which is trusted to make no noise.
    Edge,
}

impl<S> Io<S> {
    pub(super) fn new(inner: S, before: Vec<u8>, state: Arc<State>, hears: Hears) -> Self {
        Self { inner, before, state, hears }
    }

    /// Bytes came.
    fn heard(&mut self, bytes: &[u8]) {
        match &mut self.hears {
            Hears::Request => self.state.reads(),
            Hears::Frames(noise) => self.state.noise(|frames| noise.heard(bytes, frames)),
            Hears::Edge => {}
        }
    }

    /// Bytes were written.
    fn said(&mut self, written: &Poll<io::Result<usize>>) {
        if let (Hears::Frames(noise), Poll::Ready(Ok(bytes))) = (&mut self.hears, written) {
            self.state.noise(|frames| noise.said(*bytes, frames));
        }
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
            let mut before = std::mem::take(&mut self.before);
            // Whoever has read it has told already that a request has begun.
            if let Hears::Frames(_) = self.hears {
                self.heard(&before[..count]);
            }
            before.drain(..count);
            if !before.is_empty() {
                self.before = before;
            }
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        let known = buf.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) {
            this.heard(&buf.filled()[known..]);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Io<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.said(&written);
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
        self.said(&written);
        self.told(written)
    }
}
