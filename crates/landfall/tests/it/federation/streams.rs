//! What is more than a question and an answer, through two clusters: the client at one cluster's edge, the pods in another.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use bytes::Bytes;
use futures::SinkExt as _;
use futures::channel::mpsc;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;

use super::carries::{HOST, PATIENCE};
use super::{becomes, playground_with};
use crate::support::{Playground, find, skip, text};

/// How much is carried at once.
const LARGE_MB: u64 = 1024;
/// How much more memory all of the playground may need for it: hub, edges, clusters and pods.
const MEMORY_MB_MAX: u64 = 128;

/// Where clients come in whose requests are answered elsewhere.
struct Far {
    playground: Playground,
    at: String,
}

/// Whether a cluster that is not the client's has answered.
fn elsewhere(by: &str) -> bool {
    ["asia-east", "eu-west"].contains(&by)
}

/// A playground whose clients come in at a cluster that sends everybody on.
fn far(suite: &str, base: &std::path::Path) -> Option<Far> {
    if find("curl").is_none() {
        skip(suite, "curl not found");
        return None;
    }
    let playground = playground_with(suite, base, &["--no-distances"])?;
    playground.kubectl_ok("create deployment web --image=echo --replicas=3");
    playground.kubectl_ok("expose deployment web --port=8080");
    playground.kubectl_ok(&format!("create ingress web --rule={HOST}/*=web:8080"));
    // gRPC is spoken to these.
    playground.kubectl_ok(&format!(
        "create ingress grpc --rule=grpc.{HOST}/*=web:8080 --annotation landfall.dev/backend-protocol=GRPC"
    ));
    assert!(playground.landfall(&["cordon", "us-east"]).status.success());
    for host in [HOST.to_owned(), format!("grpc.{HOST}")] {
        becomes("another cluster answers", &true, || elsewhere(&playground.asked("us-east", &host)));
    }
    let at = playground.carries_at("us-east");
    Some(Far { playground, at })
}

impl Far {
    /// curl at the edge, with the host that is meant.
    fn curl(&self, path: &str, options: &[&str]) -> Command {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "120"]);
        command.args(options).args(["-H", &format!("Host: {HOST}"), &format!("http://{}{path}", self.at)]);
        command
    }

    fn get(&self, path: &str, options: &[&str]) -> String {
        let output = self.curl(path, options).output().unwrap();
        assert!(output.status.success(), "{path}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

#[test]
fn whatever_is_spoken_goes_through_two_clusters() {
    let base = tempfile::tempdir().unwrap();
    let Some(far) = far("streams: through two clusters", base.path()) else { return };
    http_2(&far);
    events(&far);
    web_socket(&far);
    grpc(&far);
}

fn http_2(far: &Far) {
    let said = far.get("/", &["--http2-prior-knowledge", "-w", "%{http_version}"]);
    let (body, version) = said.rsplit_once('\n').unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    assert!(version == "2" && elsewhere(body["cluster"].as_str().unwrap()), "{said}");
}

/// The first event is there while the second has not happened.
fn events(far: &Far) {
    let mut command =
        far.curl("/stream/2?interval=2000", &["--no-buffer", "-H", "Accept: text/event-stream"]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut next = || lines.next().map(Result::unwrap).unwrap_or_default();
    assert!(next().starts_with("data: {\"line\":0,"));
    assert_eq!(next(), "");
    assert_eq!(process.try_wait().unwrap(), None, "the answer was kept back until its end");
    assert!(next().starts_with("data: {\"line\":1,"));
    assert!(process.wait().unwrap().success());
}

/// A message goes there and comes back, twice.
fn web_socket(far: &Far) {
    let mut stream = TcpStream::connect(&far.at).unwrap();
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
    let lower = head.to_lowercase();
    assert!(
        head.starts_with("HTTP/1.1 101 ")
            && lower.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
        "{head}"
    );
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

/// Messages go back and forth while the call is open, and the status comes at its end.
fn grpc(far: &Far) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(&far.at).await.unwrap();
        let (mut client, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let driven = async { connection.await.map_err(|error| error.to_string()) };
        let (mut say, messages) = mpsc::channel::<Result<Frame<Bytes>, std::convert::Infallible>>(1);
        let request = hyper::Request::post(format!("http://grpc.{HOST}/shop.Shop/Talk"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(StreamBody::new(messages))
            .unwrap();
        let talk = async {
            let mut answer = client.send_request(request).await.unwrap().into_body();
            for word in [&b"\0\0\0\0\x05hello"[..], b"\0\0\0\0\x05again"] {
                say.send(Ok(Frame::data(Bytes::from_static(word)))).await.unwrap();
                let mut back = Vec::new();
                while back.len() < word.len() {
                    back.extend(answer.frame().await.unwrap().unwrap().into_data().unwrap());
                }
                assert_eq!(back, word);
            }
            drop(say);
            let end = answer.frame().await.unwrap().unwrap().into_trailers().unwrap();
            assert_eq!(end["grpc-status"], "0");
        };
        let talk = tokio::time::timeout(PATIENCE, talk);
        tokio::select! { done = talk => done.unwrap(), end = driven => panic!("{end:?}") }
    });
}

#[test]
fn what_is_large_goes_through_two_clusters_in_little_memory() {
    let base = tempfile::tempdir().unwrap();
    let Some(far) = far("streams: large bodies", base.path()) else { return };
    let bytes = LARGE_MB << 20;
    // What it has needed for other things is forgotten.
    std::fs::write(format!("/proc/{}/clear_refs", far.playground.process.id()), "5").unwrap();
    let before = memory_mb(&far.playground, "VmRSS");
    let downloaded = far.get(&format!("/bytes/{bytes}"), &["-o", "/dev/null", "-w", "%{size_download}"]);
    assert_eq!(downloaded, bytes.to_string());
    // A file without content takes no room on the disk.
    let file = base.path().join("large");
    std::fs::File::create(&file).unwrap().set_len(bytes).unwrap();
    let uploaded = far.get("/", &["-T", file.to_str().unwrap(), "-X", "POST"]);
    let uploaded: Value = serde_json::from_str(&uploaded).unwrap();
    assert_eq!(uploaded["body"]["bytes"], bytes);
    assert!(elsewhere(uploaded["cluster"].as_str().unwrap()), "{uploaded}");
    let more = memory_mb(&far.playground, "VmHWM").saturating_sub(before);
    println!("{LARGE_MB} MiB down and up through two edges took {more} MiB of memory at the most");
    assert!(more < MEMORY_MB_MAX, "{more} MiB");
}

/// How much memory a playground has, by a line of what the system says of it.
fn memory_mb(playground: &Playground, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", playground.process.id())).unwrap();
    let found = status.lines().find_map(|said| said.strip_prefix(line)).unwrap();
    found.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}
