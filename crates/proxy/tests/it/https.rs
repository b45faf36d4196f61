//! HTTPS as other people's programs see it: names, certificates that change under load, clients that must show one, TLS that is
//! passed on unopened.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use landfall_api::landfall::{
    BackendProtocol, RouteAction, RouteCertificate, RouteHost, RouteMatch, RouteOptions, RoutePassthrough,
    RoutePath, RoutePlanSpec, RouteService,
};
use landfall_proxy::Config;
use landfall_runtime::tasks::Tasks;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::backend::{Backend, read_head, script};
use crate::support::certs::{Authority, run, write};
use crate::support::raw::{ask, get};
use crate::support::{Rig, key, port_of};

/// A proxy with HTTPS, and where it is.
pub(crate) fn rig(endpoints: &[SocketAddr]) -> (Rig, SocketAddr) {
    let https = vec![([127, 0, 0, 1], 0).into()];
    let mut rig = Rig::new(Config { threads: 2, https, ..Config::default() });
    rig.serve("web", endpoints, |_| {});
    let address = rig.proxy.addresses()[1];
    (rig, address)
}

/// Everything of some hosts goes to `web`, under a certificate.
pub(crate) fn route(hosts: &[&str], secret: &str, options: RouteOptions) -> Arc<RoutePlanSpec> {
    let action = RouteAction { service: Some(port_of("web")), ..RouteAction::default() };
    let path = RoutePath { path: "/".into(), compare: RouteMatch::Prefix, action };
    Arc::new(RoutePlanSpec {
        hosts: hosts.iter().map(|&host| RouteHost { host: host.into(), paths: vec![path.clone()] }).collect(),
        certificates: vec![RouteCertificate {
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            secret: secret.into(),
        }],
        options,
        ..RoutePlanSpec::default()
    })
}

/// Asks with curl; what it says, and whether it was content.
async fn curl(host: &str, at: SocketAddr, more: &[&str]) -> (bool, String) {
    let (resolve, url) =
        (format!("{host}:{}:127.0.0.1", at.port()), format!("https://{host}:{}/x", at.port()));
    let mut arguments = vec!["-sS", "--max-time", "20", "--resolve", &resolve, &url];
    arguments.extend(more);
    run("curl", &arguments).await
}

#[tokio::test]
async fn curl_and_openssl_are_shown_the_certificate_of_the_name() {
    let (ca, dir, backend) = (Authority::new(), tempfile::tempdir().unwrap(), Backend::new("web").await);
    let (mut rig, at) = rig(&[backend.address]);
    for (name, hosts) in [("one", &["one.test"][..]), ("wild", &["*.wild.test"])] {
        rig.world.certificates.insert(name.into(), ca.secret(hosts));
        rig.world.routes.insert(key(name), route(hosts, name, RouteOptions::default()));
    }
    rig.follow();
    let trust = ca.write(dir.path(), "ca.pem");
    for host in ["one.test", "a.wild.test"] {
        let (fine, said) = curl(host, at, &["--cacert", &trust, "--http1.1"]).await;
        assert!(
            fine && said.starts_with("GET /x HTTP/1.1") && said.contains("x-forwarded-proto: https"),
            "{said}"
        );
        let (fine, said) = curl(host, at, &["--cacert", &trust, "-w", "\nversion %{http_version}"]).await;
        assert!(fine && said.ends_with("version 2"), "{said}");
    }
    // A name that nobody has a certificate for is shown one that nobody vouches for.
    let (fine, said) = curl("other.test", at, &["--cacert", &trust]).await;
    assert!(!fine && said.contains("certificate"), "{said}");
    let (_, said) = curl("other.test", at, &["--insecure", "-o", "/dev/null", "-w", "%{http_code}"]).await;
    assert_eq!(said, "404");

    let connect = at.to_string();
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let (_, said) = run(
            "openssl",
            &["s_client", "-connect", &connect, "-servername", "one.test", "-CAfile", &trust, version],
        )
        .await;
        assert!(said.contains("Verify return code: 0 (ok)") && said.contains(name), "{said}");
    }
    // Whoever was here before need not do it all again.
    let again = [
        "s_client",
        "-connect",
        &connect,
        "-servername",
        "one.test",
        "-CAfile",
        &trust,
        "-tls1_2",
        "-reconnect",
    ];
    let (_, said) = run("openssl", &again).await;
    assert_eq!(said.matches("Reused, TLSv1.2").count(), 5, "{said}");
    rig.stop().await;
}

