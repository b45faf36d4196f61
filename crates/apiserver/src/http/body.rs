//! Bodies: what we send (one buffer, or a stream of frames) and reading what clients send, within a limit.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use futures::stream::BoxStream;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use landfall_api::{Reason, Status};
use landfall_runtime::metrics::Gauge;

/// The largest request body, as in Kubernetes.
pub const REQUEST_BYTES_MAX: usize = 3 * 1024 * 1024;

/// How long a client may take to send a body.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// A response body.
pub struct Body {
    content: Content,
    slot: Option<Slot>,
}

enum Content {
    /// Everything at once; none when it has been sent.
    Whole(Option<Bytes>),
    /// Frames as they come.
    Stream(BoxStream<'static, Bytes>),
}

/// A request's place among those being served; given back when it is dropped.
pub struct Slot(Arc<Gauge>);

impl Slot {
    /// Takes a place; how many are taken now.
    pub fn take(gauge: &Arc<Gauge>) -> (Self, i64) {
        let taken = gauge.add(1);
        (Self(gauge.clone()), taken)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// Bytes that are being sent for a request.
struct Held {
    bytes: Bytes,
    _slot: Slot,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body {
    /// Frames as they come.
    pub fn stream(frames: BoxStream<'static, Bytes>) -> Self {
        Self { content: Content::Stream(frames), slot: None }
    }

    /// The same body, which keeps its request's place until the last byte is with the system.
    #[must_use]
    pub fn holding(mut self, slot: Slot) -> Self {
        self.slot = Some(slot);
        self
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self { content: Content::Whole(Some(bytes).filter(|b| !b.is_empty())), slot: None }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.content {
            Content::Whole(bytes) => write!(f, "Body({} bytes)", bytes.as_ref().map_or(0, Bytes::len)),
            Content::Stream(_) => f.write_str("Body(stream)"),
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
        let Self { content, slot } = &mut *self;
        match content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| {
                // Large answers are dropped by the connection when they are written, long after this body.
                Ok(Frame::data(match slot.take() {
                    Some(slot) => Bytes::from_owner(Held { bytes, _slot: slot }),
                    None => bytes,
                }))
            })),
            Content::Stream(stream) => {
                Pin::new(stream).poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Content::Stream(_) => SizeHint::default(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_held_until_the_bytes_are_gone() {
        let gauge = Arc::<Gauge>::default();
        let (slot, taken) = Slot::take(&gauge);
        assert_eq!(taken, 1);
        let mut body = Body::from(Bytes::from_static(b"abc")).holding(slot);
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(body);
        assert_eq!((&*data, gauge.get()), (&b"abc"[..], 1));
        drop(data);
        assert_eq!(gauge.get(), 0);
        drop(Body::from(Bytes::new()).holding(Slot::take(&gauge).0));
        assert_eq!(gauge.get(), 0);
    }
}
