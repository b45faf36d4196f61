//! Spans on their way to a collector: OTLP over HTTP, in its JSON form, in batches.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use landfall_runtime::metrics::Counter;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::{Span, Told};
use crate::config::{CollectorError, Config};
use crate::tls::backend::Backend;

/// Spans of one message, and how long the first of them waits for others.
const BATCH_MAX: usize = 512;
const BATCH_WAIT: Duration = Duration::from_secs(1);
/// How long the collector may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Bytes of its answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Who gets the spans.
pub(super) struct Collector {
    tls: bool,
    host: String,
    port: u16,
    uri: Uri,
    authority: HeaderValue,
    backend: Backend,
    resource: Value,
    dropped: Arc<Counter>,
}

impl Collector {
    /// By the URL that collectors are known by: spans go to `/v1/traces` below it.
    pub(super) fn new(
        url: &str,
        config: &Config,
        backend: Backend,
        dropped: Arc<Counter>,
    ) -> Result<Self, CollectorError> {
        let wrong = || CollectorError(url.to_owned());
        let base: Uri = url.parse().map_err(|_| wrong())?;
        let tls = match base.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(wrong()),
        };
        let authority = base.authority().ok_or_else(wrong)?;
        let path = format!("{}/v1/traces", base.path().trim_end_matches('/'));
        let default = if tls { 443 } else { 80 };
        let text = |name: &str, value: &str| json!({"key": name, "value": {"stringValue": value}});
        Ok(Self {
            tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(default),
            uri: path.parse().map_err(|_| wrong())?,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?,
            backend,
            resource: json!({"attributes": [
                text("service.name", "landfall-edge"),
                text("service.instance.id", &config.edge),
                text("k8s.cluster.name", &config.cluster),
            ]}),
            dropped,
        })
    }
}

/// Sends spans until the end.
pub(super) async fn run(to: Collector, mut waiting: mpsc::Receiver<Span>) {
    let (mut batch, mut troubled) = (Vec::new(), false);
    while waiting.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let fill = async {
            while batch.len() < BATCH_MAX {
                let room = BATCH_MAX - batch.len();
                if waiting.recv_many(&mut batch, room).await == 0 {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(BATCH_WAIT, fill).await;
        let count = u64::try_from(batch.len()).unwrap_or(0);
        let message = message(&to.resource, batch.drain(..));
        let sent = tokio::time::timeout(ANSWER_MAX, send(&to, message)).await;
        let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if let Err(error) = &sent {
            to.dropped.add(count);
            // Said once, until it is well again.
            if !troubled {
                tracing::warn!(%error, collector = to.host, "spans do not reach the collector");
            }
        }
        troubled = sent.is_err();
    }
}

async fn send(to: &Collector, message: Value) -> io::Result<()> {
    let stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
    if !to.tls {
        return post(to, stream, message).await;
    }
    let name = ServerName::try_from(to.host.clone()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (stream, _) = to.backend.outside(stream, Some(&name)).await?;
    post(to, stream, message).await
}

async fn post<IO>(to: &Collector, stream: IO, message: Value) -> io::Result<()>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let mut request = Request::new(Full::new(Bytes::from(message.to_string())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = to.uri.clone();
    request.headers_mut().insert(HOST, to.authority.clone());
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let asked = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        // It is read, so that the collector does not take it for broken off.
        let _ = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        drop(sender);
        if status == StatusCode::OK { Ok(()) } else { Err(io::Error::other(format!("it answers {status}"))) }
    };
    let (asked, _) = tokio::join!(asked, connection);
    asked
}

/// `ExportTraceServiceRequest`.
fn message(resource: &Value, spans: impl Iterator<Item = Span>) -> Value {
    let scope = json!({"name": "landfall", "version": env!("CARGO_PKG_VERSION")});
    let spans: Vec<Value> = spans.map(|span| written(&span)).collect();
    json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]})
}

/// One span; its kind is that of servers.
fn written(span: &Span) -> Value {
    let (started, told) = (&span.started, &span.told);
    let mut object = json!({
        "traceId": started.trace(),
        "spanId": format!("{:016x}", started.context.span),
        "name": told.method,
        "kind": 2,
        "startTimeUnixNano": started.began.as_nanos().to_string(),
        "endTimeUnixNano": span.ended.as_nanos().to_string(),
        "attributes": attributes(told),
        "status": if told.status >= 500 { json!({"code": 2}) } else { json!({}) },
    });
    if let Some(parent) = started.parent {
        object["parentSpanId"] = format!("{parent:016x}").into();
    }
    object
}

/// What is known of the request, by the names that OpenTelemetry has for it.
fn attributes(told: &Told) -> Vec<Value> {
    let mut all = vec![
        json!({"key": "http.response.status_code", "value": {"intValue": told.status.to_string()}}),
        json!({"key": "http.request.resend_count", "value": {"intValue": told.retries.to_string()}}),
    ];
    let texts = [
        ("http.request.method", told.method.as_str()),
        ("url.path", &told.path),
        ("server.address", &told.host),
        ("client.address", &told.client),
        ("landfall.route", &told.route),
        ("landfall.service", &told.service),
        ("landfall.cluster", &told.cluster),
        ("landfall.why", told.why),
        ("error.type", told.fault.as_deref().unwrap_or_default()),
    ];
    let known = texts.into_iter().filter(|(_, value)| !value.is_empty());
    all.extend(known.map(|(name, value)| json!({"key": name, "value": {"stringValue": value}})));
    all
}
