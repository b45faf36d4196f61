//! What distance costs: traffic between clusters and from the hub takes its time, that of users and within a cluster none.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use landfall_apiserver::housekeeping::client::Place;
use landfall_sim::world::config::WorldConfig;
use landfall_sim::world::{Site, Start, World};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use crate::backbone;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often something is measured; the shortest counts, as a busy machine only adds.
const TRIES: usize = 8;

async fn world(more: &str) -> World {
    let config: WorldConfig =
        format!("clusters: [{{name: us-east, nodes: 1}}, {{name: eu-west, nodes: 1}}]\n{more}")
            .parse()
            .unwrap();
    World::start(&config, &Start::default(), |_| {}).await.unwrap()
}

/// A pod behind a Service, which answers HTTP and UDP; where the pod and the Service are.
async fn pod(site: &Site) -> (SocketAddr, SocketAddr) {
    let api = site.member.client("test");
    let ports = json!([{"containerPort": 8080}, {"containerPort": 8080, "protocol": "UDP", "name": "udp"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "echo", "ports": ports}]}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [
            {"name": "http", "port": 8080}, {"name": "udp", "port": 8080, "protocol": "UDP"}]}});
    let place = |plural: &str, name: &str| Place::new("", plural, "default", name);
    api.create(&place("pods", ""), pod).await.unwrap();
    let service = api.create(&place("services", ""), service).await.unwrap();
    let service = at(&service["spec"]["clusterIP"]);
    let began = Instant::now();
    while get(Ipv4Addr::LOCALHOST, service).await.is_none() {
        assert!(began.elapsed() < PATIENCE, "the service does not answer");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (at(&api.get(&place("pods", "web")).await.unwrap()["status"]["podIP"]), service)
}

fn at(address: &Value) -> SocketAddr {
    SocketAddr::new(address.as_str().unwrap().parse().unwrap(), 8080)
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(to).await
}

/// One request on an open connection.
async fn ask(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"GET /status/204 HTTP/1.1\r\nhost: web\r\n\r\n").await?;
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await?);
    }
    Ok(())
}

async fn get(from: Ipv4Addr, to: SocketAddr) -> Option<()> {
    ask(&mut connect(from, to).await.ok()?).await.ok()
}

/// The shortest of: a first request with its connection, a second on the same, and a datagram's echo.
async fn measure(from: Ipv4Addr, to: SocketAddr) -> [Duration; 3] {
    let mut best = [PATIENCE; 3];
    for _ in 0..TRIES {
        let mut took = Vec::new();
        let mut began = Instant::now();
        let mut stream = connect(from, to).await.unwrap();
        for _ in 0..2 {
            ask(&mut stream).await.unwrap();
            took.push(began.elapsed());
            began = Instant::now();
        }
        let socket = UdpSocket::bind((from, 0)).await.unwrap();
        socket.send_to(b"hello", to).await.unwrap();
        let mut echo = [0; 16];
        let length = tokio::time::timeout(PATIENCE, socket.recv(&mut echo)).await.expect("an echo").unwrap();
        assert_eq!(&echo[..length], b"hello");
        took.push(began.elapsed());
        best = std::array::from_fn(|n| best[n].min(took[n]));
    }
    best
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_takes_its_time() {
    let world = world("").await;
    let [east, west] = world.sites() else { panic!("two clusters") };
    let way = world.round_trip("us-east", "eu-west").unwrap();
    assert!((54..57).contains(&way.as_millis()), "{way:?}");
    let (pod, service) = pod(west).await;
    let there = |site: &Site| site.block().clients().get(0).unwrap();
    for (from, round_trips) in
        [(there(east), [2, 1, 1]), (there(west), [0; 3]), (Ipv4Addr::LOCALHOST, [0; 3])]
    {
        // To the pod itself, and through a Service, which does not make the way longer.
        for to in [pod, service] {
            let took = measure(from, to).await;
            for (took, round_trips) in took.into_iter().zip(round_trips) {
                let fits = took >= way * round_trips && took < way * (round_trips + 1);
                assert!(fits, "{from} to {to}: {took:?}, not {round_trips} times {way:?}");
            }
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hub_is_far_and_users_are_not() {
    for (more, slow) in [("", true), ("distances: false", false)] {
        let world = world(more).await;
        let west = &world.sites()[1];
        let way = world.round_trip("hub", "eu-west").unwrap();
        assert_eq!(
            world.round_trip("us-east", "hub").unwrap(),
            Duration::from_micros(500),
            "beside the first"
        );
        assert_eq!(world.round_trip("us-east", "mars"), None);
        let credentials = west.member.credentials();
        for (url, far) in [(west.backbone_url(), slow), (credentials.server.clone(), false)] {
            let mut stream = backbone::connect(&url, credentials).await.unwrap();
            let mut best = PATIENCE;
            for _ in 0..TRIES {
                let began = Instant::now();
                backbone::ask(&mut stream).await.unwrap();
                best = best.min(began.elapsed());
            }
            assert_eq!(best >= way, far, "{url} {more}: {best:?}");
        }
        world.stop().await;
    }
}