/// What a client has not taken yet is sent as soon as it takes it, though its endpoint says no more. Just how much fits between the two nobody
/// knows: of so many lengths one is a little longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_burst_does_not_wait_for_what_comes_after_it() {
    const STEP: usize = 48 << 10;
    let endpoint = script(|mut stream| async move {
        let head = read_head(&mut stream).await;
        let length: usize = head.split(['/', ' ']).nth(2).and_then(|length| length.parse().ok()).unwrap();
        let begin = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n");
        let _ = stream.write_all(begin.as_bytes()).await;
        let _ = stream.write_all(&vec![b'.'; length]).await;
        let _ = stream.read(&mut [0]).await;
    })
    .await;
    let (ca, (mut rig, at)) = (Authority::new(), rig(&[endpoint]));
    rig.world.certificates.insert("one".into(), ca.secret(&["one.test"]));
    rig.world.routes.insert(key("one"), route(&["one.test"], "one", RouteOptions::default()));
    rig.follow();
    let connector = ca.connector();
    let take = async |length: usize| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let name = ServerName::try_from("one.test").unwrap();
        let mut stream = connector.connect(name, socket.connect(at).await.unwrap()).await.unwrap();
        let request = format!("GET /{length} HTTP/1.1\r\nhost: one.test\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        // It takes nothing until all is on its way.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (mut got, mut room) = (0, vec![0; 64 << 10]);
        while got < length {
            let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut room)).await;
            let read = read.unwrap_or_else(|_| panic!("of {length} bytes no more than {got} have come"));
            got += room[..read.unwrap()].iter().filter(|byte| **byte == b'.').count();
        }
    };
    let lengths: Vec<usize> = (2 << 20..6 << 20).step_by(STEP).collect();
    for some in lengths.chunks(12) {
        futures::future::join_all(some.iter().map(|length| take(*length))).await;
    }
    rig.stop().await;
}

