//! Ports that are carried as they are: streams and datagrams, listeners that come and go, and who the client is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::landfall::{
    AffinityMode, RouteOptions, RoutePlanSpec, RoutePort, RouteService, SessionAffinity,
};
use landfall_proxy::haproxy::{Ends, Prefixes, header};
use landfall_proxy::{Config, l4};
use landfall_runtime::tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::support::backend::{Backend, nobody, script};
use crate::support::raw::ask;
use crate::support::{OWN, Rig, key, plan, port_of};

/// However slow the machine is, nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A port that nobody has.
pub(crate) async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

pub(crate) fn ports() -> l4::Config {
    l4::Config { addresses: vec![[127, 0, 0, 1].into()], ..l4::Config::default() }
}

fn rig(l4: l4::Config) -> Rig {
    Rig::new(Config { threads: 1, l4, drain: Duration::ZERO, ..Config::default() })
}

/// A port that leads to a service.
pub(crate) fn route(
    port: u16,
    protocol: &str,
    service: RouteService,
    options: RouteOptions,
) -> Arc<RoutePlanSpec> {
    let port = RoutePort { port: port.into(), protocol: protocol.into(), service };
    Arc::new(RoutePlanSpec { ports: vec![port], options, ..RoutePlanSpec::default() })
}

/// An endpoint that sends back what it gets, with its name before it.
pub(crate) async fn echo(name: &'static str) -> SocketAddr {
    script(move |mut stream| async move {
        let _ = stream.write_all(name.as_bytes()).await;
        let (mut reader, mut writer) = stream.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
        let _ = writer.shutdown().await;
    })
    .await
}

/// Connects as soon as there is a listener.
pub(crate) async fn dial(port: u16) -> TcpStream {
    let dialling = async {
        loop {
            match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, dialling).await.expect("a listener")
}

/// Says something, closes its half, and gives all that comes back.
pub(crate) async fn talk(mut stream: TcpStream, word: &str) -> String {
    let mut all = Vec::new();
    let talking = async {
        stream.write_all(word.as_bytes()).await?;
        stream.shutdown().await?;
        stream.read_to_end(&mut all).await
    };
    // A connection that is not carried may be reset: then nothing came back.
    let _ = tokio::time::timeout(PATIENCE, talking).await.expect("an end");
    String::from_utf8_lossy(&all).into_owned()
}

/// Says something in datagrams until one comes back.
pub(crate) async fn call(socket: &UdpSocket, port: u16, word: &str) -> String {
    let mut room = [0; 2048];
    let calling = async {
        loop {
            // Until the port is open, it may be refused.
            let _ = socket.send_to(word.as_bytes(), ("127.0.0.1", port)).await;
            let answer = tokio::time::timeout(Duration::from_millis(200), socket.recv(&mut room)).await;
            if let Ok(Ok(length)) = answer {
                return String::from_utf8_lossy(&room[..length]).into_owned();
            }
        }
    };
    tokio::time::timeout(PATIENCE, calling).await.expect("an answer")
}

/// An endpoint of datagrams that sends back what it gets, with the port it came from before it.
pub(crate) async fn udp_echo(tasks: &Tasks) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tasks.spawn_until_stop(async move {
        let mut room = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut room).await {
            let answer = [from.port().to_string().as_bytes(), b" ", &room[..length]].concat();
            let _ = socket.send_to(&answer, from).await;
        }
    });
    address
}

#[tokio::test]
async fn streams_are_carried_past_a_dead_endpoint_and_ports_come_and_go() {
    let (mut rig, port) = (rig(ports()), free_port().await);
    let service = port_of("echo");
    rig.serve("echo", &[nobody().await, echo("one ").await], |_| {});
    rig.world.routes.insert(key("echo"), route(port, "TCP", service, RouteOptions::default()));
    rig.follow();
    for word in ["first", "second", "third", "fourth"] {
        assert_eq!(talk(dial(port).await, word).await, format!("one {word}"));
    }
    assert_eq!(rig.proxy.port_problems(), []);
    // Another service takes the port over; who is connected stays where it is.
    let mut old = dial(port).await;
    let mut greeting = [0; 4];
    old.read_exact(&mut greeting).await.unwrap();
    rig.serve("other", &[echo("two ").await], |_| {});
    rig.world.routes.insert(key("echo"), route(port, "TCP", port_of("other"), RouteOptions::default()));
    rig.follow();
    assert_eq!(talk(dial(port).await, "word").await, "two word");
    assert_eq!(talk(old, "still").await, "still");
    // The port goes.
    rig.world.routes.remove(&key("echo"));
    rig.follow();
    let closing = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closing).await.expect("the port is closed");
    rig.stop().await;
}

