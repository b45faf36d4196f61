//! What `landfall edge` is told on its command line, and what comes of it: what it writes down, whom it believes, how much it takes on.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

use crate::edges::{carrying_with, server, until, write_plans};
use crate::support::free_port;

/// More clients at once than an edge takes on when there is no memory: it takes a few.
const CROWD: usize = 100;

/// What is said to bytes that end with the connection, or with its other side's patience.
fn ask(port: u16, bytes: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _ = stream.write_all(bytes.as_bytes());
    let mut answer = String::new();
    // Whoever is refused may be reset.
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// A collector of traces, and the first lines of what it is sent.
fn collector() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut sent = [0; 4096];
            let read = stream.read(&mut sent).unwrap_or(0);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let line = String::from_utf8_lossy(&sent[..read]).lines().next().unwrap_or_default().to_owned();
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    (port, told)
}

#[test]
fn requests_are_written_down_and_balancers_believed_as_the_options_say() {
    let directory = tempfile::tempdir().unwrap();
    write_plans(directory.path(), server());
    let (http, log, (collects, told)) = (free_port(), directory.path().join("access.log"), collector());
    let more = [
        "--access-log",
        "all",
        "--access-log-file",
        log.to_str().unwrap(),
        "--otlp-endpoint",
        &format!("http://127.0.0.1:{collects}"),
        "--trace-sample",
        "all",
        "--proxy-protocol-from",
        "127.0.0.1/32",
        "--max-body",
        "10",
    ];
    let mut edge = carrying_with(directory.path(), "edge", http, free_port(), &more);
    let client = "PROXY TCP4 192.0.2.7 192.0.2.1 4000 80\r\n";
    let head = "Host: shop.example.com\r\nConnection: close\r\n";
    let answer = ask(http, &format!("{client}GET /cart HTTP/1.1\r\n{head}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "{answer}");
    let body = "x".repeat(11);
    let answer =
        ask(http, &format!("{client}POST /large HTTP/1.1\r\n{head}Content-Length: 11\r\n\r\n{body}"));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let line: Value = until("it is written down", || {
        let lines = std::fs::read_to_string(&log).unwrap_or_default();
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.into_iter().find(|line| line["path"] == "/cart")
    });
    for (name, expected) in
        [("client", "192.0.2.7"), ("host", "shop.example.com"), ("cluster", "a"), ("why", "Local")]
    {
        assert_eq!(line[name], expected, "{name}: {line}");
    }
    let sent = until("a trace is sent", || told.try_recv().ok());
    assert!(sent.starts_with("POST /v1/traces "), "{sent}");
    assert!(edge.terminate().success());
}

/// An HTTP server that answers when it is told to.
fn waiting_server() -> (u16, Arc<(Mutex<bool>, Condvar)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let opened = gate.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let opened = opened.clone();
            std::thread::spawn(move || {
                let mut asked = [0; 4096];
                while stream.read(&mut asked).is_ok_and(|read| read > 0) {
                    let (open, changed) = &*opened;
                    drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                }
            });
        }
    });
    (port, gate)
}

/// It uses more than it may as soon as it runs: some are told to come again, and others are carried all the same.
#[test]
fn an_edge_without_memory_carries_a_few_and_tells_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let (port, gate) = waiting_server();
    write_plans(directory.path(), port);
    let http = free_port();
    let mut edge = carrying_with(directory.path(), "edge", http, free_port(), &["--max-memory", "1Mi"]);
    let (tell, told) = channel();
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                tell.send(ask(http, request)).unwrap();
            })
        })
        .collect();
    let refused = told.recv().unwrap().to_ascii_lowercase();
    assert!(refused.starts_with("http/1.1 503 ") && refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    crowd.into_iter().for_each(|client| client.join().unwrap());
    drop(tell);
    let rest: Vec<String> = told.into_iter().collect();
    let carried = rest.iter().filter(|answer| answer.starts_with("HTTP/1.1 200 ")).count();
    assert!(carried > 0, "nobody is carried");
    assert!(
        rest.iter()
            .all(|answer| ["200", "503"].iter().any(|one| answer.starts_with(&format!("HTTP/1.1 {one} "))))
    );
    assert!(edge.terminate().success());
}
