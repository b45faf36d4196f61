//! The lane of `landfall-proxy`, which reads HTTP/1.1 itself: it and hyper never disagree about where a request or an answer ends.
//! What the lane does not take is hyper's alone, so there is nothing to disagree about.
//!
//! Used by the fuzz targets, and by a test of `landfall-proxy` that runs the corpora.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use landfall_proxy::lane::{answer_end, request_end};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;

/// A client's bytes.
pub fn request(bytes: &[u8]) {
    let Some((end, passed_on)) = request_end(bytes) else { return };
    let alone = served(&bytes[..end]);
    assert_eq!(alone.len(), 1, "hyper sees {alone:?} where the lane sees one request");
    assert!(alone[0].sound && alone[0].body.is_empty(), "hyper sees a body: {alone:?}");
    assert_eq!(served(&bytes[..end - 1]), [], "it is over before the lane thinks so");
    // What follows is not part of it.
    assert_eq!(served(bytes).first(), alone.first());
    // An endpoint is asked for the same.
    let asked = served(&passed_on);
    assert_eq!(asked.len(), 1, "{}", String::from_utf8_lossy(&passed_on));
    assert_eq!((&asked[0].line, &asked[0].host), (&alone[0].line, &alone[0].host));
}

/// An endpoint's bytes.
pub fn answer(bytes: &[u8]) {
    let Some(end) = answer_end(bytes) else { return };
    let whole = answered(&bytes[..end]);
    assert!(whole.is_some(), "hyper sees no whole answer where the lane sees one");
    assert_eq!(answered(&bytes[..end - 1]), None, "it is over before the lane thinks so");
    assert_eq!(answered(bytes), whole, "what follows is not part of it");
}

/// A request as hyper sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    line: String,
    host: Option<Vec<u8>>,
    /// Its body came to an end.
    sound: bool,
    body: Vec<u8>,
}

/// The requests that hyper sees in a client's bytes, after which the client says no more.
fn served(bytes: &[u8]) -> Vec<Seen> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = seen.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let note = note.clone();
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            let host = request.headers().get("host").map(|host| host.as_bytes().to_vec());
            let body = request.into_body().collect().await;
            let sound = body.is_ok();
            let body = body.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
            note.borrow_mut().push(Seen { line, host, sound, body });
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(Said { bytes, waits: None }), service);
    // What is wrong with the bytes is what is looked for.
    let _ = run(connection);
    seen.take()
}

/// The status and the body that hyper sees in an endpoint's bytes, after which it says no more; none where they are not whole.
fn answered(bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
    run(async {
        let said = Said { bytes, waits: Some(Waker::noop().clone()) };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(said)).await.ok()?;
        let asking = async {
            let request = Request::get("/").header("host", "a").body(Empty::<Bytes>::new()).ok()?;
            let response = sender.send_request(request).await.ok()?;
            let status = response.status().as_u16();
            Some((status, response.into_body().collect().await.ok()?.to_bytes().to_vec()))
        };
        let (mut asking, mut connection) = (std::pin::pin!(asking), std::pin::pin!(connection));
        let mut over = false;
        std::future::poll_fn(|cx| {
            let before = asking.as_mut().poll(cx);
            over = before.is_ready() || over || connection.as_mut().poll(cx).is_ready();
            if before.is_ready() { before } else { asking.as_mut().poll(cx) }
        })
        .await
    })
}

fn run<F: Future>(future: F) -> F::Output {
    thread_local!(static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime"));
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// The other side: it says this, then no more, and does not care what it is told.
struct Said<'a> {
    bytes: &'a [u8],
    /// It says nothing before it was asked, and then wakes whoever waits for that.
    waits: Option<Waker>,
}

impl AsyncRead for Said<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(waker) = &mut self.waits {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        let (now, rest) = self.bytes.split_at(self.bytes.len().min(buf.remaining()));
        buf.put_slice(now);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Said<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(waker) = self.waits.take() {
            waker.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
