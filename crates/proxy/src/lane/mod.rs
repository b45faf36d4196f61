//! The lane for plain requests: a GET or HEAD of HTTP/1.1 without a body, to an HTTP endpoint of the own member. They are most of
//! all requests, and they are carried without being taken apart into maps: a head is read, checked, copied without what is for
//! one hop, and sent; the answer likewise.
//!
//! ```text
//!   client's bytes ─► request (plain?) ──yes──► carry ─► endpoint
//!                        │ no                     │ failed before an answer
//!                        └──────► hyper ◄─────────┘   with the same bytes, for as long as the connection lives
//! ```
//!
//! Heads are read by the parser that hyper has, so both read them alike; whatever needs more than copying is left to hyper,
//! and so is everything that goes wrong before the first byte of an answer: it knows how to try again elsewhere.
//!
//! Reading order: here, `request`, `carry`, `response`, `chunks`.

mod carry;
mod chunks;
mod request;
mod response;

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use crate::clients::{Order, State};
use crate::core::Core;
use crate::http::Conn;

/// What is read at once from a client.
const READ: usize = 2048;
/// A head that is longer is left to hyper.
const HEAD_MAX: usize = 16 << 10;

/// Bytes of one request on their way; kept by the thread for the next.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The head for the endpoint.
    up: Vec<u8>,
    /// What came from the endpoint.
    back: Vec<u8>,
    /// What goes to the client.
    out: Vec<u8>,
}

/// No more than this is kept of each.
const SCRATCH_MAX: usize = 64 << 10;

/// How carrying a request ended.
enum Outcome {
    /// The client has its answer, and may ask again.
    Answered,
    /// The connection is over.
    Over,
    /// Nothing was answered: hyper must do it.
    Left,
}

/// Where the first request in a client's bytes ends, if the lane would take it where its route is a plain one; and the head that an
/// endpoint would get, but for what it is told of the client. For those who compare this with other parsers.
pub fn request_end(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    request::end(bytes)
}

/// Where the answer to a GET in an endpoint's bytes ends: none where it is no answer, or where more is to come. For those who
/// compare this with other parsers.
pub fn answer_end(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let response::Seen::Whole(head) = response::look(bytes.get(from..)?, false, &mut Vec::new()) else {
            return None;
        };
        from += head.length;
        if !head.is_interim() {
            let mut body = carry::Rest::new(head.ends);
            from += body.follow(bytes.get(from..)?)?;
            return body.is_over().then_some(from);
        }
    }
}

/// Carries plain requests of a client; gives back the bytes of the first that is not plain, or nothing when the client is gone.
pub(crate) async fn run<S>(
    core: &Rc<Core>,
    conn: &Rc<Conn>,
    stream: &mut S,
    mut inbox: Vec<u8>,
) -> Option<Vec<u8>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let table = core.table();
        let mut scratch = core.scratch();
        let (length, outcome) = match request::look(core, conn, &table, &inbox, &mut scratch) {
            request::Seen::Part => {
                core.keep(scratch);
                if inbox.len() > HEAD_MAX {
                    return Some(inbox);
                }
                drop(table);
                more(&conn.state, stream, &mut inbox).await?;
                continue;
            }
            request::Seen::Odd => {
                core.keep(scratch);
                return Some(inbox);
            }
            request::Seen::Plain(plain) => {
                (plain.length, carry::carry(core, conn, &plain, stream, &mut scratch).await)
            }
        };
        core.keep(scratch);
        match outcome {
            Outcome::Answered => drop(inbox.drain(..length)),
            Outcome::Over => return None,
            Outcome::Left => return Some(inbox),
        }
    }
}

/// Reads more, as long as the client may wait.
async fn more<S>(state: &State, stream: &mut S, inbox: &mut Vec<u8>) -> Option<()>
where
    S: AsyncRead + Unpin,
{
    inbox.reserve(READ);
    let mut reading = pin!(stream.read_buf(inbox));
    let read = poll_fn(|cx| match state.order() {
        Order::Go => reading.as_mut().poll(cx),
        Order::Finish | Order::Close => Poll::Ready(Ok(0)),
    })
    .await;
    state.reads();
    (read.ok()? > 0).then_some(())
}

impl Scratch {
    /// Makes it fit for the next request.
    pub(crate) fn clear(&mut self) {
        for bytes in [&mut self.up, &mut self.back, &mut self.out] {
            bytes.clear();
            bytes.shrink_to(SCRATCH_MAX);
        }
    }
}
