//! A proxy with many routes to one endpoint, for `cargo xtask bench proxy`: `carry HTTP HTTPS ENDPOINT ROUTES THREADS CERTIFICATE
//! KEY [two]`. It runs as long as its input is open. A line `change N GAP_MS` makes it change a route N times, and tells how long it took until a client
//! saw each change. With `two`, `far.example.com` is at the same endpoint, but of another member, behind a second proxy.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for measurements")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_api::landfall::{
    EDGE_USER_PREFIX, EDGES_GROUP, FixedResponseAction, PlanChoice, PlanCluster, PlanEdge, PlanFederation,
    PlanVantage, RouteAction, RouteCertificate, RouteHost, RouteMatch, RoutePath, RoutePlanSpec,
    RouteService, TrafficPlanSpec, Verdict,
};
use landfall_proxy::peer::Identity;
use landfall_proxy::{Certificate, Config, Proxy, World};
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [http, https, endpoint, routes, threads, certificate, key, two @ ..] = arguments.as_slice() else {
        println!("carry HTTP HTTPS ENDPOINT ROUTES THREADS CERTIFICATE KEY [two]");
        return;
    };
    let endpoint: SocketAddr = endpoint.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let (registry, tasks) = (Registry::default(), Tasks::default());
    let config = Config {
        edge: HERE.to_owned(),
        cluster: HERE.to_owned(),
        http: vec![http.parse().unwrap()],
        https: vec![https.parse().unwrap()],
        threads: threads.parse().unwrap(),
        ..Config::default()
    };
    let proxy = Proxy::start(config, &registry, &tasks).unwrap();
    let mut world = world(endpoint, routes.parse().unwrap());
    let certificate = Certificate {
        chain_pem: std::fs::read(certificate).unwrap(),
        key_pem: std::fs::read(key).unwrap(),
        ..Certificate::default()
    };
    world.certificates.insert("tls".to_owned(), Arc::new(certificate));
    let _far = (!two.is_empty()).then(|| far(&proxy, &mut world, endpoint, &registry, &tasks));
    proxy.follow(&world);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["change", times, gap_ms] = words.as_slice() {
            let gap = Duration::from_millis(gap_ms.parse().unwrap());
            changes(&proxy, &mut world, times.parse().unwrap(), gap);
        }
    }
}

/// The members, and their edges.
const HERE: &str = "here";
const THERE: &str = "there";

fn key(name: &str) -> (String, String) {
    ("bench".to_owned(), name.to_owned())
}

fn world(endpoint: SocketAddr, routes: usize) -> World {
    let mut world = World::default();
    for n in 0..routes {
        let name = format!("svc-{n}");
        serve(&mut world, &name, HERE);
        world.endpoints.insert(key(&name), Arc::new(at(endpoint)));
    }
    world
}

/// A service that is in this member, and its route.
fn serve(world: &mut World, name: &str, cluster: &str) {
    let service = RouteService {
        namespace: "bench".to_owned(),
        name: name.to_owned(),
        port: 80,
        port_name: "web".to_owned(),
        ..RouteService::default()
    };
    let action = RouteAction { service: Some(service), ..RouteAction::default() };
    world.routes.insert(key(name), route(&format!("{name}.example.com"), action));
    world.plans.insert(key(name), Arc::new(plan(cluster)));
}

fn at(endpoint: SocketAddr) -> BTreeMap<String, Vec<SocketAddr>> {
    BTreeMap::from([("web".to_owned(), vec![endpoint])])
}

/// Another member's edge, and a service that is there alone.
fn far(
    near: &Proxy,
    world: &mut World,
    endpoint: SocketAddr,
    registry: &Registry,
    tasks: &Tasks,
) -> (Proxy, World) {
    let config = Config {
        edge: THERE.to_owned(),
        cluster: THERE.to_owned(),
        peer: vec![([127, 0, 0, 1], 0).into()],
        threads: 1,
        ..Config::default()
    };
    let proxy = Proxy::start(config, registry, tasks).unwrap();
    let address = proxy.addresses()[0].to_string();
    let edge = |name: &str, address: Option<&str>| PlanEdge {
        name: name.to_owned(),
        cluster: name.to_owned(),
        peer_address: address.map(str::to_owned),
        alive: true,
        linked: address.is_some(),
        ..PlanEdge::default()
    };
    let edges = vec![edge(HERE, None), edge(THERE, Some(&address))];
    let federation = Arc::new(PlanFederation { edges, ..PlanFederation::default() });
    let mut own = World { federation: Some(federation.clone()), ..World::default() };
    world.federation = Some(federation);
    serve(world, "far", THERE);
    serve(&mut own, "far", THERE);
    world.endpoints.insert(key("far"), Arc::default());
    own.endpoints.insert(key("far"), Arc::new(at(endpoint)));
    proxy.follow(&own);
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    for (proxy, name) in [(near, HERE), (&proxy, THERE)] {
        proxy.identify(&identity(name, &issuer, &pem)).unwrap();
    }
    (proxy, own)
}

