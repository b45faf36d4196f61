//! Upgrades: a client and an endpoint agree to speak something else, and we carry their bytes both ways.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::oneshot;

use super::exchange::Exchange;
use super::{Received, headers};
use crate::core::Core;

/// A client asks to speak something else.
pub(crate) struct Asked {
    to: HeaderValue,
    client: Client,
}

/// Where its bytes come from once it does.
enum Client {
    /// The whole connection.
    Connection(OnUpgrade),
    /// A stream of HTTP/2.
    Stream(oneshot::Receiver<Tunnel>),
}

/// A stream of HTTP/2 on which something else is spoken.
pub(crate) struct Tunnel {
    pub(crate) send: SendStream<Bytes>,
    pub(crate) receive: RecvStream,
}

/// Bytes that are carried at once.
const CHUNK: usize = 16 << 10;

/// What a request asks to change to, if it does.
pub(super) fn asked(request: &mut Request<Received>) -> Option<Asked> {
    let to = headers::upgrade_of(request.headers(), request.version())?;
    Some(Asked { to, client: Client::Connection(hyper::upgrade::on(request)) })
}

impl Asked {
    /// A stream of HTTP/2 asks to become a WebSocket.
    pub(super) fn websocket(stream: oneshot::Receiver<Tunnel>) -> Self {
        Self { to: HeaderValue::from_static("websocket"), client: Client::Stream(stream) }
    }

    /// Whether a stream of HTTP/2 asks: to its client any success means that the WebSocket is open.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.client, Client::Stream(_))
    }

    /// Asks the endpoint for the same.
    pub(super) fn ask(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.to.clone());
    }

    /// The endpoint agrees: once our answer is with the client, bytes go both ways.
    pub(super) fn agree(
        self,
        core: Rc<Core>,
        response: &mut Response<Incoming>,
        exchange: Exchange,
        idle: Duration,
    ) {
        let endpoint = hyper::upgrade::on(&mut *response);
        let to = response.headers().get(UPGRADE).cloned().unwrap_or(self.to);
        headers::for_client(response.headers_mut());
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, to);
        // hyper is done with a connection once it is upgraded, perhaps before the task below has its first turn; it is open all the same, and
        // has its time when the proxy stops. One with streams stays with those who serve it.
        let whole = matches!(self.client, Client::Connection(_));
        let open = whole.then(|| Open::new(core.clone()));
        tokio::task::spawn_local(async move {
            let _held = (exchange, open);
            let moved = Moved::new(core);
            match self.client {
                Client::Connection(client) => {
                    let (Ok(client), Ok(endpoint)) = (client.await, endpoint.await) else { return };
                    let (from_client, to_client) = split(TokioIo::new(client));
                    let (from_endpoint, to_endpoint) = split(TokioIo::new(endpoint));
                    let (up, down) = (
                        one_way(&moved, from_client, to_endpoint),
                        one_way(&moved, from_endpoint, to_client),
                    );
                    carry(&moved, async { tokio::join!(up, down) }, idle).await;
                }
                Client::Stream(client) => {
                    let (Ok(client), Ok(endpoint)) = (client.await, endpoint.await) else { return };
                    let (from_endpoint, to_endpoint) = split(TokioIo::new(endpoint));
                    let up = from_stream(&moved, client.receive, to_endpoint);
                    let down = to_stream(&moved, from_endpoint, client.send);
                    // When the stream is gone neither way leads on, whatever the endpoint still takes or says.
                    carry(&moved, async { tokio::try_join!(up, down) }, idle).await;
                }
            }
        });
    }
}

/// A client's connection, as long as it lives.
struct Open(Rc<Core>);

impl Open {
    fn new(core: Rc<Core>) -> Self {
        core.shared.connections.fetch_add(1, Ordering::Relaxed);
        Self(core)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When something was last carried, either way.
struct Moved {
    core: Rc<Core>,
    at_ms: Cell<u64>,
}

impl Moved {
    fn new(core: Rc<Core>) -> Self {
        let at_ms = Cell::new(core.ticker.now_ms());
        Self { core, at_ms }
    }

    fn now(&self) {
        self.at_ms.set(self.core.ticker.now_ms());
    }
}

/// Carries bytes both ways until that is done, or nothing moves for too long.
async fn carry(moved: &Moved, both: impl Future, idle: Duration) {
    let ticker = &moved.core.ticker;
    let watch = async {
        loop {
            ticker.after(idle.min(Duration::from_secs(1))).await;
            if ticker.now_ms().saturating_sub(moved.at_ms.get()) > crate::ticker::millis(idle) {
                return;
            }
        }
    };
    tokio::select! { _ = both => {}, () = watch => {} }
}

async fn one_way(moved: &Moved, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = from.read(&mut chunk).await.unwrap_or(0);
        moved.now();
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        if to.write_all(bytes).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    // The other way may still have something to say.
    let _ = to.shutdown().await;
}

/// A stream of HTTP/2 was given up by its client.
struct Gone;

/// The same, from a stream of HTTP/2: what was written makes room for as much.
async fn from_stream(
    moved: &Moved,
    mut from: RecvStream,
    mut to: impl AsyncWrite + Unpin,
) -> Result<(), Gone> {
    while let Some(bytes) = from.data().await {
        let bytes = bytes.map_err(|_| Gone)?;
        moved.now();
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            break;
        }
        // It fails where the stream is gone, which the next look shows.
        let _ = from.flow_control().release_capacity(bytes.len());
    }
    let _ = to.shutdown().await;
    Ok(())
}

/// The same, to a stream of HTTP/2: so much at once as it has room for.
async fn to_stream(
    moved: &Moved,
    mut from: impl AsyncRead + Unpin,
    mut to: SendStream<Bytes>,
) -> Result<(), Gone> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = tokio::select! {
            biased;
            _ = poll_fn(|cx| to.poll_reset(cx)) => return Err(Gone),
            read = from.read(&mut chunk) => read,
        };
        moved.now();
        let Ok(read) = read else {
            // It broke, and did not end.
            to.send_reset(Reason::CANCEL);
            return Ok(());
        };
        let mut bytes = Bytes::copy_from_slice(chunk.get(..read).unwrap_or_default());
        if bytes.is_empty() {
            break;
        }
        while !bytes.is_empty() {
            to.reserve_capacity(bytes.len());
            let Some(Ok(room)) = poll_fn(|cx| to.poll_capacity(cx)).await else { return Err(Gone) };
            to.send_data(bytes.split_to(room.min(bytes.len())), false).map_err(|_| Gone)?;
        }
    }
    to.send_data(Bytes::new(), true).map_err(|_| Gone)
}
