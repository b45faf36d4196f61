//! Short answers are passed on when they are here whole: one that breaks off is asked for elsewhere, and nobody notices.
//!
//! Head and body then also leave in one piece. An answer whose length is not told is a stream, and goes as it comes.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;

/// The longest answer that is held.
pub(crate) const SHORT_MAX: u64 = 16 << 10;
/// How long one is held at the most: whoever sends it piece by piece may want them to be seen.
pub(crate) const HELD_MAX: Duration = Duration::from_secs(2);

/// What is here of a short answer.
pub(super) struct Held {
    /// Nearly always it comes in one piece.
    first: Bytes,
    more: BytesMut,
    left: u64,
}

impl Held {
    /// Begins to hold an answer; none if it is not short.
    pub(super) fn begin(response: &Response<Incoming>) -> Option<Self> {
        let left = response.body().size_hint().exact()?;
        let short = (1..=SHORT_MAX).contains(&left) && response.status() != StatusCode::SWITCHING_PROTOCOLS;
        short.then(|| Self { first: Bytes::new(), more: BytesMut::new(), left })
    }

    /// Whether all of it is here.
    pub(super) fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// Takes what comes next. Dropped before that, it has taken nothing.
    pub(super) async fn more(&mut self, body: &mut Incoming) -> hyper::Result<()> {
        let next = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        let Some(frame) = next.transpose()? else {
            // Nothing more comes, whatever was said of the length.
            self.left = 0;
            return Ok(());
        };
        let Some(data) = frame.into_data().ok() else { return Ok(()) };
        self.left = self.left.saturating_sub(u64::try_from(data.len()).unwrap_or(u64::MAX));
        if self.first.is_empty() {
            self.first = data;
        } else {
            if self.more.is_empty() {
                self.more.extend_from_slice(&self.first);
            }
            self.more.extend_from_slice(&data);
        }
        Ok(())
    }

    /// What is here.
    pub(super) fn bytes(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}
