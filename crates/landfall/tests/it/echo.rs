//! `landfall echo` as a container runs it: environment, requests, SIGTERM.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::support::Process;

fn get(to: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    stream
}

#[test]
fn requests_finish_when_it_is_told_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(["echo", "--http", "127.0.0.1:0"]);
    command.env("POD_NAME", "pod-1").env("POD_NAMESPACE", "space").env("CLUSTER_NAME", "east");
    let mut process = Process::start("echo", &mut command, directory.path());
    let to = process.wait_for("listening", |process| {
        let output = process.output();
        let line = output.lines().find(|line| line.contains("listening for HTTP"))?;
        let port: String = line.rsplit(':').next()?.chars().take_while(char::is_ascii_digit).collect();
        Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
    });
    let mut answer = String::new();
    get(to, "/").read_to_string(&mut answer).unwrap();
    for said in ["\"pod\": \"pod-1\"", "\"namespace\": \"space\"", "\"cluster\": \"east\""] {
        assert!(answer.contains(said), "{said}: {answer}");
    }
    // A long answer has begun when it is told to stop, and still comes to its end.
    let mut slow = get(to, "/stream/5?interval=100");
    let mut first = [0; 1];
    slow.read_exact(&mut first).unwrap();
    let status = process.terminate();
    let mut rest = String::new();
    slow.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"line\":4"), "{rest}");
    assert!(status.success(), "{status}");
    assert!(TcpStream::connect(to).is_err());
}

#[test]
fn what_cannot_be_is_told() {
    let check = |arguments: &[&str], code: i32, words: &str| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_landfall")).arg("echo").args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(words), "{told}");
    };
    check(&["--http", "here"], 2, "such as :8080");
    check(&["--https", ":0"], 2, "--cert <FILE>");
    check(&["--https", ":0", "--cert", "/no/cert", "--key", "/no/key"], 1, "cannot read /no/cert");
    check(&["--http", "192.0.2.1:80"], 1, "cannot listen on 192.0.2.1:80 (HTTP)");
}
