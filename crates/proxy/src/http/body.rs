//! Bodies on their way: passed on as they come, with an eye on how long nothing comes.

use std::cell::{Cell, RefCell};
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::Received;
use super::exchange::Exchange;
use crate::ticker::{Deadline, Ticker};

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// Whoever sent it is gone.
    #[error("the sender is gone")]
    Gone(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It is longer than it may be.
    #[error("the body is too long")]
    TooLong,
    /// Nothing came for too long.
    #[error("nothing came for too long")]
    Idle,
    /// The whole request took too long.
    #[error("the request took too long")]
    Late,
    /// It is sent by another way by now.
    #[error("it is sent elsewhere")]
    Elsewhere,
}

/// A request's body, on its way to an endpoint.
pub(crate) enum Upload {
    /// None.
    Empty,
    /// As the client sends it.
    Stream(Stream),
}

/// A body that a client sends, on one way.
pub(crate) struct Stream {
    source: Rc<RefCell<Source>>,
    /// Which way: only the last one leads on.
    way: u32,
    /// So many of the kept pieces were sent.
    sent: usize,
}

/// A body that a client sends.
struct Source {
    body: Received,
    /// Bytes that may still come.
    left: u64,
    progress: Rc<Progress>,
    way: u32,
    /// Something was read.
    began: bool,
    /// What was read, as long as it is little and may be wanted again.
    kept: Option<Kept>,
}

#[derive(Default)]
struct Kept {
    pieces: Vec<Bytes>,
    bytes: usize,
}

/// Bytes of a body that are kept until it is known that they need not be sent again.
const KEPT_MAX: usize = 16 << 10;

/// A body that may be sent once more, if it turns out to have been sent to nobody.
pub(crate) struct Again(Option<Rc<RefCell<Source>>>);

/// How a request's body fares, for those who wait for the answer.
pub(crate) struct Progress {
    ticker: Rc<Ticker>,
    /// When something last came.
    moved_ms: Cell<u64>,
    /// It is longer than it may be.
    too_long: Cell<bool>,
    /// It has come whole.
    over: Cell<bool>,
}

impl Progress {
    pub(crate) fn new(ticker: Rc<Ticker>) -> Self {
        let moved_ms = Cell::new(ticker.now_ms());
        Self { ticker, moved_ms, too_long: Cell::new(false), over: Cell::new(false) }
    }

    /// How long nothing has come, and nothing was left to come.
    pub(crate) fn still_for(&self) -> Duration {
        Duration::from_millis(self.ticker.now_ms().saturating_sub(self.moved_ms.get()))
    }

    /// Whether it has come whole. As long as it has not, the connection that it is sent on is good for nothing else.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Whether it is longer than it may be.
    pub(crate) fn is_too_long(&self) -> bool {
        self.too_long.get()
    }
}

impl Upload {
    /// A body as it comes; `most` bytes of it are taken.
    pub(crate) fn new(body: Received, most: Option<u64>, progress: Rc<Progress>) -> Self {
        if body.is_end_stream() {
            progress.over.set(true);
            return Self::Empty;
        }
        let left = most.unwrap_or(u64::MAX);
        let source = Source { body, left, progress, way: 0, began: false, kept: None };
        Self::Stream(Stream { source: Rc::new(RefCell::new(source)), way: 0, sent: 0 })
    }

    /// Keeps what is read from now on; none where something is gone already.
    pub(crate) fn keep(&self) -> Option<Again> {
        let Self::Stream(stream) = self else { return Some(Again(None)) };
        let mut source = stream.source.borrow_mut();
        if source.kept.is_none() {
            source.kept = (!source.began).then(Kept::default);
        }
        source.kept.is_some().then(|| Again(Some(stream.source.clone())))
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
        let mut source = stream.source.borrow_mut();
        if source.way != stream.way {
            return Poll::Ready(Some(Err(BodyError::Elsewhere)));
        }
        if let Some(piece) = source.kept.as_ref().and_then(|kept| kept.pieces.get(stream.sent)) {
            stream.sent += 1;
            return Poll::Ready(Some(Ok(Frame::data(piece.clone()))));
        }
        let next = source.poll(cx);
        stream.sent = source.kept.as_ref().map_or(0, |kept| kept.pieces.len());
        next
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(stream) => stream.kept_bytes() == 0 && stream.source.borrow().body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(stream) => longer(&stream.source.borrow().body.size_hint(), stream.kept_bytes()),
        }
    }
}

