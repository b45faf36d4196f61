//! Tunnels: streams through another edge to one of its endpoints, each one an HTTP/2 CONNECT. They have connections of their
//! own, so that bulk does not stand in the way of requests.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use landfall_runtime::tasks::Tasks;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::link::{ConnectError, Link};
use super::pool::Pool;
use super::pulse::{PING_EVERY, PING_TIMEOUT, Pulse, Silence};
use super::wire::{self, Order};
use crate::http::Body;

/// How much may be under way to us on one stream: members may be far apart. And on one connection: for a thousand streams whose clients take
/// nothing, which would be in everybody's way if there were no more room. (`h2` also ends a connection of which half as many bytes are taken up by
/// the heads of small frames that nobody has taken.)
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
pub(crate) const CONNECTION_WINDOW: u32 = 1 << 30;

/// A stream through another edge.
pub(crate) type Tunnel = TokioIo<Upgraded>;

/// Opens tunnels.
pub(crate) struct Tunnels {
    pool: Pool<Empty<Bytes>>,
    tasks: Tasks,
}

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    /// The other edge cannot be reached.
    #[error("no connection to the edge")]
    Connect(#[source] ConnectError),
    /// The connection to it broke.
    #[error("the connection to the edge broke")]
    Broken(#[source] hyper::Error),
    /// The other edge has no endpoint that can be reached.
    #[error("the edge refuses: {0}")]
    Refused(String),
}

impl Tunnels {
    /// None is open yet.
    pub(crate) fn new(link: Arc<Link>, tasks: Tasks) -> Self {
        Self { pool: Pool::new(link), tasks }
    }

    /// Opens one to an edge, by its name and where it listens.
    pub(crate) async fn open(&self, edge: &str, address: &str, order: &Order) -> Result<Tunnel, TunnelError> {
        let mut sender =
            self.pool.get(edge, address, |stream| self.speak(stream)).await.map_err(TunnelError::Connect)?;
        let request = connect(order).ok_or_else(|| TunnelError::Refused("no such service".into()))?;
        let response = sender.send_request(request).await.map_err(TunnelError::Broken)?;
        if response.status() != StatusCode::OK {
            let why = wire::failure(response.headers()).unwrap_or("it answers with an error");
            return Err(TunnelError::Refused(why.to_owned()));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(TunnelError::Broken)?;
        Ok(TokioIo::new(upgraded))
    }

    async fn speak(
        &self,
        stream: TlsStream<TcpStream>,
    ) -> hyper::Result<(SendRequest<Empty<Bytes>>, Silence)> {
        let pulse = Pulse::new(stream);
        let silence = pulse.silence();
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(pulse))
            .await?;
        self.tasks.spawn_until_stop(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to another edge has ended");
            }
        });
        Ok((sender, silence))
    }
}

/// The request that opens a tunnel. Its authority is a service of the other member, for whoever reads along.
fn connect(order: &Order) -> Option<Request<Empty<Bytes>>> {
    let service = &order.service;
    let authority = format!("{}.{}.svc:{}", service.name, service.namespace, service.port);
    let mut request = Request::builder().method(Method::CONNECT).uri(authority).body(Empty::new()).ok()?;
    order.write(request.headers_mut())?;
    Some(request)
}

/// The answer to whoever asks for a tunnel that there is none.
pub(crate) fn refuse(why: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    wire::fail(response.headers_mut(), why);
    response
}
