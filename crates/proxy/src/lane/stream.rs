//! Plain requests on streams of HTTP/2: to their endpoints they are what those of HTTP/1.1 are.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{COOKIE, DATE, STRICT_TRANSPORT_SECURITY, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use httparse::{EMPTY_HEADER, Status};

use super::asker::{Asker, Heads, Ours};
use super::body::Rest;
use super::carry::{Carried, carry};
use super::chunks::{Payload, TRAILERS_MAX};
use super::request::{Fate, Plain, fate, found, is_followed, line};
use super::{HEAD_MAX, Outcome, Scratch};
use crate::core::Core;
use crate::http::{Before, Conn, break_off, send_all, strip_hop};
use crate::table::Table;
use crate::trace;

/// Carries a request if it is plain; gives what is known of it where it must be handled otherwise, and nothing was answered.
pub(crate) async fn run(
    core: &Rc<Core>,
    conn: &Rc<Conn>,
    request: &Request<RecvStream>,
    answer: &mut SendResponse<Bytes>,
) -> Result<(), Option<Before>> {
    let table = core.table();
    let mut scratch = core.scratch();
    let Scratch { up, back, .. } = &mut scratch;
    let mut stream = Stream::new(core, answer);
    let carried = match look(core, conn, &table, request, up) {
        Some(plain) => carry(core, conn, &plain, &mut stream, up, back).await,
        None => Carried::Ended(Outcome::Left(None)),
    };
    // An answer may take longer than the table is of use.
    drop(table);
    let outcome = match carried {
        Carried::Begun(delivery) => delivery.pass(core, conn, &mut stream, up, back).await,
        Carried::Ended(outcome) => outcome,
    };
    core.keep(scratch);
    match outcome {
        Outcome::Left(before) => Err(before),
        Outcome::Answered | Outcome::Over => Ok(()),
    }
}

/// Writes the head for the endpoint if a request is plain.
fn look<'t>(
    core: &Rc<Core>,
    conn: &Conn,
    table: &'t Table,
    request: &Request<RecvStream>,
    up: &mut Vec<u8>,
) -> Option<Plain<'t>> {
    let (method, headers) = (request.method(), request.headers());
    if !matches!(*method, Method::GET | Method::HEAD) || !request.body().is_end_stream() {
        return None;
    }
    let host = request.uri().authority()?.as_str().as_bytes();
    let target = request.uri().path_and_query()?.as_str();
    copy(method, target, host, headers, up)?;
    up.extend_from_slice(&conn.block);
    up.extend_from_slice(b"\r\n");
    if up.len() > HEAD_MAX {
        return None;
    }
    let (route, target, local) = found(core, conn, table, host, target)?;
    if is_followed(core, || headers.contains_key(trace::PARENT)) {
        return None;
    }
    Some(Plain { length: 0, is_head: method == Method::HEAD, route, target, local })
}

/// Writes what the client says; nothing is given where there is more to it than can be copied.
fn copy(method: &Method, target: &str, host: &[u8], headers: &HeaderMap, up: &mut Vec<u8>) -> Option<()> {
    for part in [method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        up.extend_from_slice(part.as_bytes());
    }
    line(up, b"host", host);
    let mut cookies = false;
    for (name, value) in headers {
        match fate(name.as_str()) {
            Fate::Drop => {}
            // A second host, and a connection's own headers, which nobody may send here, are left to others.
            Fate::Odd | Fate::Host | Fate::Connection => return None,
            Fate::Keep if name == COOKIE => {
                if !std::mem::replace(&mut cookies, true) {
                    join_cookies(headers, up);
                }
            }
            Fate::Keep => line(up, name.as_str().as_bytes(), value.as_bytes()),
        }
    }
    line(up, b"x-forwarded-host", host);
    Some(())
}

/// HTTP/2 allows a cookie header to come in pieces; HTTP/1.1 does not.
fn join_cookies(headers: &HeaderMap, up: &mut Vec<u8>) {
    let mut before: &[u8] = b"cookie: ";
    for piece in headers.get_all(COOKIE) {
        up.extend_from_slice(before);
        up.extend_from_slice(piece.as_bytes());
        before = b"; ";
    }
    up.extend_from_slice(b"\r\n");
}

/// A stream that waits for its answer.
struct Stream<'a> {
    core: &'a Core,
    answer: &'a mut SendResponse<Bytes>,
    head: Fields,
    body: Pieces,
    /// There once the head is sent.
    to: Option<SendStream<Bytes>>,
}

