//! One client's connection: HTTP/1.1 or HTTP/2, over any stream.
//!
//! This is where whoever accepts streams hands them over: plain TCP, TLS once its handshake is done, another edge.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::LocalExecutor;
use super::http2::Http2;
use super::io::{Hears, Io};
use super::noise::Noise;
use crate::clients::{Order, State};
use crate::core::Core;
use crate::http::{Conn, ConnInfo, Received, handle};
use crate::lane;
use crate::peer::tunnel;

/// What an HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Streams that another edge, which speaks for many clients, may have open on one connection.
const PEER_STREAMS: u32 = 10_000;

/// Serves a client until it is gone, its time is over, or the proxy ends.
pub(crate) async fn connection<S>(core: &Rc<Core>, mut stream: S, info: ConnInfo)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let agreed = info.tls.as_ref().map(|tls| tls.http2).or_else(|| info.from_peer.is_some().then_some(true));
    let state = Arc::new(State::default());
    let place = poll_fn(|cx| Poll::Ready(core.clients.enter(state.clone(), cx.waker().clone()))).await;
    let _left = Leave(core, place);
    let (http2, before) = match agreed {
        Some(http2) => (http2, Vec::new()),
        None => match first_bytes(core, &state, &mut stream).await {
            Some(first) => first,
            None => return,
        },
    };
    if http2 {
        state.speaks_http2();
    }
    let conn = Rc::new(Conn::new(info, state.clone()));
    let before = if http2 {
        before
    } else {
        match lane::run(core, &conn, &mut stream, before).await {
            Some(rest) => rest,
            None => return,
        }
    };
    // In a box: clients of the lane do without, and would have room for it all their life.
    Box::pin(beyond_lane(core, conn, stream, before, http2)).await;
}

/// Serves a client by hyper, or by our own server for HTTP/2; some of its bytes were read already.
async fn beyond_lane<S>(core: &Rc<Core>, conn: Rc<Conn>, stream: S, before: Vec<u8>, http2: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let state = conn.state.clone();
    let hears = match http2 {
        true if conn.info.from_peer.is_some() => Hears::Edge,
        true => Hears::Frames(Noise::new()),
        false => Hears::Request,
    };
    let io = Io::new(stream, before, state.clone(), hears);
    if http2 && conn.info.from_peer.is_none() {
        let mut connection = pin!(Http2::new(core.clone(), conn, io));
        return drive(&state, connection.as_mut(), |connection| connection.get_mut().finish()).await;
    }
    let service = {
        let core = core.clone();
        // In a box: hyper moves it about, and has room for one with every connection, whether it asks for anything or not.
        service_fn(move |request: Request<Incoming>| {
            Answered(Box::pin(handle(core.clone(), conn.clone(), request.map(Received::Hyper), None)))
        })
    };
    let limits = &core.shared.config.limits;
    let io = TokioIo::new(io);
    if http2 {
        // Another edge has taken the head in already, and adds what it knows; and HTTP/2 counts each header for 32 bytes more.
        let head_bytes = u32::try_from(limits.head_bytes.saturating_mul(2)).unwrap_or(u32::MAX);
        let connection = http2::Builder::new(LocalExecutor)
            .max_concurrent_streams(PEER_STREAMS)
            .max_pending_accept_reset_streams(usize::try_from(PEER_STREAMS).unwrap_or(usize::MAX))
            .max_header_list_size(head_bytes)
            .initial_stream_window_size(tunnel::STREAM_WINDOW)
            .initial_connection_window_size(tunnel::CONNECTION_WINDOW)
            .serve_connection(io, service);
        drive(&state, pin!(connection), |connection| connection.graceful_shutdown()).await;
    } else {
        let connection = http1::Builder::new()
            .half_close(true)
            .max_header_size(limits.head_bytes)
            .max_buf_size(limits.head_bytes.max(8192))
            .serve_connection(io, service)
            .with_upgrades();
        drive(&state, pin!(connection), |connection| connection.graceful_shutdown()).await;
    }
}

/// An answer as hyper wants it: there always is one. A function that awaits it would have room for it twice.
struct Answered<F>(Pin<Box<F>>);

impl<F: Future> Future for Answered<F> {
    type Output = Result<F::Output, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

/// Reads until it is clear whether the client speaks HTTP/2: most are told apart by their first read.
async fn first_bytes<S>(core: &Core, state: &State, stream: &mut S) -> Option<(bool, Vec<u8>)>
where
    S: AsyncRead + Unpin,
{
    let mut seen = Vec::new();
    loop {
        lane::more(core, state, stream, &mut seen).await?;
        let compared = seen.len().min(PREFACE.len());
        if seen[..compared] != PREFACE[..compared] {
            return Some((false, seen));
        }
        if compared == PREFACE.len() {
            return Some((true, seen));
        }
    }
}

/// Runs a connection, and does what it is told.
async fn drive<C: Future>(state: &State, mut connection: Pin<&mut C>, finish: impl Fn(Pin<&mut C>)) {
    let mut told = Order::Go;
    poll_fn(|cx| {
        let order = state.order();
        if order > told {
            told = order;
            match order {
                Order::Close => return Poll::Ready(()),
                Order::Finish | Order::Go => finish(connection.as_mut()),
            }
        }
        // What went wrong is the client's to know.
        connection.as_mut().poll(cx).map(|_| ())
    })
    .await;
}

struct Leave<'a>(&'a Core, usize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.clients.leave(self.1);
    }
}
