//! HTTP/2 clients that do not play fair: they are let go, and others do not notice.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use landfall_proxy::{Config, Limits};

use crate::support::Rig;
use crate::support::backend::Backend;
use crate::support::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEAD, HEADERS, PING, POST,
    PREFACE, PRIORITY, RESET, SETTINGS, WINDOW_UPDATE, first, frame, hello, literal,
};
use crate::support::raw::get;

/// Sends frames as long as they are taken, `most` times at the most; tells whether the other side closed.
async fn flood(to: SocketAddr, most: usize, mut frames: impl FnMut(usize) -> Vec<u8>) -> bool {
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let mut begin = PREFACE.to_vec();
    begin.extend(frame(SETTINGS, 0, 0, &[]));
    to.write_all(&begin).await.unwrap();
    let closed = tokio::spawn(async move {
        let mut chunk = vec![0; 64 << 10];
        while from.read(&mut chunk).await.is_ok_and(|read| read > 0) {}
    });
    for n in 0..most {
        if closed.is_finished() || to.write_all(&frames(n)).await.is_err() {
            break;
        }
    }
    tokio::time::timeout(Duration::from_secs(10), closed).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_are_cut_off_and_others_are_served() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let at = rig.address();
    let stream = |n: usize| u32::try_from(n * 2 + 1).unwrap();
    let rapid_reset = |n: usize| {
        let mut bytes = frame(HEADERS, 0x5, stream(n), HEAD);
        bytes.extend(frame(RESET, 0, stream(n), &8_u32.to_be_bytes()));
        bytes
    };
    assert!(flood(at, 20_000, rapid_reset).await, "rapid reset");
    let continuation = |n: usize| match n {
        0 => frame(HEADERS, 0, 1, HEAD),
        _ => frame(CONTINUATION, 0, 1, &[0x40, 1, b'x', 1, b'y'].repeat(3_000)),
    };
    assert!(flood(at, 2_000, continuation).await, "continuation");
    let bomb =
        |n: usize| frame(HEADERS, 0x5, stream(n), &[HEAD, &[0x40, 1, b'x', 127, 0xff, 0xff, 0x7f]].concat());
    assert!(flood(at, 10, bomb).await, "a header that says it is very long");
    let wrong = |_: usize| frame(DATA, 0, 99, b"for no stream");
    assert!(flood(at, 10, wrong).await, "data for a stream that is not there");
    assert_eq!(get(at, "a", "/").await.status, 200);
    rig.stop().await;
}

/// Pings and settings are answered, so whoever sends them without reading is held up by the answers, and costs no memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_hold_up_only_their_client() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    for (kind, payload) in [(PING, &[0; 8][..]), (SETTINGS, &[0, 4, 0, 1, 0, 0])] {
        let mut stream = TcpStream::connect(rig.address()).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let many = frame(kind, 0, 0, payload).repeat(1_000);
        // Until it is not taken any more, or it was let go.
        while let Ok(Ok(())) = tokio::time::timeout(Duration::from_millis(300), stream.write_all(&many)).await
        {
        }
        assert_eq!(get(rig.address(), "a", "/").await.status, 200);
    }
    rig.stop().await;
}

/// Whoever takes the answers is held up by nothing: one that sends nothing but these is told to calm down, and let go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_for_nothing_again_and_again_is_let_go() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    for (what, kind, stream, payload) in [
        ("pings", PING, 0, &[0; 8][..]),
        ("settings", SETTINGS, 0, &[0, 4, 0, 1, 0, 0]),
        ("priorities", PRIORITY, 1, &[0, 0, 0, 0, 1]),
        ("room for answers", WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
        ("data that is none", DATA, 1, &[]),
    ] {
        let (mut from, mut to) = TcpStream::connect(rig.address()).await.unwrap().into_split();
        // Its request is not over: the server waits for its body, and not for its end.
        let begin = [hello(), frame(HEADERS, END_HEADERS, 1, POST)].concat();
        to.write_all(&begin).await.unwrap();
        let told = tokio::spawn(async move {
            let mut back = Vec::new();
            while from.read_buf(&mut back).await.is_ok_and(|read| read > 0) {}
            back
        });
        let many = frame(kind, 0, stream, payload).repeat(1_000);
        for _ in 0..1_000 {
            if told.is_finished() || to.write_all(&many).await.is_err() {
                break;
            }
        }
        let told = tokio::time::timeout(Duration::from_secs(10), told).await;
        let told = told.unwrap_or_else(|_| panic!("{what}: it is served still")).unwrap();
        let mut rest = &told[..];
        let mut goaway = None;
        while let Some(((kind, _, payload), length)) = first(rest) {
            goaway = (kind == GOAWAY).then(|| payload[7]).or(goaway);
            rest = &rest[length..];
        }
        assert_eq!(goaway, Some(ENHANCE_YOUR_CALM), "{what}");
    }
    assert_eq!(get(rig.address(), "a", "/").await.status, 200);
    rig.stop().await;
}