/// The head of an answer.
#[derive(Default)]
struct Fields {
    status: StatusCode,
    headers: HeaderMap,
}

/// What came of a body and is not sent yet.
#[derive(Default)]
struct Pieces {
    data: Vec<u8>,
    /// As they came, with the empty line behind them.
    trailers: Vec<u8>,
}

impl<'a> Stream<'a> {
    fn new(core: &'a Core, answer: &'a mut SendResponse<Bytes>) -> Self {
        Self { core, answer, head: Fields::default(), body: Pieces::default(), to: None }
    }

    /// Sends the head. A stream that cannot be answered is given up.
    fn begin(&mut self, ends: bool) -> Option<()> {
        let sent = self.answer.send_response(self.head.response(), ends);
        if sent.is_err() {
            self.answer.send_reset(Reason::INTERNAL_ERROR);
        }
        self.to = Some(sent.ok()?);
        Some(())
    }
}

impl Asker for Stream<'_> {
    type Head = Fields;

    fn head(&mut self) -> &mut Fields {
        &mut self.head
    }

    async fn hint(&mut self) -> Option<()> {
        self.answer.send_informational(self.head.response()).ok()
    }

    fn end_head(&mut self, ours: Ours<'_>) {
        self.head.headers.extend(ours.date.map(|date| (DATE, date)));
        if let Some(hsts) = ours.hsts {
            self.head.headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
    }

    fn take(&mut self, came: &[u8], rest: &mut Rest) -> Option<usize> {
        rest.follow(came, &mut self.body)
    }

    async fn pass(&mut self, over: bool) -> Option<()> {
        let data = Bytes::from(std::mem::take(&mut self.body.data));
        let trailers = if over { self.body.trailers() } else { None };
        let ends = over && trailers.is_none();
        let with_head = self.to.is_none();
        if with_head {
            self.begin(ends && data.is_empty())?;
        }
        let to = self.to.as_mut()?;
        if !data.is_empty() {
            send_all(self.core, to, data, ends).await?;
        } else if ends && !with_head {
            to.send_data(data, true).ok()?;
        }
        match trailers {
            Some(trailers) => to.send_trailers(trailers).ok(),
            None => Some(()),
        }
    }

    fn end_body(&mut self) {
        // The last frame says so.
    }

    async fn break_off(&mut self) {
        // What is sound of it is the client's.
        self.pass(false).await;
        if let Some(to) = &mut self.to {
            break_off(to).await;
        }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.to {
            Some(to) => to.poll_reset(cx).map(|_| ()),
            None => self.answer.poll_reset(cx).map(|_| ()),
        }
    }
}

impl Fields {
    fn response(&mut self) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        *response.headers_mut() = std::mem::take(&mut self.headers);
        response
    }
}

impl Heads for Fields {
    fn begin(&mut self, status: u16, _: &str) -> Option<()> {
        *self = Self { status: StatusCode::from_u16(status).ok()?, headers: HeaderMap::with_capacity(8) };
        Some(())
    }

    fn header(&mut self, name: &str, value: &[u8]) -> Option<()> {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        // No answer has a use for it, and HTTP/2 allows it to requests alone.
        if name != TE {
            self.headers.append(name, HeaderValue::from_bytes(value).ok()?);
        }
        Some(())
    }

    fn chunked(&mut self) {
        // Streams are made of frames anyway.
    }
}

impl Pieces {
    /// The trailers, if there are any.
    fn trailers(&mut self) -> Option<HeaderMap> {
        let bytes = std::mem::take(&mut self.trailers);
        let mut headers = [EMPTY_HEADER; TRAILERS_MAX];
        let Ok(Status::Complete((_, headers))) = httparse::parse_headers(&bytes, &mut headers) else {
            return None;
        };
        let pair = |header: &httparse::Header<'_>| {
            let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_bytes(header.value).ok()?))
        };
        let mut trailers = HeaderMap::new();
        for (name, value) in headers.iter().filter_map(pair) {
            trailers.append(name, value);
        }
        strip_hop(&mut trailers);
        trailers.remove(TE);
        (!trailers.is_empty()).then_some(trailers)
    }
}

impl Payload for Pieces {
    fn data(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    fn trailer(&mut self, byte: u8) {
        self.trailers.push(byte);
    }
}