#[tokio::test]
async fn the_less_busy_of_two_takes_a_connection() {
    let (mut rig, port) = (rig(ports()), free_port().await);
    rig.serve("echo", &[echo("1").await, echo("2").await], |_| {});
    rig.world.routes.insert(key("echo"), route(port, "TCP", port_of("echo"), RouteOptions::default()));
    rig.follow();
    let greeted = async || {
        let mut stream = dial(port).await;
        (char::from(stream.read_u8().await.unwrap()), stream)
    };
    let mut open = Vec::new();
    for pair in 0..10 {
        let (one, two) = (greeted().await, greeted().await);
        assert_ne!(one.0, two.0, "pair {pair}: both to the same");
        open.extend([one, two]);
    }
    // Those of one end: it has room for as many.
    open.retain(|(who, _)| *who == '1');
    let ended = async {
        while rig.proxy.table()["services"][0]["clusters"][0]["inFlight"] != 10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("ten are left");
    for _ in 0..10 {
        let (who, stream) = greeted().await;
        assert_eq!(who, '2');
        open.push((who, stream));
    }
    rig.stop().await;
}

#[tokio::test]
async fn clients_of_datagrams_are_spread_too() {
    let (tasks, port, mut rig) = (Tasks::default(), free_port().await, rig(ports()));
    rig.serve("echo", &[udp_echo(&tasks).await, udp_echo(&tasks).await], |_| {});
    rig.world.routes.insert(key("echo"), route(port, "UDP", port_of("echo"), RouteOptions::default()));
    rig.follow();
    let mut clients = Vec::new();
    for _ in 0..6 {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        assert!(call(&socket, port, "hello").await.ends_with(" hello"));
        clients.push(socket);
    }
    let table = rig.proxy.table();
    let endpoints = table["services"][0]["clusters"][0]["endpoints"].as_array().unwrap();
    let busy: Vec<_> = endpoints.iter().map(|endpoint| endpoint["inFlight"].as_u64().unwrap()).collect();
    assert_eq!(busy, [3, 3], "{table}");
    rig.stop().await;
    tasks.join().await;
}

#[tokio::test]
async fn datagrams_of_one_client_stay_together() {
    let (tasks, port) = (Tasks::default(), free_port().await);
    let mut rig = rig(l4::Config { sessions: 2, ..ports() });
    rig.serve("echo", &[udp_echo(&tasks).await, udp_echo(&tasks).await], |_| {});
    rig.world.routes.insert(key("echo"), route(port, "UDP", port_of("echo"), RouteOptions::default()));
    rig.follow();
    let (one, two) =
        (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let first = call(&one, port, "hello").await;
    let from = first.split_once(' ').unwrap().0.to_owned();
    for word in ["a", "b", "c"] {
        assert_eq!(call(&one, port, word).await, format!("{from} {word}"), "the same way each time");
    }
    let other = call(&two, port, "hello").await;
    assert!(other.ends_with(" hello") && !other.starts_with(&format!("{from} ")), "{other}");
    // There is room for two.
    let three = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    three.send_to(b"hello", ("127.0.0.1", port)).await.unwrap();
    assert_eq!(call(&one, port, "d").await, format!("{from} d"));
    let full = "landfall_proxy_l4_refused_total{reason=\"full\"} 1";
    assert!(rig.registry.render().contains(full), "{}", rig.registry.render());
    rig.stop().await;
    tasks.join().await;
}

#[tokio::test]
async fn datagrams_go_elsewhere_when_their_endpoint_is_gone() {
    let (tasks, port, mut rig) = (Tasks::default(), free_port().await, rig(ports()));
    let gone = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    // Whoever is known by its address is sent to the same endpoint each time, as long as that is there.
    let affinity = SessionAffinity { mode: AffinityMode::ClientIp, ..SessionAffinity::default() };
    rig.serve("echo", &[gone, udp_echo(&tasks).await], |plan| plan.session_affinity = Some(affinity.clone()));
    rig.world.routes.insert(key("echo"), route(port, "UDP", port_of("echo"), RouteOptions::default()));
    rig.follow();
    for ip in 1..=8 {
        // One of these is sure to be meant for the one that is gone.
        let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, ip], 0))).await.unwrap();
        assert!(call(&socket, port, "hello").await.ends_with(" hello"));
    }
    rig.stop().await;
    tasks.join().await;
}

