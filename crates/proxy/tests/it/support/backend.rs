//! Endpoints.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use landfall_runtime::tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// An endpoint that tells in its answer what it was asked.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<AtomicUsize>,
    pub(crate) connections: Arc<AtomicUsize>,
    tasks: Tasks,
}

impl Backend {
    /// Answers with the request's lines, one by one, and its name in `x-backend`.
    pub(crate) async fn new(name: &'static str) -> Self {
        Self::at(([127, 0, 0, 1], 0).into(), name).await
    }

    pub(crate) async fn at(address: SocketAddr, name: &'static str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let backend = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            connections: Arc::default(),
            tasks: Tasks::default(),
        };
        let (requests, connections) = (backend.requests.clone(), backend.connections.clone());
        let tasks = backend.tasks.clone();
        backend.tasks.spawn_until_stop(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let requests = requests.clone();
                let service = service_fn(move |request| {
                    requests.fetch_add(1, Ordering::Relaxed);
                    echo(name, request)
                });
                tasks.spawn_until_stop(async move {
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        backend
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Ends it and all its connections.
    pub(crate) async fn stop(self) {
        self.tasks.join().await;
    }
}

async fn echo(name: &'static str, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let mut lines = vec![format!("{} {} {:?}", parts.method, parts.uri, parts.version)];
    for (name, value) in &parts.headers {
        lines.push(format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())));
    }
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    lines.push(String::new());
    lines.push(String::from_utf8_lossy(&body).into_owned());
    let answer =
        Response::builder().header("x-backend", name).header("connection", "x-hop").header("x-hop", "1");
    Ok(answer.body(Full::from(lines.join("\n"))).unwrap())
}

/// What a backend of bytes does with a connection: reads a head, then writes this, then closes or hangs.
pub(crate) async fn bytes(answer: &'static [u8], hangs: bool) -> SocketAddr {
    script(move |mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(answer).await;
        if hangs {
            std::future::pending::<()>().await;
        }
    })
    .await
}

/// A backend that does anything with each connection.
pub(crate) async fn script<F>(act: impl FnMut(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    script_at(([127, 0, 0, 1], 0).into(), act).await
}

/// The same at an address.
async fn script_at<F>(at: SocketAddr, mut act: impl FnMut(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(at).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = Tasks::default();
    let own = tasks.clone();
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            own.spawn(act(stream));
        }
    });
    address
}

/// An endpoint that tells that a request came, and answers when it is told to.
pub(crate) async fn held(
    name: &'static str,
    came: tokio::sync::mpsc::Sender<&'static str>,
    go: tokio::sync::watch::Receiver<bool>,
) -> SocketAddr {
    held_at(([127, 0, 0, 1], 0).into(), name, came, go).await
}

/// The same at an address.
pub(crate) async fn held_at(
    at: SocketAddr,
    name: &'static str,
    came: tokio::sync::mpsc::Sender<&'static str>,
    go: tokio::sync::watch::Receiver<bool>,
) -> SocketAddr {
    script_at(at, move |mut stream| {
        let (mut go, came) = (go.clone(), came.clone());
        async move {
            while !read_head(&mut stream).await.is_empty() {
                let _ = came.send(name).await;
                let _ = go.wait_for(|go| *go).await;
                let answer = format!("HTTP/1.1 200 OK\r\nx-backend: {name}\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await
}

/// Reads a request's head.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// An address where nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// What an endpoint says that agrees to speak WebSocket with whoever asks so (RFC 6455, 4.2.2).
pub(crate) fn agreed(head: &str) -> String {
    let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
    let (_, key) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key")).unwrap();
    let key = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes()));
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
}
