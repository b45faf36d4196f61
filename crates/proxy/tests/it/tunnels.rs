//! Streams, datagrams and TLS that nobody opens, for one member, that come in at another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::landfall::{PlanPort, RouteOptions, RoutePassthrough, RoutePlanSpec, RouteService};
use landfall_proxy::Limits;
use landfall_proxy::haproxy::{Ends, header};
use landfall_runtime::tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

use crate::link::Pair;
use crate::ports::{call, dial, echo, free_port, route, talk, udp_echo};
use crate::support::certs::Authority;
use crate::support::{key, port_of};

#[tokio::test]
async fn streams_and_datagrams_go_through_two_edges() {
    let (tasks, tcp, udp) = (Tasks::default(), free_port().await, free_port().await);
    let mut pair = Pair::new(port_of("web"), &[echo("lyon ").await]);
    let datagrams = RouteService { port: 53, port_name: "dns".into(), ..port_of("web") };
    let endpoints = BTreeMap::from([
        ("web".to_owned(), vec![echo("lyon ").await]),
        ("dns".to_owned(), vec![udp_echo(&tasks).await]),
    ]);
    pair.lyon.world.endpoints.insert(key("web"), Arc::new(endpoints));
    pair.paris.world.routes.insert(key("tcp"), route(tcp, "TCP", port_of("web"), RouteOptions::default()));
    pair.paris.world.routes.insert(key("udp"), route(udp, "UDP", datagrams.clone(), RouteOptions::default()));
    let mut plan = (**pair.lyon.world.plans.get(&key("web")).expect("its plan")).clone();
    let port = |name: &str, port: i32, protocol: &str| PlanPort {
        name: name.into(),
        port,
        protocol: protocol.into(),
        ..PlanPort::default()
    };
    plan.ports = vec![port("web", 80, "TCP"), port("dns", 53, "UDP")];
    pair.lyon.world.plans.insert(key("web"), Arc::new(plan));
    pair.lyon.follow();
    pair.paris.follow();
    for word in ["one", "two"] {
        assert_eq!(talk(dial(tcp).await, word).await, format!("lyon {word}"));
    }
    // Who the client is is told to the endpoint by the other edge, as the first one saw it.
    let options = RouteOptions { send_proxy_protocol: true, ..RouteOptions::default() };
    pair.paris.world.routes.insert(key("tcp"), route(tcp, "TCP", port_of("web"), options));
    pair.paris.follow();
    let client = TcpSocket::new_v4().unwrap();
    client.bind(([127, 0, 0, 9], 0).into()).unwrap();
    let stream = client.connect(([127, 0, 0, 1], tcp).into()).await.unwrap();
    let ends = Ends { client: stream.local_addr().unwrap(), server: stream.peer_addr().unwrap() };
    let told = [b"lyon ", &header(ends)[..], b"three"].concat();
    assert_eq!(talk(stream, "three").await, String::from_utf8_lossy(&told));

    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let first = call(&socket, udp, "hello").await;
    assert!(first.ends_with(" hello"), "{first}");
    let from = first.split_once(' ').unwrap().0;
    assert_eq!(call(&socket, udp, "again").await, format!("{from} again"));
    // The edge where clients come in tells of them; the other does not.
    let telling = async {
        loop {
            let told = pair.paris.proxy.report();
            assert!(told.iter().all(|one| one.service == "shop/web" && one.cluster == "lyon"), "{told:?}");
            // The client of datagrams is there until it has been silent for a while.
            if told.iter().any(|one| one.load.concurrency == Some(1.0)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), telling).await.expect("it is told of");
    assert_eq!(pair.lyon.proxy.report(), []);
    pair.stop().await;
    tasks.join().await;
}

/// TLS that edges do not open: client and endpoint shake hands through both of them.
#[tokio::test]
async fn tls_is_passed_through_two_edges() {
    let (listener, own) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Authority::new());
    let mut pair = Pair::new(port_of("web"), &[listener.local_addr().unwrap()]);
    let (acceptor, tasks) = (own.acceptor("raw.test"), Tasks::default());
    tasks.spawn_until_stop(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut word = [0; 4];
            let _ = stream.read_exact(&mut word).await;
            let _ = stream.write_all(&[b"lyon ", &word[..]].concat()).await;
            let _ = stream.shutdown().await;
        }
    });
    let passed = RoutePlanSpec {
        passthrough: vec![RoutePassthrough { host: "raw.test".into(), service: port_of("web") }],
        ..RoutePlanSpec::default()
    };
    pair.paris.world.routes.insert(key("raw"), Arc::new(passed));
    pair.paris.follow();
    let name = rustls_pki_types::ServerName::try_from("raw.test").unwrap();
    let stream = TcpStream::connect(pair.paris.proxy.addresses()[1]).await.unwrap();
    let mut stream = own.connector().connect(name, stream).await.expect("the endpoint's own certificate");
    stream.write_all(b"word").await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, b"lyon word");
    pair.stop().await;
    tasks.join().await;
}

#[tokio::test]
async fn a_tunnel_that_is_silent_outlives_an_idle_connection() {
    let limits = Limits { idle_timeout: Duration::from_millis(100), ..Limits::default() };
    let (mut pair, tcp) = (Pair::with(port_of("web"), &[echo("lyon ").await], limits), free_port().await);
    pair.paris.world.routes.insert(key("tcp"), route(tcp, "TCP", port_of("web"), RouteOptions::default()));
    pair.paris.follow();
    let mut stream = dial(tcp).await;
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).await.unwrap();
    // A request leaves a connection behind that becomes idle: when that is closed, so would the tunnel's be.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(talk(stream, "still").await, "still");
    pair.stop().await;
}
