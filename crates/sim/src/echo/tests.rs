//! The echo program as its clients see it: curl, a WebSocket client, an HTTP/2 client, and bytes that are no protocol.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio_tungstenite::tungstenite::Message;

use super::{Echo, Identity, Journal, Load, run_http, run_tcp, run_udp, tls_config};
use crate::gate::{Effect, Gate};
use crate::listen;

/// Lines of the access log.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Journal for Lines {
    fn line(&self, line: &str) {
        self.0.lock().push(line.to_owned());
    }
}

/// A program that listens in every way.
struct Program {
    echo: Arc<Echo>,
    lines: Arc<Lines>,
    tasks: Tasks,
    http: SocketAddr,
    https: SocketAddr,
    tcp: SocketAddr,
    udp: SocketAddr,
}

impl Program {
    fn start() -> Self {
        let lines = Arc::new(Lines::default());
        let identity =
            Identity { pod: "p".into(), namespace: "n".into(), node: "node".into(), cluster: "c".into() };
        let (load, gate, life) = (Arc::new(Load::default()), Gate::default(), Tasks::default());
        let echo = Arc::new(Echo { identity, load, journal: lines.clone(), gate, life });
        let tasks = Tasks::default();
        let listener = || {
            let listener = listen::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            (listener, address)
        };
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["echo.example".to_owned()]).unwrap();
        let tls = tls_config(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes()).unwrap();
        let (plain, http) = listener();
        tasks.spawn(run_http(echo.clone(), plain, None, tasks.clone()));
        let (secured, https) = listener();
        tasks.spawn(run_http(echo.clone(), secured, Some(tls), tasks.clone()));
        let (raw, tcp) = listener();
        tasks.spawn(run_tcp(echo.clone(), raw, tasks.clone()));
        let socket = listen::udp("127.0.0.1:0".parse().unwrap()).unwrap();
        let udp = socket.local_addr().unwrap();
        tasks.spawn(run_udp(echo.clone(), socket, tasks.clone()));
        Self { echo, lines, tasks, http, https, tcp, udp }
    }

    async fn stop(self) {
        self.echo.life.stop();
        self.tasks.join().await;
    }

    /// What curl prints for a path, its status and the HTTP version appended.
    async fn curl(&self, arguments: &[&str], path: &str) -> (String, String) {
        curl(arguments, &format!("http://{}{path}", self.http)).await
    }
}

