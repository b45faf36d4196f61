//! A way to the next is kept open, and a request that nobody takes is held back for a moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use landfall_api::landfall::{Outlier, Retries, TrafficLimits, TrafficPlanSpec};
use landfall_proxy::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::backend::{self, Backend, held, held_at, nobody};
use crate::support::raw::{Client, ask, get};
use crate::support::{OWN, Rig, plan};

/// Whoever fails once is left out, which is counted.
fn strict(plan: &mut TrafficPlanSpec) {
    plan.outlier = Some(Outlier {
        consecutive_errors: Some(1),
        ejection_seconds: Some(1),
        max_ejected_percent: Some(100),
        ..Outlier::default()
    });
}

/// Nothing is sent twice.
fn once(plan: &mut TrafficPlanSpec) {
    plan.retries = Some(Retries { attempts: Some(0), budget_percent: None });
}

async fn seen(rig: &Rig, line: &str) {
    let looking = async {
        while !rig.registry.render().contains(line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looking).await.expect(line);
}

async fn one_endpoint(at: SocketAddr, change: impl Fn(&mut TrafficPlanSpec)) -> Rig {
    let mut rig = Rig::new(Config { threads: 1, ..Config::default() });
    rig.route("web", "", "/", landfall_api::landfall::RouteMatch::Prefix, "web");
    rig.serve("web", &[at], change);
    rig.follow();
    rig
}

#[tokio::test]
async fn a_request_that_nobody_takes_is_held_back_until_somebody_does() {
    let at = nobody().await;
    let rig = one_endpoint(at, strict).await;
    let address = rig.address();
    for (round, request) in
        ["GET / HTTP/1.1\r\nhost: a\r\n\r\n", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nok"]
            .into_iter()
            .enumerate()
    {
        let asking = tokio::spawn(async move { ask(address, request).await.unwrap() });
        let told = "landfall_proxy_ejections_total{service=\"shop/web\",cluster=\"paris\"}";
        seen(&rig, &format!("{told} {}\n", round + 1)).await;
        let back = Backend::at(at, "back").await;
        let answer = asking.await.unwrap();
        assert_eq!((answer.status, answer.header("x-backend")), (200, Some("back")), "{answer:?}");
        back.stop().await;
    }
    rig.stop().await;
}

/// Its cluster was lost between the head of an answer and its end, and the client got half of it.
#[tokio::test]
async fn a_short_answer_that_breaks_off_is_asked_for_elsewhere() {
    let (halves, good) = (Arc::new(AtomicUsize::new(0)), Backend::new("good").await);
    let asked = halves.clone();
    let half = backend::script(move |mut stream| {
        let asked = asked.clone();
        async move {
            backend::read_head(&mut stream).await;
            asked.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").await;
        }
    });
    let half = half.await;
    // By the lane for plain requests, and by hyper.
    for method in ["GET", "DELETE"] {
        let mut rig = one_endpoint(half, |_| {}).await;
        rig.serve("web", &[half, good.address], |_| {});
        rig.follow();
        let mut client = Client::new(rig.address()).await;
        for _ in 0..20 {
            client.send(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await;
            let answer = client.answer().await.unwrap();
            assert_eq!(
                (answer.status, answer.header("x-backend")),
                (200, Some("good")),
                "{method}: {answer:?}"
            );
        }
        assert_ne!(halves.swap(0, Ordering::Relaxed), 0, "{method}: it was never asked");
        rig.stop().await;
    }
    good.stop().await;
}

/// A short answer that comes slowly is not held for ever.
#[tokio::test]
async fn a_short_answer_that_comes_slowly_is_seen_before_its_end() {
    for method in ["GET", "DELETE"] {
        let half = backend::bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", true).await;
        let rig = one_endpoint(half, |_| {}).await;
        let mut client = Client::new(rig.address()).await;
        client.send(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await;
        let mut came = Vec::new();
        let reading = async {
            while !came.ends_with(b"\r\n\r\nhi") {
                assert!(client.0.read_buf(&mut came).await.unwrap() > 0, "{method}: it broke off");
            }
        };
        tokio::time::timeout(Duration::from_secs(30), reading).await.expect(method);
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_service_that_wants_no_second_try_is_not_held_back() {
    let rig = one_endpoint(nobody().await, once).await;
    assert_eq!(get(rig.address(), "a", "/").await.status, 502);
    let counted = rig.registry.render();
    assert!(
        !counted
            .lines()
            .any(|line| line.starts_with("landfall_proxy_retries_total") && !line.ends_with(" 0")),
        "{counted}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn who_is_dropped_keeps_its_requests_while_nobody_else_is_there() {
    for method in ["GET", "DELETE"] {
        let ((go, gone), (came, mut comes)) =
            (tokio::sync::watch::channel(false), tokio::sync::mpsc::channel(8));
        let (old, new) = (held("old", came.clone(), gone.clone()).await, Backend::new("new").await);
        let mut rig = one_endpoint(old, |_| {}).await;
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = Client::new(rig.address()).await;
            client.send(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await;
            assert_eq!(comes.recv().await, Some("old"));
            clients.push(client);
        }
        let (mut stays, mut moves) = (clients.remove(0), clients.remove(0));
        rig.serve("web", &[], |_| {});
        rig.follow();
        let early = tokio::time::timeout(Duration::from_millis(500), stays.answer()).await;
        assert!(early.is_err(), "{method}: {early:?}");
        go.send_replace(true);
        assert_eq!(stays.answer().await.unwrap().header("x-backend"), Some("old"), "{method}");
        assert_eq!(moves.answer().await.unwrap().header("x-backend"), Some("old"), "{method}");
        // With somebody else there it goes there.
        go.send_replace(false);
        rig.serve("web", &[old], |_| {});
        rig.follow();
        moves.send(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await;
        assert_eq!(comes.recv().await, Some("old"));
        rig.serve("web", &[], |_| {});
        rig.follow();
        rig.serve("web", &[new.address], |_| {});
        rig.follow();
        assert_eq!(moves.answer().await.unwrap().header("x-backend"), Some("new"), "{method}");
        rig.stop().await;
        new.stop().await;
    }
}

/// Whoever can take no more is not somebody else.
#[tokio::test]
async fn who_is_dropped_keeps_its_requests_while_all_others_are_full() {
    for (method, ip) in [("GET", [127, 94, 8, 5]), ("DELETE", [127, 94, 8, 6])] {
        let ((go, gone), (came, mut comes)) =
            (tokio::sync::watch::channel(false), tokio::sync::mpsc::channel(8));
        let old = held("old", came.clone(), gone.clone()).await;
        let next = held_at((ip, 80).into(), "next", came, gone).await.ip().to_string();
        let both = |told: &mut TrafficPlanSpec| {
            *told = plan(&[(OWN, 1.0, &[]), ("rome", 0.0, &[next.as_str()])]);
            told.limits = Some(TrafficLimits { cluster_concurrency: Some(1) });
        };
        let mut rig = one_endpoint(old, both).await;
        let mut clients = Vec::new();
        for at in ["old", "next"] {
            let mut client = Client::new(rig.address()).await;
            client.send(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await;
            assert_eq!(comes.recv().await, Some(at), "{method}");
            clients.push(client);
        }
        rig.serve("web", &[], both);
        rig.follow();
        let mut client = clients.remove(0);
        let early = tokio::time::timeout(Duration::from_millis(500), client.answer()).await;
        assert!(early.is_err(), "{method}: {early:?}");
        go.send_replace(true);
        assert_eq!(client.answer().await.unwrap().header("x-backend"), Some("old"), "{method}");
        assert_eq!(clients.remove(0).answer().await.unwrap().header("x-backend"), Some("next"), "{method}");
        // Now that there is room it goes there.
        go.send_replace(false);
        rig.serve("web", &[old], both);
        rig.follow();
        client.send(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await;
        assert_eq!(comes.recv().await, Some("old"), "{method}");
        rig.serve("web", &[], both);
        rig.follow();
        assert_eq!(comes.recv().await, Some("next"), "{method}");
        go.send_replace(true);
        assert_eq!(client.answer().await.unwrap().header("x-backend"), Some("next"), "{method}");
        rig.stop().await;
    }
}

/// The lane for plain requests sent them to somebody else when their endpoint was dropped, though the service wanted no second try.
#[tokio::test]
async fn a_service_that_wants_no_second_try_waits_for_whoever_is_dropped() {
    for method in ["GET", "DELETE"] {
        let ((go, gone), (came, mut comes)) =
            (tokio::sync::watch::channel(false), tokio::sync::mpsc::channel(8));
        let (old, new) = (held("old", came, gone).await, Backend::new("new").await);
        let mut rig = one_endpoint(old, once).await;
        let mut client = Client::new(rig.address()).await;
        client.send(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await;
        assert_eq!(comes.recv().await, Some("old"));
        rig.serve("web", &[new.address], once);
        rig.follow();
        let early = tokio::time::timeout(Duration::from_millis(500), client.answer()).await;
        assert!(early.is_err(), "{method}: {early:?}");
        go.send_replace(true);
        assert_eq!(client.answer().await.unwrap().header("x-backend"), Some("old"), "{method}");
        rig.stop().await;
        new.stop().await;
    }
}

#[tokio::test]
async fn there_are_connections_to_those_who_would_be_asked_next() {
    let own = Backend::new("own").await;
    let next = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = crate::link::beside(own.address, next.local_addr().unwrap());
    assert_eq!(pair.get().await.header("x-backend"), Some("own"));
    // Nobody was sent there, and yet somebody comes.
    let coming = tokio::time::timeout(Duration::from_secs(30), next.accept());
    assert!(coming.await.is_ok());
    pair.stop().await;
    own.stop().await;
}

/// So many requests were tried again.
fn retries(counted: &str) -> f64 {
    let lines = counted.lines().filter(|line| line.starts_with("landfall_proxy_retries_total"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test]
async fn no_client_waits_to_find_out_that_an_edge_is_still_silent() {
    let own = Backend::new("own").await;
    // It takes connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = crate::link::before(own.address, silent.local_addr().unwrap());
    let told = "landfall_proxy_ejections_total{service=\"shop/web\",cluster=\"lyon\"} 1\n";
    while !pair.counted().contains(told) {
        assert_eq!(pair.get().await.header("x-backend"), Some("own"));
    }
    let before = retries(&pair.counted());
    // Longer than it is left out at first.
    let until = tokio::time::Instant::now() + Duration::from_secs(6);
    while tokio::time::Instant::now() < until {
        assert_eq!(pair.get().await.header("x-backend"), Some("own"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(retries(&pair.counted()), before);
    pair.stop().await;
    own.stop().await;
}
