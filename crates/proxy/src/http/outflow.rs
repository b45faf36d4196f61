//! What is sent on a stream of HTTP/2, as fast as its client takes it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;

use super::Body;
use crate::core::Core;

/// How often is looked whether there is less patience than there was.
const LOOK: Duration = Duration::from_secs(1);

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
                    if bytes.is_empty() {
                        to.send_data(bytes, ends).map(|()| ends)
                    } else if send_all(core, &mut to, bytes, ends).await.is_some() {
                        Ok(ends)
                    } else {
                        return;
                    }
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

/// Sends what is here of a body, as far as the client has room for it each time: what it has none for stays with us, and is over when our
/// patience is.
pub(crate) async fn send_all(
    core: &Core,
    to: &mut SendStream<Bytes>,
    mut data: Bytes,
    ends: bool,
) -> Option<()> {
    while !data.is_empty() {
        let room = room(core, to, data.len()).await?;
        let piece = data.split_to(room.min(data.len()));
        to.send_data(piece, ends && data.is_empty()).ok()?;
    }
    Some(())
}

/// Waits until the client has room for some of so many bytes. One that has none for too long holds an endpoint back, and is let go.
async fn room(core: &Core, to: &mut SendStream<Bytes>, wanted: usize) -> Option<usize> {
    to.reserve_capacity(wanted);
    if to.capacity() > 0 {
        return Some(to.capacity());
    }
    let there = poll_fn(|cx| {
        while to.capacity() == 0 {
            match ready!(to.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(None),
            }
        }
        Poll::Ready(Some(to.capacity()))
    });
    let there = patiently(core, there).await;
    if there.is_none() {
        to.send_reset(Reason::CANCEL);
    }
    there?
}

/// What a client makes of what is there for it, if that is not too long in coming: how long that may be goes by the memory that is left.
pub(crate) async fn patiently<F: Future>(core: &Core, taking: F) -> Option<F::Output> {
    let (mut taking, mut waited) = (pin!(taking), Duration::ZERO);
    loop {
        let wait = LOOK.min(core.patience().checked_sub(waited)?);
        tokio::select! {
            biased;
            output = &mut taking => return Some(output),
            () = core.ticker.after(wait) => waited += wait,
        }
        if waited >= core.patience() {
            return None;
        }
    }
}
