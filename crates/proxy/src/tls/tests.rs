//! Handshakes: who is shown what, who is let in, and what stays when a Secret goes bad.

use std::io;

use landfall_api::landfall::{RouteCertificate, RouteHost, RouteOptions, RoutePassthrough, RoutePlanSpec};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio_rustls::TlsConnector;

use super::*;
use crate::world::Certificate;

/// An authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let made = params.self_signed(&key).unwrap();
        Self { pem: made.pem(), der: made.der().clone(), issuer: Issuer::new(params, key) }
    }

    /// A certificate and its key.
    fn sign(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "alice");
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// The same as a Secret.
    fn secret(&self, names: &[&str]) -> Arc<Certificate> {
        let (made, key) = self.sign(names);
        Arc::new(Certificate {
            chain_pem: made.pem().into_bytes(),
            key_pem: key.serialize_pem().into_bytes(),
            authority_pem: Vec::new(),
        })
    }

    fn as_secret(&self) -> Arc<Certificate> {
        Arc::new(Certificate { authority_pem: self.pem.clone().into_bytes(), ..Certificate::default() })
    }
}

fn route(hosts: &[&str], secret: &str) -> RoutePlanSpec {
    let texts = |hosts: &[&str]| hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>();
    RoutePlanSpec {
        hosts: hosts.iter().map(|&host| RouteHost { host: host.into(), paths: Vec::new() }).collect(),
        certificates: vec![RouteCertificate { hosts: texts(hosts), secret: secret.into() }],
        ..RoutePlanSpec::default()
    }
}

fn world(routes: &[(&str, RoutePlanSpec)], secrets: &[(&str, &Arc<Certificate>)]) -> World {
    let key = |name: &str| ("default".to_owned(), name.to_owned());
    World {
        routes: routes.iter().map(|(name, route)| (key(name), Arc::new(route.clone()))).collect(),
        certificates: secrets.iter().map(|&(name, secret)| (name.to_owned(), secret.clone())).collect(),
        ..World::default()
    }
}

/// A client.
#[derive(Default)]
struct Client<'a> {
    trusts: Option<&'a Authority>,
    shows: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    old: bool,
}

/// What a handshake came to, as both sides see it: the certificate that was shown, and what is known of the client.
async fn shake(tls: &Tls, name: &str, client: Client<'_>) -> io::Result<(Vec<u8>, TlsInfo)> {
    let mut roots = RootCertStore::empty();
    if let Some(authority) = client.trusts {
        roots.add(authority.der.clone()).unwrap();
    }
    let versions: &[&rustls::SupportedProtocolVersion] =
        if client.old { &[&rustls::version::TLS12] } else { rustls::ALL_VERSIONS };
    let config = ClientConfig::builder_with_provider(tls.provider.clone()).with_protocol_versions(versions);
    let config = config.unwrap().with_root_certificates(roots);
    let mut config = match client.shows {
        Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (near, far) = duplex(16 << 10);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let asking = async {
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, near).await?;
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        // Only an answer tells a client of TLS 1.3 that it was let in.
        stream.read_u8().await?;
        Ok::<_, io::Error>(shown)
    };
    let answering = async {
        match tls.accept(far).await {
            Ok(Incoming::Ended(mut stream, info)) => {
                stream.write_all(b"x").await.unwrap();
                stream.shutdown().await.unwrap();
                info
            }
            Ok(Incoming::Passthrough { .. }) => panic!("it goes on as it is"),
            Err(error) => panic!("{error:?}"),
        }
    };
    tokio::select! {
        (shown, info) = async { tokio::join!(asking, answering) } => Ok((shown?, info)),
    }
}