impl Stream {
    /// Bytes that were kept and are still to be sent.
    fn kept_bytes(&self) -> u64 {
        let source = self.source.borrow();
        let pieces = source.kept.as_ref().and_then(|kept| kept.pieces.get(self.sent..)).unwrap_or_default();
        pieces.iter().map(length).sum()
    }
}

impl Source {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(cx) else { return Poll::Pending };
        let progress = &self.progress;
        progress.moved_ms.set(progress.ticker.now_ms());
        let Some(frame) = next else {
            progress.over.set(true);
            return Poll::Ready(None);
        };
        let frame = frame.map_err(BodyError::Gone)?;
        progress.over.set(frame.is_trailers() || self.body.is_end_stream());
        let length = frame.data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
        match self.left.checked_sub(length) {
            Some(left) => self.left = left,
            None => {
                progress.too_long.set(true);
                return Poll::Ready(Some(Err(BodyError::TooLong)));
            }
        }
        self.began = true;
        self.kept = self.kept.take().and_then(|kept| kept.with(&frame));
        Poll::Ready(Some(Ok(frame)))
    }
}

impl Kept {
    /// With one more piece; none when that is too much, or no piece of the body.
    fn with(mut self, frame: &Frame<Bytes>) -> Option<Self> {
        let piece = frame.data_ref()?;
        self.bytes += piece.len();
        self.pieces.push(piece.clone());
        (self.bytes <= KEPT_MAX).then_some(self)
    }
}

impl Again {
    /// The body from its beginning, on another way; none where too much of it is gone.
    pub(crate) fn upload(self) -> Option<Upload> {
        let Some(shared) = self.0 else { return Some(Upload::Empty) };
        let way = {
            let mut source = shared.borrow_mut();
            source.kept.as_ref()?;
            source.way += 1;
            source.way
        };
        Some(Upload::Stream(Stream { source: shared, way, sent: 0 }))
    }

    /// It need not be sent again.
    pub(crate) fn forget(self) {
        if let Some(source) = self.0 {
            source.borrow_mut().kept = None;
        }
    }
}

/// An answer's body, on its way to the client.
pub(crate) enum Body {
    /// None, or one that was ours.
    Full(Option<Bytes>),
    /// As the endpoint sends it. In a box: most answers are short, and are not streams.
    Stream(Box<Download>),
}

/// A body that an endpoint sends. The exchange ends with it.
pub(crate) struct Download {
    /// What of it came before its head was passed on.
    held: Bytes,
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

    /// A body as it comes, after what is here of it.
    pub(crate) fn stream(
        held: Bytes,
        body: Incoming,
        mut exchange: Exchange,
        whole: Option<Deadline>,
    ) -> Self {
        if body.is_end_stream() {
            exchange.complete();
            return Self::Full(Some(held).filter(|held| !held.is_empty()));
        }
        let idle = exchange.idle();
        Self::Stream(Box::new(Download { held, body, idle, whole, exchange: Some(exchange) }))
    }
}

impl Download {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.held.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.held)))));
        }
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
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(self.broken(BodyError::Gone(error.into())))))
            }
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
            Self::Stream(download) => download.held.is_empty() && download.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, length)),
            Self::Stream(download) => longer(&download.body.size_hint(), length(&download.held)),
        }
    }
}

/// What is known of a length, with so many bytes before it.
fn longer(rest: &SizeHint, before: u64) -> SizeHint {
    let mut hint = SizeHint::new();
    if let Some(upper) = rest.upper() {
        hint.set_upper(upper.saturating_add(before));
    }
    hint.set_lower(rest.lower().saturating_add(before));
    hint
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
