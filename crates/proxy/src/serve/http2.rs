//! A client that speaks HTTP/2, on the crate `h2` itself: hyper's server has no way to say anything before an answer.
//!
//! Streams may become WebSockets (RFC 8441): to endpoints they are what HTTP/1.1 knows as such. Other edges come in by hyper's server, whose
//! streams become tunnels.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, DATE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TE, UPGRADE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use landfall_runtime::clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::io::Io;
use crate::core::Core;
use crate::http::{Answering, Before, Body, Conn, Received, Stream, Tunnel, handle, send, strip_hop};
use crate::lane;

/// Streams that a client may open and reset before we have looked at them.
const RESETS_MAX: usize = 50;
/// Bytes that the heads of small frames may take up which came and were not passed on yet: an endpoint may be slower than its client.
const SMALL_FRAMES: usize = 4 << 20;
/// Bytes that a client may send before they are passed on: of a stream, and of all.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// What an endpoint that accepts a WebSocket adds to the key, by RFC 6455.
const ACCEPTS: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A connection, served as long as it is polled.
pub(super) struct Http2<S> {
    core: Rc<Core>,
    conn: Rc<Conn>,
    phase: Phase<S>,
    finishing: bool,
    /// It was told to calm down, and that is all.
    ending: bool,
}