/// What an edge is known by.
fn identity(name: &str, issuer: &Issuer<'_, KeyPair>, authority: &str) -> Identity {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, EDGES_GROUP);
    params.distinguished_name.push(DnType::CommonName, format!("{EDGE_USER_PREFIX}{name}"));
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    Identity {
        certificate_pem: params.signed_by(&key, issuer).unwrap().pem().into_bytes(),
        key_pem: key.serialize_pem().into_bytes(),
        authority_pem: authority.as_bytes().to_vec(),
    }
}

fn route(host: &str, action: RouteAction) -> Arc<RoutePlanSpec> {
    let path = RoutePath { path: "/".to_owned(), compare: RouteMatch::Prefix, action };
    let hosts = vec![RouteHost { host: host.to_owned(), paths: vec![path] }];
    let certificate = RouteCertificate { hosts: vec![host.to_owned()], secret: "tls".to_owned() };
    Arc::new(RoutePlanSpec { hosts, certificates: vec![certificate], ..RoutePlanSpec::default() })
}

fn plan(cluster: &str) -> TrafficPlanSpec {
    let up = Verdict { up: true, ..Verdict::default() };
    let here = PlanCluster { name: cluster.to_owned(), verdict: up, ..PlanCluster::default() };
    let choice = PlanChoice { cluster: cluster.to_owned(), fraction: 1.0, reason: String::new() };
    TrafficPlanSpec {
        clusters: vec![here],
        vantages: vec![PlanVantage { choices: vec![choice], ..PlanVantage::default() }],
        ..TrafficPlanSpec::default()
    }
}

/// Changes the answer of one route again and again, and asks until the new one comes.
fn changes(proxy: &Proxy, world: &mut World, times: usize, gap: Duration) {
    let mut client = TcpStream::connect(proxy.addresses()[0]).unwrap();
    client.set_nodelay(true).unwrap();
    let (mut took, mut quiet, mut compiled, mut alone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for n in 0..times {
        // What it takes to ask at all: a change is not seen sooner.
        let began = Instant::now();
        ask(&mut client);
        alone.push(began.elapsed());
        let body = format!("{n:08}");
        let fixed = FixedResponseAction { status_code: 200, body: Some(body.clone()), content_type: None };
        let action = RouteAction { fixed_response: Some(Box::new(fixed)), ..RouteAction::default() };
        world.routes.insert(key("changing"), route("changing.example.com", action));
        let (stolen, began) = (stolen(), Instant::now());
        proxy.follow(world);
        compiled.push(began.elapsed());
        while !ask(&mut client).ends_with(&body) {}
        let live = began.elapsed();
        took.push(live);
        // A machine that gets no processor is late whatever it does.
        if self::stolen() == stolen {
            quiet.push(live);
        }
        std::thread::sleep(gap);
    }
    took.sort_unstable();
    quiet.sort_unstable();
    compiled.sort_unstable();
    alone.sort_unstable();
    let at = |all: &[Duration], percent: usize| {
        all.get((all.len() * percent / 100).min(all.len().saturating_sub(1)))
            .map_or(0.0, Duration::as_secs_f64)
            * 1e3
    };
    println!(
        "changed {times} live_p50_ms {:.3} live_p99_ms {:.3} live_max_ms {:.3} quiet {} quiet_p99_ms {:.3} quiet_max_ms {:.3} compile_p99_ms {:.3} ask_p99_ms {:.3} \
         ask_max_ms {:.3}",
        at(&took, 50),
        at(&took, 99),
        at(&took, 100),
        quiet.len(),
        at(&quiet, 99),
        at(&quiet, 100),
        at(&compiled, 99),
        at(&alone, 99),
        at(&alone, 100)
    );
}

/// What the machine's host has given to others, in hundredths of a second.
fn stolen() -> Option<String> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    Some(stat.lines().next()?.split_whitespace().nth(8)?.to_owned())
}

fn ask(client: &mut TcpStream) -> String {
    client.write_all(b"GET / HTTP/1.1\r\nhost: changing.example.com\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let read = client.read(&mut chunk).unwrap();
        answer.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&answer);
        let length = text
            .to_lowercase()
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        if let (Some(head), Some(length)) = (text.find("\r\n\r\n"), length) {
            let length: usize = length;
            if text.len() >= head + 4 + length {
                return text.into_owned();
            }
        }
    }
}
