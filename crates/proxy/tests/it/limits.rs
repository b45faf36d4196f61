//! What has an end: connections, and the time that anything may take; and what is counted of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall_api::landfall::{Outlier, Retries, Timeouts};
use landfall_proxy::{Config, Limits};
use landfall_runtime::memory::Memory;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::Rig;
use crate::support::backend::{self, Backend};
use crate::support::h2;
use crate::support::raw::{Client, ask, get};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn who_comes_when_there_is_no_room_is_told_so() {
    let backend = Backend::new("one").await;
    let limits = Limits { connections: 1, ..Limits::default() };
    let rig = Rig::with_config(&[backend.address], Config { limits, ..Config::default() });
    let mut first = Client::new(rig.address()).await;
    first.send(GET).await;
    assert_eq!(first.answer().await.unwrap().status, 200);
    let answer = get(rig.address(), "a", "/").await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
    assert!(rig.registry.render().contains("landfall_proxy_connections_refused_total 1"));
    first.send(GET).await;
    assert_eq!(first.answer().await.unwrap().status, 200, "those who are there stay");
    drop(first);
    while get(rig.address(), "a", "/").await.status != 200 {
        tokio::task::yield_now().await;
    }
    rig.stop().await;
}

/// Where memory runs out, a few are still served, one after the other.
#[tokio::test]
async fn when_memory_runs_out_most_requests_are_refused() {
    let ((go, gone), (came, mut comes)) =
        (tokio::sync::watch::channel(false), tokio::sync::mpsc::channel(128));
    let held = backend::held("one", came, gone).await;
    // This process has more than that in memory already.
    let limits = Limits { memory: Some(Memory::of_process(1)), ..Limits::default() };
    let config = Config { threads: 1, limits, ..Config::default() };
    let mut rig = Rig::new(config);
    rig.route("web", "", "/", landfall_api::landfall::RouteMatch::Prefix, "web");
    rig.serve("web", &[held], |_| {});
    rig.follow();
    let mut client = h2::client(rig.address()).await;
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    // Until it is seen that there is no memory, requests are taken.
    while refused.is_empty() {
        let (answer, _) = client.send_request(h2::get("/"), true).unwrap();
        let mut answer = Box::pin(answer);
        tokio::select! {
            _ = comes.recv() => taken.push(answer),
            answer = &mut answer => refused.push(answer.unwrap()),
        }
        assert!(taken.len() < 150, "all are taken");
    }
    assert_eq!(
        (refused[0].status().as_u16(), &refused[0].headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert!(taken.len() >= 64, "only {} are taken", taken.len());
    assert!(rig.registry.render().contains("landfall_proxy_shed_total 1"));
    go.send_replace(true);
    for answer in taken {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    let (answer, _) = client.send_request(h2::get("/"), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200, "there is room again");
    // Clients, too, are let in as long as they are few.
    let mut inside = Vec::new();
    let told = loop {
        let mut one = Client::new(rig.address()).await;
        one.send(GET).await;
        match one.answer().await.unwrap() {
            answer if answer.status == 200 => inside.push(one),
            answer => break answer,
        }
        assert!(inside.len() < 100, "all are let in");
    };
    assert_eq!((told.status, told.header("retry-after")), (503, Some("1")), "{told:?}");
    assert!(inside.len() >= 60, "only {} are let in", inside.len());
    rig.stop().await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_as_a_whole_is_given_up() {
    let silent = backend::bytes(b"", true).await;
    let mut rig = Rig::with(&[silent]);
    rig.serve("web", &[silent], |plan| {
        plan.timeouts = Some(Timeouts { request_ms: Some(200), ..Timeouts::default() });
    });
    rig.follow();
    let answer = get(rig.address(), "a", "/").await;
    assert_eq!((answer.status, answer.body.as_str()), (504, "no answer in time"), "{answer:?}");
    // One that has begun breaks off.
    let slow = backend::bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", true).await;
    rig.serve("web", &[slow], |plan| {
        plan.timeouts = Some(Timeouts { request_ms: Some(200), ..Timeouts::default() });
    });
    rig.follow();
    assert!(ask(rig.address(), "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.is_none());
    rig.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_does_not_take_connections_in_time_is_given_up() {
    // Its queue is full, and what comes then gets no word.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let full = socket.listen(1).unwrap();
    let at = full.local_addr().unwrap();
    let waiting = (TcpStream::connect(at).await.unwrap(), TcpStream::connect(at).await.unwrap());
    let mut rig = Rig::with(&[at]);
    let hasty = |plan: &mut landfall_api::landfall::TrafficPlanSpec| {
        plan.timeouts = Some(Timeouts { connect_ms: Some(100), ..Timeouts::default() });
    };
    rig.serve("web", &[at], hasty);
    rig.follow();
    let answer = get(rig.address(), "a", "/").await;
    assert_eq!((answer.status, answer.body.as_str()), (504, "no connection was made in time"), "{answer:?}");
    // Where there is another, nobody notices.
    let backend = Backend::new("other").await;
    rig.serve("web", &[at, backend.address], hasty);
    rig.follow();
    for _ in 0..5 {
        let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
        assert_eq!(ask(rig.address(), post).await.unwrap().status, 200);
    }
    drop(waiting);
    rig.stop().await;
}

/// A service that fails everywhere is not buried under what is tried again.
#[tokio::test]
async fn no_more_is_tried_again_than_the_budget_has() {
    for method in ["GET", "DELETE"] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let resets = || {
            let counted = counted.clone();
            backend::script(move |mut stream| {
                let counted = counted.clone();
                async move {
                    backend::read_head(&mut stream).await;
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        // Two, so that there is always one that was not tried.
        let at = [resets().await, resets().await];
        let mut rig = Rig::with(&at);
        rig.serve("web", &at, |plan| {
            plan.retries = Some(Retries { attempts: Some(1), budget_percent: Some(0) });
            // Left out, it would be asked by nobody.
            plan.outlier = Some(Outlier { max_ejected_percent: Some(0), ..Outlier::default() });
        });
        rig.follow();
        let request = format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n");
        // What there is at first is spent, and there is more with every second: sooner or later there is none.
        let (mut requests, mut refused) = (0, 0);
        while refused < 50 {
            let before = asked.load(Ordering::Relaxed);
            let status = ask(rig.address(), &request).await.unwrap().status;
            let times = asked.load(Ordering::Relaxed) - before;
            requests += 1;
            match status {
                // The lane leaves a GET to hyper, which is a second try.
                503 => {
                    assert!(times == 1 || times == 2 && method == "GET", "{method}: {times} were asked");
                    refused += 1;
                }
                _ => assert_eq!(status, 502, "{method}"),
            }
            assert!(requests < 100_000, "{method}: the budget has no end");
        }
        rig.stop().await;
    }
}

#[tokio::test]
async fn retries_and_durations_are_counted() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address, backend::nobody().await]);
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    for _ in 0..30 {
        assert_eq!(ask(rig.address(), post).await.unwrap().status, 200);
    }
    let counted = rig.registry.render();
    let of = |name: &str| -> f64 {
        let row = format!("{name}{{route=\"shop/web\",service=\"shop/web\",cluster=\"paris\"}} ");
        let line = counted.lines().find_map(|line| line.strip_prefix(row.as_str()));
        line.unwrap_or_else(|| panic!("no {row} in {counted}")).parse().unwrap()
    };
    assert!(of("landfall_proxy_retries_total") > 0.0, "{counted}");
    assert_eq!(of("landfall_proxy_request_duration_seconds_count"), 30.0);
    assert!(of("landfall_proxy_request_duration_seconds_sum") > 0.0);
    assert!(counted.contains("cluster=\"paris\",le=\"+Inf\"} 30"), "{counted}");
    rig.stop().await;
}
