//! One edge takes over from another at the same address, and nobody is refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use landfall_api::landfall::{RouteCertificate, RouteMatch, RouteOptions, RoutePlanSpec};
use landfall_proxy::{Config, Proxy};
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::ports::{dial, echo, free_port, ports, route, talk};
use crate::support::backend::Backend;
use crate::support::certs::Authority;
use crate::support::raw::Client;
use crate::support::{Rig, key, port_of};

/// A host over TLS.
const HOST: &str = "one.test";

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
    let mut clients = Vec::new();
    for at_once in [false, false, true, true] {
        let (over, asked, refused) = (over.clone(), asked.clone(), refused.clone());
        clients.push(tokio::spawn(async move {
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
        }));
    }
    let some_more = async || {
        let before = asked.load(Ordering::Relaxed);
        while asked.load(Ordering::Relaxed) < before + 50 {
            assert!(!clients.iter().any(JoinHandle::is_finished), "a client has given up");
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
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(refused.load(Ordering::Relaxed), 0, "of {}", asked.load(Ordering::Relaxed));
    assert_eq!(next.addresses(), [at]);
    tasks.join().await;
}

/// Streams of a Service's port, and clients over TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_refuses_no_stream_and_nobody_over_tls() {
    let (authority, port) = (Authority::new(), free_port().await);
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let with_ports = |https| Config { https: vec![https], l4: ports(), threads: 1, ..Config::default() };
    let mut rig = Rig::handing_over_with(with_ports(any));
    let backend = Backend::new("web").await;
    rig.serve("web", &[backend.address], |_| {});
    rig.serve("echo", &[echo("one ").await], |_| {});
    rig.route("web", "", "/", RouteMatch::Prefix, "web");
    let mut shown = RoutePlanSpec::clone(&rig.world.routes[&key("web")]);
    shown.certificates = vec![RouteCertificate { hosts: vec![HOST.to_owned()], secret: "s".to_owned() }];
    rig.world.routes.insert(key("web"), Arc::new(shown));
    rig.world.routes.insert(key("echo"), route(port, "TCP", port_of("echo"), RouteOptions::default()));
    rig.world.certificates.insert("s".into(), authority.secret(&[HOST]));
    rig.follow();
    drop(dial(port).await);
    let (https, world) = (rig.proxy.addresses()[1], rig.world.clone());
    let over = Arc::new(AtomicBool::new(false));
    let rounds: [Arc<AtomicUsize>; 2] = Default::default();
    let (stop, count) = (over.clone(), rounds[0].clone());
    let streams = tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("nobody is refused");
            assert_eq!(talk(stream, "word").await, "one word");
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (stop, count, tls) = (over.clone(), rounds[1].clone(), authority.connector());
    let secured = tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            let stream = TcpStream::connect(https).await.expect("nobody is refused");
            let name = ServerName::try_from(HOST).unwrap();
            let mut stream = tls.connect(name, stream).await.expect("a handshake");
            stream.write_all(b"GET / HTTP/1.1\r\nhost: one.test\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let some_more = async || {
        let before = rounds.each_ref().map(|count| count.load(Ordering::Relaxed));
        while rounds.iter().zip(before).any(|(count, before)| count.load(Ordering::Relaxed) < before + 30) {
            assert!(!streams.is_finished() && !secured.is_finished(), "a client has given up");
            tokio::task::yield_now().await;
        }
    };
    some_more().await;
    let tasks = Tasks::default();
    let config = Config {
        edge: "paris-1".to_owned(),
        cluster: crate::support::OWN.to_owned(),
        http: vec![rig.address()],
        ..with_ports(https)
    };
    let next = Proxy::start(config, &Registry::default(), &tasks).unwrap();
    next.follow(&world);
    some_more().await;
    rig.stop().await;
    some_more().await;
    over.store(true, Ordering::Relaxed);
    streams.await.unwrap();
    secured.await.unwrap();
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
