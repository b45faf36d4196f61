//! Requests that are wrong: refused, or made right, and never read in two ways.

use landfall_proxy::{Config, Limits};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::Rig;
use crate::support::backend::Backend;
use crate::support::raw::{Client, ask};

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    for (request, want) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a@b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n y\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n host: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nx\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nhi", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: +2\r\n\r\nhi", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\nhi", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999\r\n\r\nhi", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET /a%2f..%2fb HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("GET /%00 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("GET a HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\n\r\n", 400),
        // What it asks is nobody's but ours to answer.
        ("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", 204),
        ("CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n", 405),
        ("G\x01T / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("GET / HTTP/3.7\r\nhost: a\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("\x16\x03\x01\x02\r\n\r\n", 400),
    ] {
        let answer = ask(rig.address(), request).await;
        assert_eq!(answer.map(|answer| answer.status), Some(want), "{request:?}");
    }
    assert_eq!(backend.requests(), 0, "the endpoint saw none of them");
    rig.stop().await;
}

#[tokio::test]
async fn what_has_one_meaning_is_passed_on_in_one_form() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    for (request, line, host) in [
        ("GET http://b.example/x?y HTTP/1.1\r\nhost: a\r\n\r\n", "GET /x?y HTTP/1.1", "b.example"),
        ("GET //a///b HTTP/1.1\r\nhost: a\r\n\r\n", "GET /a/b HTTP/1.1", "a"),
        ("GET /a/./b/../c HTTP/1.1\r\nhost: a\r\n\r\n", "GET /a/c HTTP/1.1", "a"),
        ("GET /%2e%2e/etc HTTP/1.1\r\nhost: a\r\n\r\n", "GET /etc HTTP/1.1", "a"),
        ("GET /x%2Fy HTTP/1.1\r\nhost: a\r\n\r\n", "GET /x%2Fy HTTP/1.1", "a"),
        ("\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", "GET / HTTP/1.1", "a"),
        // Lines that end with LF alone are read as lines, and written as they should be.
        ("GET / HTTP/1.1\nhost: a\nx: 1\n\n", "GET / HTTP/1.1", "a"),
    ] {
        let answer = ask(rig.address(), request).await.unwrap_or_else(|| panic!("no answer to {request:?}"));
        assert_eq!((answer.status, answer.body.lines().next()), (200, Some(line)), "{request:?}");
        assert_eq!(answer.got("host"), Some(host), "{request:?}");
    }
    rig.stop().await;
}

/// A request with both lengths is read by its chunks, is passed on with one of them, and nothing may follow it.
#[tokio::test]
async fn two_lengths_do_not_smuggle_a_second_request() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    for head in [
        "content-length: 44\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 44",
    ] {
        let mut client = Client::new(rig.address()).await;
        let request = format!(
            "POST /first HTTP/1.1\r\nhost: a\r\n{head}\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
        );
        client.send(request.as_bytes()).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.body.lines().next(), Some("POST /first HTTP/1.1"), "{answer:?}");
        assert_eq!(answer.got("content-length"), None, "{answer:?}");
        assert!(client.is_closed().await, "what follows is not read");
    }
    assert_eq!(backend.requests(), 2);
    rig.stop().await;
}

#[tokio::test]
async fn bad_chunks_end_the_connection() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    for chunks in [
        "zz\r\nhi\r\n0\r\n\r\n",
        "2\nhi\n0\n\n",
        "2\r\nhi!\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhi",
        "-2\r\nhi\r\n0\r\n\r\n",
    ] {
        let mut client = Client::new(rig.address()).await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send(format!("{head}{chunks}GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await;
        if let Some(answer) = client.answer().await {
            assert_eq!(answer.status, 400, "{chunks:?}: {answer:?}");
        }
        assert!(client.is_closed().await, "{chunks:?}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn heads_and_bodies_have_limits() {
    let backend = Backend::new("one").await;
    let limits = Limits { head_bytes: 16 << 10, body_bytes: Some(1000), ..Limits::default() };
    let rig = Rig::with_config(&[backend.address], Config { limits, ..Config::default() });
    let long = "x".repeat(20 << 10);
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let body = "x".repeat(1001);
    for (request, want) in [
        (format!("GET / HTTP/1.1\r\nhost: a\r\nx: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n"), 431),
        (format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1001\r\n\r\n{body}"), 413),
        (
            format!(
                "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n{body}\r\n0\r\n\r\n"
            ),
            413,
        ),
        (format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{}", &body[1..]), 200),
    ] {
        let answer = ask(rig.address(), &request).await;
        assert_eq!(answer.map(|answer| answer.status), Some(want), "{}", &request[..60]);
    }
    rig.stop().await;
}

#[tokio::test]
async fn slow_and_idle_clients_are_let_go() {
    let backend = Backend::new("one").await;
    let limits = Limits {
        head_timeout: Duration::from_millis(100),
        idle_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let rig = Rig::with_config(&[backend.address], Config { limits, ..Config::default() });
    for begin in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: a\r\nx: ", "PRI * HTTP/2.0\r\n"] {
        let mut client = Client::new(rig.address()).await;
        client.send(begin.as_bytes()).await;
        assert!(client.is_closed().await, "{begin:?}");
    }
    let mut client = Client::new(rig.address()).await;
    client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert!(client.is_closed().await, "nothing more was asked");
    // A head has its time as a whole, however often some of it comes.
    let mut stream = TcpStream::connect(rig.address()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").await.unwrap();
    let mut trickled = 0;
    let closed = loop {
        match tokio::time::timeout(Duration::from_millis(10), stream.read(&mut [0; 256])).await {
            Err(_) if trickled > 3_000 => break false,
            Err(_) if stream.write_all(b"x").await.is_ok() => trickled += 1,
            Err(_) | Ok(_) => break true,
        }
    };
    assert!(closed, "it goes on after {trickled} bytes");
    rig.stop().await;
}

#[tokio::test]
async fn more_than_there_is_room_for_is_told_so() {
    let hangs = crate::support::backend::bytes(b"", true).await;
    let limits = Limits { requests: 1, connections: 3, ..Limits::default() };
    let config = Config { limits, drain: Duration::ZERO, ..Config::default() };
    let mut rig = Rig::new(Config { threads: 1, ..config });
    rig.route("web", "", "/", landfall_api::landfall::RouteMatch::Prefix, "web");
    rig.serve("web", &[hangs], |_| {});
    rig.follow();
    let mut first = Client::new(rig.address()).await;
    first.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut second = Client::new(rig.address()).await;
    let answer = loop {
        // The first may not have been read yet.
        second.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        match tokio::time::timeout(Duration::from_millis(200), second.answer()).await {
            Ok(answer) => break answer.unwrap(),
            Err(_) => second = Client::new(rig.address()).await,
        }
    };
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    rig.stop().await;
}
