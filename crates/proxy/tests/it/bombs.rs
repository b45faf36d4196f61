//! A few bytes that become many: heads, continuations and trailers that would not end. They are refused, or cut at a limit
//! (RFC 9113, 10.5.1; RFC 9112, 7.1.2), and others are served.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::Rig;
use crate::support::backend::{self, Backend};
use crate::support::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEAD, HEADERS, PING, POST, REMEMBERED, RESET, first,
    frame, hello, literal, remember,
};
use crate::support::raw::{Client, get};

/// However slow the machine is, nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// `:status: 200`, in HPACK.
const FINE: u8 = 0x88;

/// What became of the first stream of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was answered: well, or not.
    Answered {
        well: bool,
    },
    Reset,
    /// The whole connection is given up.
    GoneAway,
    /// It has no answer, and whoever asks on the connection is answered.
    Open,
}

/// Says something on a connection of its own, asks whether anybody is there, and tells what became of the first stream.
async fn fate(to: SocketAddr, frames: Vec<u8>, want_answer: bool) -> Fate {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let ping = frame(PING, 0, 0, &[7; 8]);
    // It may be given up before it has said all.
    let _ = stream.write_all(&[hello(), frames, ping].concat()).await;
    let mut bytes = Vec::new();
    let reading = async {
        loop {
            while let Some(((kind, on, payload), length)) = first(&bytes) {
                match (kind, on) {
                    (HEADERS, 1) => return Fate::Answered { well: payload.first() == Some(&FINE) },
                    (RESET, 1) => return Fate::Reset,
                    (GOAWAY, _) => return Fate::GoneAway,
                    (PING, _) if !want_answer => return Fate::Open,
                    _ => {}
                }
                bytes.drain(..length);
            }
            if !stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
                return Fate::GoneAway;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("a word about it")
}

#[tokio::test]
async fn heads_that_become_megabytes_are_refused_before_an_endpoint_sees_them() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let large = vec![b'y'; 4_000];
    let whole = END_STREAM | END_HEADERS;
    // One header of four kilobytes, and eight thousand times the same again, in a byte each: 32 MB.
    let hpack = [HEAD.to_vec(), remember(b"x", &large), vec![REMEMBERED; 8_000]].concat();
    // A head that ends, but not before it has 200 kB, in frames of 10.
    let long =
        |n: usize| (0..100).flat_map(|m| literal(format!("x-{n}-{m}").as_bytes(), &large[..100])).collect();
    let pieces: Vec<Vec<u8>> = (0..20).map(long).collect();
    let mut continued = frame(HEADERS, END_STREAM, 1, HEAD);
    for (n, piece) in pieces.iter().enumerate() {
        let last = if n + 1 == pieces.len() { END_HEADERS } else { 0 };
        continued.extend(frame(CONTINUATION, last, 1, piece));
    }
    // Nothing in them, and no end.
    let empty = frame(CONTINUATION, 0, 1, &[]).repeat(10_000);
    for (what, frames) in [
        ("references", frame(HEADERS, whole, 1, &hpack)),
        ("continued", continued),
        ("empty", [frame(HEADERS, END_STREAM, 1, HEAD), empty].concat()),
    ] {
        let fate = fate(rig.address(), frames, true).await;
        let refused = [Fate::Answered { well: false }, Fate::Reset, Fate::GoneAway];
        assert!(refused.contains(&fate), "{what}: {fate:?}");
        assert_eq!(backend.requests(), 0, "{what}");
    }
    assert_eq!(get(rig.address(), "a", "/").await.status, 200, "others are served");
    rig.stop().await;
}

#[tokio::test]
async fn trailers_that_become_megabytes_are_cut_or_refused() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let bomb = [remember(b"x", &vec![b'y'; 4_000]), vec![REMEMBERED; 8_000]].concat();
    let frames = [
        frame(HEADERS, END_HEADERS, 1, &[POST, &literal(b"te", b"trailers")].concat()),
        frame(DATA, 0, 1, b"body"),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, &bomb),
    ];
    // The request itself is sound: what is too much of its trailers is not kept. Whatever becomes of it, it becomes something.
    fate(rig.address(), frames.concat(), true).await;
    // The same in HTTP/1.1, where a body that does not end is no request.
    for trailers in ["x: y\r\n".repeat(200_000), format!("x: {}\r\n", "y".repeat(1 << 20))] {
        let mut client = Client::new(rig.address()).await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n4\r\nbody\r\n0\r\n";
        client
            .send(format!("{head}{trailers}\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes())
            .await;
        if let Some(answer) = client.answer().await {
            assert!(answer.status >= 400, "{answer:?}");
        }
        assert!(client.is_closed().await, "what follows is not read");
    }
    assert_eq!(get(rig.address(), "a", "/").await.status, 200, "others are served");
    rig.stop().await;
}

/// An endpoint's trailers have a limit too: the answer breaks off, and is never taken for a whole one.
#[tokio::test]
async fn trailers_of_endpoints_that_do_not_end_break_the_answer_off() {
    for method in ["GET", "DELETE"] {
        let endless = backend::script(|mut stream| async move {
            backend::read_head(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n";
            let _ = stream.write_all(head).await;
            while stream.write_all(format!("x: {}\r\n", "y".repeat(1_000)).as_bytes()).await.is_ok() {}
        })
        .await;
        let rig = Rig::with(&[endless]);
        let mut client = Client::new(rig.address()).await;
        client.send(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await;
        let mut all = Vec::new();
        let reading = client.0.read_to_end(&mut all);
        // An end, or a reset.
        let _ = tokio::time::timeout(PATIENCE, reading).await.expect("an end");
        let said = String::from_utf8_lossy(&all);
        assert!(!said.ends_with("0\r\n\r\n") && all.len() < 64 << 10, "{method}: {} bytes", all.len());
        rig.stop().await;
    }
}
