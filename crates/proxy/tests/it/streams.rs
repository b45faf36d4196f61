//! What is not one question and one answer: upgrades, trailers, bodies without end.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use landfall_api::landfall::{BackendProtocol, RouteAction, RouteMatch};
use landfall_proxy::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::backend::{self, Backend};
use crate::support::raw::{Client, ask};
use crate::support::{Rig, port_of};

/// However slow the machine is, no test takes so long.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_websocket_carries_bytes_both_ways() {
    let endpoint = backend::script(|mut stream| async move {
        let head = backend::read_head(&mut stream).await.to_ascii_lowercase();
        assert!(head.contains("upgrade: websocket\r\n") && head.contains("connection: upgrade\r\n"), "{head}");
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Key: k\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut client = Client::new(rig.address()).await;
    client
        .send(
            b"GET /chat HTTP/1.1\r\nhost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("websocket")));
    assert_eq!((answer.header("connection"), answer.header("x-key")), (Some("upgrade"), Some("k")));
    for word in ["ping", "pong", "and so on"] {
        client.send(word.as_bytes()).await;
        let mut back = vec![0; word.len()];
        client.0.read_exact(&mut back).await.unwrap();
        assert_eq!(back, word.as_bytes());
    }
    client.0.shutdown().await.unwrap();
    assert!(client.is_closed().await, "the end of one way is the end of the other");
    rig.stop().await;
}

/// hyper is done with a connection that was upgraded, and the proxy ended under it.
#[tokio::test]
async fn a_websocket_has_its_time_when_the_proxy_stops() {
    let endpoint = backend::script(|mut stream| async move {
        backend::read_head(&mut stream).await;
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await;
    let mut rig = Rig::new(Config { threads: 1, drain: LONG, ..Config::default() });
    rig.route("web", "", "/", RouteMatch::Prefix, "web");
    rig.serve("web", &[endpoint], |_| {});
    rig.follow();
    let at = rig.address();
    let mut client = Client::new(at).await;
    client.send(b"GET / HTTP/1.1\r\nhost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 101);
    let stopped = tokio::spawn(rig.stop());
    while TcpStream::connect(at).await.is_ok() {
        tokio::task::yield_now().await;
    }
    for word in ["still", "there"] {
        client.send(word.as_bytes()).await;
        let mut back = vec![0; word.len()];
        client.0.read_exact(&mut back).await.unwrap();
        assert_eq!(back, word.as_bytes());
    }
    assert!(!stopped.is_finished());
    drop(client);
    stopped.await.unwrap();
}

#[tokio::test]
async fn an_endpoint_may_refuse_an_upgrade() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let answer = ask(rig.address(), request).await.unwrap();
    assert_eq!((answer.status, answer.got("upgrade")), (200, Some("websocket")));
    rig.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_for_leave_to_go_on_gets_it() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let mut client = Client::new(rig.address()).await;
    client.send(b"PUT / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 100);
    client.send(b"hello").await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.body.ends_with("\nhello")), (200, true), "{answer:?}");
    rig.stop().await;
}

#[tokio::test]
async fn events_come_as_they_are_sent() {
    let (tell, told) = tokio::sync::watch::channel(0);
    let endpoint = backend::script(move |mut stream| {
        let mut told = told.clone();
        async move {
            backend::read_head(&mut stream).await;
            let head =
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head).await.unwrap();
            for n in 1..=3 {
                let _ = told.wait_for(|now| *now >= n).await;
                stream.write_all(format!("7\r\ndata: {n}\r\n").as_bytes()).await.unwrap();
            }
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut client = Client::new(rig.address()).await;
    client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut seen = Vec::new();
    for n in 1..=3 {
        tell.send_replace(n);
        let want = format!("data: {n}");
        while !String::from_utf8_lossy(&seen).contains(&want) {
            assert!(client.0.read_buf(&mut seen).await.unwrap() > 0);
        }
        assert!(!String::from_utf8_lossy(&seen).contains(&format!("data: {}", n + 1)));
    }
    rig.stop().await;
}

/// 64 MiB both ways at once, through an endpoint that sends back what it gets as it gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_both_ways_at_once() {
    const PIECES: usize = 1024;
    let piece = Bytes::from(vec![7; 64 << 10]);
    let endpoint = backend::script(|mut stream| async move {
        let head = backend::read_head(&mut stream).await.to_ascii_lowercase();
        let length: usize =
            head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let (from, mut to) = stream.split();
        tokio::io::copy(&mut from.take(length as u64), &mut to).await.unwrap();
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut stream = TcpStream::connect(rig.address()).await.unwrap();
    let head = format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", PIECES * piece.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let sent = tokio::spawn(async move {
        for _ in 0..PIECES {
            to.write_all(&piece).await.unwrap();
        }
        to
    });
    let (mut got, mut chunk) = (0_usize, vec![0; 64 << 10]);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(from.read_u8().await.unwrap());
    }
    while got < PIECES * (64 << 10) {
        let read = from.read(&mut chunk).await.unwrap();
        assert!(read > 0 && chunk[..read].iter().all(|byte| *byte == 7));
        got += read;
    }
    drop(sent.await.unwrap());
    rig.stop().await;
}

/// An h2c endpoint that answers every request with its body and trailers, as gRPC does.
async fn grpc() -> SocketAddr {
    backend::script(|stream| async move {
        let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
            assert_eq!(request.version(), http::Version::HTTP_2);
            assert_eq!(request.uri().authority().unwrap(), "shop.example");
            assert_eq!(request.headers()["te"], "trailers");
            let collected = request.into_body().collect().await.unwrap();
            let mut trailers = collected.trailers().cloned().unwrap_or_default();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let frames = [Ok(Frame::data(collected.to_bytes())), Ok(Frame::trailers(trailers))];
            let body = StreamBody::new(Frames(frames.into_iter().collect()));
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    })
    .await
}

/// Frames, one after the other.
struct Frames(std::collections::VecDeque<Result<Frame<Bytes>, std::convert::Infallible>>);

impl futures::Stream for Frames {
    type Item = Result<Frame<Bytes>, std::convert::Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.pop_front())
    }
}

#[tokio::test]
async fn grpc_goes_through_with_its_trailers() {
    let endpoint = grpc().await;
    let mut rig = Rig::with(&[endpoint]);
    let mut service = port_of("web");
    service.protocol = BackendProtocol::H2c;
    let action = RouteAction { service: Some(service), ..RouteAction::default() };
    rig.act("web", "", "/", RouteMatch::Prefix, action);
    rig.follow();
    let stream = TcpStream::connect(rig.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let running = tokio::spawn(connection);
    for _ in 0..5 {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("5"));
        let frames = [Ok(Frame::data(Bytes::from_static(b"hello"))), Ok(Frame::trailers(trailers))];
        let request = Request::post("http://shop.example/pkg.Svc/Call")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(StreamBody::new(Frames(frames.into_iter().collect())))
            .unwrap();
        sender.ready().await.unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let whole = answer.into_body().collect().await.unwrap();
        let trailers = whole.trailers().unwrap();
        assert_eq!(
            (&trailers["grpc-status"], &trailers["x-sum"]),
            (&HeaderValue::from_static("0"), &HeaderValue::from_static("5"))
        );
        assert_eq!(whole.to_bytes(), "hello");
    }
    drop(sender);
    running.await.unwrap().unwrap();
    rig.stop().await;
}

#[tokio::test]
async fn many_requests_share_one_http2_connection_and_reach_http1_endpoints() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let stream = TcpStream::connect(rig.address()).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut asked = Vec::new();
    for n in 0..50 {
        let mut sender = sender.clone();
        asked.push(tokio::spawn(async move {
            let request = Request::get(format!("http://shop.example/{n}"))
                .header("cookie", "a=1")
                .header("cookie", "b=2")
                .body(Full::<Bytes>::default())
                .unwrap();
            let answer = sender.send_request(request).await.unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            String::from_utf8(body.to_vec()).unwrap()
        }));
    }
    for (n, asked) in asked.into_iter().enumerate() {
        let body = asked.await.unwrap();
        assert_eq!(body.lines().next(), Some(format!("GET /{n} HTTP/1.1").as_str()));
        assert!(body.contains("host: shop.example\n") && body.contains("cookie: a=1; b=2\n"), "{body}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn hints_come_before_the_answer() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let endpoint = backend::script(move |mut stream| {
        let mut gone = gone.clone();
        async move {
            backend::read_head(&mut stream).await;
            let hint = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
            stream.write_all(hint).await.unwrap();
            let _ = gone.wait_for(|go| *go).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut client = Client::new(rig.address()).await;
    client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let hint = client.answer().await.unwrap();
    assert_eq!((hint.status, hint.header("link")), (103, Some("</a.css>; rel=preload")));
    go.send_replace(true);
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    // Whoever is not spoken to in a way that can tell of hints gets the answer.
    let answer = ask(rig.address(), "DELETE / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    rig.stop().await;
}
