//! Whom an answer goes to: here a client of HTTP/1.1, whose connection is the lane's; in `stream` one of HTTP/2's streams.

use std::task::{Context, Poll};

use http::HeaderValue;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::body::Rest;
use super::request::line;
use crate::core::Core;
use crate::http::patiently;

/// Where the head of an answer is written, as it is read. Nothing is written where that cannot be passed on.
pub(super) trait Heads {
    /// Begins it anew.
    fn begin(&mut self, status: u16, reason: &str) -> Option<()>;
    /// One more header.
    fn header(&mut self, name: &str, value: &[u8]) -> Option<()>;
    /// The body comes in chunks, or with an end that only the connection tells: its length is not known.
    fn chunked(&mut self);
}

/// What we tell in a head ourselves.
pub(super) struct Ours<'a> {
    /// When the answer was made, if its endpoint does not tell.
    pub(super) date: Option<HeaderValue>,
    /// `Strict-Transport-Security`.
    pub(super) hsts: Option<&'a HeaderValue>,
    /// The connection ends with this answer, where there is one for each request.
    pub(super) closes: bool,
}

/// Whoever asked. What is said to one that is gone, or takes nothing for too long, is lost, and gives nothing.
pub(super) trait Asker {
    type Head: Heads;

    /// Where the head of its answer is written.
    fn head(&mut self) -> &mut Self::Head;

    /// Passes on what was written there: the answer is still to come.
    async fn hint(&mut self) -> Option<()>;

    /// The head is that of the answer, and goes with the first bytes of its body.
    fn end_head(&mut self, ours: Ours<'_>);

    /// Takes what came of a body: gives how many of these bytes belong to it; none when they are unsound.
    fn take(&mut self, came: &[u8], rest: &mut Rest) -> Option<usize>;

    /// Passes on what it has; with the last of it, tells that it is over.
    async fn pass(&mut self, over: bool) -> Option<()>;

    /// The body has ended with the endpoint's connection.
    fn end_body(&mut self);

    /// The answer broke off.
    async fn break_off(&mut self);

    /// Whether it has given up waiting.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// A client of HTTP/1.1.
pub(super) struct Client<'a, S> {
    pub(super) core: &'a Core,
    pub(super) stream: &'a mut S,
    /// What goes to it next.
    pub(super) out: &'a mut Vec<u8>,
}

impl<S: AsyncWrite + Unpin> Client<'_, S> {
    /// Writes what is there, as long as some of it is taken now and then.
    async fn write(&mut self) -> Option<()> {
        let Self { core, stream, out } = self;
        let mut rest = &out[..];
        while !rest.is_empty() {
            let taken = patiently(core, stream.write(rest)).await?.ok()?;
            rest = rest.get(taken..).filter(|_| taken > 0)?;
        }
        // TLS may hold the last bytes back, and nobody knows when more comes.
        patiently(core, stream.flush()).await?.ok()?;
        out.clear();
        Some(())
    }
}

impl<S: AsyncWrite + Unpin> Asker for Client<'_, S> {
    type Head = Vec<u8>;

    fn head(&mut self) -> &mut Vec<u8> {
        self.out
    }

    async fn hint(&mut self) -> Option<()> {
        self.out.extend_from_slice(b"\r\n");
        self.write().await
    }

    fn end_head(&mut self, ours: Ours<'_>) {
        let date = ours.date.as_ref().map(|date| (&b"date"[..], date));
        let hsts = ours.hsts.map(|hsts| (&b"strict-transport-security"[..], hsts));
        for (name, value) in date.into_iter().chain(hsts) {
            line(self.out, name, value.as_bytes());
        }
        if ours.closes {
            self.out.extend_from_slice(b"connection: close\r\n");
        }
        self.out.extend_from_slice(b"\r\n");
    }

    fn take(&mut self, came: &[u8], rest: &mut Rest) -> Option<usize> {
        let belongs = rest.follow(came, &mut ())?;
        let came = came.get(..belongs)?;
        match rest {
            // With all that frames it: it is passed on as it came.
            Rest::Length(_) | Rest::Chunked(_) => self.out.extend_from_slice(came),
            Rest::Close if came.is_empty() => {}
            // Its client has to see whether it ends or breaks off.
            Rest::Close => {
                self.out.extend_from_slice(format!("{:x}\r\n", came.len()).as_bytes());
                self.out.extend_from_slice(came);
                self.out.extend_from_slice(b"\r\n");
            }
        }
        Some(belongs)
    }

    async fn pass(&mut self, _: bool) -> Option<()> {
        // One write for a small answer; a large one goes as it comes.
        self.write().await
    }

    fn end_body(&mut self) {
        self.out.extend_from_slice(b"0\r\n\r\n");
    }

    async fn break_off(&mut self) {
        // Its connection ends, and that tells it.
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        // Its next request may be on its way already: only reading it would tell.
        Poll::Pending
    }
}

impl Heads for Vec<u8> {
    fn begin(&mut self, status: u16, reason: &str) -> Option<()> {
        self.clear();
        if status == 200 {
            self.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
            return Some(());
        }
        self.extend_from_slice(b"HTTP/1.1 ");
        self.extend_from_slice(status.to_string().as_bytes());
        self.push(b' ');
        self.extend_from_slice(reason.as_bytes());
        self.extend_from_slice(b"\r\n");
        Some(())
    }

    fn header(&mut self, name: &str, value: &[u8]) -> Option<()> {
        line(self, name.as_bytes(), value);
        Some(())
    }

    fn chunked(&mut self) {
        self.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
}
