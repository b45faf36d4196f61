//! Connections: accepted, secured, counted, limited, and drained when the server stops.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::api::Api;
use crate::authn::x509;
use crate::pki::Tls;
use crate::serve::{Peer, serve};

/// Open connections; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 20_000;

/// How long a client may take for its TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long a client may take to send the head of a request, idle time included.
const HEAD_MAX: Duration = Duration::from_secs(120);

/// How long requests may go on once the server stops.
const DRAIN_MAX: Duration = Duration::from_secs(20);

/// How long to wait before accepting again when the system has no more file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The largest head of a request, and so the buffer of an HTTP/1 connection; HTTP/2 counts its header list.
const HEAD_BYTES_MAX: u32 = 64 * 1024;

/// Requests at once on one HTTP/2 connection, watches included; as Kubernetes allows.
const STREAMS_MAX: u32 = 250;

/// Where connections come in. It can be shut, which cuts them all off, and opened again.
pub struct Door {
    api: Arc<Api>,
    tls: Arc<Tls>,
    /// Stops what goes through the door of now.
    cut: Mutex<Tasks>,
}

impl Door {
    /// A door that is shut.
    pub fn new(api: Arc<Api>, tls: Tls) -> Self {
        Self { api, tls: Arc::new(tls), cut: Mutex::default() }
    }

    /// Serves on `listener` until the door is shut or the server stops.
    pub fn open(&self, listener: TcpListener) {
        let cut = Tasks::default();
        *self.cut.lock() = cut.clone();
        let (api, tls) = (self.api.clone(), self.tls.clone());
        self.api.tasks.spawn(run(api, listener, tls, cut));
    }

    /// Cuts all connections off at once, requests and watches included, and accepts no new ones. The address is free
    /// when this returns.
    pub async fn shut(&self) {
        let cut = self.cut.lock().clone();
        cut.join().await;
    }
}

/// Serves until the tasks are told to stop; returns when every connection is closed or the drain took too long.
/// When `cut` stops, everything is dropped at once.
async fn run(api: Arc<Api>, listener: TcpListener, tls: Arc<Tls>, cut: Tasks) {
    let (done, waiting) = tokio::sync::oneshot::channel::<()>();
    // Whoever cuts waits until the listener is gone.
    cut.spawn(async move { drop(waiting.await) });
    tokio::select! {
        () = serve_until_stop(api, listener, tls, &cut) => {}
        () = cut.stopping() => {}
    }
    drop(done);
}

async fn serve_until_stop(api: Arc<Api>, listener: TcpListener, tls: Arc<Tls>, cut: &Tasks) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = Tasks::default();
    let mut stop = pin!(api.tasks.stopping());
    loop {
        let permit = tokio::select! {
            permit = room.clone().acquire_owned() => permit,
            () = &mut stop => break,
        };
        let Ok(permit) = permit else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, address)) => {
                let (api, tls, stopping) = (api.clone(), tls.clone(), connections.stopping());
                let cut = cut.stopping();
                connections.spawn(async move {
                    api.telemetry.connections.add(1);
                    tokio::select! {
                        () = connection(&api, &tls, stream, address, stopping) => {}
                        () = cut => {}
                    }
                    api.telemetry.connections.add(-1);
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_MAX, connections.join()).await.is_err() {
        tracing::warn!("some requests did not end in time and were cut off");
    }
}

/// One connection from handshake to close.
async fn connection(
    api: &Arc<Api>,
    tls: &Tls,
    stream: TcpStream,
    address: SocketAddr,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    // Answers are written whole; waiting for more only delays them.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let acceptor = TlsAcceptor::from(tls.config());
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await else { return };
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = tls.peer(shown, clock::epoch_s());
    let ends_s = shown.and_then(<[_]>::first).map(|certificate| x509::ends_s(certificate));
    let peer = Arc::new(Peer { certificate, ends_s, address: Some(address.ip()) });
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (api, peer) = (api.clone(), peer.clone());
        async move { Ok::<_, Infallible>(serve(&api, &peer, request).await) }
    });
    let io = TokioIo::new(stream);
    // An error here is a client that went away or broke the protocol; hyper has answered what can be answered.
    if http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .keep_alive_interval(Some(Duration::from_secs(30)))
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = stop => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_buf_size(HEAD_BYTES_MAX as usize)
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = stop => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}
