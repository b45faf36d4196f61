//! What reaches an endpoint, what comes back, and what happens when it does not.

use std::sync::atomic::Ordering;
use std::time::Duration;

use landfall_api::landfall::{Retries, RouteMatch, Timeouts};
use landfall_proxy::Config;
use tokio::io::AsyncWriteExt as _;

use crate::support::backend::{self, Backend};
use crate::support::raw::{Client, ask, get};
use crate::support::{OWN, Rig, key, plan};

#[tokio::test]
async fn a_request_is_passed_on_with_what_is_for_its_endpoint() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let answer = ask(
        rig.address(),
        "POST /a/../b?c=%2f HTTP/1.1\r\nHost: Shop.example:81\r\nX-Forwarded-For: 1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n\
         Connection: x-secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nLandfall-Target: a/b\r\ntraceparent: 00-1-2-01\r\n\
         TE: gzip, trailers\r\nContent-Length: 5\r\n\r\nhello",
    )
    .await
    .unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body.lines().next(), Some("POST /b?c=%2f HTTP/1.1"));
    for (name, want) in [
        ("host", Some("Shop.example:81")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-real-ip", Some("127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("Shop.example:81")),
        ("forwarded", Some("for=127.0.0.1;proto=http")),
        ("via", Some("1.1 landfall")),
        ("traceparent", Some("00-1-2-01")),
        ("te", Some("trailers")),
        ("content-length", Some("5")),
        ("x-secret", None),
        ("keep-alive", None),
        ("connection", None),
        ("landfall-target", None),
    ] {
        assert_eq!(answer.got(name), want, "{name}: {answer:?}");
    }
    assert_eq!(answer.got("x-forwarded-port"), Some(rig.address().port().to_string().as_str()));
    assert!(answer.body.ends_with("\nhello"));
    assert_eq!((answer.header("x-hop"), answer.header("connection")), (None, None), "{answer:?}");
    rig.stop().await;
}

#[tokio::test]
async fn connections_to_endpoints_are_kept() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let mut client = Client::new(rig.address()).await;
    for _ in 0..50 {
        client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
    assert_eq!(backend.connections.load(Ordering::Relaxed), 1);
    rig.stop().await;
}

#[tokio::test]
async fn requests_in_one_packet_are_answered_in_order() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let mut client = Client::new(rig.address()).await;
    let many: String = (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
    client.send(many.as_bytes()).await;
    for n in 0..20 {
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.body.lines().next(), Some(format!("GET /{n} HTTP/1.1").as_str()));
    }
    rig.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_is_passed_over() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend::nobody().await, backend.address, backend::nobody().await]);
    for _ in 0..40 {
        assert_eq!(get(rig.address(), "a", "/").await.status, 200);
        let posted =
            ask(rig.address(), "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
        assert_eq!(
            (posted.status, posted.body.ends_with("\nhi")),
            (200, true),
            "nothing was sent to the dead one"
        );
    }
    rig.stop().await;
}

#[tokio::test]
async fn the_next_cluster_takes_over_and_nothing_outside_the_plan() {
    // Another cluster is reached by its load balancer: the port is the service's, here 80 of an address nobody else has.
    let _far = Backend::at(([127, 94, 7, 1], 80).into(), "far").await;
    let near = Backend::new("near").await;
    let mut rig = Rig::with(&[near.address]);
    let both = plan(&[(OWN, 1.0, &[]), ("rome", 0.0, &["127.94.7.1"])]);
    rig.world.plans.insert(key("web"), std::sync::Arc::new(both));
    rig.follow();
    let mut client = Client::new(rig.address()).await;
    let mut next = async |want: &str| {
        client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("x-backend")), (200, Some(want)));
    };
    for _ in 0..10 {
        next("near").await;
    }
    near.stop().await;
    for _ in 0..30 {
        next("far").await;
    }
    rig.serve("web", &[backend::nobody().await], |_| {});
    rig.follow();
    assert_eq!(get(rig.address(), "a", "/").await.status, 502, "the plan has no other cluster any more");
    rig.stop().await;
}

