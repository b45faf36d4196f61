//! A connection whose bytes take the time that the distance costs, stand still while its peer is cut off, and that is reset
//! when the member dies.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::line::Line;
use super::{Faults, Gate, Origin, Passage};

/// A connection behind a [`Gate`]. Its reader and its writer must be polled by one task.
pub struct Gated {
    inner: TcpStream,
    from: Origin,
    /// The wire to whoever is far away; none to others.
    line: Option<Line>,
    faults: watch::Receiver<Arc<Faults>>,
    passage: Passage,
    /// Waits for the next change of the faults, so that a connection on which nothing moves notices it too.
    change: Option<BoxFuture<'static, ()>>,
}

impl Gated {
    /// A connection that comes from there.
    pub fn new(inner: TcpStream, from: Origin, gate: &Gate) -> Self {
        let mut faults = gate.subscribe();
        let passage = faults.borrow_and_update().passage(from);
        let round_trip = gate.round_trip(from);
        let line = (!round_trip.is_zero()).then(|| Line::new(round_trip));
        Self { inner, from, line, faults, passage, change: None }
    }

    /// A connection that came to a pod. What the member itself passes on has come all the way already.
    pub fn to_pod(inner: TcpStream, peer: SocketAddr, gate: &Gate) -> Self {
        let new = Self::new(inner, Origin::of(peer.ip()), gate);
        if gate.relays(peer) { Self { line: None, ..new } } else { new }
    }

    /// The other end will see a reset when this is dropped.
    pub fn reset_on_drop(&self) {
        // It may be closed already, which is as good.
        let _ = self.inner.set_zero_linger();
    }

    /// Whether bytes may move now; pending while they stand still.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.faults.has_changed() {
                Ok(true) => self.passage = self.faults.borrow_and_update().passage(self.from),
                Ok(false) => {}
                // The gate is gone, and the member with it.
                Err(_) => self.passage = Passage::Reset,
            }
            match self.passage {
                Passage::Open => return Poll::Ready(Ok(())),
                Passage::Reset => return Poll::Ready(Err(self.reset())),
                Passage::Blackhole => ready!(self.poll_change(context)),
            }
        }
    }

    /// Ready when the faults have changed since this was first asked; pending once it will wake this task.
    fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let change = self.change.get_or_insert_with(|| {
            let mut faults = self.faults.clone();
            Box::pin(async move {
                let _ = faults.changed().await;
            })
        });
        ready!(change.as_mut().poll(context));
        self.change = None;
        Poll::Ready(())
    }

    /// Lets the system send a reset when the connection is dropped.
    fn reset(&self) -> io::Error {
        self.reset_on_drop();
        io::ErrorKind::ConnectionReset.into()
    }
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_open(context))?;
            let Self { inner, line, .. } = &mut *self;
            let read = match line {
                Some(line) => line.poll_read(Pin::new(inner), context, buffer),
                None => Pin::new(inner).poll_read(context, buffer),
            };
            if let Poll::Ready(result) = read {
                return Poll::Ready(result);
            }
            ready!(self.poll_change(context));
        }
    }
}

impl AsyncWrite for Gated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(context))?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(context))?;
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
