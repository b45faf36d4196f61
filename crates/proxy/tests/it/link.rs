//! Two edges of two members: requests and streams for one that come in at the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use landfall_api::landfall::{
    BackendProtocol, Outlier, PlanEdge, PlanFederation, PlanPort, RouteMatch, RouteOptions, RouteService,
    TrafficPlanSpec,
};
use landfall_proxy::{Config, Limits, Proxy, World};
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::ports::{dial, free_port, ports, route, talk};
use crate::support::backend::{Backend, nobody, read_head, script};
use crate::support::certs::Authority;
use crate::support::raw::{Answer, Client, ask, get};
use crate::support::relay::relay;
use crate::support::{key, plan, port_of};

/// One edge.
pub(crate) struct Edge {
    name: &'static str,
    pub(crate) proxy: Proxy,
    registry: Registry,
    pub(crate) world: World,
    tasks: Tasks,
}

impl Edge {
    fn new(name: &'static str, cluster: &str) -> Self {
        Self::with(name, cluster, Limits::default())
    }

    fn with(name: &'static str, cluster: &str, limits: Limits) -> Self {
        Self::configured(name, cluster, Config { limits, ..Config::default() })
    }

    fn configured(name: &'static str, cluster: &str, config: Config) -> Self {
        let (registry, tasks) = (Registry::default(), Tasks::default());
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let config = Config {
            edge: name.into(),
            cluster: cluster.into(),
            http: vec![any],
            peer: vec![any],
            threads: 1,
            drain: Duration::ZERO,
            l4: ports(),
            handover: Duration::ZERO,
            ..config
        };
        let proxy = Proxy::start(config, &registry, &tasks).unwrap();
        Self { name, proxy, registry, world: World::default(), tasks }
    }

    fn http(&self) -> SocketAddr {
        self.proxy.addresses()[0]
    }

    fn peer(&self) -> String {
        self.proxy.addresses().last().unwrap().to_string()
    }

    pub(crate) fn follow(&self) {
        self.proxy.follow(&self.world);
    }
}

/// Two members with an edge each. What comes in at `paris` is for `lyon`.
pub(crate) struct Pair {
    hub: Authority,
    pub(crate) paris: Edge,
    pub(crate) lyon: Edge,
}

impl Pair {
    /// The service `web` is at these endpoints of `lyon`.
    pub(crate) fn new(service: RouteService, endpoints: &[SocketAddr]) -> Self {
        Self::with(service, endpoints, Limits::default())
    }

    pub(crate) fn with(service: RouteService, endpoints: &[SocketAddr], limits: Limits) -> Self {
        let https = vec![([127, 0, 0, 1], 0).into()];
        let paris = Edge::configured("paris-1", "paris", Config { https, ..Config::default() });
        let hub = Authority::new();
        let lyon = Edge::with("lyon-1", "lyon", limits);
        let mut this = Self { hub, paris, lyon };
        let action = landfall_api::landfall::RouteAction { service: Some(service), ..Default::default() };
        let path =
            landfall_api::landfall::RoutePath { path: "/".into(), compare: RouteMatch::Prefix, action };
        let host = landfall_api::landfall::RouteHost { host: String::new(), paths: vec![path] };
        let web = landfall_api::landfall::RoutePlanSpec { hosts: vec![host], ..Default::default() };
        let at = BTreeMap::from([("web".to_owned(), endpoints.to_vec())]);
        this.paris.world.routes.insert(key("web"), Arc::new(web));
        // The other edge has no route that leads there: it knows the service by its plan.
        for edge in [&mut this.paris, &mut this.lyon] {
            let ports = vec![PlanPort { name: "web".into(), port: 80, ..PlanPort::default() }];
            let plan = TrafficPlanSpec { ports, ..plan(&[("lyon", 1.0, &[])]) };
            edge.world.plans.insert(key("web"), Arc::new(plan));
        }
        this.paris.world.endpoints.insert(key("web"), Arc::default());
        this.lyon.world.endpoints.insert(key("web"), Arc::new(at));
        this.meet(&["paris-1", "lyon-1"]);
        for edge in [&this.paris, &this.lyon] {
            edge.proxy.identify(&this.hub.edge(edge.name)).unwrap();
        }
        this
    }