/// Whether a client is let in.
async fn is_let_in(tls: &Arc<Tls>, name: &'static str, client: Client<'_>) -> bool {
    let (near, far) = duplex(16 << 10);
    let mut roots = RootCertStore::empty();
    roots.add(client.trusts.unwrap().der.clone()).unwrap();
    let versions: &[&rustls::SupportedProtocolVersion] =
        if client.old { &[&rustls::version::TLS12] } else { rustls::ALL_VERSIONS };
    let config = ClientConfig::builder_with_provider(tls.provider.clone()).with_protocol_versions(versions);
    let config = config.unwrap().with_root_certificates(roots);
    let config = match client.shows {
        Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
        None => config.with_no_client_auth(),
    };
    let asking = async {
        let name = ServerName::try_from(name).unwrap();
        let Ok(mut stream) = TlsConnector::from(Arc::new(config)).connect(name, near).await else {
            return false;
        };
        stream.read_u8().await.is_ok()
    };
    let answering = async {
        if let Ok(Incoming::Ended(mut stream, _)) = tls.accept(far).await {
            stream.write_all(b"x").await.unwrap();
        }
    };
    tokio::join!(asking, answering).0
}

fn der(secret: &Certificate) -> Vec<u8> {
    use rustls_pki_types::pem::PemObject as _;
    CertificateDer::from_pem_slice(&secret.chain_pem).unwrap().to_vec()
}

fn tls() -> Arc<Tls> {
    Arc::new(Tls::new(Config::default()).unwrap())
}

#[tokio::test]
async fn a_name_is_shown_its_own_certificate() {
    let (ca, tls) = (Authority::new(), tls());
    let (www, wild) = (ca.secret(&["www.example.com"]), ca.secret(&["*.example.com"]));
    let own_names = RoutePlanSpec {
        certificates: vec![RouteCertificate { hosts: Vec::new(), secret: "wild".into() }],
        ..RoutePlanSpec::default()
    };
    tls.follow(&world(
        &[("www", route(&["www.example.com"], "www")), ("wild", own_names)],
        &[("www", &www), ("wild", &wild)],
    ));
    for (name, want) in [("www.example.com", &www), ("api.example.com", &wild)] {
        let (shown, info) =
            shake(&tls, name, Client { trusts: Some(&ca), ..Client::default() }).await.unwrap();
        assert!(shown == der(want), "{name}");
        assert_eq!((info.server_name.as_deref(), info.version, info.http2), (Some(name), "1.3", true));
        assert!(info.client.is_none());
    }
    let old =
        shake(&tls, "www.example.com", Client { trusts: Some(&ca), old: true, shows: None }).await.unwrap();
    assert_eq!(old.1.version, "1.2");
    assert!(!is_let_in(&tls, "other.test", Client { trusts: Some(&ca), ..Client::default() }).await);
    assert_eq!(tls.problems(), []);
}

#[tokio::test]
async fn a_secret_that_goes_bad_leaves_the_last_good_one() {
    let (ca, tls) = (Authority::new(), tls());
    let (first, second) = (ca.secret(&["a.test"]), ca.secret(&["a.test"]));
    let mismatched = Arc::new(Certificate { key_pem: first.key_pem.clone(), ..(*second).clone() });
    let told =
        |secret: &Arc<Certificate>| tls.follow(&world(&[("a", route(&["a.test"], "s"))], &[("s", secret)]));
    let shown =
        async || shake(&tls, "a.test", Client { trusts: Some(&ca), ..Client::default() }).await.unwrap().0;
    told(&first);
    assert!(shown().await == der(&first));
    told(&mismatched);
    assert!(shown().await == der(&first));
    let reason = "tls.key is not the key of the certificate in tls.crt".to_owned();
    assert_eq!(tls.problems(), [Problem { secret: "s".into(), reason, kept: true }]);
    told(&second);
    assert!(shown().await == der(&second));
    assert_eq!(tls.problems(), []);
    tls.follow(&world(&[("a", route(&["a.test"], "s"))], &[]));
    assert!(shown().await == der(&second));
    assert_eq!(tls.problems().len(), 1);
    tls.follow(&World::default());
    assert_eq!(tls.problems(), []);
}

