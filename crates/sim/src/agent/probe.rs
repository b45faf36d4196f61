//! Probes: what a container's spec asks for, how results become a verdict (pure), and asking.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use super::program;
use crate::listen;

/// As kubelets present themselves.
const AGENT: &str = "kube-probe/1.36";

/// The largest answer to a health check that is looked at.
const ANSWER_BYTES_MAX: usize = 4096;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Before it succeeds the others do not begin.
    Startup,
    /// When it fails the container is restarted.
    Liveness,
    /// While it fails the container gets no traffic.
    Readiness,
}

/// All purposes.
pub(super) const PURPOSES: [Purpose; 3] = [Purpose::Startup, Purpose::Liveness, Purpose::Readiness];

impl Purpose {
    /// The field of a container that says how.
    pub(super) const fn field(self) -> &'static str {
        match self {
            Self::Startup => "startupProbe",
            Self::Liveness => "livenessProbe",
            Self::Readiness => "readinessProbe",
        }
    }

    /// As events name it.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// A probe as its container's spec says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) ask: Ask,
    pub(super) initial_delay: Duration,
    pub(super) period: Duration,
    pub(super) timeout: Duration,
    pub(super) successes: u32,
    pub(super) failures: u32,
}

/// How a probe asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A GET answered with 200 to 399.
    Http { at: SocketAddr, path: String, headers: Vec<(String, String)> },
    /// A connection.
    Tcp(SocketAddr),
    /// A gRPC health check.
    Grpc {
        /// Where.
        at: SocketAddr,
        /// The service asked about; empty for the whole program.
        service: String,
    },
    /// A command, as far as it is understood; there is nothing to run others in, so a fault decides about them.
    Exec {
        /// What it exits with.
        code: i32,
    },
    /// What cannot be asked, and why.
    Impossible(String),
}

impl Probe {
    /// Reads the probe of a container at `address`; none when it has none for this purpose.
    pub(super) fn parse(container: &Value, purpose: Purpose, address: Ipv4Addr) -> Option<Self> {
        let probe = container.get(purpose.field()).filter(|probe| probe.is_object())?;
        let number = |field: &str, default: u64| probe[field].as_u64().filter(|n| *n > 0).unwrap_or(default);
        let count = |field: &str, default: u64| u32::try_from(number(field, default)).unwrap_or(u32::MAX);
        Some(Self {
            ask: ask(probe, container, address),
            initial_delay: Duration::from_secs(number("initialDelaySeconds", 0)),
            period: Duration::from_secs(number("periodSeconds", 10)),
            timeout: Duration::from_secs(number("timeoutSeconds", 1)),
            successes: count("successThreshold", 1),
            failures: count("failureThreshold", 3),
        })
    }
}

fn ask(probe: &Value, container: &Value, address: Ipv4Addr) -> Ask {
    let at = |how: &Value| {
        let host = how["host"].as_str().and_then(|host| host.parse().ok()).unwrap_or_else(|| address.into());
        port(&how["port"], container).map(|port| SocketAddr::new(host, port))
    };
    let unknown = || Ask::Impossible("the container has no such port".into());
    if let Some(how) = probe.get("httpGet") {
        let Some(at) = at(how) else { return unknown() };
        if how["scheme"] == "HTTPS" {
            // Kubelets do not check certificates, so what is left to see is whether somebody listens.
            return Ask::Tcp(at);
        }
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let headers = how["httpHeaders"].as_array().into_iter().flatten();
        let headers = headers.map(|header| (text(&header["name"]), text(&header["value"]))).collect();
        let path = how["path"].as_str().filter(|path| !path.is_empty()).unwrap_or("/");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        return Ask::Http { at, path, headers };
    }
    if let Some(how) = probe.get("tcpSocket") {
        return at(how).map_or_else(unknown, Ask::Tcp);
    }
    if let Some(how) = probe.get("grpc") {
        let service = how["service"].as_str().unwrap_or("").to_owned();
        return at(how).map_or_else(unknown, |at| Ask::Grpc { at, service });
    }
    match probe.get("exec") {
        Some(how) => Ask::Exec { code: program::exit_code(how) },
        None => Ask::Impossible("unknown probe".into()),
    }
}

