//! The admin port: whether the edge is well, what it counts, what it follows and what it sees. HTTP, for its own machine.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use landfall_runtime::tasks::Tasks;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use super::core::Core;

/// Connections at once; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 64;
/// Connections in that queue.
const BACKLOG: u32 = 128;
/// How long a client may take to say what it wants.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// How long to wait before accepting again when the system has no more file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens; the address when this returns.
pub(super) async fn serve(core: Arc<Core>, at: SocketAddr, tasks: &Tasks) -> Result<SocketAddr> {
    let listener = listen(at).with_context(|| format!("cannot listen on {at} (--admin-listen)"))?;
    let at = listener.local_addr()?;
    let (room, children) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), tasks.clone());
    tasks.spawn_until_stop(async move {
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let core = core.clone();
                    children.spawn_until_stop(async move {
                        connection(&core, stream).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the admin port");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    Ok(at)
}

/// Another edge may listen at the same address: one that takes over from this one.
fn listen(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

async fn connection(core: &Core, stream: TcpStream) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(core, request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    // A client that went away is nobody's problem but its own.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(core: &Core, method: &Method, path: &str) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match path {
        "/healthz" | "/livez" => text(StatusCode::OK, "ok"),
        "/readyz" => match core.unready() {
            None => text(StatusCode::OK, "ok"),
            Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        "/metrics" => text(StatusCode::OK, core.registry.render()),
        "/plans" => document(&plans(core)),
        "/routes" => document(&routes(core)),
        "/votes" => document(&core.report()),
        _ => {
            text(StatusCode::NOT_FOUND, "there are /healthz, /readyz, /metrics, /plans, /routes and /votes\n")
        }
    }
}

/// What is followed, and how long the hub has been silent.
fn plans(core: &Core) -> Value {
    let followed = core.voice.followed();
    let services = followed
        .services
        .iter()
        .map(|((namespace, name), plan)| json!({"namespace": namespace, "name": name, "spec": &**plan}));
    let routes = followed
        .routes
        .iter()
        .map(|((namespace, name), route)| json!({"namespace": namespace, "name": name, "spec": &**route}));
    json!({
        "hubSilentMs": u64::try_from(core.silent_for().as_millis()).unwrap_or(u64::MAX),
        "federation": followed.federation.as_deref(),
        "services": services.collect::<Vec<_>>(),
        "routes": routes.collect::<Vec<_>>(),
    })
}

/// What is carried in this moment, where to, and what cannot be.
fn routes(core: &Core) -> Value {
    let mut told = core.carrier.table();
    told["certificates"] = core.voice.followed().certificates.keys().map(|name| json!(name)).collect();
    told["problems"] = json!(core.carrier.problems());
    told
}

fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type(code, "text/plain; charset=utf-8", body.into())
}

fn document(value: &Value) -> Response<Full<Bytes>> {
    with_type(StatusCode::OK, "application/json", value.to_string().into())
}

fn with_type(code: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}