enum Phase<S> {
    Greets(Handshake<Io<S>, Bytes>),
    Serves(Connection<Io<S>, Bytes>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2<S> {
    pub(super) fn new(core: Rc<Core>, conn: Rc<Conn>, io: Io<S>) -> Self {
        let limits = &core.shared.config.limits;
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(limits.streams)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .data_frame_budget(SMALL_FRAMES)
            .enable_connect_protocol();
        let phase = Phase::Greets(builder.handshake(io));
        Self { core, conn, phase, finishing: false, ending: false }
    }

    /// Takes no new requests, and ends after those that it has.
    pub(super) fn finish(&mut self) {
        self.finishing = true;
        if let Phase::Serves(connection) = &mut self.phase {
            connection.graceful_shutdown();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Http2<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            match &mut this.phase {
                Phase::Greets(handshake) => {
                    let Ok(mut connection) = ready!(Pin::new(handshake).poll(cx)) else {
                        return Poll::Ready(());
                    };
                    if this.finishing {
                        connection.graceful_shutdown();
                    }
                    this.phase = Phase::Serves(connection);
                }
                Phase::Serves(connection) => {
                    if this.conn.state.is_noisy() && !std::mem::replace(&mut this.ending, true) {
                        this.core.shared.meters.rare.refused.inc();
                        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    }
                    // What went wrong is the client's to know.
                    let Some(Ok((request, answer))) = ready!(connection.poll_accept(cx)) else {
                        return Poll::Ready(());
                    };
                    tokio::task::spawn_local(stream(this.core.clone(), this.conn.clone(), request, answer));
                }
            }
        }
    }
}

/// One request and its answer: plain ones take the lane.
async fn stream(
    core: Rc<Core>,
    conn: Rc<Conn>,
    request: Request<RecvStream>,
    mut answer: SendResponse<Bytes>,
) {
    if let Err(before) = lane::run_stream(&core, &conn, &request, &mut answer).await {
        // In a box: it is large, and most requests do without.
        boxed(whole(core, conn, request, answer, before)).await;
    }
}

/// One request that is more than plain, and its answer.
async fn whole(
    core: Rc<Core>,
    conn: Rc<Conn>,
    request: Request<RecvStream>,
    answer: SendResponse<Bytes>,
    before: Option<Before>,
) {
    let answering = Answering::new(answer);
    let (request, socket) = read(&core, request);
    let is_head = request.method() == Method::HEAD;
    let (socket, upgrade) = socket.unzip();
    let stream = Stream { answering: answering.clone(), upgrade, before };
    let answer = {
        // In a box: it is large, and would be moved with all that surrounds it.
        let mut serving = boxed(handle(core.clone(), conn, request, Some(stream)));
        // Nobody asks for an answer that its client has given up.
        poll_fn(|cx| match serving.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => answering.poll_gone(cx).map(|()| None),
        })
        .await
    };
    let Some(answer) = answer else { return };
    let answer = match socket {
        Some(socket) if answer.status() == StatusCode::SWITCHING_PROTOCOLS && socket.is_agreed(&answer) => {
            return socket.open(&answering, answer);
        }
        // To a client that asked for a WebSocket, any success means that it has one.
        Some(_) if answer.status().is_success() || answer.status().is_informational() => no_websocket(),
        Some(_) | None => answer,
    };
    let (head, body) = ready_to_send(answer);
    let bodiless = is_head || matches!(head.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let ends = bodiless || body.is_end_stream();
    if let Ok(to) = answering.answer(head, ends)
        && !ends
    {
        send(&core, body, to).await;
    }
}

/// Not in the function that awaits it, which would keep room for what it has moved away.
fn boxed<F>(future: F) -> Pin<Box<F>> {
    Box::pin(future)
}

/// A stream that asks to become a WebSocket.
struct Socket {
    /// What the endpoint was asked by.
    key: HeaderValue,
    receive: RecvStream,
    /// Whom it is handed to.
    carrier: oneshot::Sender<Tunnel>,
}

/// A request as it is handled; and what its stream becomes, if it asks for that.
fn read(
    core: &Core,
    request: Request<RecvStream>,
) -> (Request<Received>, Option<(Socket, oneshot::Receiver<Tunnel>)>) {
    let (mut parts, receive) = request.into_parts();
    let protocol = parts.extensions.get::<h2::ext::Protocol>();
    if parts.method == Method::CONNECT && protocol.is_some_and(|to| to.as_str() == "websocket") {
        let key = fresh_key(core);
        parts.method = Method::GET;
        parts.headers.insert(SEC_WEBSOCKET_KEY, key.clone());
        // What comes on the stream is no body: an endpoint that waited for one would take the next request for it.
        parts.headers.remove(CONTENT_LENGTH);
        let (carrier, wait) = oneshot::channel();
        let socket = Socket { key, receive, carrier };
        return (Request::from_parts(parts, Received::Empty), Some((socket, wait)));
    }
    let body = Received::stream(&parts.headers, receive);
    (Request::from_parts(parts, body), None)
}

impl Socket {
    /// Whether the endpoint has agreed to just this (RFC 6455, 4.1): the browser, which would look, sees nothing of it on HTTP/2.
    fn is_agreed(&self, answer: &Response<Body>) -> bool {
        let told = |name: HeaderName| answer.headers().get(name);
        let websocket = told(UPGRADE).is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
        let wanted = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[self.key.as_bytes(), ACCEPTS].concat());
        let accept = told(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        websocket && accept == Some(STANDARD.encode(wanted).as_bytes())
    }

    /// Tells the client so, and hands the stream to whoever carries it.
    fn open(self, answering: &Answering, answer: Response<Body>) {
        let (mut head, _) = ready_to_send(answer);
        strip_hop(head.headers_mut());
        *head.status_mut() = StatusCode::OK;
        head.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
        head.headers_mut().remove(CONTENT_LENGTH);
        if let Ok(send) = answering.answer(head, false) {
            // Whoever is to carry it may have given up.
            let _ = self.carrier.send(Tunnel { send, receive: self.receive });
        }
    }
}

/// What HTTP/1.1 wants of whoever asks for a WebSocket, and HTTP/2 does not: sixteen bytes.
fn fresh_key(core: &Core) -> HeaderValue {
    let bytes = [core.luck().to_be_bytes(), core.luck().to_be_bytes()].concat();
    HeaderValue::try_from(STANDARD.encode(bytes)).unwrap_or(HeaderValue::from_static(""))
}

/// What a client is told whose endpoint did not agree.
fn no_websocket() -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}

/// The head of an answer with what belongs there, and its body. What is for one hop is taken off already.
fn ready_to_send(answer: Response<Body>) -> (Response<()>, Body) {
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(TE);
    if !parts.headers.contains_key(DATE) {
        let now = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + clock::since_epoch());
        parts.headers.extend(HeaderValue::try_from(now).ok().map(|now| (DATE, now)));
    }
    if !body.is_end_stream()
        && parts.status != StatusCode::NO_CONTENT
        && let Some(length) = body.size_hint().exact()
    {
        parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    (Response::from_parts(parts, ()), body)
}
