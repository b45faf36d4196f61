//! What is sent on a stream of HTTP/2, as fast as its client takes it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;

use super::Body;
use crate::core::Core;

/// Sends a body as fast as its client takes it. Room is asked for when there is something to send: a stream that is silent takes none away from
/// others, and an end needs none.
pub(crate) async fn send(core: &Core, body: Body, mut to: SendStream<Bytes>) {
    let mut body = pin!(body);
    loop {
        let next = poll_fn(|cx| match to.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(Err(())),
            Poll::Pending => body.as_mut().poll_frame(cx).map(Ok),
        });
        let sent = match next.await {
            // The client is gone.
            Err(()) => return,
            Ok(None) => to.send_data(Bytes::new(), true).map(|()| true),
            Ok(Some(Err(_))) => {
                break_off(&mut to).await;
                return;
            }
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) => {
                    let ends = body.is_end_stream();
                    if !bytes.is_empty() && !room(core, &mut to).await {
                        return;
                    }
                    to.send_data(bytes, ends).map(|()| ends)
                }
                Err(frame) => to.send_trailers(frame.into_trailers().unwrap_or_default()).map(|()| true),
            },
        };
        if !matches!(sent, Ok(false)) {
            return;
        }
    }
}

/// Tells a client that no more comes. What was sent before that goes first, which a reset would take back.
pub(crate) async fn break_off(to: &mut SendStream<Bytes>) {
    tokio::task::yield_now().await;
    to.send_reset(Reason::INTERNAL_ERROR);
}

/// Waits until the client has room for something. One that has none for too long holds an endpoint back, and is let go.
pub(crate) async fn room(core: &Core, to: &mut SendStream<Bytes>) -> bool {
    to.reserve_capacity(1);
    if to.capacity() > 0 {
        return true;
    }
    let there = poll_fn(|cx| {
        while to.capacity() == 0 {
            match ready!(to.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(false),
            }
        }
        Poll::Ready(true)
    });
    let there = tokio::select! {
        biased;
        there = there => Some(there),
        () = core.ticker.after(core.shared.config.limits.write_timeout) => None,
    };
    if there.is_none() {
        to.send_reset(Reason::CANCEL);
    }
    there == Some(true)
}
