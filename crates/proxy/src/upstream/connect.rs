//! How a connection to an endpoint is made. This is the seam for transports: a stream is made for a [`Reach`], and HTTP/1.1 or
//! HTTP/2 is spoken over it, whatever it is.

use std::error::Error as _;
use std::rc::Rc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use landfall_api::landfall::BackendProtocol;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Fault;
use crate::core::Core;
use crate::haproxy::{self, Ends};
use crate::http::{BodyError, ConnInfo, Upload};
use crate::l4::dial::Wanted;
use crate::peer::pulse::{PING_EVERY, PING_TIMEOUT, Pulse, Silence};
use crate::peer::tunnel;
use crate::peer::wire::Carries;
use crate::serve::LocalExecutor;
use crate::table::{Reach, Target};

/// An open connection that takes requests.
pub(crate) enum Sender {
    /// One request at a time.
    One(http1::SendRequest<Upload>),
    /// Many at once.
    Many(http2::SendRequest<Upload>),
}

/// For whom a connection is made.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The service's port.
    pub(crate) target: &'a Target,
    /// Who asks.
    pub(crate) conn: &'a ConnInfo,
    /// The endpoint is told of the client by a PROXY header in front of everything.
    pub(crate) proxy_header: bool,
    /// The client asks to speak something else: that goes through other edges as bytes.
    pub(crate) upgrade: bool,
}

impl Call<'_> {
    /// Whether a connection serves this one client alone.
    pub(crate) fn is_alone(&self, reach: &Reach) -> bool {
        self.proxy_header || self.upgrade && matches!(reach, Reach::Peer { .. })
    }

    fn wanted(&self) -> Wanted<'_> {
        let ends = Ends { client: self.conn.client, server: self.conn.local };
        Wanted { target: self.target, ends, send_proxy: self.proxy_header, own: false }
    }
}

/// A connection to another edge that is open already.
pub(crate) fn at_hand(core: &Core, reach: &Reach, call: Call<'_>) -> Option<Sender> {
    match reach {
        Reach::Peer { edge, address } if !call.is_alone(reach) => {
            core.peers.at_hand(edge, address).map(Sender::Many)
        }
        Reach::Peer { .. } | Reach::Direct(_) => None,
    }
}

/// Makes a connection: to the endpoint itself, or to another edge.
pub(crate) async fn connect(
    core: &Rc<Core>,
    reach: &Reach,
    call: Call<'_>,
    wait: Duration,
) -> Result<Sender, Fault> {
    let made = async {
        match reach {
            Reach::Direct(address) if !core.shared.guard.admits(*address) => Err(Fault::Connect),
            Reach::Direct(address) => {
                let mut stream = TcpStream::connect(address).await.map_err(|_| Fault::Connect)?;
                let _ = stream.set_nodelay(true);
                if call.proxy_header {
                    let header = haproxy::header(call.wanted().ends);
                    stream.write_all(&header).await.map_err(|_| Fault::Connect)?;
                }
                speak(core, stream, call).await
            }
            Reach::Peer { edge, address } if call.is_alone(reach) => {
                let dialer = &core.shared.beside.ports.dialer;
                let tunnel = dialer.tunnel(call.wanted(), edge, address, Carries::Stream).await;
                speak(core, tunnel.map_err(|_| Fault::Connect)?, call).await
            }
            Reach::Peer { edge, address } => {
                let sender = core.peers.get(edge, address, http2_to_edge).await;
                sender.map(Sender::Many).map_err(|_| Fault::Connect)
            }
        }
    };
    tokio::select! {
        biased;
        sender = made => sender,
        () = core.ticker.after(wait) => Err(Fault::ConnectTimeout),
    }
}

/// Speaks what the service speaks.
async fn speak<S>(core: &Rc<Core>, stream: S, call: Call<'_>) -> Result<Sender, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match call.target.service.protocol {
        BackendProtocol::Http => speak_http1(stream).await,
        BackendProtocol::H2c => speak_http2(stream).await,
        BackendProtocol::Https => {
            let backend = &core.shared.beside.backend;
            let shaken = match &call.target.outside {
                Some(outside) => backend.outside(stream, outside.server_name.as_ref()).await,
                None => backend.connect(stream, &call.target.service, !call.upgrade).await,
            };
            let (stream, http2) = shaken.map_err(|error| {
                tracing::debug!(service = %call.target.name, %error, "no TLS with an endpoint");
                Fault::Connect
            })?;
            if http2 { speak_http2(stream).await } else { speak_http1(stream).await }
        }
    }
}

