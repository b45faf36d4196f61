//! Endpoints that speak HTTP/2, and fail: what clients are told, and what is asked of others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::Reason;
use http::Response;
use landfall_api::landfall::{BackendProtocol, RouteAction, RouteMatch, Timeouts};
use landfall_proxy::Config;
use tokio::io::AsyncWriteExt as _;

use crate::support::backend::{self, read_head};
use crate::support::raw::ask;
use crate::support::{Rig, port_of};

/// What an endpoint does with a stream.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// It answers.
    Answer,
    /// It says that it has not looked at it.
    Refuse,
    /// It gives it up.
    Reset,
    /// It begins an answer, and gives it up.
    BreakOff,
    /// It says nothing.
    Hang,
}

/// An endpoint that does this, one after the other and then the last again; and how often it was asked.
async fn endpoint(does: &'static [Does]) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let address = backend::script(move |stream| {
        let counted = counted.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut kept = Vec::new();
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                let at = counted.fetch_add(1, Ordering::Relaxed).min(does.len() - 1);
                match does[at] {
                    Does::Answer => {
                        let mut to = answer.send_response(Response::new(()), false).unwrap();
                        let _ = to.send_data(Bytes::from_static(b"ok"), true);
                    }
                    Does::Refuse => answer.send_reset(Reason::REFUSED_STREAM),
                    Does::Reset => answer.send_reset(Reason::INTERNAL_ERROR),
                    Does::BreakOff => {
                        let head = Response::builder().header("content-length", "100000").body(()).unwrap();
                        let mut to = answer.send_response(head, false).unwrap();
                        let _ = to.send_data(Bytes::from_static(b"half"), false);
                        // What was sent goes first, which a reset would take back.
                        tokio::spawn(async move {
                            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                            to.send_reset(Reason::INTERNAL_ERROR);
                        });
                    }
                    Does::Hang => kept.push((request, answer)),
                }
            }
        }
    })
    .await;
    (address, asked)
}

/// A proxy in front of endpoints that speak HTTP/2.
fn rig(endpoints: &[SocketAddr]) -> Rig {
    let mut rig = Rig::new(Config { threads: 1, ..Config::default() });
    let mut service = port_of("web");
    service.protocol = BackendProtocol::H2c;
    let action = RouteAction { service: Some(service), ..RouteAction::default() };
    rig.act("web", "", "/", RouteMatch::Prefix, action);
    rig.serve("web", endpoints, |plan| {
        plan.timeouts = Some(Timeouts { request_ms: Some(1_000), ..Timeouts::default() });
    });
    rig.follow();
    rig
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";

/// What an endpoint has not looked at is sent again, whatever it is; what it may have begun to do is not, unless it may be done twice.
#[tokio::test]
async fn what_was_not_looked_at_is_sent_again() {
    use Does::{Answer, BreakOff, Hang, Refuse, Reset};
    for (does, request, status, asked) in [
        (&[Refuse, Answer][..], POST, Some(200), 2),
        (&[Refuse, Refuse, Answer], POST, Some(200), 3),
        (&[Refuse, Answer], GET, Some(200), 2),
        (&[Reset, Answer], GET, Some(200), 2),
        (&[Reset, Answer], POST, Some(502), 1),
        (&[BreakOff], GET, None, 1),
        (&[BreakOff], POST, None, 1),
        (&[Hang], GET, Some(504), 1),
        (&[Hang], POST, Some(504), 1),
    ] {
        let (address, count) = endpoint(does).await;
        let rig = rig(&[address]);
        let answer = ask(rig.address(), request).await;
        let method = request.split(' ').next();
        assert_eq!(answer.map(|answer| answer.status), status, "{does:?} {method:?}");
        assert_eq!(count.load(Ordering::Relaxed), asked, "{does:?} {method:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn what_is_no_http2_is_no_answer() {
    for bytes in [&b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"[..], b"\0\0\x04\x99\0\0\0\0\0abcd", b""]
    {
        let address = backend::script(move |mut stream| async move {
            read_head(&mut stream).await;
            let _ = stream.write_all(bytes).await;
        })
        .await;
        let rig = rig(&[address]);
        for request in [GET, POST] {
            let answer = ask(rig.address(), request).await.unwrap();
            assert!(matches!(answer.status, 502 | 503), "{answer:?}");
        }
        rig.stop().await;
    }
}