#[tokio::test]
async fn only_clients_with_a_certificate_come_in_where_one_is_asked_for() {
    let (ca, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let (dir, backend) = (tempfile::tempdir().unwrap(), Backend::new("web").await);
    let (mut rig, at) = rig(&[backend.address]);
    let closed = RouteOptions { client_authority: Some("clients".into()), ..RouteOptions::default() };
    rig.world.certificates.insert("s".into(), ca.secret(&["closed.test", "open.test"]));
    rig.world.certificates.insert("clients".into(), clients.as_secret());
    rig.world.routes.insert(key("closed"), route(&["closed.test"], "s", closed));
    rig.world.routes.insert(key("open"), route(&["open.test"], "s", RouteOptions::default()));
    rig.follow();
    let trust = ca.write(dir.path(), "ca.pem");
    let shown = |name: &str, authority: &Authority| {
        let (certificate, key) = authority.sign(name, &[]);
        (
            write(dir.path(), &format!("{name}.crt"), &certificate),
            write(dir.path(), &format!("{name}.key"), &key),
        )
    };
    let ((alice, alices), (eve, eves)) = (shown("alice", &clients), shown("eve", &strangers));
    let (fine, said) =
        curl("closed.test", at, &["--cacert", &trust, "--cert", &alice, "--key", &alices]).await;
    assert!(
        fine && said.contains("x-forwarded-client-cert-subject: ") && said.contains("CN=alice"),
        "{said}"
    );
    let (fine, said) = curl("closed.test", at, &["--cacert", &trust, "--cert", &eve, "--key", &eves]).await;
    assert!(!fine && !said.contains("GET /x"), "{said}");
    let (fine, said) = curl("closed.test", at, &["--cacert", &trust]).await;
    assert!(!fine && !said.contains("GET /x"), "{said}");
    let (fine, said) = curl("open.test", at, &["--cacert", &trust]).await;
    assert!(fine && said.contains("GET /x"), "{said}");
    // Nor does one without HTTPS, whatever is asked, and whichever way it would take.
    for method in ["GET", "POST"] {
        let request = format!("{method} /x HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0\r\n\r\n");
        let asked = async |host| ask(rig.address(), &request.replace("HOST", host)).await.unwrap();
        let closed = asked("closed.test").await;
        assert_eq!((closed.status, closed.header("x-backend")), (403, None), "{closed:?}");
        assert_eq!(asked("open.test").await.status, 200);
    }
    let plain = get(rig.address(), "closed.test", "/x").await;
    assert_eq!((plain.status, plain.header("x-backend")), (403, None), "{plain:?}");
    // The way in by the open host does not lead to the closed one.
    let other = ["--cacert", &trust, "-H", "Host: closed.test", "-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(curl("open.test", at, &other).await.1, "421");
    rig.stop().await;
}

/// A route is for those who show a certificate, whatever name leads there: that of a stranger, of somebody who has a certificate for a
/// name below the wildcard, or of an open host whose own paths do not match.
#[tokio::test]
async fn no_other_name_leads_to_what_wants_a_certificate() {
    let (ca, clients) = (Authority::new(), Authority::new());
    let (dir, backend) = (tempfile::tempdir().unwrap(), Backend::new("web").await);
    let (mut rig, at) = rig(&[backend.address]);
    let closed = || RouteOptions { client_authority: Some("clients".into()), ..RouteOptions::default() };
    rig.world.certificates.insert("s".into(), ca.secret(&["*.corp.test", "open.test", "stranger.test"]));
    rig.world.certificates.insert("own".into(), ca.secret(&["x.corp.test"]));
    rig.world.certificates.insert("clients".into(), clients.as_secret());
    rig.world.routes.insert(key("closed"), route(&["*.corp.test"], "s", closed()));
    let mut open = RoutePlanSpec::clone(&route(&["open.test"], "s", RouteOptions::default()));
    open.hosts[0].paths[0].path = "/open".to_owned();
    rig.world.routes.insert(key("open"), Arc::new(open));
    let squats = RoutePlanSpec {
        certificates: vec![
            RouteCertificate { hosts: Vec::new(), secret: "own".into() },
            RouteCertificate { hosts: vec!["stranger.test".into()], secret: "s".into() },
        ],
        ..RoutePlanSpec::default()
    };
    rig.world.routes.insert(key("squats"), Arc::new(squats));
    let action = RouteAction { service: Some(port_of("web")), ..RouteAction::default() };
    let mut rest = RoutePlanSpec::clone(&route(&["rest.corp.test"], "s", closed()));
    rest.default_action = Some(Box::new(action.clone()));
    rig.world.routes.insert(key("rest"), Arc::new(rest));
    rig.follow();
    let trust = ca.write(dir.path(), "ca.pem");
    let (certificate, secret) = clients.sign("alice", &[]);
    let alice = write(dir.path(), "alice.crt", &certificate);
    let secret = write(dir.path(), "alice.key", &secret);
    let status = async |host: &str, path: &str, shows: bool| {
        let options = ["--cacert", &trust, "-o", "/dev/null", "-w", "%{http_code}", "--request-target", path];
        let shown = if shows { &["--cert", &alice, "--key", &secret][..] } else { &[] };
        let (fine, said) = curl(host, at, &[&options[..], shown].concat()).await;
        if fine { said } else { "refused".to_owned() }
    };
    // What it is for.
    assert_eq!(status("a.corp.test", "/x", true).await, "200");
    assert_eq!(status("a.corp.test", "/x", false).await, "refused");
    // Somebody has a certificate for a name below it.
    assert_eq!(status("x.corp.test", "/x", true).await, "200");
    assert_eq!(status("x.corp.test", "/x", false).await, "refused");
    // The default backend is that of a host which wants certificates.
    assert_eq!(status("rest.corp.test", "/x", true).await, "200");
    assert_eq!(status("open.test", "/open", false).await, "200");
    assert_eq!(status("open.test", "/x", false).await, "403");
    assert_eq!(status("stranger.test", "/x", true).await, "200");
    assert_eq!(status("stranger.test", "/x", false).await, "refused");
    for host in ["a.corp.test", "x.corp.test", "open.test", "stranger.test", "rest.corp.test", "anything"] {
        for method in ["GET", "POST"] {
            let request = format!("{method} /x HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n\r\n");
            let answer = ask(rig.address(), &request).await.unwrap();
            assert_eq!(
                (answer.status, answer.header("x-backend")),
                (403, None),
                "{host} {method}: {answer:?}"
            );
        }
    }
    // So it is where there is nothing but the default backend.
    let rest = RoutePlanSpec {
        default_action: Some(Box::new(action)),
        options: closed(),
        ..RoutePlanSpec::default()
    };
    rig.world.routes.insert(key("rest"), Arc::new(rest));
    rig.follow();
    assert_eq!(status("stranger.test", "/x", true).await, "200");
    assert_eq!(status("stranger.test", "/x", false).await, "refused");
    assert_eq!(status("open.test", "/open", false).await, "200");
    assert_eq!(status("open.test", "/x", false).await, "403");
    rig.stop().await;
}

type Tls = tokio_rustls::client::TlsStream<TcpStream>;

async fn dial(connector: &TlsConnector, at: SocketAddr) -> std::io::Result<Tls> {
    let name = ServerName::try_from("one.test").unwrap();
    connector.connect(name, TcpStream::connect(at).await?).await
}

/// Asks once on an open connection; whether it was answered with 200.
async fn is_served(stream: &mut Tls) -> std::io::Result<bool> {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: one.test\r\n\r\n").await?;
    let (mut bytes, end) = (Vec::new(), b"\r\n\r\n");
    while !bytes.windows(4).any(|window| window == end) {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(false);
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut left = length.parse::<usize>().unwrap() - body.len();
    while left > 0 {
        let mut room = vec![0; left];
        left -= stream.read(&mut room).await?;
    }
    Ok(head.starts_with("HTTP/1.1 200"))
}

#[tokio::test]
async fn certificates_change_under_load_and_nobody_notices() {
    let (ca, backend) = (Authority::new(), Backend::new("web").await);
    let (mut rig, at) = rig(&[backend.address]);
    let options = RouteOptions::default;
    rig.world.certificates.insert("s".into(), ca.secret(&["one.test"]));
    rig.world.routes.insert(key("one"), route(&["one.test"], "s", options()));
    rig.follow();
    let (over, asked, failed) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks = Tasks::default();
    let (mut kept, mut shown) = (dial(&ca.connector(), at).await.unwrap(), Vec::new());
    for fresh in [true, true, false, false] {
        let (connector, over, asked, failed) = (ca.connector(), over.clone(), asked.clone(), failed.clone());
        tasks.spawn(async move {
            let mut open = dial(&connector, at).await.unwrap();
            while !over.load(Ordering::Relaxed) {
                if fresh {
                    match dial(&connector, at).await {
                        Ok(stream) => open = stream,
                        Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    }
                }
                let fine = is_served(&mut open).await.unwrap_or(false);
                failed.fetch_add(usize::from(!fine), Ordering::Relaxed);
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    // Each change is a new certificate with a new key; every tenth Secret is spoiled.
    for change in 0..60 {
        let before = asked.load(Ordering::Relaxed);
        let mut secret = ca.secret(&["one.test"]);
        if change % 10 == 9 {
            Arc::make_mut(&mut secret).key_pem = b"spoiled".to_vec();
        }
        rig.world.certificates.insert("s".into(), secret);
        rig.follow();
        assert_eq!(rig.proxy.certificate_problems().len(), usize::from(change % 10 == 9));
        while asked.load(Ordering::Relaxed) < before + 3 {
            tokio::task::yield_now().await;
        }
        if change % 20 == 0 {
            let stream = dial(&ca.connector(), at).await.unwrap();
            shown.push(stream.get_ref().1.peer_certificates().unwrap()[0].to_vec());
        }
    }
    over.store(true, Ordering::Relaxed);
    tasks.join().await;
    assert_eq!(failed.load(Ordering::Relaxed), 0, "of {}", asked.load(Ordering::Relaxed));
    shown.dedup();
    assert_eq!(shown.len(), 3, "new certificates are shown");
    assert!(is_served(&mut kept).await.unwrap(), "a connection of the beginning is still served");
    rig.stop().await;
}

#[tokio::test]
async fn what_is_passed_through_is_between_client_and_endpoint() {
    let (edge, own, dir) = (Authority::new(), Authority::new(), tempfile::tempdir().unwrap());
    let acceptor = own.acceptor("raw.test");
    let (listener, tasks) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Tasks::default());
    let (mut rig, at) = rig(&[listener.local_addr().unwrap()]);
    tasks.spawn_until_stop(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut room = [0; 1024];
            let _ = stream.read(&mut room).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nunopened\n").await;
            let _ = stream.shutdown().await;
        }
    });
    let passed = RoutePlanSpec {
        passthrough: vec![RoutePassthrough { host: "raw.test".into(), service: port_of("web") }],
        ..RoutePlanSpec::default()
    };
    rig.world.routes.insert(key("raw"), Arc::new(passed));
    rig.world.certificates.insert("s".into(), edge.secret(&["one.test"]));
    rig.world.routes.insert(key("one"), route(&["one.test"], "s", RouteOptions::default()));
    rig.follow();
    let trust = own.write(dir.path(), "own.pem");
    assert_eq!(curl("raw.test", at, &["--cacert", &trust]).await, (true, "unopened\n".into()));
    assert!(!curl("one.test", at, &["--cacert", &trust]).await.0, "that one is ended at the edge");
    tasks.join().await;
    rig.stop().await;
}

#[tokio::test]
async fn endpoints_that_speak_https_are_spoken_to_so() {
    let own = Authority::new();
    let config = own.server("whatever.test");
    for (protocols, want) in [(&[][..], "http/1.1"), (&[b"h2".to_vec()][..], "h2")] {
        let (listener, tasks) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Tasks::default());
        let (mut rig, _) = rig(&[listener.local_addr().unwrap()]);
        let mut config = config.clone();
        config.alpn_protocols = protocols.to_vec();
        tasks.spawn_until_stop(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            let (stream, _) = listener.accept().await.unwrap();
            let stream = acceptor.accept(stream).await.unwrap();
            let service =
                hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let version = if request.version() == http::Version::HTTP_2 { "h2" } else { "http/1.1" };
                    Ok::<_, std::convert::Infallible>(http::Response::new(
                        http_body_util::Full::<bytes::Bytes>::from(version),
                    ))
                });
            let executor = hyper_util::rt::TokioExecutor::new();
            let builder = hyper_util::server::conn::auto::Builder::new(executor);
            let _ = builder.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await;
        });
        let service = RouteService { protocol: BackendProtocol::Https, ..port_of("web") };
        rig.act(
            "web",
            "",
            "/",
            RouteMatch::Prefix,
            RouteAction { service: Some(service), ..RouteAction::default() },
        );
        rig.follow();
        let answer = crate::support::raw::get(rig.address(), "a", "/").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, want));
        rig.stop().await;
        tasks.join().await;
    }
}

