//! What only streams of HTTP/2 have: hints before an answer, and WebSockets beside requests (RFC 8441).

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response};
use landfall_proxy::{Config, Limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::link::Pair;
use crate::support::backend::{self, agreed};
use crate::support::h2::{LONG, client, get, whole};
use crate::support::{Rig, port_of};

#[tokio::test]
async fn hints_come_before_the_answer() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let endpoint = backend::script(move |mut stream| {
        let mut gone = gone.clone();
        async move {
            backend::read_head(&mut stream).await;
            let hint = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\n";
            stream.write_all(hint).await.unwrap();
            stream.write_all(hint).await.unwrap();
            let _ = gone.wait_for(|go| *go).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut client = client(rig.address()).await;
    let (mut answer, _) = client.send_request(get("/"), true).unwrap();
    for _ in 0..2 {
        let hint = tokio::time::timeout(LONG, poll_fn(|cx| answer.poll_informational(cx))).await;
        let hint = hint.unwrap().unwrap().unwrap();
        assert_eq!(
            (hint.status().as_u16(), &hint.headers()["link"]),
            (103, &"</a.css>; rel=preload".parse().unwrap())
        );
        assert_eq!(hint.headers().get("x-hop"), None, "that is for one hop");
    }
    go.send_replace(true);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(whole(answer).await.unwrap(), b"ok");
    rig.stop().await;
}

/// Who sends hints without end gets none of them in the client's way.
#[tokio::test]
async fn hints_have_an_end() {
    let endpoint = backend::script(|mut stream| async move {
        backend::read_head(&mut stream).await;
        for _ in 0..100 {
            stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n").await.unwrap();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut client = client(rig.address()).await;
    let (mut answer, _) = client.send_request(get("/"), true).unwrap();
    let mut hints = 0;
    while let Some(hint) = poll_fn(|cx| answer.poll_informational(cx)).await {
        hint.unwrap();
        hints += 1;
    }
    assert!((1..=32).contains(&hints), "{hints}");
    assert_eq!(whole(answer.await.unwrap()).await.unwrap(), b"ok");
    rig.stop().await;
}

/// A client that waits to be told to send its body is told so by the endpoint.
#[tokio::test]
async fn a_client_is_told_to_go_on() {
    let endpoint = backend::script(|mut stream| async move {
        let head = backend::read_head(&mut stream).await.to_ascii_lowercase();
        assert!(
            head.contains("expect: 100-continue\r\n") && head.contains("content-length: 5\r\n"),
            "{head}"
        );
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        let mut body = [0; 5];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await.unwrap();
        stream.write_all(&body).await.unwrap();
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut client = client(rig.address()).await;
    let request =
        Request::put("http://shop.example/").header("expect", "100-continue").header("content-length", "5");
    let (mut answer, mut send) = client.send_request(request.body(()).unwrap(), false).unwrap();
    let go_on = poll_fn(|cx| answer.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!(go_on.status(), 100);
    send.send_data(Bytes::from_static(b"hello"), true).unwrap();
    assert_eq!(whole(answer.await.unwrap()).await.unwrap(), b"hello");
    rig.stop().await;
}

/// Asks for a stream to become something else.
async fn connect(
    client: &mut SendRequest<Bytes>,
    to: &'static str,
    more: &[(&str, &str)],
) -> (Response<RecvStream>, SendStream<Bytes>) {
    let mut request = Request::connect("http://shop.example/chat")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat");
    for (name, value) in more {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).unwrap();
    request.extensions_mut().insert(Protocol::from_static(to));
    assert!(client.is_extended_connect_protocol_enabled());
    let (answer, send) = client.send_request(request, false).unwrap();
    (tokio::time::timeout(LONG, answer).await.unwrap().unwrap(), send)
}

#[tokio::test]
async fn a_stream_becomes_a_websocket_beside_requests() {
    let endpoint = backend::script(|mut stream| async move {
        let asked = backend::read_head(&mut stream).await;
        let head = asked.to_ascii_lowercase();
        if !head.starts_with("get /chat ") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            return;
        }
        for line in
            ["upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13", "host: shop.example"]
        {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
        }
        let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
        assert_eq!(key.len(), 24, "sixteen bytes");
        stream.write_all(agreed(&asked).as_bytes()).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await;
    // Directly, and through the edge of another cluster.
    let (rig, pair) = (Rig::with(&[endpoint]), Pair::new(port_of("web"), &[endpoint]));
    for address in [rig.address(), pair.address()] {
        speaks_websocket(address).await;
    }
    rig.stop().await;
    pair.stop().await;
}

async fn speaks_websocket(at: std::net::SocketAddr) {
    let mut client = client(at).await;
    let (answer, mut send) = connect(&mut client, "websocket", &[]).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["sec-websocket-protocol"], "chat");
    for taken in ["upgrade", "connection", "sec-websocket-accept"] {
        assert_eq!(answer.headers().get(taken), None, "{taken} is of HTTP/1.1");
    }
    // More than all windows together, so that both sides have to wait for each other.
    let sent: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let bytes = Bytes::from(sent.clone());
    let sending = tokio::spawn(async move {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            send.reserve_capacity(bytes.len());
            let room = poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap();
            send.send_data(bytes.split_to(room.min(bytes.len())), false).unwrap();
        }
        send.send_data(Bytes::new(), true).unwrap();
    });
    let back = tokio::time::timeout(LONG, whole(answer)).await.unwrap().unwrap();
    assert!(back == sent, "{} bytes came back", back.len());
    sending.await.unwrap();
    let (answer, _) = client.send_request(get("/"), true).unwrap();
    assert_eq!(whole(answer.await.unwrap()).await.unwrap(), b"ok", "the connection goes on");
}

/// Whatever is no WebSocket is not taken for one: to a client on HTTP/2 any success would be.
#[tokio::test]
async fn a_websocket_may_be_refused() {
    let turns = Arc::new(AtomicUsize::new(0));
    let endpoint = backend::script(move |mut stream| {
        let turns = turns.clone();
        async move {
            loop {
                let head = backend::read_head(&mut stream).await;
                if head.is_empty() {
                    return;
                }
                assert!(!head.to_ascii_lowercase().contains("content-length"), "there is no body: {head}");
                let answer = match (turns.fetch_add(1, Ordering::Relaxed), head.starts_with("GET /chat ")) {
                    (_, false) => "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnext".to_owned(),
                    (0, true) => "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage".to_owned(),
                    (1, true) => "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno".to_owned(),
                    (_, true) => agreed(&head).replace("Accept: ", "Accept: x"),
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let rig = Rig::with_config(&[endpoint], Config { threads: 1, ..Config::default() });
    let mut client = client(rig.address()).await;
    let more = &[("content-length", "5")];
    let (answer, _send) = connect(&mut client, "websocket", more).await;
    assert_eq!(answer.status(), 502, "a page is no WebSocket");
    let (answer, _send) = connect(&mut client, "websocket", more).await;
    assert_eq!(answer.status(), 403);
    assert_eq!(whole(answer).await.unwrap(), b"no");
    let (answer, _) = client.send_request(get("/next"), true).unwrap();
    assert_eq!(whole(answer.await.unwrap()).await.unwrap(), b"next", "nothing is left of those before");
    let (answer, _send) = connect(&mut client, "websocket", more).await;
    assert_eq!(answer.status(), 502, "that is the answer to another key");
    let (answer, _send) = connect(&mut client, "gopher", &[]).await;
    assert_eq!(answer.status(), 501);
    let request = Request::builder().method(Method::CONNECT).uri("shop.example:80").body(()).unwrap();
    let (answer, _send) = client.send_request(request, false).unwrap();
    assert_eq!(answer.await.unwrap().status(), 405);
    rig.stop().await;
}

/// When one end of a WebSocket is gone, the other is told; and the whole is over, whatever the other makes of it.
#[tokio::test]
async fn the_end_of_a_websocket_is_told() {
    let (ended, mut told) = tokio::sync::mpsc::channel(2);
    let endpoint = backend::script(move |mut stream| {
        let ended = ended.clone();
        async move {
            let head = backend::read_head(&mut stream).await;
            stream.write_all(agreed(&head).as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            let hangs = rest.is_empty();
            ended.send(rest).await.unwrap();
            if hangs {
                std::future::pending::<()>().await;
            }
        }
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut client = client(rig.address()).await;
    let (_answer, mut send) = connect(&mut client, "websocket", &[]).await;
    send.send_reset(Reason::CANCEL);
    assert_eq!(tokio::time::timeout(LONG, told.recv()).await.unwrap().unwrap(), b"");
    let over = |line: &str| {
        line.starts_with("landfall_proxy_request_duration_seconds_count") && line.ends_with(" 1")
    };
    let looking = async {
        while !rig.registry.render().lines().any(over) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, looking).await.expect("an endpoint that stays holds nothing up");
    let (answer, mut send) = connect(&mut client, "websocket", &[]).await;
    send.send_data(Bytes::from_static(b"bye"), true).unwrap();
    assert_eq!(tokio::time::timeout(LONG, told.recv()).await.unwrap().unwrap(), b"bye");
    assert_eq!(whole(answer).await.unwrap(), b"", "the endpoint has closed");
    rig.stop().await;
}

/// Nobody goes on with what its client has given up.
#[tokio::test]
async fn a_stream_that_is_given_up_frees_its_endpoint() {
    let (ended, mut told) = tokio::sync::mpsc::channel(1);
    let (began, mut begun) = tokio::sync::mpsc::channel(1);
    let endpoint = backend::script(move |mut stream| {
        let (began, ended) = (began.clone(), ended.clone());
        async move {
            backend::read_head(&mut stream).await;
            began.send(()).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
            ended.send(()).await.unwrap();
        }
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut client = client(rig.address()).await;
    let (_answer, mut send) = client.send_request(get("/"), true).unwrap();
    begun.recv().await.unwrap();
    send.send_reset(Reason::CANCEL);
    tokio::time::timeout(LONG, told.recv()).await.unwrap().unwrap();
    rig.stop().await;
}

/// An answer that breaks off is not taken for a whole one; one without a body says how long it would be.
#[tokio::test]
async fn answers_end_as_they_should() {
    let endpoint = backend::script(|mut stream| async move {
        let head = backend::read_head(&mut stream).await;
        let answer: &[u8] = if head.starts_with("HEAD") {
            b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"
        } else {
            b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nhalf"
        };
        stream.write_all(answer).await.unwrap();
    })
    .await;
    let rig = Rig::with(&[endpoint]);
    let mut client = client(rig.address()).await;
    let (answer, _) = client.send_request(get("/"), true).unwrap();
    let error = whole(answer.await.unwrap()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    let head = Request::head("http://shop.example/").body(()).unwrap();
    let (answer, _) = client.send_request(head, true).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-length"]),
        (200, &"1000000".parse().unwrap())
    );
    assert!(answer.headers().contains_key("date"));
    assert_eq!(whole(answer).await.unwrap(), b"");
    rig.stop().await;
    // Those of our own, too.
    let rig = Rig::new(Config::default());
    rig.follow();
    let mut client = self::client(rig.address()).await;
    let head = Request::head("http://nowhere.example/").body(()).unwrap();
    let (answer, _) = client.send_request(head, true).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 404);
    assert!(answer.body().is_end_stream() && answer.headers().contains_key("content-length"));
    rig.stop().await;
}

/// A client that opens no window for what it has asked for is let go; one that has taken all of it gets the end.
#[tokio::test]
async fn a_client_that_takes_nothing_is_let_go() {
    let endpoint = backend::script(|mut stream| async move {
        let head = backend::read_head(&mut stream).await;
        if head.starts_with("GET /short ") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
            return;
        }
        let body = "x".repeat(if head.starts_with("GET /large ") { 8_000_000 } else { 100_000 });
        let answer = format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await;
    let limits = Limits { write_timeout: Duration::from_millis(300), ..Limits::default() };
    let rig = Rig::with_config(&[endpoint], Config { limits, ..Config::default() });
    let greet = async |window: u32| {
        let stream = TcpStream::connect(rig.address()).await.unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(1 << 20);
        let (sender, connection): (SendRequest<Bytes>, _) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender
    };
    let mut stingy = greet(1000).await;
    let (answer, _) = stingy.send_request(get("/large"), true).unwrap();
    let mut answer = answer.await.unwrap().into_body();
    let mut taken = 0;
    let ended = loop {
        match tokio::time::timeout(LONG, answer.data()).await.unwrap() {
            Some(Ok(bytes)) => taken += bytes.len(),
            Some(Err(error)) => break error,
            None => panic!("it is not whole"),
        }
    };
    assert_eq!((taken, ended.reason()), (1000, Some(Reason::CANCEL)));
    // One of whose answer all is here at once is no other: nothing of it waits until the client is gone.
    let mut stingy = greet(1).await;
    let (answer, _) = stingy.send_request(get("/short"), true).unwrap();
    let mut answer = answer.await.unwrap().into_body();
    assert_eq!(tokio::time::timeout(LONG, answer.data()).await.unwrap().unwrap().unwrap().len(), 1);
    let ended = tokio::time::timeout(LONG, answer.data()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(ended.reason(), Some(Reason::CANCEL));
    // Room for all of it, and for nothing more.
    let mut exact = greet(100_000).await;
    let (answer, _) = exact.send_request(get("/"), true).unwrap();
    let mut answer = answer.await.unwrap().into_body();
    let mut taken = 0;
    while let Some(piece) = tokio::time::timeout(LONG, answer.data()).await.unwrap() {
        taken += piece.unwrap().len();
    }
    assert_eq!(taken, 100_000);
    rig.stop().await;
}
