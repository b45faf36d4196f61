//! The lane for plain requests: a GET or HEAD without a body, of HTTP/1.1 or on a stream of HTTP/2, to an HTTP endpoint of the own member. They are
//! most of all requests, and they are carried without being taken apart into maps: a head is read, checked, copied without what
//! is for one hop, and sent; the answer likewise.
//!
//! ```text
//!   client's bytes ─► request (plain?) ──yes──► carry ─► endpoint
//!   a stream ───────► stream  (plain?) ──yes──►   │
//!                        │ no                     │ failed before an answer
//!                        └────► the way of all ◄──┘   with the same bytes, and of HTTP/1.1 for as long as the connection lives
//! ```
//!
//! Heads are read by the parser that hyper has, so both read them alike; whatever needs more than copying is left to hyper,
//! and so is everything that goes wrong before the first byte of an answer: it knows how to try again elsewhere.
//!
//! Reading order: here, `request`, `carry`, `response`, `deliver`, `body`, `chunks`, `asker` (whom an answer goes to), `stream`.

mod asker;
mod body;
mod carry;
mod chunks;
mod deliver;
mod request;
mod response;
mod stream;

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};

use asker::Client;
use carry::{Carried, carry};
pub(crate) use stream::run as run_stream;

use crate::clients::{Order, State};
use crate::core::Core;
use crate::http::{Before, Conn};

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
    /// Nothing was answered: others must do it. If it was begun, this is known of it.
    Left(Option<Before>),
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
        let response::Seen::Whole(head) = response::look(bytes.get(from..)?, false, false, &mut Vec::new())
        else {
            return None;
        };
        from += head.length;
        if !head.is_interim() {
            let mut body = body::Rest::new(head.ends);
            from += body.follow(bytes.get(from..)?, &mut ())?;
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
        let (length, carried) = match request::look(core, conn, &table, &inbox, &mut scratch) {
            request::Seen::Part => {
                core.keep(scratch);
                if inbox.len() > HEAD_MAX {
                    return Some(inbox);
                }
                drop(table);
                more_lines(core, &conn.state, stream, &mut inbox).await?;
                continue;
            }
            request::Seen::Odd => {
                core.keep(scratch);
                return Some(inbox);
            }
            request::Seen::Plain(plain) => {
                let Scratch { up, back, out } = &mut scratch;
                let mut client = Client { core, stream, out };
                (plain.length, carry(core, conn, &plain, &mut client, up, back).await)
            }
        };
        // An answer may take longer than the table is of use.
        drop(table);
        let outcome = match carried {
            Carried::Begun(delivery) => {
                let Scratch { up, back, out } = &mut scratch;
                delivery.pass(core, conn, &mut Client { core, stream, out }, up, back).await
            }
            Carried::Ended(outcome) => outcome,
        };
        core.keep(scratch);
        match outcome {
            Outcome::Answered => drop(inbox.drain(..length)),
            Outcome::Over => return None,
            Outcome::Left(before) => {
                conn.left.set(before);
                return Some(inbox);
            }
        }
    }
}

/// Reads on until there may be more to a head than there was: one that comes byte by byte is not looked at anew with each.
async fn more_lines<S>(core: &Core, state: &State, stream: &mut S, inbox: &mut Vec<u8>) -> Option<()>
where
    S: AsyncRead + Unpin,
{
    let known = inbox.len();
    loop {
        let before = inbox.len();
        more(core, state, stream, inbox).await?;
        if known == 0 || inbox.len() > HEAD_MAX || inbox.get(before..)?.contains(&b'\n') {
            return Some(());
        }
    }
}

/// Reads more, as long as the client may wait. Who has sent nothing has no room of its own meanwhile: all of a thread's clients
/// read into the same.
pub(crate) async fn more<S>(core: &Core, state: &State, stream: &mut S, inbox: &mut Vec<u8>) -> Option<()>
where
    S: AsyncRead + Unpin,
{
    if inbox.is_empty() {
        core.keep_inbox(std::mem::take(inbox));
    }
    let read = poll_fn(|cx| match state.order() {
        Order::Go => core.read(Pin::new(&mut *stream), cx, inbox),
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
