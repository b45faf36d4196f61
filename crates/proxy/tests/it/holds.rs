//! A way to the next is kept open, and a request that nobody takes is held back for a moment.

use std::net::SocketAddr;
use std::time::Duration;

use landfall_api::landfall::{Outlier, Retries, TrafficPlanSpec};
use landfall_proxy::Config;
use tokio::net::TcpListener;

use crate::support::Rig;
use crate::support::backend::{Backend, nobody};
use crate::support::raw::{ask, get};

/// Whoever fails once is left out, which is counted.
fn strict(plan: &mut TrafficPlanSpec) {
    plan.outlier = Some(Outlier {
        consecutive_errors: Some(1),
        ejection_seconds: Some(1),
        max_ejected_percent: Some(100),
        ..Outlier::default()
    });
}

async fn seen(rig: &Rig, line: &str) {
    let looking = async {
        while !rig.registry.render().contains(line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looking).await.expect(line);
}

async fn one_endpoint(at: SocketAddr, change: fn(&mut TrafficPlanSpec)) -> Rig {
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
        seen(&rig, &format!("landfall_proxy_ejections_total {}\n", round + 1)).await;
        let back = Backend::at(at, "back").await;
        let answer = asking.await.unwrap();
        assert_eq!((answer.status, answer.header("x-backend")), (200, Some("back")), "{answer:?}");
        back.stop().await;
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_service_that_wants_no_second_try_is_not_held_back() {
    let rig = one_endpoint(nobody().await, |plan| {
        plan.retries = Some(Retries { attempts: Some(0), budget_percent: None });
    })
    .await;
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