#[tokio::test]
async fn no_stream_and_no_datagram_leaves_the_fence() {
    let (tasks, tcp, udp, mut rig) = (Tasks::default(), free_port().await, free_port().await, rig(ports()));
    let outside = TcpListener::bind("127.94.7.3:80").await.unwrap();
    let loud = UdpSocket::bind("127.94.7.3:80").await.unwrap();
    for (name, port, protocol) in [("echo", tcp, "TCP"), ("loud", udp, "UDP")] {
        rig.serve(name, &[nobody().await], |_| {});
        let mut fenced = plan(&[(OWN, 0.5, &[]), ("rome", 0.5, &["127.94.7.3"])]);
        fenced.fence = vec![OWN.to_owned()];
        rig.world.plans.insert(key(name), Arc::new(fenced));
        rig.world.routes.insert(key(name), route(port, protocol, port_of(name), RouteOptions::default()));
    }
    rig.follow();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..10 {
        assert_eq!(talk(dial(tcp).await, "word").await, "");
        client.send_to(b"word", ("127.0.0.1", udp)).await.unwrap();
    }
    // Inside there is somebody: what was kept for the other would be there by now.
    rig.serve("echo", &[echo("one ").await], |_| {});
    rig.serve("loud", &[udp_echo(&tasks).await], |_| {});
    rig.follow();
    assert_eq!(talk(dial(tcp).await, "word").await, "one word");
    let next = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    assert!(call(&next, udp, "word").await.ends_with(" word"));
    assert!(loud.try_recv(&mut [0; 16]).is_err(), "a datagram has left");
    let came = tokio::time::timeout(Duration::ZERO, outside.accept()).await;
    assert!(came.is_err(), "a stream has left: {came:?}");
    rig.stop().await;
    tasks.join().await;
}