/// The fence of a policy is left by nobody, whatever the plan's order says and whatever dies.
#[tokio::test]
async fn no_request_leaves_the_fence() {
    let far = Backend::at(([127, 94, 7, 2], 80).into(), "far").await;
    let near = Backend::new("near").await;
    let mut rig = Rig::with(&[near.address]);
    let mut fenced = plan(&[(OWN, 0.5, &[]), ("rome", 0.5, &["127.94.7.2"])]);
    fenced.fence = vec![OWN.to_owned()];
    rig.world.plans.insert(key("web"), std::sync::Arc::new(fenced.clone()));
    rig.follow();
    for _ in 0..20 {
        assert_eq!(get(rig.address(), "a", "/").await.header("x-backend"), Some("near"));
    }
    near.stop().await;
    for method in ["GET", "POST"] {
        let head = format!("{method} / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
        let answer = ask(rig.address(), &head).await.unwrap();
        assert!([502, 503].contains(&answer.status), "{answer:?}");
    }
    assert_eq!(far.requests(), 0, "that is outside");
    fenced.fence.push("rome".to_owned());
    rig.world.plans.insert(key("web"), std::sync::Arc::new(fenced));
    rig.follow();
    assert_eq!(get(rig.address(), "a", "/").await.header("x-backend"), Some("far"));
    rig.stop().await;
}

#[tokio::test]
async fn what_may_not_be_repeated_is_not() {
    let (reset, calls) = reset_backend().await;
    let good = Backend::new("good").await;
    let mut rig = Rig::with(&[reset]);
    rig.serve("web", &[reset, good.address], |plan| {
        plan.retries = Some(Retries { attempts: Some(1), budget_percent: Some(100) });
    });
    rig.follow();
    let mut failed = 0;
    for _ in 0..20 {
        let answer =
            ask(rig.address(), "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
        assert!([200, 502].contains(&answer.status), "{answer:?}");
        failed += usize::from(answer.status == 502);
    }
    assert_eq!(failed, calls.load(Ordering::Relaxed), "each POST was sent once");
    assert!(failed >= 1);
    rig.stop().await;
}

/// Reads a head and resets; counts.
async fn reset_backend() -> (std::net::SocketAddr, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = calls.clone();
    let address = backend::script(move |mut stream| {
        let counted = counted.clone();
        async move {
            if !backend::read_head(&mut stream).await.is_empty() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
    (address, calls)
}

#[tokio::test]
async fn a_reset_before_an_answer_is_invisible_to_a_get() {
    let (reset, calls) = reset_backend().await;
    let good = Backend::new("good").await;
    let rig = Rig::with(&[reset, good.address]);
    for _ in 0..30 {
        assert_eq!(get(rig.address(), "a", "/").await.status, 200);
    }
    let calls = calls.load(Ordering::Relaxed);
    assert!((1..=10).contains(&calls), "it was left out after {calls} failures");
    let told = "landfall_proxy_ejections_total{service=\"shop/web\",cluster=\"paris\"} 1\n";
    assert!(rig.registry.render().contains(told));
    rig.stop().await;
}

#[tokio::test]
async fn bad_endpoints_make_bad_gateways() {
    for (bytes, hangs, want) in [
        (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], false, 502),
        (b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n", false, 502),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello", false, 502),
        (b"", true, 504),
        (b"HTTP/1.1 200", true, 504),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", true, 502),
    ] {
        let endpoint = backend::bytes(bytes, hangs).await;
        let mut rig = Rig::with(&[endpoint]);
        rig.serve("web", &[endpoint], |plan| {
            plan.timeouts = Some(Timeouts { idle_ms: Some(100), ..Timeouts::default() });
        });
        rig.follow();
        let answer = get(rig.address(), "a", "/").await;
        assert_eq!(answer.status, want, "{:?}: {answer:?}", String::from_utf8_lossy(bytes));
        rig.stop().await;
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_taken_for_a_whole_one() {
    for (bytes, hangs, want) in [
        // Of a short one nothing was passed on yet.
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello"[..], false, Some(502)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello", true, None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50000\r\n\r\nhello", false, None),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", false, None),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", true, Some(502)),
        // An end of the connection would be an end of the answer.
        (b"HTTP/1.1 200 OK\r\n\r\nhello", true, None),
    ] {
        let endpoint = backend::bytes(bytes, hangs).await;
        let mut rig = Rig::with(&[endpoint]);
        rig.serve("web", &[endpoint], |plan| {
            plan.timeouts = Some(Timeouts { idle_ms: Some(100), ..Timeouts::default() });
        });
        rig.follow();
        let answer = ask(rig.address(), "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(answer.map(|answer| answer.status), want, "{}", String::from_utf8_lossy(bytes));
        rig.stop().await;
    }
}

/// An endpoint may answer before it has the whole request. What is still to come of that request would be in the way of whoever came next
/// on its connection, for as long as its client likes.
#[tokio::test]
async fn whoever_is_answered_early_and_sends_no_more_holds_up_nobody() {
    let endpoint = backend::script(|mut stream| async move {
        while !backend::read_head(&mut stream).await.is_empty() {
            let _ = stream.write_all(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let mut rig = Rig::new(Config { threads: 1, ..Config::default() });
    rig.route("web", "", "/", RouteMatch::Prefix, "web");
    rig.serve("web", &[endpoint], |_| {});
    rig.follow();
    let mut early = Client::new(rig.address()).await;
    early.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nno more").await;
    assert_eq!(early.answer().await.unwrap().status, 401);
    for _ in 0..2 {
        let other = ask(rig.address(), "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
        let other = tokio::time::timeout(Duration::from_secs(20), other).await.expect("an answer");
        assert_eq!(other.unwrap().status, 401);
    }
    drop(early);
    rig.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_is_taken_away_is_not_waited_for() {
    let (came, mut comes) = tokio::sync::mpsc::channel(1);
    let hangs = backend::script(move |mut stream| {
        let came = came.clone();
        async move {
            backend::read_head(&mut stream).await;
            let _ = came.send(()).await;
            std::future::pending::<()>().await;
        }
    })
    .await;
    let good = Backend::new("good").await;
    let mut rig = Rig::with(&[hangs]);
    let mut client = Client::new(rig.address()).await;
    client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    // It waits at the one that hangs; the plan changes under it.
    comes.recv().await.unwrap();
    rig.serve("web", &[good.address], |_| {});
    rig.follow();
    assert_eq!(client.answer().await.unwrap().header("x-backend"), Some("good"));
    rig.stop().await;
}

#[tokio::test]
async fn draining_lets_requests_finish_and_takes_no_more() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let (came, mut comes) = tokio::sync::mpsc::channel(1);
    let slow = backend::script(move |mut stream| {
        let (mut gone, came) = (gone.clone(), came.clone());
        async move {
            use tokio::io::AsyncWriteExt as _;
            backend::read_head(&mut stream).await;
            let _ = came.send(()).await;
            let _ = gone.wait_for(|go| *go).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let rig = Rig::with(&[slow]);
    let (mut busy, mut idle) = (Client::new(rig.address()).await, Client::new(rig.address()).await);
    busy.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    comes.recv().await.unwrap();
    let at = rig.address();
    let drained = tokio::spawn(async move { rig.stop().await });
    assert!(idle.is_closed().await, "nobody asked anything there");
    go.send_replace(true);
    let answer = busy.answer().await.unwrap();
    assert_eq!(
        (answer.status, answer.body.as_str(), answer.header("connection")),
        (200, "ok", Some("close"))
    );
    drained.await.unwrap();
    assert!(tokio::net::TcpStream::connect(at).await.is_err());
}
