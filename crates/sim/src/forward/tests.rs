//! The forwarder on a real API server: what clients of Services see.
#![expect(clippy::disallowed_methods, reason = "clients of a test run beside it and are waited for")]

use std::net::SocketAddr;
use std::sync::Arc;

use landfall_apiserver::write::update::Part;
use landfall_runtime::tasks::Tasks;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::choose::Chooser;
use super::plan::Target;
use super::tcp::{self, Shared};
use crate::address::Block;
use crate::gate::{Gate, Origin};
use crate::listen;
use crate::testing::{World, ask, connect_from, get, get_on};

async fn pods(world: &World, names: &[&str], port: &Value) -> Vec<String> {
    let mut addresses = Vec::new();
    for name in names {
        world.pod(name, json!({"containers": [{"name": "web", "image": "nginx", "ports": [port]}]})).await;
        addresses.push(world.ready(name).await["status"]["podIP"].as_str().unwrap().to_owned());
    }
    addresses
}

/// Creates a Service with a slice of these endpoints; where it is.
async fn service(world: &World, name: &str, port: &Value, spec: Value, endpoints: &[String]) -> SocketAddr {
    let address = world.claim.block().services().get(10).unwrap();
    let mut whole = json!({
        "clusterIP": address, "clusterIPs": [address], "type": "ClusterIP",
        "ports": [{"name": "p", "port": 8000, "protocol": port["protocol"].as_str().unwrap_or("TCP"), "targetPort": 8080}],
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let metadata = json!({"name": name, "namespace": "default"});
    world
        .create(
            "",
            "services",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": whole}),
        )
        .await;
    world.create("discovery.k8s.io", "endpointslices", slice(name, port, endpoints)).await;
    SocketAddr::from((address, 8000))
}

fn slice(name: &str, port: &Value, endpoints: &[String]) -> Value {
    let endpoint = |address: &String| json!({"addresses": [address], "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"name": "p", "port": 8080, "protocol": port["protocol"].as_str().unwrap_or("TCP")}],
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

/// Waits until somebody is there to stay: a program that another test is just starting may hold a door that was
/// closed, and lets go of what came in.
async fn opens(to: SocketAddr) {
    let closed = std::time::Duration::from_millis(20);
    loop {
        if let Ok(mut stream) = TcpStream::connect(to).await
            && tokio::time::timeout(closed, stream.read_u8()).await.is_err()
        {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn closes(to: SocketAddr) {
    while TcpStream::connect(to).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_go_round() {
    let world = World::start().await;
    let port = json!({"containerPort": 8080});
    let addresses = pods(&world, &["a", "b"], &port).await;
    let to = service(&world, "web", &port, json!({}), &addresses).await;
    opens(to).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(ask(to, "/").await["pod"].as_str().unwrap().to_owned());
    }
    seen.sort();
    assert_eq!(seen, ["a", "a", "b", "b"]);
    // Without endpoints nobody listens; other connections do not notice.
    let mut open = TcpStream::connect(to).await.unwrap();
    open.write_all(b"GET /status/204 HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = Vec::new();
    while !first.ends_with(b"\r\n\r\n") {
        first.push(open.read_u8().await.unwrap());
    }
    world
        .change("discovery.k8s.io", "endpointslices", "web", Part::Main, |slice| {
            slice["endpoints"] = json!([])
        })
        .await;
    closes(to).await;
    open.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    open.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    world
        .change("discovery.k8s.io", "endpointslices", "web", Part::Main, |old| {
            old["endpoints"] = slice("web", &port, &addresses)["endpoints"].clone();
        })
        .await;
    opens(to).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_in_and_affinity() {
    let world = World::start().await;
    let port = json!({"containerPort": 8080});
    let addresses = pods(&world, &["a", "b"], &port).await;
    let spec = json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": [
        {"name": "p", "port": 8000, "protocol": "TCP", "targetPort": 8080, "nodePort": 30123}]});
    let cluster = service(&world, "web", &port, spec, &addresses).await;
    let balancer = world.claim.block().load_balancers().get(1).unwrap();
    world
        .change("", "services", "web", Part::Status, |service| {
            service["status"] = json!({"loadBalancer": {"ingress": [{"ip": balancer, "ipMode": "VIP"}]}});
        })
        .await;
    let node = world.claim.block().nodes().get(0).unwrap();
    for to in [cluster, SocketAddr::from((balancer, 8000)), SocketAddr::from((node, 30123))] {
        opens(to).await;
        let first = ask(to, "/").await["pod"].clone();
        assert_eq!(ask(to, "/").await["pod"], first, "{to}: a client stays");
    }
    // The pod sees who really asked.
    let client = world.claim.block().clients().get(5).unwrap();
    let stream = connect_from(client.into(), cluster).await.unwrap();
    let (_, body) = get_on(stream, "/").await.unwrap();
    assert!(body.contains(&format!("\"remote\": \"{client}:")), "{body}");
    // A load balancer's address is lost, nothing else.
    world.gate.change(|faults| assert!(faults.addresses_lost.insert(balancer)));
    closes(SocketAddr::from((balancer, 8000))).await;
    opens(cluster).await;
    world.gate.heal();
    opens(SocketAddr::from((balancer, 8000))).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_direction_can_be_closed_first() {
    let world = World::start().await;
    let port = json!({"containerPort": 8080, "name": "tcp"});
    let addresses = pods(&world, &["a"], &port).await;
    let to = service(&world, "raw", &port, json!({}), &addresses).await;
    opens(to).await;
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(&vec![7; 1 << 20]).await.unwrap_or_else(|e| panic!("{e}"));
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, vec![7; 1 << 20]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_come_back() {
    let world = World::start().await;
    let port = json!({"containerPort": 8080, "protocol": "UDP"});
    let addresses = pods(&world, &["a"], &port).await;
    let to = service(&world, "udp", &port, json!({}), &addresses).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(to).await.unwrap();
    let mut buffer = [0; 16];
    // The door may not be open yet; then the answer is an error.
    let length = loop {
        if socket.send(b"hello").await.is_ok()
            && let Ok(length) = socket.recv(&mut buffer).await
        {
            break length;
        }
    };
    assert_eq!(&buffer[..length], b"hello");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_stops_bytes_and_healing_lets_them_go_on() {
    let world = World::start().await;
    let port = json!({"containerPort": 8080});
    let addresses = pods(&world, &["a"], &port).await;
    let to = service(&world, "web", &port, json!({}), &addresses).await;
    opens(to).await;
    let far = Block::all().last().unwrap();
    let client = far.clients().get(0).unwrap().into();
    let mut before = connect_from(client, to).await.unwrap();
    world.gate.change(|faults| assert!(faults.cut.insert(Origin::Member(far))));
    before.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let after = connect_from(client, to).await.unwrap();
    let after = tokio::spawn(get_on(after, "/"));
    let mut answer = String::new();
    let silence =
        tokio::time::timeout(std::time::Duration::from_millis(200), before.read_to_string(&mut answer)).await;
    assert!(silence.is_err() && !after.is_finished(), "nothing comes through");
    assert_eq!(ask(to, "/").await["pod"], "a", "others are not concerned");
    world.gate.heal();
    before.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(after.await.unwrap().unwrap().0, 200);
    world.stop().await;
}

/// Every open door held one of the member's connections before anybody came.
#[tokio::test(flavor = "multi_thread")]
async fn idle_doors_take_no_room_and_a_full_house_refuses() {
    let tasks = Tasks::default();
    let shared = Shared { gate: Gate::default(), room: Arc::new(Semaphore::new(1)), tasks: tasks.clone() };
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoints = vec![upstream.local_addr().unwrap()];
    let target = Target { service: "a/b".into(), endpoints, affinity: None, balancer: false };
    let life = Tasks::default();
    let doors = [(); 3].map(|()| {
        let listener = listen::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let (chooser, closed) = (Arc::new(Chooser::new(target.clone())), tasks.stopping());
        tasks.spawn_until_stop(tcp::run(shared.clone(), listener, chooser, closed, life.clone()));
        at
    });
    let mut first = TcpStream::connect(doors[2]).await.unwrap();
    let accept = tokio::time::timeout(std::time::Duration::from_secs(20), upstream.accept());
    let (mut far, _) = accept.await.expect("it comes through").unwrap();
    far.write_all(b"hello").await.unwrap();
    let mut hello = [0; 5];
    first.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    // The reset may come before the connection is made, as seen from here.
    let refused = match TcpStream::connect(doors[0]).await {
        Ok(mut second) => second.read_u8().await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "there is room for one");
    // Whoever is cut off hears nothing until there is a way, and is refused then as others are.
    shared.gate.change(|faults| faults.cut = [Origin::Outside].into());
    let mut third = TcpStream::connect(doors[1]).await.unwrap();
    let early = tokio::time::timeout(std::time::Duration::from_millis(100), third.read_u8()).await;
    assert!(early.is_err(), "{early:?}");
    shared.gate.heal();
    let heard = tokio::time::timeout(std::time::Duration::from_secs(20), third.read_u8()).await;
    assert!(heard.expect("it is refused").is_err());
    drop((first, far));
    tasks.join().await;
}

/// Where low ports are for root, 80 is at 8080, which was the Service's other door.
#[tokio::test(flavor = "multi_thread")]
async fn a_low_port_stands_beside_its_substitute() {
    let world = World::start().await;
    let port = json!({"containerPort": 8080});
    let a = pods(&world, &["a"], &port).await;
    let ports = json!([{"name": "p", "port": 80, "protocol": "TCP", "targetPort": 8080}]);
    let to = service(&world, "web", &port, json!({"ports": ports}), &a).await;
    let door = |port: u16| SocketAddr::new(to.ip(), port);
    opens(listen::real(door(80))).await;
    let both = json!([{"name": "p", "port": 80, "protocol": "TCP", "targetPort": 8080},
        {"name": "q", "port": 8080, "protocol": "TCP", "targetPort": 9}]);
    let b = pods(&world, &["b"], &port).await;
    let mut other = slice("web", &port, &b);
    other["metadata"]["name"] = json!("web-q");
    other["ports"][0]["name"] = json!("q");
    world.create("discovery.k8s.io", "endpointslices", other).await;
    world.change("", "services", "web", Part::Main, |service| service["spec"]["ports"] = both.clone()).await;
    // The second door takes its port from the first, which goes elsewhere.
    let patience = std::time::Duration::from_secs(20);
    let asked = async |port: u16, want: &str| loop {
        if let Ok((200, body)) = get(listen::real(door(port)), "/").await
            && body.contains(&format!("\"pod\": \"{want}\""))
        {
            return;
        }
        tokio::task::yield_now().await;
    };
    tokio::time::timeout(patience, asked(8080, "b")).await.expect("8080 leads to b");
    tokio::time::timeout(patience, asked(80, "a")).await.expect("80 leads to a");
    world.stop().await;
}
