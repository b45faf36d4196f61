//! Who takes a request: shares of clusters, clients that stay where they were, rings, limits, and who is left out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use landfall_api::landfall::{
    AffinityMode, Balance, BalanceMode, EndpointCapacity, HashOn, Outlier, PlanCanary, Retries,
    SessionAffinity, TrafficLimits, TrafficPlanSpec,
};
use landfall_proxy::Config;
use tokio::io::AsyncWriteExt as _;

use crate::support::backend::{self, Backend};
use crate::support::raw::{Client, ask, get};
use crate::support::{OWN, Rig, key, plan};

/// Another cluster, reached by its load balancer: the port is the service's, 80, of an address that nobody else has.
async fn far(ip: [u8; 4]) -> Backend {
    Backend::at((ip, 80).into(), "far").await
}

fn tell(rig: &mut Rig, plan: TrafficPlanSpec) {
    rig.world.plans.insert(key("web"), Arc::new(plan));
    rig.follow();
}

/// How many of so many requests each backend answers.
async fn shares(rig: &Rig, requests: usize, headers: &str) -> BTreeMap<String, usize> {
    let mut client = Client::new(rig.address()).await;
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        client.send(format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n").as_bytes()).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        *counts.entry(answer.header("x-backend").unwrap().to_owned()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn a_canary_takes_its_tenth_and_whoever_asks_for_it() {
    let (near, _far) = (Backend::new("near").await, far([127, 94, 8, 1]).await);
    let mut rig = Rig::with(&[near.address]);
    let mut split = plan(&[(OWN, 0.9, &[]), ("rome", 0.1, &["127.94.8.1"])]);
    split.vantages[0].choices[1].reason = "Canary: 10 %".to_owned();
    tell(&mut rig, split.clone());
    let got = shares(&rig, 2_000, "").await;
    assert!((120..=280).contains(&got["far"]), "about 200 of 2000: {got:?}");
    split.canary = Some(PlanCanary {
        clusters: vec!["rome".to_owned()],
        headers: [("x-canary".to_owned(), "always".to_owned())].into(),
    });
    tell(&mut rig, split);
    assert_eq!(shares(&rig, 50, "x-canary: always\r\n").await, [("far".to_owned(), 50)].into());
    rig.stop().await;
}

#[tokio::test]
async fn a_cookie_keeps_a_client_at_its_cluster_and_survives_its_loss() {
    let (near, distant) = (Backend::new("near").await, far([127, 94, 8, 2]).await);
    let mut rig = Rig::with(&[near.address]);
    let mut both = plan(&[(OWN, 0.5, &[]), ("rome", 0.5, &["127.94.8.2"])]);
    both.session_affinity =
        Some(SessionAffinity { mode: AffinityMode::Cookie, ..SessionAffinity::default() });
    tell(&mut rig, both);
    let cookie_of = |answer: &crate::support::raw::Answer| {
        let set = answer.header("set-cookie")?;
        Some(set.split(';').next().unwrap().to_owned())
    };
    // Until the luck of one leads there.
    let (cookie, answer) = loop {
        let answer = get(rig.address(), "a", "/").await;
        let cookie = cookie_of(&answer).unwrap();
        if answer.header("x-backend") == Some("far") {
            break (cookie, answer);
        }
    };
    let set = answer.header("set-cookie").unwrap();
    assert!(
        cookie.starts_with("landfall-cluster=") && set.contains("HttpOnly") && !set.contains("rome"),
        "{set}"
    );
    let asks = async |cookie: &str| {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\ncookie: x=1; {cookie}\r\n\r\n");
        ask(rig.address(), &request).await.unwrap()
    };
    for _ in 0..20 {
        let answer = asks(&cookie).await;
        assert_eq!((answer.header("x-backend"), answer.header("set-cookie")), (Some("far"), None));
    }
    distant.stop().await;
    // The same client: answered elsewhere, and told where it belongs from now on.
    let answer = asks(&cookie).await;
    assert_eq!((answer.status, answer.header("x-backend")), (200, Some("near")));
    let moved = cookie_of(&answer).unwrap();
    assert_ne!(moved, cookie);
    let _back = far([127, 94, 8, 2]).await;
    for _ in 0..20 {
        let answer = asks(&moved).await;
        assert_eq!((answer.header("x-backend"), answer.header("set-cookie")), (Some("near"), None));
    }
    // One that nobody has given out is as if there were none.
    assert!(cookie_of(&asks("landfall-cluster=forged").await).is_some());
    rig.stop().await;
}

#[tokio::test]
async fn a_ring_leads_the_same_to_the_same_and_moves_few() {
    let mut backends = Vec::new();
    for name in ["a", "b", "c", "d"] {
        backends.push(Backend::new(name).await);
    }
    let at: Vec<SocketAddr> = backends.iter().map(|one| one.address).collect();
    let mut rig = Rig::with(&at);
    let ring = |on: HashOn, name: Option<&str>| {
        let balance = Balance { mode: BalanceMode::RingHash, hash_on: on, name: name.map(str::to_owned) };
        move |plan: &mut TrafficPlanSpec| plan.balance = Some(balance.clone())
    };
    let who = async |rig: &Rig, user: usize| {
        let request =
            format!("GET /{user} HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\ncookie: user={user}\r\n\r\n");
        ask(rig.address(), &request).await.unwrap().header("x-backend").unwrap().to_owned()
    };
    for (on, name) in [(HashOn::Header, Some("X-User")), (HashOn::Cookie, Some("user")), (HashOn::Path, None)]
    {
        rig.serve("web", &at, ring(on, name));
        rig.follow();
        let mut before = Vec::new();
        for user in 0..40 {
            let first = who(&rig, user).await;
            assert_eq!(first, who(&rig, user).await, "{on:?} {user}");
            before.push(first);
        }
        let mut used = before.clone();
        used.sort();
        used.dedup();
        assert!(used.len() >= 3, "{on:?}: {used:?}");
        // One goes: the others keep theirs.
        rig.serve("web", &at[1..], ring(on, name));
        rig.follow();
        for (user, before) in before.iter().enumerate().filter(|(_, before)| *before != "a") {
            assert_eq!(*before, who(&rig, user).await, "{on:?} {user}");
        }
    }
    rig.serve("web", &at, ring(HashOn::ClientIp, None));
    rig.follow();
    assert_eq!(shares(&rig, 20, "").await.len(), 1, "one client, one endpoint");
    rig.stop().await;
}

/// Answers each request with its name after so many milliseconds, which can be changed.
async fn slow(name: &'static str, wait_ms: &Arc<AtomicU64>) -> SocketAddr {
    let wait_ms = wait_ms.clone();
    backend::script(move |mut stream| {
        let wait_ms = wait_ms.clone();
        async move {
            while !backend::read_head(&mut stream).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(wait_ms.load(Ordering::Relaxed))).await;
                let answer = format!("HTTP/1.1 200 OK\r\nx-backend: {name}\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_endpoint_that_is_far_slower_than_the_others_is_left_out() {
    let (fast, lame) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(100)));
    let at = [slow("a", &fast).await, slow("b", &fast).await, slow("lame", &lame).await];
    for (factor, ejected) in [(None, false), (Some(4.0), true)] {
        let mut rig = Rig::with_config(&at, Config::default());
        rig.serve("web", &at, |plan| {
            plan.outlier =
                Some(Outlier { latency_factor: factor, ejection_seconds: Some(600), ..Outlier::default() });
        });
        rig.follow();
        // Until it is out; where it never is, for a few looks.
        let mut out = false;
        for _ in 0..if ejected { 500 } else { 5 } {
            shares(&rig, 20, "").await;
            out = rig
                .registry
                .render()
                .contains("landfall_proxy_ejections_total{service=\"shop/web\",cluster=\"paris\"} 1\n");
            if out {
                break;
            }
        }
        assert_eq!(out, ejected, "{factor:?}");
        if ejected {
            assert_eq!(shares(&rig, 60, "").await.get("lame"), None, "nobody waits for it any more");
        }
        rig.stop().await;
    }
}

#[tokio::test]
async fn no_more_are_left_out_than_may_be() {
    let answers = |status: &'static [u8]| {
        backend::script(move |mut stream| async move {
            while !backend::read_head(&mut stream).await.is_empty() {
                let _ = stream.write_all(status).await;
            }
        })
    };
    let broken: &[u8] = b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n";
    let at = [answers(broken).await, answers(broken).await, answers(broken).await, answers(broken).await];
    let mut rig = Rig::with(&at);
    rig.serve("web", &at, |plan| {
        plan.outlier = Some(Outlier {
            consecutive_errors: Some(1),
            ejection_seconds: Some(600),
            max_ejected_percent: Some(50),
            ..Outlier::default()
        });
    });
    rig.follow();
    for _ in 0..100 {
        assert_eq!(get(rig.address(), "a", "/").await.status, 500, "somebody is asked still");
    }
    assert!(
        rig.registry
            .render()
            .contains("landfall_proxy_ejections_total{service=\"shop/web\",cluster=\"paris\"} 2\n"),
        "half of four"
    );
    rig.stop().await;
}

#[tokio::test]
async fn what_a_cluster_may_not_have_in_flight_goes_to_the_next_and_then_nowhere() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let (came, mut comes) = tokio::sync::mpsc::channel(8);
    let near = backend::script(move |mut stream| {
        let (mut gone, came) = (gone.clone(), came.clone());
        async move {
            while !backend::read_head(&mut stream).await.is_empty() {
                let _ = came.send(()).await;
                let _ = gone.wait_for(|go| *go).await;
                let answer = b"HTTP/1.1 200 OK\r\nx-backend: near\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        }
    })
    .await;
    let distant = far([127, 94, 8, 3]).await;
    let mut rig = Rig::with(&[near]);
    let limits = Some(TrafficLimits { cluster_concurrency: Some(2) });
    let mut both = plan(&[(OWN, 1.0, &[]), ("rome", 0.0, &["127.94.8.3"])]);
    both.limits.clone_from(&limits);
    tell(&mut rig, both);
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut client = Client::new(rig.address()).await;
        client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        comes.recv().await.unwrap();
        busy.push(client);
    }
    for _ in 0..10 {
        assert_eq!(get(rig.address(), "a", "/").await.header("x-backend"), Some("far"));
    }
    let mut alone = plan(&[(OWN, 1.0, &[])]);
    alone.limits = limits;
    alone.retries = Some(Retries { attempts: Some(0), budget_percent: None });
    tell(&mut rig, alone);
    let answer = get(rig.address(), "a", "/").await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
    go.send_replace(true);
    for client in &mut busy {
        assert_eq!(client.answer().await.unwrap().header("x-backend"), Some("near"));
    }
    assert_eq!(get(rig.address(), "a", "/").await.header("x-backend"), Some("near"), "there is room again");
    distant.stop().await;
    rig.stop().await;
}

/// A proxy of one thread, which alone knows how busy each endpoint is.
fn alone(endpoints: &[SocketAddr], change: impl Fn(&mut TrafficPlanSpec)) -> Rig {
    let mut rig = Rig::new(Config { threads: 1, drain: Duration::ZERO, ..Config::default() });
    rig.route("web", "", "/", landfall_api::landfall::RouteMatch::Prefix, "web");
    rig.serve("web", endpoints, change);
    rig.follow();
    rig
}

#[tokio::test]
async fn an_endpoint_has_no_more_in_flight_than_it_may() {
    for method in ["GET", "DELETE"] {
        let ((go, gone), (came, mut comes)) =
            (tokio::sync::watch::channel(false), tokio::sync::mpsc::channel(8));
        let at = [backend::held("a", came.clone(), gone.clone()).await, backend::held("b", came, gone).await];
        let rig = alone(&at, |plan| {
            plan.endpoint_capacity =
                Some(EndpointCapacity { concurrency: Some(2), ..EndpointCapacity::default() });
            plan.retries = Some(Retries { attempts: Some(0), budget_percent: None });
        });
        let request = format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n");
        let (mut busy, mut who) = (Vec::new(), BTreeMap::new());
        for _ in 0..4 {
            let mut client = Client::new(rig.address()).await;
            client.send(request.as_bytes()).await;
            *who.entry(comes.recv().await.unwrap()).or_insert(0) += 1;
            busy.push(client);
        }
        assert_eq!(who, [("a", 2), ("b", 2)].into(), "{method}");
        for _ in 0..5 {
            let answer = ask(rig.address(), &request).await.unwrap();
            assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{method}");
        }
        go.send_replace(true);
        for client in &mut busy {
            assert_eq!(client.answer().await.unwrap().status, 200);
        }
        assert_eq!(ask(rig.address(), &request).await.unwrap().status, 200, "there is room again");
        rig.stop().await;
    }
}

#[tokio::test]
async fn an_endpoint_that_is_new_gets_little_at_first() {
    let ((go, gone), (came, mut comes)) = (tokio::sync::watch::channel(true), tokio::sync::mpsc::channel(64));
    let (old, new) =
        (backend::held("old", came.clone(), gone.clone()).await, backend::held("new", came, gone).await);
    let mut rig = alone(&[old], |_| {});
    assert_eq!(shares(&rig, 5, "").await, [("old".to_owned(), 5)].into());
    rig.serve("web", &[old, new], |_| {});
    rig.follow();
    // As long as it is new, it is busier than one that has nothing to do.
    assert_eq!(shares(&rig, 20, "").await, [("old".to_owned(), 20)].into());
    let table = rig.proxy.table();
    let endpoints = &table["services"][0]["clusters"][0]["endpoints"];
    assert_eq!(endpoints[0]["sharePercent"], serde_json::Value::Null, "{table}");
    assert!(endpoints[1]["sharePercent"].as_u64().unwrap() < 100, "{table}");
    // It is there for what would be too much for the other alone.
    go.send_replace(false);
    while comes.try_recv().is_ok() {}
    let mut busy = Vec::new();
    let alone = loop {
        let mut client = Client::new(rig.address()).await;
        client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let who = comes.recv().await.unwrap();
        busy.push(client);
        if who == "new" {
            break busy.len() - 1;
        }
    };
    assert!((1..=10).contains(&alone), "{alone} went to the old one first");
    go.send_replace(true);
    rig.stop().await;
}

#[tokio::test]
async fn what_endpoints_say_of_themselves_is_told_to_the_hub_and_to_no_client() {
    for (header, method) in [
        ("endpoint-load-metrics: TEXT cpu_utilization=0.4, mem_utilization=0.9", "GET"),
        ("Endpoint-Load-Metrics: JSON {\"cpu_utilization\": 0.4}", "GET"),
        ("endpoint-load-metrics-bin: CZqZmZmZmdk/", "GET"),
        ("endpoint-load-metrics-bin: CZqZmZmZmdk/", "DELETE"),
    ] {
        let endpoint = backend::script(move |mut stream| async move {
            while !backend::read_head(&mut stream).await.is_empty() {
                let answer = format!("HTTP/1.1 200 OK\r\n{header}\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        })
        .await;
        let rig = Rig::with(&[endpoint]);
        for _ in 0..5 {
            let request = format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n");
            let answer = ask(rig.address(), &request).await.unwrap();
            assert!(!answer.head.to_ascii_lowercase().contains("load-metrics"), "{answer:?}");
        }
        let told = loop {
            let told = rig.proxy.report();
            if !told.is_empty() {
                break told;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(
            (told[0].cluster.as_str(), told[0].load.utilization),
            (OWN, Some(0.4)),
            "{header} {method}"
        );
        rig.stop().await;
    }
}
