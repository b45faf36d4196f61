//! One edge takes over from another at the same address, and nobody is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use landfall_proxy::{Config, Proxy};
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

use crate::support::Rig;
use crate::support::backend::Backend;
use crate::support::raw::Client;

fn start(at: std::net::SocketAddr, tasks: &Tasks) -> Proxy {
    let config = Config {
        edge: "paris-1".to_owned(),
        cluster: crate::support::OWN.to_owned(),
        http: vec![at],
        threads: 2,
        ..Config::default()
    };
    Proxy::start(config, &Registry::default(), tasks).unwrap()
}

/// Asks as clients do: where a connection ended without a byte, once more. Whatever was said, counts.
async fn get(at: std::net::SocketAddr) {
    get_on(&mut None, at).await;
}

/// The same on a connection that is kept, until its end is announced.
async fn get_on(kept: &mut Option<Client>, at: std::net::SocketAddr) {
    for _ in 0..2 {
        let mut client = match kept.take() {
            Some(client) => client,
            None => Client::new(at).await,
        };
        client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        match client.answer().await {
            Some(answer) => {
                assert_eq!(answer.status, 200, "{answer:?}");
                *kept = (answer.header("connection") != Some("close")).then_some(client);
                return;
            }
            None => assert!(client.got_nothing(), "an answer broke off"),
        }
    }
    panic!("nobody answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_refuses_nobody() {
    let backend = Backend::new("one").await;
    let rig = Rig::handing_over(&[backend.address]);
    let (at, world) = (rig.address(), rig.world.clone());
    let over = Arc::new(AtomicBool::new(false));
    let (asked, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let clients = Tasks::default();
    for at_once in [false, false, true, true] {
        let (over, asked, refused) = (over.clone(), asked.clone(), refused.clone());
        clients.spawn(async move {
            let mut kept = None;
            while !over.load(Ordering::Relaxed) {
                match tokio::net::TcpStream::connect(at).await {
                    Ok(stream) => drop(stream),
                    Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                }
                if at_once {
                    kept = None;
                }
                get_on(&mut kept, at).await;
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let some_more = async || {
        let before = asked.load(Ordering::Relaxed);
        while asked.load(Ordering::Relaxed) < before + 50 {
            tokio::task::yield_now().await;
        }
    };
    some_more().await;
    let tasks = Tasks::default();
    let next = start(at, &tasks);
    next.follow(&world);
    some_more().await;
    rig.stop().await;
    some_more().await;
    over.store(true, Ordering::Relaxed);
    clients.join().await;
    assert_eq!(refused.load(Ordering::Relaxed), 0, "of {}", asked.load(Ordering::Relaxed));
    assert_eq!(next.addresses(), [at]);
    tasks.join().await;
}

/// An edge that came before its plans said 404 of every route for a moment.
#[tokio::test]
async fn nobody_is_let_in_before_there_is_something_to_tell() {
    let backend = Backend::new("one").await;
    let rig = Rig::handing_over(&[backend.address]);
    let tasks = Tasks::default();
    let (at, world) = (rig.address(), rig.world.clone());
    let next = start(at, &tasks);
    for _ in 0..20 {
        get(at).await;
    }
    assert!(!next.is_open());
    next.follow(&world);
    assert!(next.is_open());
    rig.stop().await;
    get(at).await;
    tasks.join().await;
}
