//! Upgrades: a client and an endpoint agree to speak something else, and we carry their bytes both ways.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};

use super::exchange::Exchange;
use super::headers;
use crate::core::Core;

/// A client asks to speak something else.
pub(crate) struct Asked {
    to: HeaderValue,
    client: OnUpgrade,
}

/// Bytes that are carried at once.
const CHUNK: usize = 16 << 10;

/// What a request asks to change to, if it does.
pub(super) fn asked(request: &mut Request<Incoming>) -> Option<Asked> {
    let to = headers::upgrade_of(request.headers(), request.version())?;
    Some(Asked { to, client: hyper::upgrade::on(request) })
}

impl Asked {
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
        // hyper is done with the connection once it is upgraded; it is open all the same, and has its time when the proxy stops.
        let open = Open::new(core.clone());
        tokio::task::spawn_local(async move {
            let _held = (exchange, open);
            let (Ok(client), Ok(endpoint)) = (self.client.await, endpoint.await) else { return };
            carry(&core, client, endpoint, idle).await;
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

/// Carries bytes both ways until both are done, or nothing moves for too long.
async fn carry(core: &Rc<Core>, client: Upgraded, endpoint: Upgraded, idle: Duration) {
    let (from_client, to_client) = split(TokioIo::new(client));
    let (from_endpoint, to_endpoint) = split(TokioIo::new(endpoint));
    let moved = Rc::new(std::cell::Cell::new(core.ticker.now_ms()));
    let up = one_way(core, from_client, to_endpoint, moved.clone());
    let down = one_way(core, from_endpoint, to_client, moved.clone());
    let watch = async {
        loop {
            core.ticker.after(idle.min(Duration::from_secs(1))).await;
            let still_ms = core.ticker.now_ms().saturating_sub(moved.get());
            if still_ms > crate::ticker::millis(idle) {
                return;
            }
        }
    };
    tokio::select! { _ = async { tokio::join!(up, down) } => {}, () = watch => {} }
}

async fn one_way(
    core: &Rc<Core>,
    mut from: ReadHalf<TokioIo<Upgraded>>,
    mut to: WriteHalf<TokioIo<Upgraded>>,
    moved: Rc<std::cell::Cell<u64>>,
) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = from.read(&mut chunk).await.unwrap_or(0);
        moved.set(core.ticker.now_ms());
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        if to.write_all(bytes).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    // The other way may still have something to say.
    let _ = to.shutdown().await;
}
