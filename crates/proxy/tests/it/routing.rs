//! Which service answers, and that changes take hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use landfall_api::landfall::{FixedResponseAction, RedirectAction, RouteAction, RouteMatch};

use crate::support::backend::Backend;
use crate::support::raw::{Client, get};
use crate::support::{Rig, key};

#[tokio::test]
async fn hosts_and_paths_lead_to_services_and_changes_take_hold_at_once() {
    let (one, two) = (Backend::new("one").await, Backend::new("two").await);
    let mut rig = Rig::with(&[one.address]);
    rig.serve("other", &[two.address], |_| {});
    rig.route("other", "two.example.com", "/api", RouteMatch::Prefix, "other");
    rig.follow();
    let at = rig.address();
    assert_eq!(get(at, "one.example.com", "/api").await.header("x-backend"), Some("one"));
    assert_eq!(get(at, "two.example.com:8080", "/api/x?y").await.header("x-backend"), Some("two"));
    assert_eq!(get(at, "two.example.com", "/").await.status, 404, "the host has other paths only");
    // A connection that is open sees the change too.
    let mut client = Client::new(at).await;
    for (service, want) in [("web", "one"), ("other", "two"), ("web", "one")] {
        rig.route("other", "two.example.com", "/api", RouteMatch::Prefix, service);
        rig.follow();
        client.send(b"GET /api HTTP/1.1\r\nhost: two.example.com\r\n\r\n").await;
        assert_eq!(client.answer().await.unwrap().header("x-backend"), Some(want));
    }
    rig.world.routes.remove(&key("web"));
    rig.follow();
    assert_eq!(get(at, "one.example.com", "/").await.status, 404);
    rig.stop().await;
}

#[tokio::test]
async fn endpoints_come_and_go_without_a_failed_request() {
    let (one, two) = (Backend::new("one").await, Backend::new("two").await);
    let mut rig = Rig::with(&[one.address]);
    let mut client = Client::new(rig.address()).await;
    for endpoints in [&[one.address][..], &[one.address, two.address], &[two.address], &[one.address]] {
        rig.serve("web", endpoints, |_| {});
        rig.follow();
        for _ in 0..20 {
            client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
            let answer = client.answer().await.unwrap();
            assert_eq!(answer.status, 200);
            if let [only] = endpoints {
                let want = if *only == one.address { "one" } else { "two" };
                assert_eq!(answer.header("x-backend"), Some(want));
            }
        }
    }
    assert!(one.requests() > 40 && two.requests() >= 20);
    rig.stop().await;
}

/// Requests are under way whenever something changes: none fails, none goes where no route leads, and who asks after a change is
/// answered by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_under_load_fail_no_request() {
    const CHANGES: usize = 200;
    let (one, two) = (Backend::new("one").await, Backend::new("two").await);
    let mut rig = Rig::with(&[one.address]);
    rig.serve("other", &[two.address], |_| {});
    for n in 0..100 {
        rig.route(&format!("more-{n}"), &format!("{n}.example.com"), "/", RouteMatch::Prefix, "web");
    }
    let lead = |rig: &mut Rig, service: &str| {
        rig.route("moves", "moves.example.com", "/", RouteMatch::Prefix, service);
        rig.follow();
    };
    lead(&mut rig, "web");
    let at = rig.address();
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = ["moves.example.com", "7.example.com", "moves.example.com", "8.example.com"]
        .map(|host| {
            let over = over.clone();
            tokio::spawn(async move {
                let (mut client, mut asked) = (Client::new(at).await, 0);
                while !over.load(Ordering::Relaxed) {
                    client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).await;
                    let answer = client.answer().await.unwrap();
                    let by = answer.header("x-backend").unwrap();
                    assert!(answer.status == 200 && (by == "one" || host.starts_with("moves")), "{answer:?}");
                    asked += 1;
                }
                asked
            })
        })
        .into();
    let mut client = Client::new(at).await;
    for n in 0..CHANGES {
        let (service, want) = if n % 2 == 0 { ("other", "two") } else { ("web", "one") };
        lead(&mut rig, service);
        client.send(b"GET / HTTP/1.1\r\nhost: moves.example.com\r\n\r\n").await;
        assert_eq!(client.answer().await.unwrap().header("x-backend"), Some(want));
    }
    over.store(true, Ordering::Relaxed);
    let mut asked = 0;
    for client in clients {
        asked += client.await.unwrap();
    }
    assert!(asked > CHANGES, "only {asked} requests were under way");
    rig.stop().await;
}

#[tokio::test]
async fn some_answers_are_our_own() {
    let mut rig = Rig::new(landfall_proxy::Config::default());
    let at = rig.address();
    rig.follow();
    assert_eq!(get(at, "a", "/").await.status, 404, "there is no route");
    let fixed = FixedResponseAction {
        status_code: 418,
        body: Some("short and stout".to_owned()),
        content_type: Some("text/tea".to_owned()),
    };
    let mut act =
        |plan: &str, path: &str, action: RouteAction| rig.act(plan, "a", path, RouteMatch::Prefix, action);
    act("fixed", "/fixed", RouteAction { fixed_response: Some(Box::new(fixed)), ..RouteAction::default() });
    let redirect =
        RedirectAction { status_code: Some(301), host: Some("b".to_owned()), ..RedirectAction::default() };
    act(
        "redirect",
        "/redirect",
        RouteAction { redirect: Some(Box::new(redirect)), ..RouteAction::default() },
    );
    let why = Some("the service has no such port".to_owned());
    act("unavailable", "/unavailable", RouteAction { unavailable: why, ..RouteAction::default() });
    rig.route("empty", "b", "/", RouteMatch::Prefix, "nowhere");
    rig.follow();
    let answer = get(at, "a", "/fixed").await;
    assert_eq!((answer.status, answer.body.as_str()), (418, "short and stout"));
    assert_eq!(answer.header("content-type"), Some("text/tea"));
    let answer = get(at, "a:81", "/redirect/x?y=1").await;
    assert_eq!((answer.status, answer.header("location")), (301, Some("http://b/redirect/x?y=1")));
    let answer = get(at, "a", "/unavailable").await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "the service has no such port"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(get(at, "b", "/").await.status, 503, "no plan, no endpoint");
    rig.stop().await;
}
