//! The body of a request as it comes in: from hyper, or from a stream of HTTP/2 itself.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// Why nothing more came.
type Gone = Box<dyn std::error::Error + Send + Sync>;

/// A body that a client sends.
pub(crate) enum Received {
    /// None.
    Empty,
    /// By hyper.
    Hyper(Incoming),
    /// On a stream of HTTP/2.
    Stream(Stream),
}

/// What a stream of HTTP/2 brings.
pub(crate) struct Stream {
    stream: RecvStream,
    /// Bytes that are still to come, where that was told. That it is true is seen to by `h2`.
    left: Option<u64>,
    /// Only trailers can still come.
    whole: bool,
}

impl Received {
    /// What comes on a stream, after these headers.
    pub(crate) fn stream(headers: &HeaderMap, stream: RecvStream) -> Self {
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        Self::Stream(Stream { stream, left: length.and_then(|length| length.parse().ok()), whole: false })
    }
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.whole {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(bytes)) => {
                    // What is taken makes room for as much. It fails where the stream is gone, which the next look shows.
                    let _ = self.stream.flow_control().release_capacity(bytes.len());
                    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    self.left = self.left.map(|left| left.saturating_sub(length));
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                // Whatever the reason is: what a client gives up is not whole (RFC 9113, 8.1 lets servers alone end a stream so).
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.whole = true,
            }
        }
        match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Gone;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Gone>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Hyper(body) => Pin::new(body).poll_frame(cx).map_err(Gone::from),
            Self::Stream(stream) => stream.poll(cx).map_err(Gone::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Hyper(body) => body.is_end_stream(),
            Self::Stream(stream) => stream.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Hyper(body) => body.size_hint(),
            Self::Stream(stream) => stream.left.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}
