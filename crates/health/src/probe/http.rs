//! Asks a path over HTTP/1.1, and looks at the status and the beginning of the body.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Point, drive};
use crate::check::Check;

/// So much of a body is looked at.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// How we are called.
pub(super) const AGENT: &str = concat!("landfall-health/", env!("CARGO_PKG_VERSION"));

pub(super) async fn get<S>(stream: S, scheme: &str, point: &Point, check: &Check) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let uri: Uri = check.path.parse().map_err(|_| format!("{:?} is no path", check.path))?;
    let request = Request::get(uri)
        .header(HOST, authority(scheme, point, check))
        .header(USER_AGENT, AGENT)
        .header(ACCEPT, "*/*")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| format!("{:?} is no host", check.host))?;
    let broken = |error: hyper::Error| {
        if error.is_parse() { "the answer is no HTTP".to_owned() } else { "the connection broke".to_owned() }
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let ask = async {
        let mut response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status().as_u16();
        if !check.expects(status) {
            return Err(format!("status {status}"));
        }
        if check.body.is_empty() {
            return Ok(());
        }
        let mut seen = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                let room = BODY_BYTES_MAX.saturating_sub(seen.len());
                seen.extend_from_slice(&data[..data.len().min(room)]);
            }
            if memchr::memmem::find(&seen, check.body.as_bytes()).is_some() {
                return Ok(());
            }
            if seen.len() >= BODY_BYTES_MAX {
                break;
            }
        }
        Err("the body does not contain what is expected".into())
    };
    drive(ask, connection).await
}

/// The host as a client would name it.
fn authority(scheme: &str, point: &Point, check: &Check) -> String {
    if !check.host.is_empty() {
        return check.host.clone();
    }
    let host = if point.host.contains(':') { format!("[{}]", point.host) } else { point.host.clone() };
    match (scheme, point.port) {
        ("http", 80) | ("https", 443) => host,
        (_, port) => format!("{host}:{port}"),
    }
}