/// HTTP of Ingresses and a Service of type LoadBalancer on the same port: each has an address of its own.
#[tokio::test]
async fn a_service_may_have_the_port_of_http_on_another_address() {
    let port = free_port().await;
    let (own, other) = (SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from(([127, 0, 0, 2], port)));
    let reserved = vec![l4::Reserved { at: own, udp: false }];
    let both = l4::Config { addresses: vec![own.ip(), other.ip()], reserved, ..ports() };
    assert!(both.carries_tcp(port) && both.carries_tcp(1));
    assert!(!l4::Config { addresses: vec![own.ip()], ..both.clone() }.carries_tcp(port));
    let mut rig = rig(both);
    rig.serve("echo", &[echo("one ").await], |_| {});
    rig.world.routes.insert(key("echo"), route(port, "TCP", port_of("echo"), RouteOptions::default()));
    rig.follow();
    let stream = async {
        loop {
            match TcpStream::connect(other).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let stream = tokio::time::timeout(PATIENCE, stream).await.expect("the port is opened");
    assert_eq!(talk(stream, "word").await, "one word");
    assert!(TcpStream::connect(own).await.is_err(), "that is left to the edge itself");
    assert_eq!(rig.proxy.port_problems(), []);
    rig.stop().await;
}

#[tokio::test]
async fn a_port_that_cannot_be_had_is_told_of() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (taken_port, reserved) = (taken.local_addr().unwrap().port(), free_port().await);
    let mut rig = rig(l4::Config {
        reserved: vec![l4::Reserved { at: ([0, 0, 0, 0], reserved).into(), udp: false }],
        ..ports()
    });
    rig.serve("echo", &[echo("one ").await], |_| {});
    for (name, port) in [("taken", taken_port), ("reserved", reserved)] {
        rig.world.routes.insert(key(name), route(port, "TCP", port_of("echo"), RouteOptions::default()));
    }
    rig.world
        .routes
        .insert(key("z-later"), route(taken_port, "TCP", port_of("other"), RouteOptions::default()));
    rig.follow();
    let told = async {
        loop {
            let problems = rig.proxy.port_problems();
            if problems.len() >= 3 {
                return problems;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let problems = tokio::time::timeout(PATIENCE, told).await.expect("three problems");
    let reason =
        |port: u16, what: &str| problems.iter().any(|one| one.port == port && one.reason.contains(what));
    assert!(reason(taken_port, "cannot listen on 127.0.0.1"), "{problems:?}");
    assert!(reason(taken_port, "shop/other wants it too"), "{problems:?}");
    assert!(reason(reserved, "the edge needs it itself"), "{problems:?}");
    // It is had as soon as it is free.
    drop(taken);
    assert_eq!(talk(dial(taken_port).await, "word").await, "one word");
    rig.stop().await;
}

#[tokio::test]
async fn who_the_client_is_comes_in_and_goes_out() {
    let port = free_port().await;
    let trusted = Prefixes::parse(["127.0.0.0/8"]).unwrap();
    let mut rig = rig(l4::Config { proxy_protocol_from: trusted, ..ports() });
    let options = RouteOptions { send_proxy_protocol: true, ..RouteOptions::default() };
    rig.serve("echo", &[echo("").await], |_| {});
    rig.world.routes.insert(key("echo"), route(port, "TCP", port_of("echo"), options));
    rig.follow();
    let ends = Ends { client: "192.0.2.7:4000".parse().unwrap(), server: "192.0.2.1:443".parse().unwrap() };
    let mut stream = dial(port).await;
    stream.write_all(&header(ends)).await.unwrap();
    stream.write_all(b"word").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, [&header(ends)[..], b"word"].concat(), "the endpoint got the header, then the word");
    // Whoever should say who the client is, and does not, is not carried.
    assert_eq!(talk(dial(port).await, "GET / HTTP/1.1\r\n\r\n").await, "");
    rig.stop().await;
}

/// Who the client is may be told by a header, too. Changes hold at once for who comes after them.
#[tokio::test]
async fn only_clients_of_its_source_ranges_reach_a_port() {
    let (tcp, udp) = (free_port().await, free_port().await);
    let mut rig = rig(ports());
    rig.serve("echo", &[echo("one ").await], |_| {});
    let tasks = Tasks::default();
    rig.serve("loud", &[udp_echo(&tasks).await], |_| {});
    for (ranges, served) in
        [(&[][..], true), (&["10.0.0.0/8"], false), (&["10.0.0.0/8", "127.0.0.0/8"], true)]
    {
        let options = || RouteOptions {
            source_ranges: ranges.iter().map(|range| (*range).to_owned()).collect(),
            ..RouteOptions::default()
        };
        rig.world.routes.insert(key("echo"), route(tcp, "TCP", port_of("echo"), options()));
        // Datagrams bear no header, of which few programs know.
        let told = RouteOptions { send_proxy_protocol: true, ..options() };
        rig.world.routes.insert(key("loud"), route(udp, "UDP", port_of("loud"), told));
        rig.follow();
        let said = talk(dial(tcp).await, "word").await;
        assert_eq!(said, if served { "one word" } else { "" }, "{ranges:?}");
        let client = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
        if served {
            assert!(call(&client, udp, "word").await.ends_with(" word"), "{ranges:?}");
            continue;
        }
        client.send_to(b"word", ("127.0.0.1", udp)).await.unwrap();
        while !rig.registry.render().contains("landfall_proxy_l4_refused_total{reason=\"source\"} 2") {
            tokio::task::yield_now().await;
        }
    }
    rig.stop().await;
    tasks.join().await;
}

#[tokio::test]
async fn headers_before_http_count_only_from_those_who_are_trusted() {
    let backend = Backend::new("web").await;
    let v1 = "PROXY TCP4 192.0.2.7 192.0.2.1 4000 443\r\n";
    let request = format!("{v1}GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    for (prefix, want) in [("127.0.0.0/8", Some("192.0.2.7")), ("10.0.0.0/8", None)] {
        let trusted = Prefixes::parse([prefix]).unwrap();
        let l4 = l4::Config { proxy_protocol_from: trusted, ..ports() };
        let rig = Rig::with_config(&[backend.address], Config { l4, ..Config::default() });
        let answer = ask(rig.address(), &request).await;
        let got = answer.as_ref().and_then(|answer| answer.got("x-forwarded-for"));
        assert_eq!(got, want, "{answer:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn endpoints_of_http_are_told_who_the_client_is() {
    let endpoint = script(|mut stream| async move {
        let mut head = vec![0; 28];
        let _ = stream.read_exact(&mut head).await;
        crate::support::backend::read_head(&mut stream).await;
        let text = format!("{:?}", &head[..16]);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await;
    let mut rig = Rig::with(&[endpoint]);
    let plan = rig.world.routes.get_mut(&key("web")).unwrap();
    Arc::make_mut(plan).options.send_proxy_protocol = true;
    rig.follow();
    let answer = ask(rig.address(), "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let ends = Ends { client: "127.0.0.1:1".parse().unwrap(), server: rig.address() };
    assert_eq!(
        answer.body,
        format!("{:?}", &header(ends)[..16]),
        "signature, version and family of a header"
    );
    rig.stop().await;
}
