//! Plain requests on streams of HTTP/2 take the lane, others do not: nobody can tell by what comes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{Method, Request};
use landfall_api::landfall::{EndpointCapacity, Retries, Timeouts};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::link::half;
use crate::support::Rig;
use crate::support::backend;
use crate::support::frames::{self, END_HEADERS, END_STREAM, HEADERS, RESET, frame};
use crate::support::h2::{LONG, client, get, whole};
use crate::support::raw;

/// What is asked: a method, a path, and headers.
type Asks = (Method, &'static str, &'static [(&'static str, &'static str)]);

const PLAIN: Asks = (Method::GET, "/", &[]);
const HEAD: Asks = (Method::HEAD, "/", &[]);

/// What endpoints are asked, and what they answer.
const CASES: &[(Asks, &str)] = &[
    (PLAIN, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-A: 1\r\nx-a: 2\r\nDate: today\r\n\r\nhello"),
    (PLAIN, "HTTP/1.1 404 Not here\r\nContent-Type: text/plain\r\ncontent-length: 0\r\n\r\n"),
    (
        PLAIN,
        "HTTP/1.1 200 OK\r\nconnection: close, x-hop\r\nx-hop: 1\r\nkeep-alive: 5\r\ncontent-length: 2\r\n\r\nok",
    ),
    (PLAIN, "HTTP/1.1 200 OK\r\nte: x\r\nproxy-connection: y\r\nupgrade: z\r\ncontent-length: 2\r\n\r\nok"),
    (
        PLAIN,
        "HTTP/1.1 200 OK\r\nendpoint-load-metrics: TEXT cpu_utilization=0.3\r\ncontent-length: 2\r\n\r\nok",
    ),
    (PLAIN, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n"),
    (
        PLAIN,
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\nx-sum: 8\r\n\r\n",
    ),
    (PLAIN, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-sum: 7\r\n\r\n"),
    (PLAIN, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    (PLAIN, "HTTP/1.1 200 OK\r\n\r\nuntil the end"),
    (PLAIN, "HTTP/1.0 200 OK\r\n\r\n"),
    (PLAIN, "HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n"),
    (PLAIN, "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\ncontent-length: 9\r\n\r\n"),
    (PLAIN, "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\noops"),
    (PLAIN, "HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    // Those break off, where a client has seen something of them.
    (PLAIN, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel"),
    (PLAIN, "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nhalf"),
    (HEAD, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"),
    (HEAD, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
    (
        (
            Method::GET,
            "/a/b?c=d%20e&f",
            &[
                ("cookie", "a=1"),
                ("accept", "*/*"),
                ("cookie", "b=2; c=3"),
                ("x-a", "1"),
                ("x-a", "2"),
                ("x-forwarded-for", "1.2.3.4"),
                ("x-real-ip", "1.2.3.4"),
                ("forwarded", "for=1.2.3.4"),
                ("x-forwarded-client-cert-subject", "CN=me"),
                ("landfall-target", "a/b"),
                ("empty", ""),
            ],
        ),
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ),
    // Whatever is not plain is the same, too.
    ((Method::GET, "//a/../%2e/b", &[]), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    ((Method::GET, "/", &[("te", "trailers")]), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    ((Method::GET, "/", &[("host", "other.example")]), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    ((Method::GET, "/", &[("via", "1.1 other")]), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    ((Method::DELETE, "/", &[]), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
];

/// What are no answers.
const GARBAGE: &[(Asks, &str)] = &[
    (PLAIN, "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),
    (PLAIN, "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx"),
    (PLAIN, "SSH-2.0-OpenSSH\r\n\r\n"),
    (HEAD, "SSH-2.0-OpenSSH\r\n\r\n"),
    (PLAIN, ""),
    (HEAD, ""),
];

/// What a client and an endpoint see.
#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: Vec<String>,
    body: Vec<u8>,
    /// Why it broke off, if it did.
    error: Option<Option<Reason>>,
    trailers: Option<Vec<String>>,
    /// The heads that the endpoint got, each in lines.
    asked: Vec<Vec<String>>,
}

/// Asks an endpoint with this answer by the lane, or by the way of all others.
async fn seen((method, path, more): &Asks, answer: &'static str, plain: bool) -> Seen {
    let (heads, mut asked) = mpsc::channel(8);
    let endpoint = backend::script(move |mut stream| {
        let heads = heads.clone();
        async move {
            heads.send(backend::read_head(&mut stream).await).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let mut rig = Rig::with(&[endpoint]);
    if !plain {
        // A limit of time for all of it is more than the lane looks at.
        let timeouts = Timeouts { request_ms: Some(60_000), ..Timeouts::default() };
        rig.serve("web", &[endpoint], |plan| plan.timeouts = Some(timeouts.clone()));
        rig.follow();
    }
    let mut request = Request::builder().method(method).uri(format!("http://shop.example{path}"));
    for (name, value) in *more {
        request = request.header(*name, *value);
    }
    let mut client = client(rig.address()).await;
    let (response, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
    let response = tokio::time::timeout(LONG, response).await.unwrap().unwrap();
    let lines = |headers: &http::HeaderMap| {
        let line = |(name, value): (_, &http::HeaderValue)| match name {
            // The time goes on.
            &http::header::DATE => "date".to_owned(),
            name => format!("{name}: {}", value.to_str().unwrap()),
        };
        let mut lines: Vec<String> = headers.iter().map(line).collect();
        lines.sort_by(|one, two| one.split(':').next().cmp(&two.split(':').next()));
        lines
    };
    let (status, headers) = (response.status().as_u16(), lines(response.headers()));
    let (mut stream, mut body, mut error) = (response.into_body(), Vec::new(), None);
    while let Some(piece) = tokio::time::timeout(LONG, stream.data()).await.unwrap() {
        match piece {
            Ok(piece) => body.extend_from_slice(&piece),
            Err(why) => {
                error = Some(why.reason());
                break;
            }
        }
    }
    let trailers = if error.is_none() { stream.trailers().await.unwrap() } else { None };
    let port = rig.address().port().to_string();
    rig.stop().await;
    let mut heads = Vec::new();
    while let Ok(head) = asked.try_recv() {
        let mut lines: Vec<String> =
            head.lines().map(|line| line.to_ascii_lowercase().replace(&port, "PORT")).collect();
        lines.sort();
        heads.push(lines);
    }
    Seen { status, headers, body, error, trailers: trailers.as_ref().map(lines), asked: heads }
}

#[tokio::test]
async fn nobody_can_tell_which_way_a_request_took() {
    for (asks, answer) in CASES {
        let (lane, other) = tokio::join!(seen(asks, answer, true), seen(asks, answer, false));
        assert_eq!(lane, other, "{asks:?} {answer:?}");
        assert_eq!(lane.asked.len(), 1, "{asks:?} {answer:?}");
    }
}

/// Nor can a client where there is no answer. What the lane cannot read, it leaves to hyper once.
#[tokio::test]
async fn what_is_no_answer_is_told_alike() {
    for (asks, answer) in GARBAGE {
        let (lane, other) = tokio::join!(seen(asks, answer, true), seen(asks, answer, false));
        assert_eq!((lane.status, &lane.headers, &lane.body), (other.status, &other.headers, &other.body));
        assert_eq!((lane.status, lane.error, other.error), (502, None, None), "{asks:?} {answer:?}");
    }
}

#[tokio::test]
async fn an_endpoint_is_told_of_the_client_and_gets_one_cookie_header() {
    let (asks, answer) =
        CASES.iter().find(|((_, path, _), _)| path.starts_with("/a/b")).expect("there is one");
    let seen = seen(asks, answer, true).await;
    for line in [
        "get /a/b?c=d%20e&f http/1.1",
        "host: shop.example",
        "cookie: a=1; b=2; c=3",
        "x-a: 1",
        "x-a: 2",
        "x-forwarded-for: 127.0.0.1",
        "x-real-ip: 127.0.0.1",
        "x-forwarded-host: shop.example",
        "x-forwarded-proto: http",
        "x-forwarded-port: PORT",
        "via: 1.1 landfall",
    ] {
        let lines = seen.asked[0].iter().filter(|one| **one == line);
        assert_eq!(lines.count(), 1, "{line}: {seen:?}");
    }
    let told = |line: &String| line.contains("1.2.3.4") || line.starts_with("landfall");
    assert!(!seen.asked[0].iter().any(told), "{seen:?}");
}

/// What is seen to be no body before anybody has seen something of it is no answer, and that is said to clients of both versions.
#[tokio::test]
async fn an_answer_that_is_none_is_not_begun() {
    let unsound = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\nx";
    let rig = Rig::with(&[backend::bytes(unsound, true).await]);
    let mut client = client(rig.address()).await;
    let (answer, _) = client.send_request(get("/"), true).unwrap();
    let answer = tokio::time::timeout(LONG, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), 502);
    assert_eq!(whole(answer).await.unwrap(), b"the answer is not HTTP");
    assert_eq!(raw::get(rig.address(), "shop.example", "/").await.status, 502);
    rig.stop().await;
}

/// Clients of both versions share the connections to an endpoint, whatever it answers: that they do shows that both take the lane.
#[tokio::test]
async fn connections_to_endpoints_are_shared_by_both_versions() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let endpoint = backend::script(move |mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            loop {
                let head = backend::read_head(&mut stream).await;
                let answer: &[u8] = match head.split(' ').nth(1) {
                    Some("/chunks") => b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n",
                    Some(_) if head.starts_with("HEAD") => b"content-length: 9\r\n\r\n",
                    Some(_) => b"content-length: 2\r\n\r\nok",
                    None => return,
                };
                stream.write_all(&[b"HTTP/1.1 200 OK\r\n", answer].concat()).await.unwrap();
            }
        }
    })
    .await;
    let mut rig = Rig::new(landfall_proxy::Config { threads: 1, ..landfall_proxy::Config::default() });
    rig.route("web", "", "/", landfall_api::landfall::RouteMatch::Prefix, "web");
    rig.serve("web", &[endpoint], |_| {});
    rig.follow();
    let mut client = client(rig.address()).await;
    for (method, path, want) in [
        (Method::GET, "/", "ok"),
        (Method::GET, "/chunks", "ok"),
        (Method::HEAD, "/", ""),
        (Method::GET, "/", "ok"),
    ] {
        let request = Request::builder().method(method).uri(format!("http://shop.example{path}"));
        let (answer, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
        assert_eq!(whole(answer.await.unwrap()).await.unwrap(), want.as_bytes());
        assert_eq!(raw::get(rig.address(), "shop.example", path).await.status, 200);
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    rig.stop().await;
}

/// Requests that the lane left to others because another cluster was to get them drew lots a second time there: of a tenth of all, a hundredth
/// went where it should.
#[tokio::test]
async fn every_cluster_gets_its_share() {
    let (own, other) = (backend::Backend::new("paris").await, backend::Backend::new("lyon").await);
    let pair = half(own.address, other.address);
    let mut client = client(pair.address()).await;
    let mut by = [0, 0];
    for _ in 0..300 {
        let (answer, _) = client.send_request(get("/"), true).unwrap();
        let answer = answer.await.unwrap();
        by[0] += usize::from(answer.headers()["x-backend"] == "lyon");
        // A connection for each: after the first that is not plain, one stays with hyper.
        let answer = raw::get(pair.address(), "shop.example", "/").await;
        by[1] += usize::from(answer.header("x-backend") == Some("lyon"));
    }
    // Half of 300, give or take seven times what luck usually makes of it; a quarter would be 75.
    assert!(by.iter().all(|one| (90..=210).contains(one)), "{by:?}");
    pair.stop().await;
}

/// An endpoint whose answers only hyper reads is not given up for it, nor are those who ask it.
#[tokio::test]
async fn what_only_hyper_reads_is_left_to_it() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let twice = backend::script(move |mut stream| {
        let count = count.clone();
        async move {
            while !backend::read_head(&mut stream).await.is_empty() {
                count.fetch_add(1, Ordering::Relaxed);
                let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        }
    })
    .await;
    let mut rig = Rig::new(landfall_proxy::Config { threads: 1, ..landfall_proxy::Config::default() });
    rig.route("web", "", "/", landfall_api::landfall::RouteMatch::Prefix, "web");
    rig.serve("web", &[twice], |_| {});
    rig.follow();
    let mut client = client(rig.address()).await;
    for _ in 0..300 {
        let (answer, _) = client.send_request(get("/"), true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(whole(answer).await.unwrap(), b"ok");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 301, "one was asked twice, to find out");
    rig.stop().await;
}

/// One endpoint is gone, one breaks off half-way: whoever asks notices nothing.
#[tokio::test]
async fn failures_are_not_seen_on_streams_either() {
    let broken = Arc::new(AtomicUsize::new(0));
    let count = broken.clone();
    let breaks = backend::script(move |mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            backend::read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
        }
    })
    .await;
    let backend = backend::Backend::new("one").await;
    let rig = Rig::with(&[backend::nobody().await, breaks, backend.address]);
    let mut client = client(rig.address()).await;
    for _ in 0..50 {
        let (answer, _) = client.send_request(get("/"), true).unwrap();
        let answer = tokio::time::timeout(LONG, answer).await.unwrap().unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["x-backend"]),
            (200, &"one".parse().unwrap())
        );
    }
    assert!(broken.load(Ordering::Relaxed) > 0, "it was asked");
    rig.stop().await;
}

/// What the lane has waited for in vain is not waited for again because the plan has changed meanwhile.
#[tokio::test]
async fn no_answer_in_time_is_the_end_whatever_has_changed() {
    let (came, mut coming) = mpsc::channel(8);
    let (_go, never) = tokio::sync::watch::channel(false);
    let silent = backend::held("silent", came, never).await;
    let good = backend::Backend::new("good").await;
    let mut rig = Rig::with(&[silent]);
    let timeouts = Timeouts { idle_ms: Some(500), ..Timeouts::default() };
    rig.serve("web", &[silent], |plan| plan.timeouts = Some(timeouts.clone()));
    rig.follow();
    let mut client = client(rig.address()).await;
    let (stream, _) = client.send_request(get("/"), true).unwrap();
    let plain = raw::get(rig.address(), "shop.example", "/");
    let changing = async {
        for _ in 0..2 {
            coming.recv().await.unwrap();
        }
        rig.serve("web", &[silent, good.address], |plan| plan.timeouts = Some(timeouts.clone()));
        rig.proxy.follow(&rig.world);
    };
    let (stream, plain, ()) = tokio::join!(stream, plain, changing);
    assert_eq!((stream.unwrap().status().as_u16(), plain.status), (504, 504));
    assert_eq!(good.requests(), 0);
    rig.stop().await;
}

/// An endpoint that does not answer at all costs a client no more than the time it may take.
#[tokio::test]
async fn no_answer_in_time_is_told() {
    let silent = backend::bytes(b"", true).await;
    let mut rig = Rig::with(&[silent]);
    let timeouts = Timeouts { idle_ms: Some(100), ..Timeouts::default() };
    rig.serve("web", &[silent], |plan| plan.timeouts = Some(timeouts.clone()));
    rig.follow();
    let mut client = client(rig.address()).await;
    let (answer, _) = client.send_request(get("/"), true).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(30), answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), 504);
    assert_eq!(whole(answer).await.unwrap(), b"no answer in time");
    let head = Request::head("http://shop.example/").body(()).unwrap();
    let (answer, _) = client.send_request(head, true).unwrap();
    let answer = tokio::time::timeout(LONG, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), 504);
    assert_eq!(whole(answer).await.unwrap(), b"", "there is none to a HEAD");
    rig.stop().await;
}

/// A client that took nothing of its answer kept the endpoint's place for a minute, and others were refused meanwhile.
#[tokio::test]
async fn who_takes_nothing_of_an_answer_keeps_no_endpoint_from_others() {
    let endpoint = backend::Backend::new("one").await;
    let mut rig = Rig::new(landfall_proxy::Config { threads: 1, ..landfall_proxy::Config::default() });
    rig.route("web", "", "/", landfall_api::landfall::RouteMatch::Prefix, "web");
    rig.serve("web", &[endpoint.address], |plan| {
        plan.endpoint_capacity =
            Some(EndpointCapacity { concurrency: Some(1), ..EndpointCapacity::default() });
        plan.retries = Some(Retries { attempts: Some(0), budget_percent: None });
    });
    rig.follow();
    // No window: a head is all that can be sent.
    let stream = TcpStream::connect(rig.address()).await.unwrap();
    let (mut sender, connection) =
        h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(connection);
    let (answer, _) = sender.send_request(get("/"), true).unwrap();
    let held = tokio::time::timeout(LONG, answer).await.unwrap().unwrap();
    assert_eq!(held.status(), 200);
    for _ in 0..3 {
        assert_eq!(raw::get(rig.address(), "shop.example", "/").await.status, 200);
    }
    let counted = rig.registry.render();
    assert!(
        counted.contains("code=\"2xx\"} 4"),
        "it is counted when its endpoint is done with it: {counted}"
    );
    drop(held);
    rig.stop().await;
}

/// What an endpoint closes without a word it was asked as often as there were connections to it, whatever the budget said.
#[tokio::test]
async fn what_ends_connections_is_not_asked_on_all_of_them() {
    const KEPT: usize = 20;
    let asked = Arc::new(AtomicUsize::new(0));
    let (came, mut comes) = mpsc::channel(KEPT);
    let (go, gone) = tokio::sync::watch::channel(false);
    let count = asked.clone();
    let endpoint = backend::script(move |mut stream| {
        let (count, came, mut gone) = (count.clone(), came.clone(), gone.clone());
        async move {
            loop {
                let head = backend::read_head(&mut stream).await;
                if head.is_empty() {
                    return;
                }
                if head.starts_with("GET /deadly") {
                    count.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                let _ = came.send(()).await;
                let _ = gone.wait_for(|go| *go).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            }
        }
    })
    .await;
    let mut rig = Rig::new(landfall_proxy::Config { threads: 1, ..landfall_proxy::Config::default() });
    rig.route("web", "", "/", landfall_api::landfall::RouteMatch::Prefix, "web");
    rig.serve("web", &[endpoint], |_| {});
    rig.follow();
    let mut client = client(rig.address()).await;
    let mut answers = Vec::new();
    for _ in 0..KEPT {
        answers.push(client.send_request(get("/"), true).unwrap().0);
        comes.recv().await.unwrap();
    }
    go.send_replace(true);
    for answer in answers {
        assert_eq!(whole(answer.await.unwrap()).await.unwrap(), b"ok");
    }
    let (answer, _) = client.send_request(get("/deadly"), true).unwrap();
    assert_eq!(tokio::time::timeout(LONG, answer).await.unwrap().unwrap().status(), 502);
    let asked = asked.load(Ordering::Relaxed);
    // On a kept connection, on a new one, and as often as may be tried again.
    assert!((2..=5).contains(&asked), "{asked} times");
    rig.stop().await;
}

/// A stream that is reset before its turn has come asks nobody anything.
#[tokio::test]
async fn what_was_given_up_already_reaches_no_endpoint() {
    let endpoint = backend::Backend::new("one").await;
    let rig = Rig::with(&[endpoint.address]);
    let mut client = raw::Client::new(rig.address()).await;
    // The first is answered, so that there is a connection that could be written to at once.
    let mut bytes = frames::hello();
    bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 1, frames::HEAD));
    answered(&mut client, &bytes).await;
    // All in one packet, and fewer than are taken for an attack.
    let mut bytes = Vec::new();
    for stream in (3..60).step_by(2) {
        bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, frames::HEAD));
        bytes.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
    }
    bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 61, frames::HEAD));
    answered(&mut client, &bytes).await;
    assert_eq!(endpoint.requests(), 2);
    rig.stop().await;
}

/// Sends bytes, and waits for an endpoint's words.
async fn answered(client: &mut raw::Client, bytes: &[u8]) {
    client.send(bytes).await;
    let mut seen = Vec::new();
    while !seen.windows(5).any(|part| part == b"\nhost") {
        assert!(client.0.read_buf(&mut seen).await.unwrap() > 0, "it is answered: {seen:?}");
    }
}
