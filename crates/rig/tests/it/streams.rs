//! What is more than a question and an answer, on real clusters: clients come in at the edges of one, whose pods are not to be asked, and
//! are answered by pods of another, through both clusters' edges.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::carries::{ENTRANCE, HOST, NEAR};
use crate::federated::{HUB, becomes};
use crate::names::Names;
use crate::support::{PATIENCE, run};

/// How much is carried at once: a gibibyte.
const LARGE: u64 = 1 << 30;
/// A message of gRPC: not compressed, its length, and what it says.
const MESSAGE: &[u8] = b"\0\0\0\0\x05hello";

const GRPC: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: grpc, annotations: {landfall.dev/backend-protocol: GRPC}}
spec:
  rules:
  - host: grpc.my-domain.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: nginx, port: {number: 80}}}}]}
";

pub(crate) fn go_through_two_clusters(names: &Names) {
    names.federation.create(HUB, GRPC);
    let at = names.entrance(ENTRANCE).unwrap();
    let directory = tempfile::tempdir().unwrap();
    http_2(&at);
    events(&at);
    web_socket(&at);
    grpc(&at, directory.path());
    large(&at, directory.path());
}

/// curl at the edge, with the host that is meant.
fn curl(at: &str, host: &str, path: &str, options: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["-sS", "--fail", "--noproxy", "*", "--max-time", "300"]).args(options);
    command.args(["-H", &format!("Host: {host}"), &format!("http://{at}{path}")]);
    command
}

fn by(said: &str) -> Value {
    serde_json::from_str::<Value>(said).unwrap_or_default()["cluster"].clone()
}

fn http_2(at: &str) {
    let said = run(&mut curl(at, HOST, "/", &["--http2-prior-knowledge", "-w", "%{http_version}"])).unwrap();
    let (body, version) = said.rsplit_once('\n').unwrap();
    assert_eq!((version, by(body)), ("2", NEAR.into()), "{said}");
}

/// The first event is there while the second has not happened.
fn events(at: &str) {
    let options = ["--no-buffer", "-H", "Accept: text/event-stream"];
    let mut process =
        curl(at, HOST, "/stream/2?interval=2000", &options).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut next = || lines.next().map(Result::unwrap).unwrap_or_default();
    assert!(next().starts_with("data: {\"line\":0,"));
    assert_eq!(next(), "");
    assert_eq!(process.try_wait().unwrap(), None, "the answer was kept back until its end");
    assert!(next().starts_with("data: {\"line\":1,"));
    assert!(process.wait().unwrap().success());
}

/// A message goes there and comes back, twice.
fn web_socket(at: &str) {
    let mut stream = TcpStream::connect((at, 80)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET /ws HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    for word in ["hello", "again"] {
        // A text in one frame, masked with nothing, as a client must.
        let mut frame = vec![0x81, 0x80 | u8::try_from(word.len()).unwrap(), 0, 0, 0, 0];
        frame.extend(word.as_bytes());
        stream.write_all(&frame).unwrap();
        let mut back = vec![0; 2 + word.len()];
        reader.read_exact(&mut back).unwrap();
        assert_eq!((back[0], &back[2..]), (0x81, word.as_bytes()));
    }
}

/// A message comes back, and the status behind it, as a trailer.
fn grpc(at: &str, directory: &std::path::Path) {
    let (message, back, heads) = (directory.join("ask"), directory.join("back"), directory.join("heads"));
    std::fs::write(&message, MESSAGE).unwrap();
    let data = format!("@{}", message.display());
    let (back_to, heads_to) = (back.display().to_string(), heads.display().to_string());
    let options = [
        "--http2-prior-knowledge",
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
        "--data-binary",
        &data,
        "-o",
        &back_to,
        "-D",
        &heads_to,
    ];
    becomes("gRPC is answered", &Ok(String::new()), || {
        run(&mut curl(at, "grpc.my-domain.com", "/shop.Shop/Talk", &options))
    });
    assert_eq!(std::fs::read(&back).unwrap(), MESSAGE);
    let heads = std::fs::read_to_string(&heads).unwrap();
    let (_, end) = heads.split_once("\r\n\r\n").unwrap_or_default();
    assert!(end.contains("grpc-status: 0"), "{heads}");
}

/// A gibibyte comes and goes.
fn large(at: &str, directory: &std::path::Path) {
    let path = format!("/bytes/{LARGE}");
    let downloaded = run(&mut curl(at, HOST, &path, &["-o", "/dev/null", "-w", "%{size_download}"]));
    assert_eq!(downloaded, Ok(LARGE.to_string()));
    // A file without content takes no room on the disk.
    let file = directory.join("large");
    std::fs::File::create(&file).unwrap().set_len(LARGE).unwrap();
    let said = run(&mut curl(at, HOST, "/", &["-T", &file.display().to_string(), "-X", "POST"])).unwrap();
    assert_eq!(by(&said), NEAR, "{said}");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["body"]["bytes"], LARGE);
}
