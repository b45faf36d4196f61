//! Probes against servers that are well, and against such as are not.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use landfall_api::landfall::HealthCheck;
use landfall_health::probe::{answer_time, connect_time, probe, probe_through};
use landfall_health::{Bridge, Check, Config, Door, Point, Prober, Protocol, Shut, Source, Stream, Target};
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use landfall_sim::echo::{Echo, Identity, Journal, Load, run_http};
use landfall_sim::gate::Gate;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// A server that says the same to everybody, once they have said something.
async fn server(tasks: &Tasks, says: &'static [u8], tls: Option<Arc<ServerConfig>>) -> Point {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let children = tasks.clone();
    tasks.spawn_until_stop(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            children.spawn_until_stop(async move {
                match tls {
                    Some(tls) => {
                        if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                            talk(stream, says).await;
                        }
                    }
                    None => talk(stream, says).await,
                }
            });
        }
    });
    Point { host: "127.0.0.1".into(), port }
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, says: &[u8]) {
    let mut heard = [0; 4096];
    while let Ok(1..) = stream.read(&mut heard).await {
        if stream.write_all(says).await.is_err() {
            return;
        }
    }
}

fn tls(until: (i32, u8, u8)) -> Arc<ServerConfig> {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["anybody.example.com".into()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
    let certificate = params.self_signed(&key).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
    Arc::new(config.unwrap())
}

fn check(protocol: Protocol) -> HealthCheck {
    HealthCheck { protocol, timeout_ms: Some(500), ..HealthCheck::default() }
}

/// What a probe says: nothing when it is well.
async fn said(point: &Point, check: &HealthCheck) -> String {
    let outcome = probe(point, &Check::new(check), &Source::default()).await;
    assert_eq!(outcome.up, outcome.reason.is_empty());
    outcome.reason
}

#[track_caller]
fn expect(said: &str, expected: &str) {
    assert!(
        if expected.is_empty() { said.is_empty() } else { said.contains(expected) },
        "{said:?}, not {expected:?}"
    );
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello there";
const AILING: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

/// A load balancer's address that somebody wrote may be the hub's.
#[tokio::test]
async fn what_nobody_may_be_led_to_is_not_probed() {
    let tasks = Tasks::default();
    let point = server(&tasks, b"", None).await;
    let never = point.port;
    let guard: Arc<landfall_health::Admits> = Arc::new(move |at| at.port() != never);
    let source = Source { guard: Some(guard), ..Source::default() };
    let outcome = probe(&point, &Check::default(), &source).await;
    assert!(!outcome.up && outcome.reason.contains("nobody may be led there"), "{outcome:?}");
    assert!(connect_time(&point, &source, Duration::from_secs(5)).await.is_none());
    assert!(probe(&point, &Check::default(), &Source::default()).await.up);
    tasks.join().await;
}

#[tokio::test]
async fn tcp_and_http() {
    let tasks = Tasks::default();
    let good = server(&tasks, OK, None).await;
    let ailing = server(&tasks, AILING, None).await;
    let odd = server(&tasks, b"what do you want?\r\n\r\n", None).await;
    let mute = server(&tasks, b"", None).await;
    let nobody = Point { host: "127.0.0.1".into(), port: 1 };
    let nowhere = Point { host: "no.such.host.invalid".into(), port: 80 };
    let (tcp, http) = (check(Protocol::Tcp), check(Protocol::Http));
    for point in [&good, &ailing, &odd, &mute] {
        expect(&said(point, &tcp).await, "");
    }
    expect(&said(&nobody, &tcp).await, "127.0.0.1:1: connection refused");
    expect(&said(&nowhere, &tcp).await, "the name cannot be resolved");
    expect(&said(&good, &http).await, "");
    expect(&said(&ailing, &http).await, "status 503");
    let lenient = HealthCheck { expected_statuses: vec!["500-599".into()], ..http.clone() };
    expect(&said(&ailing, &lenient).await, "");
    expect(&said(&good, &lenient).await, "status 200");
    expect(&said(&odd, &http).await, "the answer is no HTTP");
    expect(&said(&mute, &http).await, "no answer in 500 ms");
    let body = |text: &str| HealthCheck { expected_body: Some(text.into()), ..http.clone() };
    expect(&said(&good, &body("lo th")).await, "");
    expect(&said(&good, &body("goodbye")).await, "the body does not contain");
    let strange = HealthCheck { host: Some("a\nb".into()), path: Some("/ \u{7}".into()), ..http };
    expect(&said(&good, &strange).await, "is no path");
    tasks.join().await;
}

#[tokio::test]
async fn a_body_without_end_is_looked_at_for_a_while() {
    static LONG: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
        let mut text = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n".to_vec();
        text.resize(1 << 20, b'x');
        text
    });
    let tasks = Tasks::default();
    let endless = server(&tasks, &LONG, None).await;
    let check = HealthCheck { expected_body: Some("y".into()), ..check(Protocol::Http) };
    expect(&said(&endless, &check).await, "the body does not contain");
    tasks.join().await;
}

