//! Bodies: what we send (one buffer, or a stream of frames) and reading what clients send, within a limit.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use futures::stream::BoxStream;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use landfall_api::{Reason, Status};

/// The largest request body, as in Kubernetes.
pub const REQUEST_BYTES_MAX: usize = 3 * 1024 * 1024;

/// How long a client may take to send a body.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// A response body.
pub enum Body {
    /// Everything at once; none when it has been sent.
    Whole(Option<Bytes>),
    /// Frames as they come.
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    /// No body.
    pub const EMPTY: Self = Self::Whole(None);
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::EMPTY } else { Self::Whole(Some(bytes)) }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Body({} bytes)", bytes.as_ref().map_or(0, Bytes::len)),
            Self::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Stream(stream) => {
                Pin::new(stream).poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// Reads a whole request body: 413 when it is too large, 400 when it breaks off or takes too long.
pub async fn read<B>(body: B) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    if body.size_hint().lower() > REQUEST_BYTES_MAX as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(REQUEST_TIME_MAX, collect(body)).await {
        Ok(result) => result,
        Err(_) => Err(Status::bad_request("the request body was not sent in time")),
    }
}

async fn collect<B>(mut body: B) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::bad_request(format!("the request body broke off: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + all.len() + data.len() > REQUEST_BYTES_MAX {
            return Err(too_large());
        }
        // Most bodies come in one frame and are not copied.
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
                first = Bytes::new();
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

fn too_large() -> Status {
    Status::new(
        Reason::RequestEntityTooLarge,
        format!("Request entity too large: limit is {REQUEST_BYTES_MAX}"),
    )
}
