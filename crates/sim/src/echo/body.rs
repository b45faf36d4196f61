//! What is sent, piece by piece, and counting what is received.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::grpc::GrpcEcho;
use super::load::Slot;

/// How much of a request's body is shown in the answer.
const SHOWN_BYTES_MAX: usize = 4 * 1024;

/// The largest upload that is counted.
const UPLOAD_BYTES_MAX: u64 = 16 << 30;

/// How long an upload may take.
const UPLOAD_TIME_MAX: Duration = Duration::from_secs(3600);

/// The size of pieces of large answers.
const PIECE_BYTES: usize = 64 * 1024;

/// The body of an answer. It holds its request's slot until it is sent.
pub(super) struct Body {
    content: Content,
    slot: Option<Slot>,
}

enum Content {
    Whole(Option<Bytes>),
    Pieces { stream: BoxStream<'static, Bytes>, length: Option<u64> },
    Grpc(Box<GrpcEcho>),
}

impl Body {
    /// Everything at once.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { content: Content::Whole((!bytes.is_empty()).then_some(bytes)), slot: None }
    }

    /// `length` bytes of a pattern.
    pub(super) fn pattern(length: u64) -> Self {
        let piece = Bytes::from_static(&PATTERN);
        let pieces = stream::unfold(length, move |left| {
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let next = (take > 0).then(|| (piece.slice(..take), left - take as u64));
            std::future::ready(next)
        });
        Self { content: Content::Pieces { stream: pieces.boxed(), length: Some(length) }, slot: None }
    }

    /// Pieces as they come, of unknown length: chunked in HTTP/1.
    pub(super) fn pieces(stream: BoxStream<'static, Bytes>) -> Self {
        Self { content: Content::Pieces { stream, length: None }, slot: None }
    }

    /// What a gRPC client sends, back to it.
    pub(super) fn grpc(echo: GrpcEcho) -> Self {
        Self { content: Content::Grpc(Box::new(echo)), slot: None }
    }

    /// The same, keeping a slot until it is sent.
    pub(super) fn holding(mut self, slot: Option<Slot>) -> Self {
        self.slot = slot;
        self
    }
}

/// Letters that are easy to check on the other side: their position decides them.
static PATTERN: [u8; PIECE_BYTES] = {
    let mut pattern = [0; PIECE_BYTES];
    let mut at = 0;
    while at < PIECE_BYTES {
        pattern[at] = b'a' + (at % 26) as u8;
        at += 1;
    }
    pattern
};

impl HttpBody for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let next = match &mut self.content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Pieces { stream, length } => stream.as_mut().poll_next(context).map(|next| {
                let bytes = next?;
                if let Some(length) = length {
                    *length = length.saturating_sub(bytes.len() as u64);
                }
                Some(Ok(Frame::data(bytes)))
            }),
            Content::Grpc(echo) => Pin::new(&mut **echo).poll_frame(context),
        };
        if matches!(next, Poll::Ready(None)) {
            self.slot = None;
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Content::Pieces { length: Some(length), .. } => SizeHint::with_exact(*length),
            Content::Pieces { length: None, .. } | Content::Grpc(_) => SizeHint::default(),
        }
    }
}

/// Why an upload was not counted to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadError {
    /// More than anybody should send.
    TooLarge,
    /// It took too long.
    TooSlow,
    /// The client broke off.
    Broken,
}

/// Reads a request's body to its end, keeping its beginning.
pub(super) async fn count(body: Incoming) -> Result<Value, UploadError> {
    let counting: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(count_frames(body));
    let (length, shown) =
        tokio::time::timeout(UPLOAD_TIME_MAX, counting).await.map_err(|_| UploadError::TooSlow)??;
    let mut info = json!({"bytes": length});
    // A character may stand across the limit: what comes before it is shown.
    let text = match std::str::from_utf8(&shown) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&shown[..error.valid_up_to()]).ok(),
        Err(_) => None,
    };
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        info["text"] = json!(text);
        info["truncated"] = json!(text.len() as u64 != length);
    }
    Ok(info)
}

async fn count_frames(mut body: Incoming) -> Result<(u64, Vec<u8>), UploadError> {
    let (mut length, mut shown) = (0_u64, Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| UploadError::Broken)?;
        let Ok(data) = frame.into_data() else { continue };
        length = length.saturating_add(data.len() as u64);
        if length > UPLOAD_BYTES_MAX {
            return Err(UploadError::TooLarge);
        }
        let room = SHOWN_BYTES_MAX - shown.len();
        shown.extend(data.iter().take(room));
    }
    Ok((length, shown))
}