#[tokio::test]
async fn hosts_may_ask_for_https_for_hsts_and_for_a_newer_tls() {
    let (ca, dir, backend) = (Authority::new(), tempfile::tempdir().unwrap(), Backend::new("web").await);
    let (mut rig, at) = rig(&[backend.address]);
    let strict = RouteOptions {
        redirect_to_https: true,
        hsts_seconds: Some(31_536_000),
        min_tls_version: Some("1.3".into()),
        ..RouteOptions::default()
    };
    rig.world.certificates.insert("s".into(), ca.secret(&["strict.test", "plain.test"]));
    rig.world.routes.insert(key("strict"), route(&["strict.test"], "s", strict));
    rig.world.routes.insert(key("plain"), route(&["plain.test"], "s", RouteOptions::default()));
    rig.follow();
    let trust = ca.write(dir.path(), "ca.pem");
    // Plain HTTP is sent to HTTPS with its method and its path, and is not told of HSTS, which it could not believe.
    let asked = "POST /a?b HTTP/1.1\r\nhost: strict.test:8080\r\ncontent-length: 0\r\n\r\n";
    let answer = crate::support::raw::ask(rig.address(), asked).await.unwrap();
    assert_eq!((answer.status, answer.header("location")), (308, Some("https://strict.test/a?b")));
    assert_eq!(answer.header("strict-transport-security"), None);
    let answer = crate::support::raw::get(rig.address(), "plain.test", "/").await;
    assert_eq!((answer.status, answer.header("strict-transport-security")), (200, None));
    assert_eq!(backend.requests(), 1, "only the plain one came through");
    for version in ["--http1.1", "--http2"] {
        let (fine, said) = curl("strict.test", at, &["--cacert", &trust, "-D", "-", version]).await;
        assert!(
            fine && said.to_ascii_lowercase().contains("strict-transport-security: max-age=31536000"),
            "{said}"
        );
        let (fine, said) = curl("plain.test", at, &["--cacert", &trust, "-D", "-", version]).await;
        assert!(fine && !said.to_ascii_lowercase().contains("strict-transport-security"), "{said}");
    }
    let old = ["--cacert", &trust, "--tls-max", "1.2"];
    assert!(!curl("strict.test", at, &old).await.0, "too old for it");
    assert!(curl("plain.test", at, &old).await.0);
    rig.stop().await;
}