/// A port by number, or by its name among the container's.
fn port(port: &Value, container: &Value) -> Option<u16> {
    if let Some(name) = port.as_str() {
        let ports = container["ports"].as_array()?;
        let found = ports.iter().find(|p| p["name"] == name)?;
        return found["containerPort"].as_u64().and_then(|port| port.try_into().ok());
    }
    port.as_u64().and_then(|port| port.try_into().ok())
}

// === results ===

/// Results in a row, and what follows from them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter {
    succeeded: bool,
    in_a_row: u32,
}

impl Counter {
    /// Takes a result; the verdict when as many in a row as are needed say the same.
    pub(super) fn step(&mut self, probe: &Probe, success: bool) -> Option<bool> {
        self.in_a_row = if success == self.succeeded { self.in_a_row.saturating_add(1) } else { 1 };
        self.succeeded = success;
        let needed = if success { probe.successes } else { probe.failures };
        (self.in_a_row >= needed).then_some(success)
    }
}

/// Asks once; an error says what a kubelet would say.
pub(super) async fn once(probe: &Probe, exec_fails: bool) -> Result<(), String> {
    let asking = async {
        match &probe.ask {
            Ask::Http { at, path, headers } => get(*at, path, headers).await,
            Ask::Tcp(at) => connect(*at).await.map(drop),
            Ask::Grpc { at, service } => check(*at, service).await,
            Ask::Exec { code: 0 } if exec_fails => Err("command exited with 1".into()),
            Ask::Exec { code: 0 } => Ok(()),
            Ask::Exec { code } => Err(format!("command exited with {code}")),
            Ask::Impossible(why) => Err(why.clone()),
        }
    };
    tokio::time::timeout(probe.timeout, asking).await.unwrap_or_else(|_| Err(timed_out(&probe.ask)))
}

fn timed_out(ask: &Ask) -> String {
    match ask {
        Ask::Http { at, path, .. } => format!(
            "Get \"http://{at}{path}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        ),
        Ask::Tcp(at) => format!("dial tcp {at}: i/o timeout"),
        Ask::Grpc { at, .. } => {
            format!("timeout: failed to connect service {at:?} within 1s: context deadline exceeded")
        }
        Ask::Exec { .. } | Ask::Impossible(_) => "command timed out".into(),
    }
}

async fn connect(at: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(listen::real(at)).await.map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => error.to_string(),
        };
        format!("dial tcp {at}: connect: {why}")
    })
}