#[tokio::test]
async fn clients_must_show_what_the_host_asks_for() {
    let (ca, clients, strangers, tls) = (Authority::new(), Authority::new(), Authority::new(), tls());
    let secret = ca.secret(&["closed.test", "open.test"]);
    let closed = RoutePlanSpec {
        options: RouteOptions { client_authority: Some("clients".into()), ..RouteOptions::default() },
        ..route(&["closed.test"], "s")
    };
    let routes = [("closed", closed), ("open", route(&["open.test"], "s"))];
    let shows = |authority: &Authority| {
        let (made, key) = authority.sign(&[]);
        Some((vec![made.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap()))
    };
    let trusts = Some(&ca);
    // Nobody vouches for clients yet: nobody is let in.
    tls.follow(&world(&routes, &[("s", &secret)]));
    assert!(!is_let_in(&tls, "closed.test", Client { trusts, shows: shows(&clients), old: false }).await);
    assert_eq!(tls.problems().len(), 1);
    tls.follow(&world(&routes, &[("s", &secret), ("clients", &clients.as_secret())]));
    for old in [false, true] {
        assert!(is_let_in(&tls, "open.test", Client { trusts, shows: None, old }).await);
        assert!(is_let_in(&tls, "closed.test", Client { trusts, shows: shows(&clients), old }).await);
        assert!(!is_let_in(&tls, "closed.test", Client { trusts, shows: shows(&strangers), old }).await);
        assert!(!is_let_in(&tls, "closed.test", Client { trusts, shows: None, old }).await);
    }
    // A connection to the open host is no way into the closed one.
    let (_, open) = shake(&tls, "open.test", Client { trusts, ..Client::default() }).await.unwrap();
    assert!(tls.admits(&open, "open.test") && tls.admits(&open, "elsewhere.test"));
    assert!(!tls.admits(&open, "closed.test") && !tls.admits(&open, "CLOSED.test."));
    let client = Client { trusts, shows: shows(&clients), old: false };
    let (_, known) = shake(&tls, "closed.test", client).await.unwrap();
    assert!(tls.admits(&known, "closed.test") && tls.admits(&known, "open.test"));
    assert!(known.client.as_deref().is_some_and(|subject| subject.contains("CN=alice")), "{known:?}");
}

#[tokio::test]
async fn old_versions_are_refused_where_the_host_says_so() {
    let (ca, tls) = (Authority::new(), tls());
    let secret = ca.secret(&["new.test", "old.test"]);
    let new = RoutePlanSpec {
        options: RouteOptions { min_tls_version: Some("1.3".into()), ..RouteOptions::default() },
        ..route(&["new.test"], "s")
    };
    tls.follow(&world(&[("new", new), ("old", route(&["old.test"], "s"))], &[("s", &secret)]));
    for (name, old, want) in [
        ("new.test", true, false),
        ("new.test", false, true),
        ("old.test", true, true),
        ("old.test", false, true),
    ] {
        let client = Client { trusts: Some(&ca), shows: None, old };
        assert_eq!(is_let_in(&tls, name, client).await, want, "{name} {old}");
    }
}

#[tokio::test]
async fn what_is_passed_through_is_whole() {
    let tls = tls();
    let passed = RoutePlanSpec {
        passthrough: vec![
            RoutePassthrough { host: "raw.test".into(), ..RoutePassthrough::default() },
            RoutePassthrough { host: "*.raw.test".into(), ..RoutePassthrough::default() },
        ],
        ..RoutePlanSpec::default()
    };
    tls.follow(&world(&[("raw", passed), ("own", route(&["own.raw.test"], "none"))], &[]));
    let config =
        ClientConfig::builder_with_provider(tls.provider.clone()).with_safe_default_protocol_versions();
    let config =
        Arc::new(config.unwrap().with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    for (name, want) in [("raw.test", true), ("a.raw.test", true), ("own.raw.test", false), ("b.test", false)]
    {
        let mut hello = Vec::new();
        let mut client = rustls::ClientConnection::new(config.clone(), name.try_into().unwrap()).unwrap();
        client.write_tls(&mut hello).unwrap();
        let (mut near, far) = duplex(16 << 10);
        near.write_all(&hello).await.unwrap();
        near.write_all(b"and more").await.unwrap();
        near.shutdown().await.unwrap();
        match tls.accept(far).await {
            Ok(Incoming::Passthrough { mut stream, server_name, .. }) if want => {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                assert_eq!(server_name, name);
                assert!(all == [&hello[..], b"and more"].concat(), "every byte comes, once");
            }
            Ok(Incoming::Passthrough { .. }) => panic!("{name} goes on as it is"),
            Ok(Incoming::Ended(..)) | Err(_) => assert!(!want, "{name}"),
        }
    }
}

#[tokio::test]
async fn slow_and_strange_clients_are_sent_away() {
    let config = Config { handshake_timeout: Duration::from_millis(20), ..Config::default() };
    let tls = Tls::new(config).unwrap();
    let (_near, far) = duplex(64);
    assert!(matches!(tls.accept(far).await, Err(Refused::Slow)));
    let (mut near, far) = duplex(1024);
    near.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    assert!(matches!(tls.accept(far).await, Err(Refused::Handshake(_))));
}

#[tokio::test]
async fn of_two_routes_the_older_has_the_host_and_the_stricter_rules_count() {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    let (ca, tls) = (Authority::new(), tls());
    let (one, two) = (ca.secret(&["a.test"]), ca.secret(&["a.test"]));
    let made = |text: &str| Some(Time(text.parse().unwrap()));
    let older = RoutePlanSpec { source_created: made("2026-01-01T00:00:00Z"), ..route(&["a.test"], "one") };
    let newer = RoutePlanSpec {
        source_created: made("2026-01-02T00:00:00Z"),
        options: RouteOptions { min_tls_version: Some("1.3".into()), ..RouteOptions::default() },
        ..route(&["a.test"], "two")
    };
    tls.follow(&world(&[("z", older), ("a", newer)], &[("one", &one), ("two", &two)]));
    let client = Client { trusts: Some(&ca), ..Client::default() };
    assert!(shake(&tls, "a.test", client).await.unwrap().0 == der(&one));
    assert!(!is_let_in(&tls, "a.test", Client { trusts: Some(&ca), shows: None, old: true }).await);
    let elsewhere = RoutePlanSpec { groups: vec!["others".into()], ..route(&["a.test"], "one") };
    tls.follow(&world(&[("z", elsewhere)], &[("one", &one)]));
    assert!(!is_let_in(&tls, "a.test", Client { trusts: Some(&ca), ..Client::default() }).await);
}

#[tokio::test]
async fn a_name_of_its_own_is_not_treated_as_the_wildcard_above_it() {
    let (ca, clients, tls) = (Authority::new(), Authority::new(), tls());
    let wild = RoutePlanSpec {
        options: RouteOptions { client_authority: Some("clients".into()), ..RouteOptions::default() },
        ..route(&["*.wild.test"], "s")
    };
    // It says nothing about TLS: it is only there.
    let own = RoutePlanSpec { certificates: Vec::new(), ..route(&["open.wild.test"], "") };
    let secrets = [("s", &ca.secret(&["*.wild.test"])), ("clients", &clients.as_secret())];
    let client = || Client { trusts: Some(&ca), ..Client::default() };
    tls.follow(&world(&[("wild", wild.clone())], &secrets));
    assert!(!is_let_in(&tls, "open.wild.test", client()).await);
    tls.follow(&world(&[("wild", wild.clone()), ("own", own)], &secrets));
    assert!(is_let_in(&tls, "open.wild.test", client()).await);
    assert!(!is_let_in(&tls, "other.wild.test", client()).await);
    tls.follow(&world(&[("wild", wild)], &secrets));
    assert!(!is_let_in(&tls, "open.wild.test", client()).await);
}