/// Clients measure by pings how far away we are, and say after each answer that there is room again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_for_something_may_say_more() {
    const REQUESTS: u32 = 3_000;
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let mut stream = TcpStream::connect(rig.address()).await.unwrap();
    stream.write_all(&hello()).await.unwrap();
    let beside = [frame(PING, 0, 0, &[0; 8]).repeat(2), frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]).repeat(2)];
    let (mut back, mut answered) = (Vec::new(), 0);
    for n in 0..REQUESTS {
        let request = frame(HEADERS, END_STREAM | END_HEADERS, n * 2 + 1, HEAD);
        stream.write_all(&[request, beside.concat()].concat()).await.unwrap();
        while answered <= n {
            let Some(((kind, _, _), length)) = first(&back) else {
                assert!(stream.read_buf(&mut back).await.unwrap() > 0, "it was let go after {answered}");
                continue;
            };
            assert_ne!(kind, GOAWAY);
            answered += u32::from(kind == HEADERS);
            back.drain(..length);
        }
    }
    rig.stop().await;
}

/// A client may send a request while it is told that its time is over.
#[tokio::test]
async fn a_client_that_asks_for_nothing_is_told_before_it_is_let_go() {
    let backend = Backend::new("one").await;
    let limits = Limits { idle_timeout: Duration::from_millis(100), ..Limits::default() };
    let rig = Rig::with_config(&[backend.address], Config { limits, ..Config::default() });
    let mut stream = TcpStream::connect(rig.address()).await.unwrap();
    let request = |n: u32| frame(HEADERS, END_STREAM | END_HEADERS, n, HEAD);
    stream.write_all(&[hello(), request(1)].concat()).await.unwrap();
    let (mut back, mut seen) = (Vec::new(), Vec::new());
    let reading = async {
        while stream.read_buf(&mut back).await.is_ok_and(|read| read > 0) {
            while let Some(((kind, id, payload), length)) = first(&back) {
                match kind {
                    HEADERS => seen.push(format!("answer {id}")),
                    GOAWAY => {
                        seen.push(format!("goaway {}", payload[7]));
                        // It was under way already.
                        if !seen.contains(&"answer 3".to_owned()) {
                            stream.write_all(&request(3)).await.unwrap();
                        }
                    }
                    PING => {
                        let pong = frame(PING, 1, 0, payload);
                        stream.write_all(&pong).await.unwrap();
                    }
                    _ => {}
                }
                back.drain(..length);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("an end");
    assert_eq!(seen[..2], ["answer 1", "goaway 0"]);
    assert!(seen.contains(&"answer 3".to_owned()), "{seen:?}");
    rig.stop().await;
}

/// What HTTP/1.1 would read otherwise than HTTP/2 is refused before any endpoint sees it.
#[tokio::test]
async fn http2_does_not_smuggle_into_http1() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let with = |name: &[u8], value: &[u8]| [HEAD, &literal(name, value)].concat();
    let get = |path: &[u8]| [&[0x82, 0x86, 0x41, 0x01, b'a'][..], &literal(b":path", path)].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a line in a value", with(b"x", b"1\r\ntransfer-encoding: chunked")),
        ("a line in a name", with(b"x: 1\r\ny", b"1")),
        ("an end in a value", with(b"x", b"1\0")),
        ("upper case", with(b"X-Upper", b"1")),
        ("transfer-encoding", with(b"transfer-encoding", b"chunked")),
        ("connection", with(b"connection", b"x-secret")),
        ("two paths", [HEAD, &literal(b":path", b"/other")].concat()),
        ("a path with a space", get(b"/a HTTP/1.1")),
        ("a path with a line", get(b"/a\r\nx: y")),
        ("no path", vec![0x82, 0x86, 0x41, 0x01, b'a']),
        ("a path that is none", get(b"a")),
        ("a path with a backslash", get(b"/a\\..\\b")),
        ("two ways to read a path", get(b"/a%2f..%2fb")),
        ("no end of the body", with(b"content-length", b"5")),
        ("two lengths", [with(b"content-length", b"0"), literal(b"content-length", b"1")].concat()),
        ("a pseudo-header behind others", [with(b"x", b"1"), literal(b":method", b"POST")].concat()),
        ("two hosts", [with(b"host", b"a"), literal(b"host", b"b")].concat()),
    ];
    for (what, head) in cases {
        let mut stream = TcpStream::connect(rig.address()).await.unwrap();
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[]));
        bytes.extend(frame(HEADERS, 0x5, 1, &head));
        // So that there is something to read, whatever becomes of it.
        bytes.extend(frame(PING, 0, 0, &[7; 8]));
        stream.write_all(&bytes).await.unwrap();
        let read = async {
            let mut back = Vec::new();
            let pong = frame(PING, 1, 0, &[7; 8]);
            while stream.read_buf(&mut back).await.is_ok_and(|read| read > 0) {
                if back.windows(pong.len()).any(|part| part == pong) {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), read).await.expect(what);
        // Whatever it made of that, it has made it by now.
        assert_eq!(crate::support::raw::get(rig.address(), "a", "/fine").await.status, 200);
        assert_eq!(backend.requests(), 1, "{what}");
        backend.requests.store(0, std::sync::atomic::Ordering::Relaxed);
    }
    rig.stop().await;
}