async fn get(at: SocketAddr, path: &str, headers: &[(String, String)]) -> Result<(), String> {
    let url = format!("http://{at}{path}");
    let failed = |why: String| format!("Get {url:?}: {why}");
    let stream = connect(at).await.map_err(failed)?;
    let mut request = http::Request::builder()
        .uri(path)
        .header(HOST, at.to_string())
        .header(USER_AGENT, AGENT)
        .body(Empty::<Bytes>::new())
        .map_err(|error| failed(error.to_string()))?;
    for (name, value) in headers {
        let pair = (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str()));
        if let (Ok(name), Ok(value)) = pair {
            request.headers_mut().insert(name, value);
        }
    }
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed(error.to_string()))?;
    // Together, not as a task of its own: both end here.
    let answered = tokio::select! {
        answered = sender.send_request(request) => answered,
        _ = connection => return Err(failed("EOF".into())),
    };
    match answered {
        Ok(response) if (200..400).contains(&response.status().as_u16()) => Ok(()),
        Ok(response) => Err(format!("HTTP probe failed with statuscode: {}", response.status().as_u16())),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// A gRPC health check: SERVING or not. Its two messages are small enough to be read and written by hand.
async fn check(at: SocketAddr, service: &str) -> Result<(), String> {
    let failed = |why: String| format!("error: health rpc probe failed: {why}");
    let stream = connect(at).await.map_err(failed)?;
    let name = service.as_bytes();
    let length = u8::try_from(name.len()).ok().filter(|length| *length < 0x80 - 2);
    let length = length.ok_or_else(|| failed("the service's name is too long".into()))?;
    // A frame: not compressed, its length; field 1, its length, the name.
    let mut message = if name.is_empty() { vec![0; 5] } else { vec![0, 0, 0, 0, length + 2, 0x0a, length] };
    message.extend(name);
    let request = http::Request::post(format!("http://{at}/grpc.health.v1.Health/Check"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(USER_AGENT, AGENT)
        .header("te", "trailers")
        .body(Full::new(Bytes::from(message)))
        .map_err(|error| failed(error.to_string()))?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed(error.to_string()))?;
    let asking = async {
        let response = sender.send_request(request).await?;
        Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await
    };
    let answered = tokio::select! {
        answered = asking => answered.map_err(|error: Box<dyn std::error::Error + Send + Sync>| failed(error.to_string()))?,
        _ = connection => return Err(failed("EOF".into())),
    };
    // Field 1, a number: 1 is SERVING.
    match answered.to_bytes().get(5..) {
        Some([0x08, 1, ..]) => Ok(()),
        _ => Err(format!("service unhealthy (responded with {:?})", "NOT_SERVING")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 1, 16, 9);

    #[test]
    fn probes_are_read_with_kubernetes_defaults() {
        let ports = json!([{"name": "web", "containerPort": 8080}]);
        let check = |probe: Value, want: Ask| {
            let container = json!({"ports": ports, "readinessProbe": probe});
            let parsed = Probe::parse(&container, Purpose::Readiness, ADDRESS).unwrap();
            assert_eq!(parsed.ask, want);
            let numbers =
                (parsed.period.as_secs(), parsed.timeout.as_secs(), parsed.successes, parsed.failures);
            assert_eq!(numbers, (10, 1, 1, 3));
        };
        let at = |port| SocketAddr::from((ADDRESS, port));
        let http = |port, path: &str| Ask::Http { at: at(port), path: path.into(), headers: Vec::new() };
        check(json!({"httpGet": {"port": "web"}}), http(8080, "/"));
        check(json!({"httpGet": {"port": 81, "path": "x"}}), http(81, "/x"));
        check(json!({"tcpSocket": {"port": "web"}}), Ask::Tcp(at(8080)));
        check(json!({"exec": {"command": ["true"]}}), Ask::Exec { code: 0 });
        check(json!({"exec": {"command": ["false"]}}), Ask::Exec { code: 1 });
        check(json!({"exec": {"command": ["cat", "/tmp/healthy"]}}), Ask::Exec { code: 0 });
        check(json!({"grpc": {"port": 9, "service": "s"}}), Ask::Grpc { at: at(9), service: "s".into() });
        check(
            json!({"tcpSocket": {"port": "none"}}),
            Ask::Impossible("the container has no such port".into()),
        );
        assert_eq!(Probe::parse(&json!({}), Purpose::Readiness, ADDRESS), None);
    }

    #[test]
    fn verdicts_need_results_in_a_row() {
        let container = json!({"livenessProbe": {"exec": {}, "successThreshold": 2, "failureThreshold": 3}});
        let probe = Probe::parse(&container, Purpose::Liveness, ADDRESS).unwrap();
        let mut counter = Counter::default();
        let results = [true, true, false, false, true, false, false, false, false];
        let verdicts: Vec<_> = results.into_iter().map(|result| counter.step(&probe, result)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(verdicts, [None, yes, None, None, None, None, None, no, no]);
    }
}
