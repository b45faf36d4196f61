//! What arrives on the wire: heads and bodies too large, half-sent, badly framed; thousands of silent connections;
//! streams that are reset. Served are those who ask properly, all the while.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::support::raw::{Raw, connect, connector, head};
use crate::support::{Hub, SECRETS, secret};

const LIMIT: usize = 3 * 1024 * 1024;

/// The headers of an object with a length.
fn of_length(length: usize) -> String {
    format!("content-type: application/json\r\ncontent-length: {length}\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_over_the_limit() {
    let hub = Hub::start().await;
    let spaces = |count: usize| vec![b' '; count];
    let chunk = [b"10000\r\n".to_vec(), spaces(0x10000), b"\r\n".to_vec()].concat();
    let chunked = "content-type: application/json\r\ntransfer-encoding: chunked\r\n".to_owned();
    for (what, headers, sent, code) in [
        ("declared: refused by its length, before it is sent", of_length(LIMIT + 1), Vec::new(), 413),
        ("declared and sent", of_length(LIMIT + 1), spaces(LIMIT + 1), 413),
        ("in chunks: refused where it crosses the limit", chunked, chunk.repeat(LIMIT / 0x10000 + 1), 413),
        ("exactly the limit: read to its end, and no object", of_length(LIMIT), spaces(LIMIT), 400),
    ] {
        let mut raw = Raw::open(&hub).await;
        raw.send(&head("POST", SECRETS, &headers)).await;
        raw.send(&sent).await;
        let answer = raw.answer().await.expect("an answer");
        assert_eq!(answer.code, code, "{what}: {}", answer.head);
        if code == 413 {
            let said = (&answer.body["reason"], &answer.body["message"]);
            let wanted = ("RequestEntityTooLarge", "Request entity too large: limit is 3145728");
            assert_eq!(said, (&json!(wanted.0), &json!(wanted.1)), "{what}");
        }
    }
    assert!(hub.admin.get(SECRETS).await.names().is_empty());
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_request_is_none() {
    let hub = Hub::start().await;
    let object = secret("half", &json!({})).to_string();
    let length = of_length(object.len());
    // Stalled in the middle of the head and of the body, while others are served.
    let mut stalled_head = Raw::open(&hub).await;
    stalled_head.send(b"POST /api/v1/namespaces/default/secrets HTTP/1.1\r\nhost: loc").await;
    let mut stalled_body = Raw::open(&hub).await;
    stalled_body.send(&head("POST", SECRETS, &length)).await;
    stalled_body.send(&object.as_bytes()[..object.len() - 1]).await;
    // Closed in the middle: by a proper goodbye, and by going away.
    for polite in [true, false] {
        let mut closed = Raw::open(&hub).await;
        closed.send(&head("POST", SECRETS, &length)).await;
        closed.send(&object.as_bytes()[..object.len() / 2]).await;
        if polite {
            closed.0.shutdown().await.unwrap();
            if let Some(answer) = closed.answer().await {
                assert_eq!(answer.code, 400, "{}", answer.head);
            }
        }
    }
    assert!(hub.admin.get(SECRETS).await.names().is_empty());
    // The last byte makes it whole.
    stalled_body.send(&object.as_bytes()[object.len() - 1..]).await;
    assert_eq!(stalled_body.answer().await.map(|answer| answer.code), Some(201));
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_are_too_much_or_no_heads() {
    let hub = Hub::start().await;
    let huge = "x".repeat(2 * 1024 * 1024);
    let auth = "host: localhost\r\nauthorization: Bearer master\r\n";
    let many: String = (0..500).map(|n| format!("x-{n}: y\r\n")).collect();
    let cases: Vec<(Vec<u8>, &[u16])> = vec![
        (head("GET", "/version", &format!("x-huge: {huge}\r\n")), &[431]),
        (head("GET", &format!("/version?{huge}"), ""), &[414, 431]),
        (head("GET", &format!("/version?{}", "x".repeat(20_000)), ""), &[400]),
        (head("GET", "/version", &many), &[431]),
        (b"GET\r\n\r\n".to_vec(), &[400]),
        (b"\x00\x01\x02\x03\r\n\r\n".to_vec(), &[400]),
        (b"GET /version HTTP/9.9\r\n\r\n".to_vec(), &[400, 505]),
        (format!("GET /version HTTP/1.1\r\n{auth}bad header\r\n\r\n").into(), &[400]),
        (format!("GET /version HTTP/1.1\r\n{auth}a\0b: c\r\n\r\n").into(), &[400]),
        ([b"GET /api/v1/\xff\xfe HTTP/1.1\r\n".to_vec(), format!("{auth}\r\n").into()].concat(), &[400, 404]),
        (head("GET", "/api/v1/namespaces/%zz/secrets", ""), &[200, 400, 404]),
        (head("GET", "*", ""), &[400, 404, 405]),
        (head("POST", SECRETS, "content-length: -1\r\n"), &[400]),
        (head("POST", SECRETS, "content-length: 99999999999999999999999\r\n"), &[400]),
        (head("POST", SECRETS, "content-length: 5\r\ncontent-length: 6\r\n"), &[400]),
        (head("POST", SECRETS, "transfer-encoding: fly\r\n"), &[400, 501]),
    ];
    for (request, codes) in cases {
        let shown = String::from_utf8_lossy(&request[..request.len().min(100)]).into_owned();
        let mut raw = Raw::open(&hub).await;
        raw.send(&request).await;
        let answer = raw.answer().await.unwrap_or_else(|| panic!("closed without an answer: {shown}"));
        assert!(codes.contains(&answer.code), "{shown}: {}", answer.head);
    }
    assert_eq!(hub.admin.get("/readyz").await.code, 200);
    hub.stop().await;
}

/// Two ways to say where a body ends: whatever the hub makes of it, the bytes inside are never a second request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_smuggled() {
    let hub = Hub::start().await;
    let object = secret("smuggled", &json!({})).to_string();
    let inner = [head("POST", SECRETS, &of_length(object.len())), object.into_bytes()].concat();
    let framings = [
        format!("content-length: {}\r\ntransfer-encoding: chunked\r\n", inner.len() + 5),
        format!("transfer-encoding: chunked\r\ncontent-length: {}\r\n", inner.len() + 5),
        format!("content-length: {}\r\ntransfer-encoding: \x0bchunked\r\n", inner.len() + 5),
        format!("content-length: {}\r\ntransfer-encoding: identity, chunked\r\n", inner.len() + 5),
        "content-length: 4\r\ntransfer-encoding : chunked\r\n".to_owned(),
        format!("content-length: 0\r\ncontent-length: {}\r\n", inner.len()),
    ];
    for framing in framings {
        let mut raw = Raw::open(&hub).await;
        raw.send(&head("PUT", &format!("{SECRETS}/none"), &framing)).await;
        raw.send(&[b"0\r\n\r\n".to_vec(), inner.clone()].concat()).await;
        let first = raw.answer().await.map_or(0, |answer| answer.code);
        assert!(first == 0 || first >= 400, "{framing}: {first}");
        // The hub may have closed already, which is as good an end.
        let _ = raw.0.shutdown().await;
        raw.closed().await;
        let names = hub.admin.get(SECRETS).await.names();
        assert!(names.is_empty(), "{framing}: {names:?}");
    }
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_silent_connections() {
    let hub = Hub::start().await;
    let connector = connector(&hub, &["http/1.1"]);
    let mut silent = Vec::new();
    let mut opening: JoinSet<_> = JoinSet::new();
    for _ in 0..30 {
        for _ in 0..100 {
            let (connector, address) = (connector.clone(), hub.address);
            opening.spawn(async move {
                let stream = tokio::net::TcpStream::connect(address).await.unwrap();
                let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
                connector.connect(name, stream).await.unwrap()
            });
        }
        while let Some(opened) = opening.join_next().await {
            silent.push(opened.unwrap());
        }
    }
    assert_eq!(silent.len(), 3_000);
    for index in 0..100 {
        hub.admin.post(SECRETS, &secret(&format!("s{index:03}"), &json!({}))).await.ok();
    }
    assert_eq!(hub.admin.get(SECRETS).await.names().len(), 100);
    let open = hub.server.api.telemetry.connections.get();
    assert!(open >= 3_000, "{open}");
    // The oldest of them is still good for a request.
    let mut first = Raw(silent.swap_remove(0));
    first.send(&head("GET", "/version", "")).await;
    assert_eq!(first.answer().await.map(|answer| answer.code), Some(200));
    drop(silent);
    hub.stop().await;
}

/// A request of an administrator's, over HTTP/2.
fn request(method: &str, path: &str) -> http::Request<()> {
    let request = http::Request::builder().method(method).uri(format!("https://localhost{path}"));
    let request = request.header("authorization", "Bearer master").header("content-type", "application/json");
    request.body(()).unwrap()
}

/// A new HTTP/2 connection, driven by a task of the set.
async fn speak(hub: &Hub, connector: &TlsConnector, driving: &mut JoinSet<()>) -> SendRequest<Bytes> {
    let (sender, connection) = h2::client::handshake(connect(hub, connector).await).await.unwrap();
    driving.spawn(async move {
        let _ = connection.await;
    });
    sender.ready().await.unwrap()
}

/// Waits until it is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect(what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_requests_at_once() {
    let hub = Hub::start().await;
    let connector = connector(&hub, &["h2"]);
    let mut waiting = Vec::new();
    let mut streams = JoinSet::new();
    for _ in 0..17 {
        let mut sender = speak(&hub, &connector, &mut streams).await;
        for _ in 0..245 {
            sender = sender.ready().await.unwrap();
            let (response, body) = sender.send_request(request("POST", SECRETS), false).unwrap();
            // A request without its body is in flight until it is sent.
            waiting.push((response, body));
        }
    }
    until("4,000 in flight", || hub.server.api.telemetry.inflight.get() >= 4_000).await;
    let jane = hub.with_token("jane-token").await;
    let refused = jane.get("/version").await;
    let said = refused.refused(429, "TooManyRequests");
    assert_eq!(said, "Too many requests, please try again later.");
    assert_eq!(hub.admin.get("/version").await.code, 200, "administrators get in");
    assert_eq!(jane.get("/readyz").await.code, 200, "and so do questions about health");
    // Reset instead of ended: they are forgotten, and the next one is served.
    for (_, body) in &mut waiting {
        body.send_reset(h2::Reason::CANCEL);
    }
    jane.until("/version", "served again", |answer| answer.code == 200).await;
    assert!(hub.admin.get(SECRETS).await.names().is_empty());
    drop(waiting);
    streams.abort_all();
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_reset_at_any_moment() {
    let hub = Hub::start().await;
    hub.admin.post(SECRETS, &secret("a", &json!({}))).await.ok();
    let connector = connector(&hub, &["h2"]);
    for round in 0..5_u32 {
        let mut driving = JoinSet::new();
        let mut sender = speak(&hub, &connector, &mut driving).await;
        for index in 0..200 {
            let Ok(ready) = sender.ready().await else { break };
            sender = ready;
            let watch = if index % 2 == 0 { "?watch=1" } else { "" };
            let request = request("GET", &format!("{SECRETS}{watch}"));
            let Ok((response, mut body)) = sender.send_request(request, false) else { break };
            if index % 4 == round % 4 {
                // Its answer may come first; either is fine.
                let _ = tokio::time::timeout(Duration::from_millis(5), response).await;
            }
            body.send_reset(h2::Reason::CANCEL);
        }
        driving.abort_all();
    }
    assert_eq!(hub.admin.get(SECRETS).await.names(), ["a"]);
    let telemetry = &hub.server.api.telemetry;
    until("nothing of them is left", || telemetry.longrunning.get() == 0 && telemetry.inflight.get() == 0)
        .await;
    hub.stop().await;
}