    /// What `lyon` does not take, `paris` has endpoints for.
    fn falls_back_to(mut self, own: SocketAddr) -> Self {
        let both = Arc::new(plan(&[("lyon", 1.0, &[]), ("paris", 0.0, &[])]));
        self.paris.world.plans.insert(key("web"), both);
        let at = BTreeMap::from([("web".to_owned(), vec![own])]);
        self.paris.world.endpoints.insert(key("web"), Arc::new(at));
        self.paris.follow();
        self
    }

    /// `paris` has the service itself, by this plan; the edge of `lyon` is said to be at this address.
    fn has_itself(mut self, own: SocketAddr, other: SocketAddr, plan: TrafficPlanSpec) -> Self {
        self.paris.world.plans.insert(key("web"), Arc::new(plan));
        let at = BTreeMap::from([("web".to_owned(), vec![own])]);
        self.paris.world.endpoints.insert(key("web"), Arc::new(at));
        let edges = [("paris-1", self.paris.peer()), ("lyon-1", other.to_string())];
        self.paris.world.federation = Some(roster(&edges));
        self.paris.follow();
        self
    }

    /// What the first edge knows of the service.
    pub(crate) fn told(mut self, plan: TrafficPlanSpec) -> Self {
        self.paris.world.plans.insert(key("web"), Arc::new(plan));
        self.paris.follow();
        self
    }

    pub(crate) async fn post(&self, body: &str) -> Answer {
        let head = format!("POST / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: {}\r\n\r\n", body.len());
        ask(self.paris.http(), &(head + body)).await.unwrap()
    }

    /// These are the edges of the federation.
    fn meet(&mut self, names: &[&str]) {
        let edges = [&self.paris, &self.lyon].into_iter().filter(|edge| names.contains(&edge.name));
        let roster = roster(&edges.map(|edge| (edge.name, edge.peer())).collect::<Vec<_>>());
        for edge in [&mut self.paris, &mut self.lyon] {
            edge.world.federation = Some(roster.clone());
            edge.follow();
        }
    }

    pub(crate) async fn get(&self) -> Answer {
        get(self.paris.http(), "shop.test", "/cart?x=1").await
    }

    /// Where clients come in.
    pub(crate) fn address(&self) -> SocketAddr {
        self.paris.http()
    }

    /// What the first edge has counted.
    pub(crate) fn counted(&self) -> String {
        self.paris.registry.render()
    }

    pub(crate) async fn stop(self) {
        self.paris.tasks.join().await;
        self.lyon.tasks.join().await;
    }
}

/// `paris` has the service itself; `lyon`, whose edge is said to be at this address, stands by.
pub(crate) fn beside(own: SocketAddr, next: SocketAddr) -> Pair {
    let plan = plan(&[("paris", 1.0, &[]), ("lyon", 0.0, &[])]);
    Pair::new(port_of("web"), &[]).has_itself(own, next, plan)
}

/// `paris` has the service itself, and `lyon`, whose edge is said to be at this address, is to be asked first.
pub(crate) fn before(own: SocketAddr, first: SocketAddr) -> Pair {
    Pair::new(port_of("web"), &[]).has_itself(own, first, lyon_first())
}

/// `paris` and `lyon` have the service, and each is to get half of the requests.
pub(crate) fn half(own: SocketAddr, other: SocketAddr) -> Pair {
    let pair = Pair::new(port_of("web"), &[other]);
    let lyon = pair.lyon.peer().parse().unwrap();
    pair.has_itself(own, lyon, plan(&[("paris", 0.5, &[]), ("lyon", 0.5, &[])]))
}

/// `lyon` is to be asked first, and left out as soon as it fails.
fn lyon_first() -> TrafficPlanSpec {
    let outlier = Some(Outlier { consecutive_errors: Some(1), ..Outlier::default() });
    TrafficPlanSpec { outlier, ..plan(&[("lyon", 1.0, &[]), ("paris", 0.0, &[])]) }
}

/// Edges, by their names and where they listen for others. Their names begin with the member's.
fn roster(edges: &[(&str, String)]) -> Arc<PlanFederation> {
    let edge = |(name, address): &(&str, String)| PlanEdge {
        name: (*name).to_owned(),
        uid: format!("uid-of-{name}"),
        cluster: name.split('-').next().unwrap().to_owned(),
        peer_address: Some(address.clone()),
        alive: true,
        linked: true,
        ..PlanEdge::default()
    };
    Arc::new(PlanFederation { edges: edges.iter().map(edge).collect(), ..PlanFederation::default() })
}