#[tokio::test]
async fn https_and_tls() {
    let tasks = Tasks::default();
    let good = server(&tasks, OK, Some(tls((2999, 1, 1)))).await;
    let ended = server(&tasks, OK, Some(tls((2021, 1, 1)))).await;
    let plain = server(&tasks, OK, None).await;
    let (https, tls) = (check(Protocol::Https), check(Protocol::Tls));
    expect(&said(&good, &https).await, "");
    expect(&said(&good, &tls).await, "");
    expect(&said(&ended, &https).await, "");
    expect(&said(&ended, &tls).await, "the certificate ended at");
    expect(&said(&plain, &https).await, "the TLS handshake failed");
    expect(&said(&plain, &tls).await, "the TLS handshake failed");
    let named = HealthCheck { host: Some("anybody.example.com:8443".into()), ..https };
    expect(&said(&good, &named).await, "");
    // Edges let each other in over TLS: that they say so is answer enough to know how far they are.
    assert!(answer_time(&good, &Source::default(), Duration::from_secs(5)).await.is_some());
    tasks.join().await;
}

/// Nobody reads along.
struct Silence;

impl Journal for Silence {
    fn line(&self, _line: &str) {}
}

#[tokio::test]
async fn grpc_health() {
    let tasks = Tasks::default();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let good = Point { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
    let (load, gate, life) = (Arc::new(Load::default()), Gate::default(), tasks.clone());
    let echo = Echo { identity: Identity::default(), load, journal: Arc::new(Silence), gate, life };
    tasks.spawn_until_stop(run_http(Arc::new(echo), listener, None, tasks.clone()));
    let plain = server(&tasks, OK, None).await;
    let mute = server(&tasks, b"", None).await;
    let check = HealthCheck { grpc_service: Some("shop.v1.Cart".into()), ..check(Protocol::Grpc) };
    expect(&said(&good, &check).await, "");
    expect(&said(&plain, &check).await, "the connection broke");
    expect(&said(&mute, &check).await, "no answer in 500 ms");
    // An edge is asked twice, and only the second time counts; whoever is none is not measured.
    assert_eq!(answer_time(&mute, &Source::default(), Duration::from_millis(200)).await, None);
    assert!(connect_time(&mute, &Source::default(), Duration::from_secs(2)).await.is_some());
    tasks.join().await;
}

/// Leads to a server, nowhere, or nobody knows, by the edge's name.
struct Edges(Point);

impl Bridge for Edges {
    fn open<'a>(&'a self, door: &'a Door) -> BoxFuture<'a, Result<Stream, Shut>> {
        async move {
            match door.edge.as_str() {
                "there" => {
                    let at = (self.0.host.as_str(), self.0.port);
                    Ok(Stream::new(tokio::net::TcpStream::connect(at).await.unwrap()))
                }
                "gone" => Err(Shut::Down("edge gone: it does not answer".into())),
                "slow" => std::future::pending().await,
                _ => Err(Shut::Unknown),
            }
        }
        .boxed()
    }
}

#[tokio::test]
async fn what_has_no_address_is_probed_through_others() {
    let tasks = Tasks::default();
    let says = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let bridge = Edges(server(&tasks, says, None).await);
    let source = Source { bridge: Some(Arc::new(bridge)), ..Source::default() };
    let door = |edge: &str| Door {
        edge: edge.into(),
        address: "192.0.2.1:5".into(),
        namespace: "shop".into(),
        service: "web".into(),
        port: 80,
        port_name: String::new(),
    };
    for (edge, body, expected) in [
        ("there", "ok", Some("")),
        ("there", "no", Some("through edge there: the body does not contain what is expected")),
        ("gone", "", Some("edge gone: it does not answer")),
        ("slow", "", Some("edge slow: no answer in 500 ms")),
        ("unknown", "", None),
    ] {
        let check = Check::new(&HealthCheck { expected_body: Some(body.into()), ..check(Protocol::Http) });
        let seen = probe_through(&door(edge), &check, &source).await;
        assert_eq!(seen.map(|seen| seen.reason).as_deref(), expected, "{edge}");
    }
    assert_eq!(probe_through(&door("there"), &Check::default(), &Source::default()).await, None);

    let prober = Prober::new(Config { source, seed: 1 }, &Registry::default(), &tasks);
    let mut changes = prober.changes();
    let fast =
        Check::new(&HealthCheck { interval_ms: Some(100), timeout_ms: Some(50), ..HealthCheck::default() });
    let target = |edges: &[&str]| {
        let doors = edges.iter().map(|edge| door(edge)).collect();
        Target { name: "a".into(), points: Vec::new(), doors, check: fast.clone(), down: None }
    };
    // One door is enough; what nothing can be said of any more has no opinion.
    for (edges, wanted) in [
        (&["gone"][..], Some(false)),
        (&["unknown"], None),
        (&["there", "slow"], Some(true)),
        (&["gone", "unknown"], Some(false)),
    ] {
        prober.set(vec![target(edges)]);
        let wait = async {
            while prober.opinions().get("a").and_then(|opinion| opinion.up) != wanted {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap_or_else(|_| panic!("{edges:?}"));
    }
    tasks.join().await;
}

/// Leads to nobody, and counts who waits there; what is well answers.
struct Silent {
    waiting: watch::Sender<usize>,
    well: watch::Sender<usize>,
}

impl Bridge for Silent {
    fn open<'a>(&'a self, door: &'a Door) -> BoxFuture<'a, Result<Stream, Shut>> {
        async move {
            if door.edge == "well" {
                self.well.send_modify(|count| *count += 1);
                return Ok(Stream::new(tokio::io::empty()));
            }
            self.waiting.send_modify(|count| *count += 1);
            std::future::pending().await
        }
        .boxed()
    }
}

/// A cluster with a thousand services was lost: 256 probes at once, each silent for 800 ms, took eight seconds to see it, and the
/// others' services waited behind them.
#[tokio::test]
async fn a_lost_cluster_with_many_services_keeps_no_probe_waiting() {
    const MANY: usize = 1_500;
    landfall_runtime::files::raise_open_max();
    let tasks = Tasks::default();
    let (waiting, well) = (watch::Sender::new(0), watch::Sender::new(0));
    let (mut waits, mut answers) = (waiting.subscribe(), well.subscribe());
    let source = Source { bridge: Some(Arc::new(Silent { waiting, well })), ..Source::default() };
    let prober = Prober::new(Config { source, seed: 1 }, &Registry::default(), &tasks);
    let target = |name: String, edge: &str, timeout_ms: i32| Target {
        name,
        points: Vec::new(),
        doors: vec![Door {
            edge: edge.into(),
            address: "192.0.2.1:5".into(),
            namespace: "shop".into(),
            service: "web".into(),
            port: 80,
            port_name: String::new(),
        }],
        check: Check::new(&HealthCheck {
            interval_ms: Some(100),
            timeout_ms: Some(timeout_ms),
            ..HealthCheck::default()
        }),
        down: None,
    };
    // Nobody's time is over while the test runs: whoever waits for a place waits for ever.
    let silent = (0..MANY).map(|at| target(format!("silent-{at}"), "silent", 60_000));
    prober.set(silent.chain([target("well".into(), "well", 60_000)]).collect());
    let all = async {
        waits.wait_for(|count| *count == MANY).await.unwrap();
        // Also now that all of them wait.
        let before = *answers.borrow_and_update();
        answers.wait_for(|count| *count >= before + 3).await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(40), all).await.expect("no probe waits for those of others");
    tasks.join().await;
}

#[tokio::test]
async fn a_prober_changes_its_mind_and_forgets() {
    let tasks = Tasks::default();
    let prober = Prober::new(Config::default(), &Registry::default(), &tasks);
    let mut changes = prober.changes();
    let fast = HealthCheck { interval_ms: Some(100), ..HealthCheck::default() };
    let target = |name: &str, points: &[&Point]| Target {
        name: name.into(),
        points: points.iter().map(|point| (*point).clone()).collect(),
        doors: Vec::new(),
        check: Check::new(&fast),
        down: None,
    };
    let up = |name: &str| prober.opinions().get(name).and_then(|opinion| opinion.up);
    let until = async |changes: &mut tokio::sync::watch::Receiver<u64>, name: &str, wanted: Option<bool>| {
        let wait = async {
            while up(name) != wanted {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait)
            .await
            .unwrap_or_else(|_| panic!("{name} {wanted:?}"));
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let point = Point { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
    let nobody = Point { host: "127.0.0.1".into(), port: 1 };
    prober.set(vec![
        target("a", &[&point]),
        target("b", &[&nobody]),
        target("c", &[&nobody, &point]),
        target("nowhere", &[]),
        Target { down: Some("no endpoint is ready".into()), ..target("empty", &[]) },
    ]);
    until(&mut changes, "a", Some(true)).await;
    until(&mut changes, "b", Some(false)).await;
    until(&mut changes, "c", Some(true)).await;
    assert_eq!(prober.opinions()["b"].reason, "127.0.0.1:1: connection refused");
    assert_eq!(up("nowhere"), None);
    until(&mut changes, "empty", Some(false)).await;
    drop(listener);
    until(&mut changes, "a", Some(false)).await;
    // It is reached elsewhere now; what was thought of it lasts until probes say otherwise.
    let again = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let elsewhere = Point { host: "127.0.0.1".into(), port: again.local_addr().unwrap().port() };
    prober.set(vec![target("a", &[&elsewhere])]);
    assert_eq!((up("a"), up("b")), (Some(false), None));
    until(&mut changes, "a", Some(true)).await;
    prober.set(Vec::new());
    assert!(prober.opinions().is_empty());
    tasks.join().await;
}
