//! Servers outside the federation: requests come to them rewritten, and never to what is nobody's business.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use landfall_api::landfall::{BucketBackend, RouteAction, RouteMatch, RouteOptions};
use landfall_proxy::Config;
use landfall_runtime::tasks::Tasks;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::ports::{dial, free_port, ports, route, talk};
use crate::support::backend::Backend;
use crate::support::certs::Authority;
use crate::support::raw::{ask, get};
use crate::support::{Rig, key, port_of};

fn rig(url: &str, host: Option<&str>, config: Config) -> Rig {
    let mut rig = Rig::new(config);
    let bucket = BucketBackend { url: url.to_owned(), host: host.map(str::to_owned) };
    let action = RouteAction { bucket: Some(Box::new(bucket)), ..RouteAction::default() };
    rig.act("files", "", "/", RouteMatch::Prefix, action);
    rig.follow();
    rig
}

fn local() -> Config {
    Config { buckets_may_be_local: true, ..Config::default() }
}

#[tokio::test]
async fn requests_come_to_a_bucket_below_its_path_and_under_its_name() {
    let bucket = Backend::new("bucket").await;
    let port = bucket.address.port();
    for (url, host, line, told) in [
        (format!("http://127.0.0.1:{port}"), None, "GET /a%20b?c=d HTTP/1.1", format!("127.0.0.1:{port}")),
        (
            format!("http://localhost:{port}/deep/er/"),
            None,
            "GET /deep/er/a%20b?c=d HTTP/1.1",
            format!("localhost:{port}"),
        ),
        (
            format!("http://127.0.0.1:{port}/b"),
            Some("b.s3.example"),
            "GET /b/a%20b?c=d HTTP/1.1",
            "b.s3.example".into(),
        ),
    ] {
        let rig = rig(&url, host, local());
        // The very first request is answered: it waits until the name is known.
        let answer = get(rig.address(), "shop.example", "/x/../a%20b?c=d").await;
        assert_eq!((answer.status, answer.body.lines().next()), (200, Some(line)), "{url}: {answer:?}");
        assert_eq!(answer.got("host"), Some(told.as_str()), "{url}");
        assert_eq!(answer.got("x-forwarded-host"), Some("shop.example"), "{url}");
        let put = "PUT /f HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
        let answer = ask(rig.address(), put).await.unwrap();
        assert!(answer.status == 200 && answer.body.ends_with("\nhello"), "{answer:?}");
        assert!(rig.proxy.report().is_empty(), "the hub is told of members alone");
        assert!(rig.registry.render().contains("service=\"bucket/"), "but it is counted");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_bucket_is_never_this_machine_the_hub_or_metadata() {
    let bucket = Backend::new("own").await;
    let port = bucket.address.port();
    let admin = Config { never: vec![bucket.address], ..local() };
    let admin_anywhere = Config { never: vec![([0, 0, 0, 0], port).into()], ..local() };
    let hub = Config { never_named: vec![("localhost".to_owned(), 6443)], ..local() };
    for (url, config) in [
        (format!("http://127.0.0.1:{port}"), Config::default()),
        (format!("http://localhost:{port}"), Config::default()),
        (format!("http://[::ffff:127.0.0.1]:{port}"), Config::default()),
        (format!("http://0x7f.1:{port}"), Config::default()),
        (format!("http://127.0.0.1:{port}"), admin),
        (format!("http://127.4.4.4:{port}"), admin_anywhere.clone()),
        (format!("http://localhost:{port}"), admin_anywhere),
        (format!("http://LOCALHOST:{port}"), hub),
        ("http://169.254.169.254/latest".to_owned(), local()),
        ("http://0xa9fea9fe/latest".to_owned(), local()),
        ("http://does-not-exist.invalid/".to_owned(), local()),
        ("ftp://localhost/".to_owned(), local()),
    ] {
        let rig = rig(&url, None, config);
        let answer = get(rig.address(), "a", "/").await;
        assert_eq!(answer.status, 503, "{url}: {answer:?}");
        let told = rig.proxy.bucket_problems();
        assert!(!told.is_empty() || url.contains("latest") || url.starts_with("ftp"), "{url}");
        rig.stop().await;
    }
    assert_eq!(bucket.requests(), 0);
}

/// Somebody's EndpointSlice has the hub's address, and the edge knows the hub by its name.
#[tokio::test]
async fn an_endpoint_is_never_where_the_hubs_name_leads() {
    let (hub, port) = (Backend::new("hub").await, free_port().await);
    let named = vec![("localhost".to_owned(), hub.address.port())];
    let config = Config { never_named: named, l4: ports(), ..Config::default() };
    let mut rig = Rig::with_config(&[hub.address], config);
    rig.world.routes.insert(key("tcp"), route(port, "TCP", port_of("web"), RouteOptions::default()));
    rig.follow();
    for _ in 0..10 {
        let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(ask(rig.address(), request).await.unwrap().status, 502);
        assert_eq!(get(rig.address(), "a", "/").await.status, 502);
        assert_eq!(talk(dial(port).await, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await, "");
    }
    assert_eq!(hub.connections.load(Ordering::Relaxed), 0);
    rig.stop().await;
}

/// A server over TLS with a certificate for a name.
async fn secure(authority: &Authority, name: &str, tasks: &Tasks) -> SocketAddr {
    let (chain, key) = authority.sign("bucket", &[name]);
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tasks.spawn_until_stop(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let service = hyper::service::service_fn(|_: http::Request<hyper::body::Incoming>| async {
                let body = http_body_util::Full::<bytes::Bytes>::from("over TLS");
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
        }
    });
    at
}

#[tokio::test]
async fn a_bucket_over_https_must_show_who_it_is() {
    let (known, stranger, tasks) = (Authority::new(), Authority::new(), Tasks::default());
    for (authority, name, want) in
        [(&known, "localhost", 200), (&known, "other.example", 502), (&stranger, "localhost", 502)]
    {
        let at = secure(authority, name, &tasks).await;
        let config = Config { bucket_authorities_pem: known.pem.clone().into_bytes(), ..local() };
        let rig = rig(&format!("https://localhost:{}", at.port()), None, config);
        let answer = get(rig.address(), "a", "/").await;
        assert_eq!(answer.status, want, "{name}: {answer:?}");
        rig.stop().await;
    }
    tasks.join().await;
}
