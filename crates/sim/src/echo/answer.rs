//! Which path does what.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream::{self, StreamExt};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use landfall_runtime::tasks::Tasks;
use serde_json::{Map, Value, json};

use super::body::{self, Body, UploadError};
use super::{Echo, grpc, socket};

/// The longest delay that a client may ask for.
const DELAY_MAX: Duration = Duration::from_secs(300);

/// The most lines of `/stream/N`.
const LINES_MAX: u64 = 10_000;

/// Where it tells how busy it is, as ORCA says.
const LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// The type of Server-Sent Events.
const EVENTS: &str = "text/event-stream";

/// The most bytes of `/bytes/N`.
const BYTES_MAX: u64 = 1 << 30;

/// What a path asks for. Everything else is echoed.
#[derive(Clone, Copy)]
enum Route {
    Status,
    Delay,
    WebSocket,
    Gzip,
    Stream,
    Bytes,
    Health,
    Ready,
}

/// The paths that mean something; those that end in `/` are followed by a value.
const ROUTES: &[(&str, Route)] = &[
    ("/status/", Route::Status),
    ("/delay/", Route::Delay),
    ("/ws", Route::WebSocket),
    ("/gzip", Route::Gzip),
    ("/stream/", Route::Stream),
    ("/bytes/", Route::Bytes),
    ("/healthz", Route::Health),
    ("/readyz", Route::Ready),
];

/// What is known of a connection.
pub(super) struct Connection {
    /// The other end.
    pub(super) peer: SocketAddr,
    /// Our end.
    pub(super) local: Option<SocketAddr>,
    /// What TLS settled; none without it.
    pub(super) tls: Option<Value>,
    /// What runs for its program: told to stop with it, and joined.
    pub(super) tasks: Tasks,
}

/// Answers one request.
pub(super) async fn answer(
    echo: &Arc<Echo>,
    connection: &Connection,
    request: Request<Incoming>,
) -> Response<Body> {
    let Some(slot) = echo.load.enter().await else {
        let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, "overloaded\n");
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    };
    let delay = echo.load.delay().saturating_add(asked_delay(&request));
    if !delay.is_zero() {
        tokio::time::sleep(delay.min(DELAY_MAX)).await;
    }
    let response = if grpc::is_grpc(request.headers()) {
        grpc::answer(request, echo.load.ready())
    } else {
        route(echo, connection, request).await
    };
    let mut response = response.map(|body| body.holding(Some(slot)));
    if let Some(used) = echo.load.used() {
        let told = HeaderValue::from_str(&format!("TEXT application_utilization={used:.3}"));
        response.headers_mut().extend(told.ok().map(|told| (LOAD, told)));
    }
    response
}

/// The delay that a client asks for by `?delay=MS` on any path, or by `/delay/MS`.
fn asked_delay(request: &Request<Incoming>) -> Duration {
    let path = request.uri().path().strip_prefix("/delay/").and_then(|ms| ms.parse().ok());
    let query = || {
        let pairs = form_urlencoded::parse(request.uri().query().unwrap_or("").as_bytes());
        pairs.filter(|(key, _)| key == "delay").find_map(|(_, ms)| ms.parse().ok())
    };
    Duration::from_millis(path.or_else(query).unwrap_or(0))
}

/// The route of a path, and the value in it.
fn find(path: &str) -> Option<(Route, &str)> {
    ROUTES.iter().find_map(|(pattern, route)| {
        let rest = path.strip_prefix(pattern)?;
        (pattern.ends_with('/') != rest.is_empty()).then_some((*route, rest))
    })
}

async fn route(echo: &Arc<Echo>, connection: &Connection, mut request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let Some((route, value)) = find(&path) else {
        return described(echo, connection, request, StatusCode::OK).await;
    };
    match route {
        Route::Status => match value.parse().ok().filter(|code| (200..=599).contains(code)) {
            Some(code) => {
                let status = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
                described(echo, connection, request, status).await
            }
            None => plain(StatusCode::BAD_REQUEST, "a status is a number from 200 to 599\n"),
        },
        Route::Delay => described(echo, connection, request, StatusCode::OK).await,
        Route::WebSocket => socket::upgrade(echo, &connection.tasks, &mut request),
        Route::Gzip => zipped(described_as_value(echo, connection, request).await),
        Route::Stream => match value.parse().ok().filter(|lines| *lines <= LINES_MAX) {
            Some(lines) => {
                let events = wants_events(request.headers());
                lines_of(echo, lines, request.uri().query().unwrap_or(""), events)
            }
            None => plain(StatusCode::BAD_REQUEST, format!("a number up to {LINES_MAX} is expected\n")),
        },
        Route::Bytes => match value.parse().ok().filter(|bytes| *bytes <= BYTES_MAX) {
            Some(bytes) => of_type("application/octet-stream", Body::pattern(bytes)),
            None => plain(StatusCode::BAD_REQUEST, format!("a number up to {BYTES_MAX} is expected\n")),
        },
        Route::Health => plain(StatusCode::OK, "ok\n"),
        Route::Ready if echo.load.ready() => plain(StatusCode::OK, "ok\n"),
        Route::Ready => plain(StatusCode::SERVICE_UNAVAILABLE, "terminating\n"),
    }
}