#[tokio::test]
async fn a_request_goes_through_two_edges_and_keeps_its_client() {
    let backend = Backend::new("lyon").await;
    let pair = Pair::new(port_of("web"), &[backend.address]);
    // Nobody else has this address: neither edge can be taken for the client.
    let mut client = Client::from([127, 0, 0, 9], pair.paris.http()).await;
    for _ in 0..20 {
        client
            .send(
                b"GET /cart?x=1 HTTP/1.1\r\nhost: shop.test\r\nlandfall-target: shop/secret/1//http\r\n\r\n",
            )
            .await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("x-backend")), (200, Some("lyon")), "{answer:?}");
        assert!(answer.body.starts_with("GET /cart?x=1 HTTP/1.1\n"), "{answer:?}");
        assert_eq!(answer.got("x-forwarded-for"), Some("127.0.0.9"));
        assert_eq!(answer.got("host"), Some("shop.test"));
        assert_eq!(answer.got("landfall-target"), None, "what is between edges stays there");
    }
    let counted = pair.lyon.registry.render();
    assert!(counted.contains("route=\"peer\",service=\"shop/web\",cluster=\"lyon\""), "{counted}");
    // A body goes through whole.
    let body = "x".repeat(300_000);
    let head = format!("POST / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: {}\r\n\r\n", body.len());
    client.send(head.as_bytes()).await;
    client.send(body.as_bytes()).await;
    let answer = client.answer().await.unwrap();
    assert!(answer.body.ends_with(&body) && answer.status == 200);
    pair.stop().await;
}

/// Speaks HTTP/2 with an edge.
async fn http2(to: SocketAddr) -> hyper::client::conn::http2::SendRequest<http_body_util::Full<Bytes>> {
    let stream = TcpStream::connect(to).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    Tasks::default().spawn(async move {
        let _ = connection.await;
    });
    sender
}

