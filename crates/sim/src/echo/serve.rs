//! Connections of the echo program: accepted, secured, counted, limited, drained.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::Echo;
use super::answer::{self, Connection};
use super::body::Body;
use crate::gate::Gated;

/// Connections of one listener; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 4_096;

/// How long a client may take for its TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long a client may take to send the head of a request, idle time included.
const HEAD_MAX: Duration = Duration::from_secs(120);

/// The largest head of a request.
const HEAD_BYTES_MAX: u32 = 64 * 1024;

/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 250;

/// How long to wait before accepting again when the system has no more file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long requests may go on once the program is told to stop, unless its caller knows better.
pub const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Serves HTTP until `connections` is told to stop. What is open then goes on until it is answered: join the tasks
/// for that.
pub async fn run_http(
    echo: Arc<Echo>,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    connections: Tasks,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    accept(listener, &connections, &echo.life, |stream, peer| {
        connection(echo.clone(), acceptor.clone(), stream, peer, connections.clone())
    })
    .await;
}

/// Accepts connections until `connections` stop, and runs a task for each; all end when `life` does.
pub(super) async fn accept<T>(
    listener: TcpListener,
    connections: &Tasks,
    life: &Tasks,
    mut serve: impl FnMut(TcpStream, SocketAddr) -> T,
) where
    T: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut stop = pin!(connections.stopping());
    loop {
        let accepted = tokio::select! {
            accepted = async {
                let permit = room.clone().acquire_owned().await;
                (permit, listener.accept().await)
            } => accepted,
            () = &mut stop => return,
        };
        match accepted {
            (Ok(permit), Ok((stream, peer))) => {
                let (served, killed) = (serve(stream, peer), life.stopping());
                connections.spawn(async move {
                    tokio::select! { () = served => {}, () = killed => {} }
                    drop(permit);
                });
            }
            (_, Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            (Err(_), _) => return,
        }
    }
}

async fn connection(
    echo: Arc<Echo>,
    acceptor: Option<TlsAcceptor>,
    stream: TcpStream,
    peer: SocketAddr,
    tasks: Tasks,
) {
    // Answers are written whole; waiting for more only delays them.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut about = Connection { peer, local: stream.local_addr().ok(), tls: None, tasks };
    let stream = Gated::to_pod(stream, peer, &echo.gate);
    let Some(acceptor) = acceptor else {
        return talk(echo, about, stream).await;
    };
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await else { return };
    about.tls = Some(describe_tls(stream.get_ref().1));
    talk(echo, about, stream).await;
}

/// HTTP/1.1 or HTTP/2, as the client begins.
async fn talk<S>(echo: Arc<Echo>, about: Connection, stream: S)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let stopping = about.tasks.stopping();
    let about = Arc::new(about);
    let service = service_fn(move |request: Request<Incoming>| {
        let (echo, about) = (echo.clone(), about.clone());
        async move { Ok::<_, Infallible>(logged(&echo, &about, request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(Some(Duration::from_secs(30)));
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    // An error here is a client that went away or broke the protocol; hyper has answered what can be answered.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopping => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Answers, and writes a line about it. Probes of kubelets are not worth one.
async fn logged(echo: &Arc<Echo>, about: &Connection, request: Request<Incoming>) -> Response<Body> {
    let began = clock::instant();
    let probe = request.headers().get(http::header::USER_AGENT);
    let probe = probe.is_some_and(|agent| agent.as_bytes().starts_with(b"kube-probe/"));
    let asked = format!("{} {} {:?}", request.method(), request.uri(), request.version());
    let response = answer::answer(echo, about, request).await;
    if !probe {
        let bytes = response.body().size_hint().exact().map_or_else(|| "-".into(), |n| n.to_string());
        let (peer, status, took) = (about.peer, response.status().as_u16(), began.elapsed().as_micros());
        echo.journal.line(&format!("{peer} \"{asked}\" {status} {bytes} {took}us"));
    }
    response
}

fn describe_tls(connection: &ServerConnection) -> Value {
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLS 1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLS 1.2",
        _ => "",
    };
    json!({
        "version": version,
        "sni": connection.server_name(),
        "alpn": connection.alpn_protocol().map(String::from_utf8_lossy),
        "cipher": connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite())),
    })
}

/// A TLS configuration from a certificate chain and its key in PEM.
pub fn tls_config(certificates: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Key)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unfit)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::Unfit)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A TLS configuration with a certificate that nobody signed, the same for the whole process.
pub fn self_signed() -> Option<Arc<ServerConfig>> {
    static CONFIG: OnceLock<Option<Arc<ServerConfig>>> = OnceLock::new();
    let make = || {
        let names = ["localhost".to_owned(), "*.svc.cluster.local".to_owned(), "*.example.com".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).ok()?;
        tls_config(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).ok()
    };
    CONFIG.get_or_init(make).clone()
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The chain.
    #[error("the certificate is not PEM")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    /// The key.
    #[error("the key is not PEM")]
    Key(#[source] rustls::pki_types::pem::Error),
    /// Both together.
    #[error("certificate and key cannot be used")]
    Unfit(#[source] rustls::Error),
}