async fn curl(arguments: &[&str], url: &str) -> (String, String) {
    let output = tokio::process::Command::new("curl")
        .args(["-sS", "--max-time", "20", "-w", "\n%{http_code} %{http_version}"])
        .args(arguments)
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .await
        .expect("curl is installed");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{url}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let (body, result) = text.rsplit_once('\n').unwrap();
    (body.to_owned(), result.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_described() {
    let program = Program::start();
    let sent = ["-X", "PUT", "-H", "X-Twice: 1", "-H", "X-Twice: 2", "-d", "body"];
    for (arguments, version) in [(&["--http1.1"][..], "1.1"), (&["--http2-prior-knowledge"], "2")] {
        let arguments = [arguments, &sent].concat();
        let (body, result) = program.curl(&arguments, "/a/b?x=1&y=%20").await;
        assert_eq!(result, format!("200 {version}"));
        let said: Value = serde_json::from_str(&body).unwrap();
        let want = json!({
            "method": "PUT", "path": "/a/b", "query": {"x": "1", "y": " "}, "pod": "p", "namespace": "n",
            "node": "node", "cluster": "c", "tls": null, "host": program.http.to_string(),
            "body": {"bytes": 4, "text": "body", "truncated": false},
        });
        for (key, value) in want.as_object().unwrap() {
            assert_eq!(&said[key], value, "{key}");
        }
        assert_eq!(said["headers"]["x-twice"], json!(["1", "2"]));
        assert!(said["remote"].as_str().unwrap().starts_with("127.0.0.1:"));
    }
    let lines = program.lines.0.lock().clone();
    assert!(lines[0].contains("\"PUT /a/b?x=1&y=%20 HTTP/1.1\" 200 "), "{lines:?}");
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_described() {
    let program = Program::start();
    let port = program.https.port();
    let resolve = format!("echo.example:{port}:127.0.0.1");
    for (flag, alpn, version) in [("--http2", "h2", "2"), ("--http1.1", "http/1.1", "1.1")] {
        let url = format!("https://echo.example:{port}/");
        let (body, result) = curl(&["-k", "--resolve", &resolve, flag], &url).await;
        assert_eq!(result, format!("200 {version}"));
        let said: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(said["tls"]["sni"], "echo.example");
        assert_eq!(said["tls"]["alpn"], alpn);
        assert_eq!(said["tls"]["version"], "TLS 1.3");
    }
    assert!(tls_config(b"no", b"no").is_err());
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_do_what_they_say() {
    let program = Program::start();
    let check = async |path: &str, code: &str, holds: &str| {
        let (body, result) = program.curl(&["--compressed"], path).await;
        assert_eq!(result, format!("{code} 1.1"), "{path}");
        assert!(body.contains(holds), "{path}: {body}");
    };
    check("/status/503", "503", "\"path\": \"/status/503\"").await;
    check("/status/204", "204", "").await;
    check("/status/99", "400", "200 to 599").await;
    check("/status/100", "400", "200 to 599").await;
    check("/status/999999999999", "400", "200 to 599").await;
    check("/status/x", "400", "200 to 599").await;
    check("/gzip", "200", "\"path\": \"/gzip\"").await;
    check("/stream/3", "200", "{\"line\":2,\"pod\":\"p\"}\n").await;
    check("/stream/10001", "400", "up to").await;
    check("/bytes/30", "200", "abcdefghijklmnopqrstuvwxyzabcd").await;
    check("/bytes/99999999999999999999", "400", "up to").await;
    check("/healthz", "200", "ok").await;
    check("/readyz", "200", "ok").await;
    check("/ws", "426", "WebSocket").await;
    check("/delay/x", "200", "\"path\"").await;
    check("/%00%ff", "200", "\"path\"").await;
    program.echo.load.leave();
    check("/readyz", "503", "terminating").await;
    let (headers, _) = program.curl(&["-sI"], "/bytes/1000000").await;
    assert!(headers.contains("content-length: 1000000"), "{headers}");
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delays_are_kept() {
    let program = Program::start();
    for path in ["/delay/200", "/x?delay=200"] {
        let began = clock::instant();
        program.curl(&[], path).await;
        assert!(began.elapsed() >= Duration::from_millis(200), "{path}");
    }
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_are_counted_not_kept() {
    let program = Program::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("large");
    std::fs::write(&file, vec![b'x'; 20_000_000]).unwrap();
    let (body, _) = program.curl(&["-T", file.to_str().unwrap()], "/").await;
    let said: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&said["body"]["bytes"], &said["body"]["truncated"]), (&json!(20_000_000), &json!(true)));
    let (body, _) = program.curl(&["-o", "/dev/null", "-w", "\n%{size_download} x"], "/bytes/5000000").await;
    assert_eq!(body, "");
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn websockets_echo_and_are_closed_at_the_end() {
    let program = Program::start();
    let stream = TcpStream::connect(program.http).await.unwrap();
    let url = format!("ws://{}/ws", program.http);
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    for message in [Message::text("hello"), Message::binary(vec![0; 100_000]), Message::text("")] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    assert!(program.echo.load.in_flight() > 0, "a socket counts");
    program.tasks.stop();
    let Message::Close(Some(frame)) = socket.next().await.unwrap().unwrap() else { panic!("no goodbye") };
    assert_eq!(u16::from(frame.code), 1001);
    drop(socket);
    program.tasks.join().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_ends_a_websocket() {
    let program = Program::start();
    let stream = TcpStream::connect(program.http).await.unwrap();
    let (mut socket, _) =
        tokio_tungstenite::client_async(format!("ws://{}/ws", program.http), stream).await.unwrap();
    let _ = socket.send(Message::binary(vec![0; 3 << 20])).await;
    while let Some(Ok(message)) = socket.next().await {
        assert!(!message.is_binary(), "not echoed");
    }
    program.stop().await;
}

/// One gRPC call: sends the pieces, gives back what came and the status.
async fn grpc(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    pieces: &[&'static [u8]],
) -> (Vec<u8>, String) {
    let stream = TcpStream::connect(to).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let tasks = Tasks::default();
    tasks.spawn_until_stop(async move { drop(connection.await) });
    let mut sender = sender.ready().await.unwrap();
    let mut request =
        http::Request::post(format!("http://x{path}")).header("content-type", "application/grpc+proto");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (response, mut sending) = sender.send_request(request.body(()).unwrap(), false).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/grpc+proto");
    let mut body = response.into_body();
    let mut came = Vec::new();
    for piece in pieces {
        // Each comes back before the next is sent: nothing is kept until the end.
        sending.send_data(Bytes::from_static(piece), false).unwrap();
        if headers.is_empty() {
            came.extend(body.data().await.unwrap().unwrap());
        }
    }
    sending.send_data(Bytes::new(), true).unwrap();
    while let Some(data) = body.data().await {
        came.extend(data.unwrap());
    }
    let trailers = body.trailers().await.unwrap().unwrap();
    tasks.join().await;
    (came, trailers["grpc-status"].to_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_messages_come_back() {
    let program = Program::start();
    let messages: &[&'static [u8]] = &[&[0, 0, 0, 0, 1, 7], &[0, 0, 0, 0, 2, 8, 9]];
    let (came, status) = grpc(program.http, "/any.Service/Method", &[], messages).await;
    assert_eq!((came, status.as_str()), (messages.concat(), "0"));
    let (_, status) = grpc(program.http, "/any.Service/Method", &[("x-echo-grpc-status", "14")], &[]).await;
    assert_eq!(status, "14");
    let check = ("/grpc.health.v1.Health/Check", [("x", "y")]);
    let (came, status) = grpc(program.http, check.0, &check.1, &[&[0, 0, 0, 0, 0]]).await;
    assert_eq!((came.as_slice(), status.as_str()), (&[0, 0, 0, 0, 2, 8, 1][..], "0"));
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_and_datagrams_come_back() {
    let program = Program::start();
    let mut stream = TcpStream::connect(program.tcp).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).await.unwrap();
    assert_eq!(back, "hello");
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(program.udp).await.unwrap();
    for datagram in [&b"hello"[..], b"", &[7; 60_000]] {
        socket.send(datagram).await.unwrap();
        let mut buffer = vec![0; 65_536];
        let length = socket.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], datagram);
    }
    program.stop().await;
}

/// Each datagram waited for those before it.
#[tokio::test(flavor = "multi_thread")]
async fn late_datagrams_do_not_wait_for_each_other() {
    let program = Program::start();
    program.echo.load.suffer(crate::gate::Effect::Slow(Duration::from_millis(400)));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(program.udp).await.unwrap();
    let began = landfall_runtime::clock::instant();
    for number in 0..8 {
        socket.send(&[number]).await.unwrap();
    }
    let mut back = Vec::new();
    for _ in 0..8 {
        let mut buffer = [0; 16];
        let length = socket.recv(&mut buffer).await.unwrap();
        back.extend_from_slice(&buffer[..length]);
    }
    back.sort_unstable();
    assert_eq!(back, (0..8).collect::<Vec<u8>>());
    let took = began.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_millis(1600)).contains(&took), "{took:?}");
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_survived() {
    let program = Program::start();
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(200_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(20_000));
    let nonsense: [&[u8]; 8] = [
        b"\0\0\0\0",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        long.as_bytes(),
        many.as_bytes(),
    ];
    for bytes in nonsense {
        for to in [program.http, program.https, program.tcp] {
            let mut stream = TcpStream::connect(to).await.unwrap();
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            let mut rest = Vec::new();
            let _ =
                tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.unwrap();
        }
    }
    let (_, result) = program.curl(&[], "/").await;
    assert_eq!(result, "200 1.1");
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_has_turns() {
    let program = Program::start();
    program.echo.load.suffer(Effect::Queueing { requests_max: 1 });
    let began = clock::instant();
    let asks = (0..3).map(|_| program.curl(&[], "/delay/150"));
    for (_, result) in futures::future::join_all(asks).await {
        assert_eq!(result, "200 1.1");
    }
    assert!(began.elapsed() >= Duration::from_millis(450), "one after the other");
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_lets_requests_finish() {
    let program = Program::start();
    let slow = program.curl(&[], "/delay/500");
    let stop = async {
        while program.echo.load.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        program.tasks.join().await;
    };
    let ((_, result), ()) = tokio::join!(slow, stop);
    assert_eq!(result, "200 1.1");
    assert!(TcpStream::connect(program.http).await.is_err());
}