// === what was asked, as JSON ===

async fn described(
    echo: &Echo,
    connection: &Connection,
    request: Request<Incoming>,
    status: StatusCode,
) -> Response<Body> {
    let value = match described_as_value(echo, connection, request).await {
        Ok(value) => value,
        Err(error) => return upload_refused(error),
    };
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = if bodiless { Body::whole(Bytes::new()) } else { Body::whole(text_of(&value)) };
    let mut response = of_type("application/json", body);
    *response.status_mut() = status;
    response
}

async fn described_as_value(
    echo: &Echo,
    connection: &Connection,
    request: Request<Incoming>,
) -> Result<Value, UploadError> {
    let (head, body) = request.into_parts();
    let body = body::count(body).await?;
    Ok(describe(echo, connection, &head, &body))
}

fn describe(echo: &Echo, connection: &Connection, head: &Parts, body: &Value) -> Value {
    let Echo { identity, .. } = echo;
    let query: Map<String, Value> = form_urlencoded::parse(head.uri.query().unwrap_or("").as_bytes())
        .map(|(key, value)| (key.into_owned(), Value::from(value.into_owned())))
        .collect();
    let host =
        head.headers.get(http::header::HOST).map(|h| String::from_utf8_lossy(h.as_bytes()).into_owned());
    let host = host.or_else(|| head.uri.authority().map(ToString::to_string));
    json!({
        "method": head.method.as_str(),
        "path": head.uri.path(),
        "query": query,
        "host": host,
        "protocol": format!("{:?}", head.version),
        "headers": headers(&head.headers),
        "body": body,
        "pod": identity.pod,
        "namespace": identity.namespace,
        "node": identity.node,
        "cluster": identity.cluster,
        "tls": connection.tls,
        "remote": connection.peer.to_string(),
        "local": connection.local.map(|local| local.to_string()),
    })
}

/// Headers by name; those that come several times as lists.
fn headers(headers: &HeaderMap) -> Map<String, Value> {
    let mut map = Map::new();
    for name in headers.keys() {
        let text = |value: &HeaderValue| Value::from(String::from_utf8_lossy(value.as_bytes()));
        let mut values: Vec<Value> = headers.get_all(name).iter().map(text).collect();
        let value = if values.len() == 1 { values.remove(0) } else { values.into() };
        map.insert(name.to_string(), value);
    }
    map
}

fn text_of(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

fn zipped(value: Result<Value, UploadError>) -> Response<Body> {
    let value = match value {
        Ok(value) => value,
        Err(error) => return upload_refused(error),
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(text_of(&value).as_bytes());
    let mut response = of_type("application/json", Body::whole(encoder.finish().unwrap_or_default()));
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response
}

/// Whether a client wants events, as browsers' `EventSource` does.
fn wants_events(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).is_some_and(|value| value.as_bytes() == EVENTS.as_bytes())
}

/// Lines of JSON, one piece each, `?interval=MS` apart; or as many events.
fn lines_of(echo: &Arc<Echo>, lines: u64, query: &str, events: bool) -> Response<Body> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let interval = pairs.filter(|(key, _)| key == "interval").find_map(|(_, ms)| ms.parse().ok());
    let interval = Duration::from_millis(interval.unwrap_or(0)).min(DELAY_MAX);
    let echo = echo.clone();
    let pieces = stream::iter(0..lines).then(move |line| {
        let echo = echo.clone();
        async move {
            if line > 0 && !interval.is_zero() {
                tokio::time::sleep(interval).await;
            }
            let line = json!({"line": line, "pod": echo.identity.pod});
            Bytes::from(if events { format!("data: {line}\n\n") } else { format!("{line}\n") })
        }
    });
    of_type(if events { EVENTS } else { "application/x-ndjson" }, Body::pieces(pieces.boxed()))
}

// === short answers ===

/// A text.
pub(super) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = of_type("text/plain; charset=utf-8", Body::whole(text));
    *response.status_mut() = status;
    response
}

fn of_type(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn upload_refused(error: UploadError) -> Response<Body> {
    match error {
        UploadError::TooLarge => plain(StatusCode::PAYLOAD_TOO_LARGE, "the upload is too large\n"),
        UploadError::TooSlow => plain(StatusCode::REQUEST_TIMEOUT, "the upload takes too long\n"),
        UploadError::Broken => plain(StatusCode::BAD_REQUEST, "the upload broke off\n"),
    }
}