/// Bytes of an answer's head, by HTTP/2 (where each header counts for 32 more): no fewer than hyper reads of one by HTTP/1.1, so that what passes
/// at the edge beside an endpoint passes on the link, too.
const HEAD_MAX: u32 = 512 << 10;

/// HTTP/2 over a stream to another edge.
pub(crate) async fn http2_to_edge(
    stream: TlsStream<TcpStream>,
) -> hyper::Result<(http2::SendRequest<Upload>, Silence)> {
    let pulse = Pulse::new(stream);
    let silence = pulse.silence();
    let (sender, connection) = http2::Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD_MAX)
        .initial_stream_window_size(tunnel::STREAM_WINDOW)
        .initial_connection_window_size(tunnel::CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(pulse))
        .await?;
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    Ok((sender, silence))
}

/// HTTP/1.1 over any stream.
pub(crate) async fn speak_http1<S>(stream: S) -> Result<Sender, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(|_| Fault::Connect)?;
    tokio::task::spawn_local(async move {
        // What went wrong is told to those who wait for an answer.
        let _ = connection.with_upgrades().await;
    });
    Ok(Sender::One(sender))
}

/// HTTP/2 over any stream.
pub(crate) async fn speak_http2<S>(stream: S) -> Result<Sender, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(LocalExecutor)
        .max_header_list_size(HEAD_MAX)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOWS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Fault::Connect)?;
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    Ok(Sender::Many(sender))
}

/// Bytes that an endpoint may send before we have passed them on: for one request, and for all on a connection. Clients that take nothing are not to
/// be in others' way, so there is room for a thousand of them.
const WINDOW: u32 = 256 << 10;
const WINDOWS: u32 = 256 << 20;

impl Sender {
    /// Whether it takes no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_closed(),
            Self::Many(sender) => sender.is_closed(),
        }
    }

    /// Whether it takes many requests at once.
    pub(crate) fn takes_many(&self) -> bool {
        matches!(self, Self::Many(_))
    }

    /// Another handle to it, if it takes many requests at once.
    pub(crate) fn share(&self) -> Option<Self> {
        match self {
            Self::Many(sender) if !sender.is_closed() => Some(Self::Many(sender.clone())),
            Self::One(_) | Self::Many(_) => None,
        }
    }

    /// Waits until it takes a request; false when it will not.
    pub(crate) async fn ready(&mut self) -> bool {
        match self {
            Self::One(sender) => sender.ready().await.is_ok(),
            Self::Many(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Sends a request. Where nothing of it was sent, it is given back.
    pub(crate) async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Upload>>> {
        match self {
            Self::One(sender) => sender.try_send_request(request).await,
            Self::Many(sender) => sender.try_send_request(request).await,
        }
    }
}

/// The fault behind an error of hyper's.
pub(crate) fn fault_of(error: &hyper::Error) -> Fault {
    let by_stream = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    if by_stream.and_then(h2::Error::reason) == Some(h2::Reason::REFUSED_STREAM) {
        Fault::Refused
    } else if error.is_parse() {
        Fault::Garbage
    } else if error.is_body_write_aborted() || error.source().is_some_and(|source| source.is::<BodyError>()) {
        Fault::Body
    } else {
        // hyper calls it the user's error, too, when a connection ends so that nobody is left who could tell what became of a request.
        Fault::Reset
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;

    use super::*;

    /// A client that had sent no body was told (400) that its body had broken off: the connection that its request was on ended while the
    /// machine was busy.
    #[tokio::test]
    async fn a_connection_that_ends_is_no_fault_of_the_client() {
        let (own, _other) = tokio::io::duplex(1024);
        let (mut sender, connection) = http1::handshake(TokioIo::new(own)).await.unwrap();
        let mut connection = Box::pin(connection);
        let mut sent = Box::pin(sender.send_request(Request::new(Empty::<bytes::Bytes>::new())));
        tokio::select! {
            biased;
            _ = &mut sent => panic!("nobody answers"),
            _ = &mut connection => panic!("nobody ends it"),
            () = tokio::task::yield_now() => {}
        }
        drop(connection);
        let error = sent.await.unwrap_err();
        assert!(error.is_user(), "{error:?}");
        assert_eq!(fault_of(&error), Fault::Reset);
    }
}
