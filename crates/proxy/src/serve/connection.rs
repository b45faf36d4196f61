//! One client's connection: HTTP/1.1 or HTTP/2, over any stream.
//!
//! This is where whoever accepts streams hands them over: plain TCP, TLS once its handshake is done, another edge.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::LocalExecutor;
use super::http2::Http2;
use super::io::Io;
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
    let peer = info.from_peer.is_some();
    let agreed = info.tls.as_ref().map(|tls| tls.http2).or_else(|| info.from_peer.is_some().then_some(true));
    let state = Arc::new(State::default());
    let place = poll_fn(|cx| Poll::Ready(core.clients.enter(state.clone(), cx.waker().clone()))).await;
    let _left = Leave(core, place);
    let (http2, before) = match agreed {
        Some(http2) => (http2, Vec::new()),
        None => match first_bytes(&state, &mut stream).await {
            Some(first) => first,
            None => return,
        },
    };
    let conn = Rc::new(Conn::new(info, state.clone()));
    let before = if http2 {
        before
    } else {
        match lane::run(core, &conn, &mut stream, before).await {
            Some(rest) => rest,
            None => return,
        }
    };
    let io = Io::new(stream, before, state.clone(), http2);
    if http2 && !peer {
        let connection = Http2::new(core.clone(), conn, io);
        return drive(&state, connection, |connection| connection.get_mut().finish()).await;
    }
    let service = {
        let core = core.clone();
        // In a box: hyper moves it about, and has room for one with every connection, whether it asks for anything or not.
        service_fn(move |request: Request<Incoming>| {
            Box::pin(answered(handle(core.clone(), conn.clone(), request.map(Received::Hyper), None)))
        })
    };
    let limits = &core.shared.config.limits;
    let io = TokioIo::new(io);
    if http2 {
        let head_bytes = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
        let connection = http2::Builder::new(LocalExecutor)
            .max_concurrent_streams(PEER_STREAMS)
            .max_pending_accept_reset_streams(usize::try_from(PEER_STREAMS).unwrap_or(usize::MAX))
            .max_header_list_size(head_bytes)
            .initial_stream_window_size(tunnel::STREAM_WINDOW)
            .initial_connection_window_size(tunnel::CONNECTION_WINDOW)
            .serve_connection(io, service);
        drive(&state, connection, |connection| connection.graceful_shutdown()).await;
    } else {
        let connection = http1::Builder::new()
            .half_close(true)
            .max_header_size(limits.head_bytes)
            .max_buf_size(limits.head_bytes.max(8192))
            .serve_connection(io, service)
            .with_upgrades();
        drive(&state, connection, |connection| connection.graceful_shutdown()).await;
    }
}

/// An answer as hyper wants it: there always is one.
async fn answered<T>(answering: impl Future<Output = T>) -> Result<T, Infallible> {
    Ok(answering.await)
}

/// Reads until it is clear whether the client speaks HTTP/2.
async fn first_bytes<S>(state: &State, stream: &mut S) -> Option<(bool, Vec<u8>)>
where
    S: AsyncRead + Unpin,
{
    let mut seen = Vec::new();
    let reading = async {
        // Most clients are told apart by their first read, which hyper would make just so.
        seen.reserve(FIRST_READ);
        while stream.read_buf(&mut seen).await.ok()? > 0 {
            state.reads();
            let compared = seen.len().min(PREFACE.len());
            if seen[..compared] != PREFACE[..compared] {
                return Some(false);
            }
            if compared == PREFACE.len() {
                return Some(true);
            }
        }
        None
    };
    let mut reading = pin!(reading);
    let http2 = poll_fn(|cx| match state.order() {
        Order::Go => reading.as_mut().poll(cx),
        Order::Finish | Order::Close => Poll::Ready(None),
    })
    .await?;
    Some((http2, seen))
}

/// What is read at first.
const FIRST_READ: usize = 1024;

/// Runs a connection, and does what it is told.
async fn drive<C: Future>(state: &State, connection: C, finish: impl Fn(Pin<&mut C>)) {
    let mut connection = pin!(connection);
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