#[tokio::test]
async fn grpc_with_its_trailers_goes_through_two_edges() {
    let (listener, tasks) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Tasks::default());
    let address = listener.local_addr().unwrap();
    let own = tasks.clone();
    tasks.spawn_until_stop(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: Request<Incoming>| async move {
                let te = request.headers().get("te").map_or("", |te| te.to_str().unwrap()).to_owned();
                let asked = request.into_body().collect().await.unwrap().to_bytes();
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                trailers.insert("grpc-message", te.parse().unwrap());
                let frames = [Frame::data(asked), Frame::trailers(trailers)];
                let frames = futures::stream::iter(frames.map(Ok::<_, std::convert::Infallible>));
                let answer = Response::builder().header("content-type", "application/grpc");
                answer.body(StreamBody::new(frames))
            });
            own.spawn_until_stop(async move {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let service = RouteService { protocol: BackendProtocol::H2c, ..port_of("web") };
    let pair = Pair::new(service, &[address]);
    let mut sender = http2(pair.paris.http()).await;
    for word in ["one", "two"] {
        let request = Request::post("http://shop.test/pkg.Service/Method")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(http_body_util::Full::from(word))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let collected = response.into_body().collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap();
        assert_eq!(
            (&trailers["grpc-status"], &trailers["grpc-message"]),
            (&"0".parse().unwrap(), &"trailers".parse().unwrap())
        );
        assert_eq!(collected.to_bytes(), word);
    }
    pair.stop().await;
    tasks.join().await;
}

#[tokio::test]
async fn a_websocket_goes_through_two_edges() {
    let endpoint = script(|mut stream| async move {
        let head = read_head(&mut stream).await.to_ascii_lowercase();
        assert!(head.contains("upgrade: websocket") && head.contains("x-forwarded-for: 127.0.0.9"), "{head}");
        let agreed = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(agreed).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    })
    .await;
    let pair = Pair::new(port_of("web"), &[endpoint]);
    let mut client = Client::from([127, 0, 0, 9], pair.paris.http()).await;
    client
        .send(b"GET /chat HTTP/1.1\r\nhost: shop.test\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.map(|answer| answer.status), Some(101));
    for word in [&b"ping"[..], b"pong"] {
        client.send(word).await;
        let mut room = [0; 4];
        client.0.read_exact(&mut room).await.unwrap();
        assert_eq!(&room, word);
    }
    pair.stop().await;
}

#[tokio::test]
async fn an_edge_that_is_shut_out_is_refused_at_once() {
    let backend = Backend::new("lyon").await;
    let mut pair = Pair::new(port_of("web"), &[backend.address]);
    assert_eq!(pair.get().await.status, 200);
    // The hub has deleted it: the other edge hears of it first.
    let roster = pair.paris.world.federation.clone();
    pair.meet(&["lyon-1"]);
    pair.paris.world.federation = roster;
    pair.paris.follow();
    let (asked, answer) = (backend.requests(), pair.get().await);
    assert!(answer.status >= 400, "{answer:?}");
    assert_eq!(backend.requests(), asked, "nothing of it reached the endpoint");
    pair.stop().await;
}

#[tokio::test]
async fn a_strangers_certificate_opens_nothing() {
    let backend = Backend::new("lyon").await;
    let pair = Pair::new(port_of("web"), &[backend.address]);
    // Both names are right; the authority is another's.
    pair.paris.proxy.identify(&Authority::new().edge("paris-1")).unwrap();
    assert_eq!(pair.get().await.status, 502);
    assert_eq!(backend.requests(), 0);
    pair.paris.proxy.identify(&pair.hub.edge("paris-1")).unwrap();
    assert_eq!(pair.get().await.status, 200);
    pair.stop().await;
}

#[tokio::test]
async fn certificates_are_renewed_without_a_failed_request() {
    let backend = Backend::new("lyon").await;
    let pair = Pair::new(port_of("web"), &[backend.address]);
    for _ in 0..20 {
        assert_eq!(pair.get().await.status, 200);
        for edge in [&pair.paris, &pair.lyon] {
            edge.proxy.identify(&pair.hub.edge(edge.name)).unwrap();
        }
    }
    pair.stop().await;
}

#[tokio::test]
async fn there_is_never_a_second_hop() {
    let (backend, tcp) = (Backend::new("paris").await, free_port().await);
    let mut pair = Pair::new(port_of("web"), &[]);
    // Each edge believes that the other has it.
    pair.lyon.world.plans.insert(key("web"), Arc::new(plan(&[("paris", 1.0, &[]), ("lyon", 0.0, &[])])));
    let at = BTreeMap::from([("web".to_owned(), vec![backend.address])]);
    pair.paris.world.endpoints.insert(key("web"), Arc::new(at));
    pair.paris.world.routes.insert(key("tcp"), route(tcp, "TCP", port_of("web"), RouteOptions::default()));
    pair.lyon.follow();
    pair.paris.follow();
    let answer = pair.get().await;
    assert!(answer.status >= 500, "{answer:?}");
    assert_eq!(talk(dial(tcp).await, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await, "");
    assert_eq!(backend.requests(), 0, "it did not come back");
    let edges = pair.paris.registry.render();
    assert!(!edges.contains("route=\"peer\""), "{edges}");
    pair.stop().await;
}

#[tokio::test]
async fn another_edge_of_the_member_takes_over() {
    let backend = Backend::new("lyon").await;
    let mut pair = Pair::new(port_of("web"), &[backend.address]);
    let mut second = Edge::new("lyon-2", "lyon");
    let edges = [
        ("paris-1", pair.paris.peer()),
        ("lyon-1", pair.lyon.peer()),
        ("lyon-2", second.peer()),
        // Nobody is there, but nobody has said so yet.
        ("lyon-3", nobody().await.to_string()),
    ];
    let roster = roster(&edges);
    second.world = World { federation: Some(roster.clone()), ..pair.lyon.world.clone() };
    second.proxy.identify(&pair.hub.edge("lyon-2")).unwrap();
    second.follow();
    for edge in [&mut pair.paris, &mut pair.lyon] {
        edge.world.federation = Some(roster.clone());
        edge.follow();
    }
    for _ in 0..30 {
        assert_eq!(pair.get().await.status, 200);
    }
    let peers = "route=\"peer\"";
    assert!(
        pair.lyon.registry.render().contains(peers) && second.registry.render().contains(peers),
        "both are used"
    );
    // One of them goes, with requests under way.
    let (over, address) = (Arc::new(AtomicBool::new(false)), pair.paris.http());
    let (asking, done) = (Tasks::default(), over.clone());
    let (asked, mut counted) = tokio::sync::watch::channel(0);
    asking.spawn(async move {
        while !done.load(Ordering::Relaxed) {
            let answer = get(address, "shop.test", "/").await;
            assert_eq!(answer.status, 200, "{answer:?}");
            asked.send_modify(|count| *count += 1);
        }
    });
    counted.wait_for(|count| *count > 20).await.unwrap();
    pair.lyon.tasks.join().await;
    let so_far = *counted.borrow();
    counted.wait_for(|count| *count > so_far + 50).await.expect("requests go on without a failure");
    over.store(true, Ordering::Relaxed);
    asking.join().await;
    pair.paris.tasks.join().await;
    second.tasks.join().await;
}

#[tokio::test]
async fn a_member_without_endpoints_is_passed_over() {
    let own = Backend::new("paris").await;
    let pair = Pair::new(port_of("web"), &[]).falls_back_to(own.address);
    for answer in [pair.get().await, pair.post("").await, pair.post("hello").await] {
        assert_eq!((answer.status, answer.header("x-backend")), (200, Some("paris")), "{answer:?}");
    }
    pair.stop().await;
}

/// What another edge could send to nobody was given up, because a request with a body is not sent twice.
#[tokio::test]
async fn what_reached_no_endpoint_of_another_member_goes_elsewhere() {
    let own = Backend::new("paris").await;
    let pair = Pair::new(port_of("web"), &[nobody().await]).falls_back_to(own.address);
    for body in ["", "hello", &"x".repeat(10_000)] {
        let answer = pair.post(body).await;
        assert_eq!((answer.status, answer.header("x-backend")), (200, Some("paris")), "{answer:?}");
        assert!(answer.body.ends_with(&format!("\n{body}")), "{answer:?}");
    }
    pair.stop().await;
    // Nobody keeps a large one.
    let pair = Pair::new(port_of("web"), &[nobody().await]).falls_back_to(own.address);
    assert_eq!(pair.post(&"x".repeat(1 << 20)).await.status, 502);
    pair.stop().await;
}

#[tokio::test]
async fn a_member_that_has_no_room_is_passed_over() {
    let (own, far) = (Backend::new("paris").await, Backend::new("lyon").await);
    let full = || Limits { requests: 0, ..Limits::default() };
    let pair = Pair::with(port_of("web"), &[far.address], full()).falls_back_to(own.address);
    for answer in [pair.get().await, pair.post("hello").await] {
        assert_eq!((answer.status, answer.header("x-backend")), (200, Some("paris")), "{answer:?}");
    }
    assert!(pair.lyon.registry.render().contains("landfall_proxy_shed_total 2"));
    pair.stop().await;
    let pair = Pair::with(port_of("web"), &[far.address], full());
    let answer = pair.get().await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
    assert_eq!(far.requests(), 0);
    pair.stop().await;
}

/// Waiting for an edge that has fallen silent until its connection was given up took a second.
#[tokio::test]
async fn what_waits_for_a_silent_edge_goes_elsewhere_before_its_connection_ends() {
    let (own, far) = (Backend::new("paris").await, Backend::new("lyon").await);
    let pair = Pair::new(port_of("web"), &[far.address]);
    let (way, stops) = relay(pair.lyon.peer().parse().unwrap()).await;
    let pair = pair.has_itself(own.address, way, lyon_first());
    let total = |name: &str| {
        let counted = pair.counted();
        let lines = counted.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let [ejections, retries] = ["landfall_proxy_ejections_total", "landfall_proxy_retries_total"];
    // On a busy machine the connection may end first; hardly every time.
    let mut early = false;
    for _ in 0..10 {
        // Over each of its connections once, so that none has to be made.
        for _ in 0..2 {
            while pair.get().await.header("x-backend") != Some("lyon") {}
        }
        let ended = total(ejections);
        stops.send_replace(true);
        let from_paris = async || {
            let answer = pair.get().await;
            assert_eq!((answer.status, answer.header("x-backend")), (200, Some("paris")), "{answer:?}");
        };
        from_paris().await;
        early = total(ejections) == ended;
        // Nobody waits to find out that it has ended.
        let tried = total(retries);
        while early && total(ejections) == ended {
            from_paris().await;
        }
        assert!(!early || total(retries) == tried, "somebody waited");
        stops.send_replace(false);
        if early {
            break;
        }
    }
    assert!(early, "every time its connection had ended");
    pair.stop().await;
}