/// What decides is whether the client could come in by HTTPS: also where no rule names its host.
#[tokio::test]
async fn the_default_backend_sends_to_https_whoever_has_a_certificate() {
    let (ca, backend) = (Authority::new(), Backend::new("web").await);
    let (mut rig, _) = rig(&[backend.address]);
    rig.world.certificates.insert("s".into(), ca.secret(&["own.test", "*.wild.test"]));
    let to = RouteAction { service: Some(port_of("web")), ..RouteAction::default() };
    let plan = |hosts: &[&str], redirect: bool| RoutePlanSpec {
        default_action: Some(Box::new(to.clone())),
        certificates: vec![RouteCertificate {
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            secret: "s".into(),
        }],
        options: RouteOptions { redirect_to_https: redirect, ..RouteOptions::default() },
        ..RoutePlanSpec::default()
    };
    for (hosts, redirect, want) in [
        (&["own.test", "*.wild.test"][..], true, [308, 308, 200, 200]),
        (&[], true, [308, 308, 308, 308]),
        (&[], false, [200, 200, 200, 200]),
    ] {
        rig.world.routes.clear();
        rig.world.routes.insert(key("default"), Arc::new(plan(hosts, redirect)));
        rig.follow();
        for (host, want) in ["own.test", "a.wild.test", "a.b.wild.test", "other.test"].iter().zip(want) {
            for method in ["GET", "DELETE"] {
                let request = format!("{method} /x HTTP/1.1\r\nhost: {host}\r\n\r\n");
                let answer = crate::support::raw::ask(rig.address(), &request).await.unwrap();
                assert_eq!(answer.status, want, "{hosts:?} {host} {method}");
                let location = (want == 308).then(|| format!("https://{host}/x"));
                assert_eq!(answer.header("location"), location.as_deref());
            }
        }
    }
    rig.stop().await;
}
