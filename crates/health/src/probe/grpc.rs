//! Asks gRPC's own health service, `grpc.health.v1.Health/Check`, over HTTP/2 without TLS.
//!
//! Its two messages have one field each, so they are written and read here: a request is the service's name (field 1, a
//! text), an answer is a status (field 1, a number; 1 is serving).

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, TE, USER_AGENT};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use super::http::AGENT;
use super::{Point, drive};
use crate::check::Check;

/// The longest answer that is looked at; a right one has 7 bytes.
const ANSWER_BYTES_MAX: usize = 1024;
/// The longest name that is asked for.
const SERVICE_BYTES_MAX: usize = 253;
const SERVING: u64 = 1;

pub(super) async fn ask<S>(stream: S, point: &Point, check: &Check) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let host = if check.host.is_empty() { &point.host } else { &check.host };
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let uri = format!("http://{host}:{}/grpc.health.v1.Health/Check", point.port);
    let request = Request::post(uri)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, AGENT)
        .body(Full::new(question(&check.grpc_service)))
        .map_err(|_| format!("{host:?} is no host"))?;
    let broken = |_: hyper::Error| "the connection broke".to_owned();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(broken)?;
    let ask = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(format!("status {status}"));
        }
        // A refusal may come without a body, with its reason among the headers.
        refusal(response.headers())?;
        let mut seen = BytesMut::new();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(broken)?;
            if let Some(trailers) = frame.trailers_ref() {
                refusal(trailers)?;
            }
            if let Some(data) = frame.data_ref() {
                let room = ANSWER_BYTES_MAX.saturating_sub(seen.len());
                seen.put_slice(&data[..data.len().min(room)]);
            }
        }
        match answer(&seen) {
            Some(SERVING) => Ok(()),
            Some(_) => Err("not serving".into()),
            None => Err("the answer is no health".into()),
        }
    };
    drive(ask, connection).await
}

fn refusal(headers: &http::HeaderMap) -> Result<(), String> {
    match headers.get("grpc-status").and_then(|code| code.to_str().ok()) {
        None | Some("0") => Ok(()),
        Some("5") => Err("the service is not known".into()),
        Some(code) => Err(format!("gRPC status {}", code.chars().take(3).collect::<String>())),
    }
}

/// A message: not compressed, its length, and field 1 with the name, if there is one.
fn question(service: &str) -> Bytes {
    let service = service.get(..service.len().min(SERVICE_BYTES_MAX)).unwrap_or("");
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        varint(&mut message, service.len() as u64);
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(0));
    framed.put_slice(&message);
    framed.freeze()
}

fn varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8((value & 0x7f) as u8);
}

/// The status in an answer; 0 when it is left out, none when it is no answer.
fn answer(bytes: &[u8]) -> Option<u64> {
    let (head, rest) = bytes.split_at_checked(5)?;
    let length = u32::from_be_bytes(head.get(1..)?.try_into().ok()?);
    let message = rest.get(..usize::try_from(length).ok()?)?;
    match message {
        [] => Some(0),
        [0x08, status] if *status < 0x80 => Some(u64::from(*status)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        assert_eq!(&question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&question("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = question(&"x".repeat(200));
        assert_eq!((long.len(), &long[5..8]), (5 + 203, &[0x0a, 0xc8, 0x01][..]));
        let check = |bytes: &[u8], expected: Option<u64>| assert_eq!(answer(bytes), expected, "{bytes:?}");
        check(&[0, 0, 0, 0, 2, 8, 1], Some(1));
        check(&[0, 0, 0, 0, 2, 8, 2], Some(2));
        check(&[0, 0, 0, 0, 0], Some(0));
        check(&[0, 0, 0, 0, 9, 8, 1], None);
        check(&[0, 0], None);
        check(&[], None);
        check(&[0, 0, 0, 0, 2, 9, 1], None);
    }

    proptest::proptest! {
        #[test]
        fn no_answer_breaks_it(bytes in proptest::collection::vec(0_u8.., 0..40)) {
            let _ = answer(&bytes);
        }
    }
}
