//! One edge takes over from another at the same address, and nobody is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use landfall_proxy::{Config, Proxy, World};
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

use crate::support::Rig;
use crate::support::backend::Backend;
use crate::support::raw::Client;

fn second(at: std::net::SocketAddr, world: &World, tasks: &Tasks) -> Proxy {
    let config = Config {
        edge: "paris-1".to_owned(),
        cluster: crate::support::OWN.to_owned(),
        http: vec![at],
        threads: 2,
        ..Config::default()
    };
    let proxy = Proxy::start(config, &Registry::default(), tasks).unwrap();
    proxy.follow(world);
    proxy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_refuses_nobody() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    let (at, world) = (rig.address(), rig.world.clone());
    let over = Arc::new(AtomicBool::new(false));
    let (asked, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let clients = Tasks::default();
    for _ in 0..4 {
        let (over, asked, refused) = (over.clone(), asked.clone(), refused.clone());
        clients.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                match tokio::net::TcpStream::connect(at).await {
                    Ok(stream) => drop(stream),
                    Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                }
                // As clients do: what was not answered is asked once more.
                let mut answered = false;
                for _ in 0..2 {
                    let mut client = Client::new(at).await;
                    client.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
                    answered |= client.answer().await.is_some_and(|answer| answer.status == 200);
                    if answered {
                        break;
                    }
                }
                assert!(answered);
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
    let next = second(at, &world, &tasks);
    some_more().await;
    rig.stop().await;
    some_more().await;
    over.store(true, Ordering::Relaxed);
    clients.join().await;
    assert_eq!(refused.load(Ordering::Relaxed), 0, "of {}", asked.load(Ordering::Relaxed));
    assert_eq!(next.addresses(), [at]);
    tasks.join().await;
}
