//! Two parsers never disagree: whatever a client sends, the lane for plain requests and hyper make the same of it, the endpoint
//! sees the same, and nobody gets another's bytes.

use std::collections::BTreeSet;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use landfall_api::landfall::Timeouts;

use crate::support::Rig;
use crate::support::backend::{self, Backend};
use crate::support::raw::{Answer, Client, ask, get};

/// Requests to begin with. Those that are whole end a head; what is made of them may not.
const SEEDS: &[&str] = &[
    "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /a/b?c=d&e HTTP/1.1\r\nHost: a.example:80\r\nAccept: */*\r\nUser-Agent: x y\r\n\r\n",
    "GET /x HTTP/1.1\r\nhost: a\r\ncookie: a=1; b=2\r\n\r\n",
    "GET //a/../%2e/b HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive\r\nx-forwarded-for: 1.1.1.1\r\nforwarded: for=1\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nconnection: close, x-y\r\nx-y: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
    "GET http://b.example/y HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nx: \u{e9}\r\ny:z\r\nempty:\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nvia: 1.1 other\r\n\r\n",
];

/// What is put into them, at every place where something ends.
const PIECES: &[&str] = &[
    "\r",
    "\n",
    "\r\n",
    " ",
    "\t",
    "\0",
    ":",
    "/",
    "%",
    "..",
    "#",
    "\\",
    "\x0b",
    "\x7f",
    "host: b\r\n",
    "content-length: 3\r\n",
    "transfer-encoding: chunked\r\n",
    "transfer-encoding: xchunked\r\n",
    " folded\r\n",
    "x\r\n",
    ": y\r\n",
];

/// Everything that becomes of a seed by one piece.
fn variants(seed: &str) -> BTreeSet<String> {
    let ends = |(at, byte): (usize, char)| matches!(byte, ' ' | '\r' | '\n' | ':' | '/').then_some(at);
    let places: Vec<usize> = seed.char_indices().filter_map(ends).flat_map(|at| [at, at + 1]).collect();
    let mut all = BTreeSet::from([seed.to_owned()]);
    for (number, at) in places.iter().enumerate() {
        // Not every piece at every place, but every piece, and every place.
        for piece in PIECES.iter().skip(number % 5).step_by(5) {
            let (before, after) = seed.split_at(*at);
            all.insert(format!("{before}{piece}{after}"));
        }
    }
    all
}

/// What a client can tell of an answer; of an endpoint's, what that says it got, in any order.
fn told(answer: Option<Answer>) -> Option<(u16, BTreeSet<String>)> {
    answer.map(|answer| (answer.status, answer.body.lines().map(str::to_owned).collect()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_parsers_never_disagree() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let mut count = 0;
    for seed in SEEDS {
        for request in variants(seed) {
            // After its last line, so that nobody waits for more; whatever it is then, it is the end.
            let bytes = [request.as_bytes(), b"\r\n\r\n"].concat();
            let mut plain = Client::new(rig.address()).await;
            plain.send(&bytes).await;
            let first = told(plain.answer().await);
            // What is not plain is hyper's, and so is what follows it.
            let mut other = Client::new(rig.address()).await;
            other.send(b"DELETE /before HTTP/1.1\r\nhost: a\r\n\r\n").await;
            assert_eq!(other.answer().await.unwrap().status, 200);
            other.send(&bytes).await;
            let second = told(other.answer().await);
            assert_eq!(first, second, "{request:?}");
            count += 1;
        }
    }
    assert!(count > 500, "{count}");
    rig.stop().await;
}

#[tokio::test]
async fn lengths_that_disguise_themselves_are_refused() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    for head in [
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked, identity",
        "transfer-encoding: xchunked",
        "transfer-encoding: \"chunked\"",
        "transfer-encoding:\x0bchunked",
        "transfer-encoding : chunked",
        "transfer-encoding\r\n: chunked",
        "content-length: 5, 6",
        "content-length: 0x5",
        "content-length: 5 5",
        "content-length: ",
        "content-length: 5\r\n content-length: 0",
    ] {
        let request = format!(
            "POST /x HTTP/1.1\r\nhost: a\r\n{head}\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
        );
        let mut client = Client::new(rig.address()).await;
        client.send(request.as_bytes()).await;
        let answer = client.answer().await;
        assert_eq!(answer.map(|answer| answer.status), Some(400), "{head:?}");
        assert!(client.is_closed().await, "{head:?}: what follows is not read");
    }
    assert_eq!(backend.requests(), 0);
    rig.stop().await;
}

/// An endpoint that answers more than it was asked: the rest is nobody's.
#[tokio::test]
async fn nobody_gets_bytes_that_belong_to_another() {
    let greedy = backend::script(|mut stream| async move {
        while !backend::read_head(&mut stream).await.is_empty() {
            let two = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
            if stream.write_all(two).await.is_err() {
                return;
            }
        }
    })
    .await;
    let rig = Rig::with(&[greedy]);
    for _ in 0..30 {
        for method in ["GET", "DELETE"] {
            let request = format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n");
            let answer = ask(rig.address(), &request).await.unwrap();
            assert_eq!((answer.status, answer.body.as_str()), (200, "ok"), "{method}");
        }
    }
    // The answer of one that went away before it came is not the answer of the next.
    let (go, gone) = tokio::sync::watch::channel(0);
    let (came, mut comes) = tokio::sync::mpsc::channel(1);
    let late = backend::script(move |mut stream| {
        let (mut gone, came) = (gone.clone(), came.clone());
        async move {
            while let Some(path) = backend::read_head(&mut stream).await.split(' ').nth(1).map(str::to_owned)
            {
                if path == "/slow" {
                    let _ = came.send(()).await;
                    let _ = gone.wait_for(|go| *go > 0).await;
                }
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await;
    let other = Rig::with(&[late]);
    for _ in 0..5 {
        let mut client = Client::new(other.address()).await;
        client.send(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
        comes.recv().await.unwrap();
        drop(client);
        go.send_replace(1);
        for _ in 0..5 {
            assert_eq!(get(other.address(), "a", "/own").await.body, "/own");
        }
        go.send_replace(0);
    }
    rig.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn endpoints_that_never_stop_are_stopped() {
    for method in ["GET", "DELETE"] {
        let endless = backend::script(|mut stream| async move {
            backend::read_head(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
            while stream.write_all(format!("x: {}\r\n", "y".repeat(8000)).as_bytes()).await.is_ok() {}
        })
        .await;
        let rig = Rig::with(&[endless]);
        let answer = ask(rig.address(), &format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n")).await.unwrap();
        assert_eq!(answer.status, 502, "{method}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_body_that_never_comes_is_not_waited_for() {
    // Reads what comes, and answers when it has all.
    let endpoint = backend::script(|mut stream| async move {
        backend::read_head(&mut stream).await;
        let mut body = [0; 10];
        if stream.read_exact(&mut body).await.is_ok() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let mut rig = Rig::with(&[endpoint]);
    rig.serve("web", &[endpoint], |plan| {
        plan.timeouts = Some(Timeouts { idle_ms: Some(200), ..Timeouts::default() });
    });
    rig.follow();
    let mut client = Client::new(rig.address()).await;
    client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf").await;
    let answer = client.answer().await;
    assert!(answer.as_ref().is_none_or(|answer| answer.status >= 400), "{answer:?}");
    assert!(client.is_closed().await);
    rig.stop().await;
}
