//! Bodies on their way: passed on as they come, with an eye on how long nothing comes.

use std::cell::Cell;
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::exchange::Exchange;
use crate::ticker::{Deadline, Ticker};

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// Whoever sent it is gone.
    #[error("the sender is gone")]
    Gone(#[source] hyper::Error),
    /// It is longer than it may be.
    #[error("the body is too long")]
    TooLong,
    /// Nothing came for too long.
    #[error("nothing came for too long")]
    Idle,
    /// The whole request took too long.
    #[error("the request took too long")]
    Late,
}

/// A request's body, on its way to an endpoint.
pub(crate) enum Upload {
    /// None.
    Empty,
    /// As the client sends it.
    Stream(Stream),
}

/// A body that a client sends.
pub(crate) struct Stream {
    body: Incoming,
    /// Bytes that may still come.
    left: u64,
    progress: Rc<Progress>,
}

/// How a request's body fares, for those who wait for the answer.
pub(crate) struct Progress {
    ticker: Rc<Ticker>,
    /// When something last came.
    moved_ms: Cell<u64>,
    /// It is longer than it may be.
    too_long: Cell<bool>,
}

impl Progress {
    pub(crate) fn new(ticker: Rc<Ticker>) -> Self {
        let moved_ms = Cell::new(ticker.now_ms());
        Self { ticker, moved_ms, too_long: Cell::new(false) }
    }

    /// How long nothing has come, and nothing was left to come.
    pub(crate) fn still_for(&self) -> Duration {
        Duration::from_millis(self.ticker.now_ms().saturating_sub(self.moved_ms.get()))
    }

    /// Whether it is longer than it may be.
    pub(crate) fn is_too_long(&self) -> bool {
        self.too_long.get()
    }
}

impl Upload {
    /// A body as it comes; `most` bytes of it are taken.
    pub(crate) fn new(body: Incoming, most: Option<u64>, progress: Rc<Progress>) -> Self {
        if body.is_end_stream() {
            return Self::Empty;
        }
        Self::Stream(Stream { body, left: most.unwrap_or(u64::MAX), progress })
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self::Stream(stream) = self.get_mut() else { return Poll::Ready(None) };
        let Poll::Ready(next) = Pin::new(&mut stream.body).poll_frame(cx) else { return Poll::Pending };
        let progress = &stream.progress;
        progress.moved_ms.set(progress.ticker.now_ms());
        let Some(frame) = next else { return Poll::Ready(None) };
        let frame = frame.map_err(BodyError::Gone)?;
        let length = frame.data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
        match stream.left.checked_sub(length) {
            Some(left) => stream.left = left,
            None => {
                progress.too_long.set(true);
                return Poll::Ready(Some(Err(BodyError::TooLong)));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(stream) => stream.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(stream) => stream.body.size_hint(),
        }
    }
}

/// An answer's body, on its way to the client.
pub(crate) enum Body {
    /// None, or one that was ours.
    Full(Option<Bytes>),
    /// As the endpoint sends it.
    Stream(Download),
}

/// A body that an endpoint sends. The exchange ends with it.
pub(crate) struct Download {
    body: Incoming,
    idle: Deadline,
    whole: Option<Deadline>,
    exchange: Option<Exchange>,
}

impl Body {
    /// None.
    pub(crate) fn empty() -> Self {
        Self::Full(None)
    }

    /// A body as it comes.
    pub(crate) fn stream(body: Incoming, mut exchange: Exchange, whole: Option<Deadline>) -> Self {
        if body.is_end_stream() {
            exchange.complete();
            return Self::Full(None);
        }
        let idle = exchange.idle();
        Self::Stream(Download { body, idle, whole, exchange: Some(exchange) })
    }
}

impl Download {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(exchange) = &self.exchange {
                    self.idle.reset(exchange.idle_for);
                }
                // The last bytes are known to be the last: the connection is free before they are sent.
                if self.body.is_end_stream() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(self.broken(BodyError::Gone(error))))),
            Poll::Pending if Pin::new(&mut self.idle).poll(cx).is_ready() => {
                Poll::Ready(Some(Err(self.broken(BodyError::Idle))))
            }
            Poll::Pending => {
                let late = self.whole.as_mut().is_some_and(|whole| Pin::new(whole).poll(cx).is_ready());
                if late { Poll::Ready(Some(Err(self.broken(BodyError::Late)))) } else { Poll::Pending }
            }
        }
    }

    fn end(&mut self) {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.complete();
        }
    }

    fn broken(&mut self, why: BodyError) -> BodyError {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.broke_off(&why);
        }
        why
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(download) => download.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Stream(download) => download.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(
                bytes.as_ref().map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(0)),
            ),
            Self::Stream(download) => download.body.size_hint(),
        }
    }
}
