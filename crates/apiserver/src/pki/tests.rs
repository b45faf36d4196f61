//! First and second starts, damage, renewal, and handshakes.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

use super::*;
use crate::authn::{MASTERS, Peer};

/// Now: handshakes look at the real clock.
fn now() -> i64 {
    landfall_runtime::clock::epoch_s()
}

fn config(dir: &Path) -> Config {
    Config { data_dir: dir.into(), server: "https://127.0.0.1:6443".into(), ..Config::default() }
}

fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for dir in [dir.to_path_buf(), dir.join("pki")] {
        for entry in std::fs::read_dir(dir).expect("a directory").flatten().filter(|e| e.path().is_file()) {
            let text = std::fs::read_to_string(entry.path()).expect("a text");
            all.insert(entry.file_name().into_string().expect("a name"), text);
        }
    }
    all
}

#[test]
fn the_first_start_makes_files_and_the_second_keeps_them() {
    let dir = tempfile::tempdir().expect("a directory");
    open(&config(dir.path()), now()).expect("a first start");
    let first = files(dir.path());
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    assert_eq!(names, ["admin.kubeconfig", "ca.crt", "ca.key", "sa.key", "server.crt", "server.key"]);
    for path in
        [dir.path().join("admin.kubeconfig"), dir.path().join("pki/ca.key"), dir.path().join("pki/sa.key")]
    {
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    open(&config(dir.path()), now()).expect("a second start");
    assert_eq!(files(dir.path()), first);
}

#[test]
fn only_the_server_certificate_is_renewed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(dir.path());
    open(&config, now()).expect("a first start");
    let check = |config: &Config, now_s: i64, renewed: bool| {
        let before = files(dir.path());
        open(config, now_s).expect("a later start");
        let after = files(dir.path());
        let changed: Vec<&String> = before.keys().filter(|name| before[*name] != after[*name]).collect();
        let expected: &[&str] = if renewed { &["server.crt"] } else { &[] };
        assert_eq!(changed, expected);
    };
    check(&config, now() + 300 * 24 * 3600, false);
    check(&config, now() + 340 * 24 * 3600, true);
    config.names = vec!["hub.example.com".into(), "10.9.8.7".into(), "fd00::7".into(), "not a name".into()];
    check(&config, now(), true);
    check(&config, now(), false);
    config.names.clear();
    check(&config, now(), false);
}

#[test]
fn damage_is_named_and_nothing_is_written_over() {
    let check = |file: &str, damage: Option<&str>, expected: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        open(&config(dir.path()), now()).expect("a first start");
        let path = dir.path().join("pki").join(file);
        match damage {
            Some(text) => std::fs::write(&path, text).expect("damaged"),
            None => std::fs::remove_file(&path).expect("removed"),
        }
        let before = files(dir.path());
        let error = open(&config(dir.path()), now()).err().expect("a refusal").to_string();
        assert!(error.contains(file) && error.contains(expected), "{error}");
        assert_eq!(files(dir.path()), before);
    };
    let other = authority::new_key().expect("a key");
    for file in ["ca.crt", "ca.key", "sa.key", "server.key", "server.crt"] {
        check(file, Some(""), "is damaged");
        check(file, Some("-----BEGIN"), "is damaged");
        check(file, Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "is damaged");
    }
    check("ca.key", Some(&other), "is not the key of");
    check("ca.key", None, "is missing");
}

#[test]
fn a_start_that_was_cut_short_is_finished() {
    let check = |removed: &[&str], kept: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        open(&config(dir.path()), now()).expect("a first start");
        for file in removed {
            std::fs::remove_file(dir.path().join(file)).expect("removed");
        }
        let before = files(dir.path());
        open(&config(dir.path()), now()).expect("a second start");
        let after = files(dir.path());
        assert_eq!((after.len(), &after[kept]), (6, &before[kept]));
    };
    check(&["pki/ca.crt", "pki/server.key", "pki/server.crt", "pki/sa.key", "admin.kubeconfig"], "ca.key");
    check(&["pki/server.crt", "admin.kubeconfig"], "server.key");
    check(&["pki/server.key"], "ca.crt");
    check(&["admin.kubeconfig"], "server.crt");
}

#[test]
fn given_files_are_shared_and_must_exist() {
    let (one, two) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let first = open(&config(one.path()), now()).expect("the first hub");
    let mut second = config(two.path());
    second.ca_cert = Some(one.path().join("pki/ca.crt"));
    second.ca_key = Some(one.path().join("pki/ca.key"));
    second.sa_key = Some(one.path().join("pki/sa.key"));
    let other = open(&second, now()).expect("the second hub");
    assert_eq!(first.authority.pem(), other.authority.pem());
    assert_eq!(first.sa_key.public().id(), other.sa_key.public().id());
    assert!(!two.path().join("pki/ca.key").exists());
    second.sa_key = Some(one.path().join("none.key"));
    let error = open(&second, now()).err().expect("a refusal").to_string();
    assert!(error.contains("none.key"), "{error}");
}

/// Hands bytes to and fro until both sides are done; gives the server's side, or why there is none.
fn shake(server: &Tls, roots: &Authority, client: Option<(String, String)>) -> Result<Peer, rustls::Error> {
    let mut store = RootCertStore::empty();
    store.add(roots.der().clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store);
    let mut config = match client {
        Some((cert, key)) => builder.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(cert.as_bytes()).expect("a certificate")],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key"),
        )?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name)?;
    let mut accepted = ServerConnection::new(server.config())?;
    while client.is_handshaking() || accepted.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("written");
        accepted.read_tls(&mut bytes.as_slice()).expect("read");
        accepted.process_new_packets()?;
        bytes.clear();
        accepted.write_tls(&mut bytes).expect("written");
        client.read_tls(&mut bytes.as_slice()).expect("read");
        client.process_new_packets()?;
    }
    assert_eq!(accepted.alpn_protocol(), Some(&b"h2"[..]));
    Ok(server.peer(accepted.peer_certificates(), now()))
}

#[test]
fn a_handshake_names_the_client() {
    let (one, two) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let hub = open(&config(one.path()), now()).expect("a hub");
    let stranger = open(&config(two.path()), now()).expect("another hub");

    assert_eq!(shake(&hub.tls, &hub.authority, None), Ok(Peer::Nobody));
    let alice = hub.authority.client("alice", MASTERS, 1, now()).expect("a certificate");
    let Ok(Peer::User(user)) = shake(&hub.tls, &hub.authority, Some(alice)) else { panic!("no user") };
    assert_eq!(
        (user.name.as_str(), user.groups.as_slice()),
        ("alice", &[MASTERS.to_owned(), "system:authenticated".into()][..])
    );

    let untrusted = stranger.authority.client("eve", MASTERS, 1, now()).expect("a certificate");
    assert_eq!(shake(&hub.tls, &hub.authority, Some(untrusted)), Ok(Peer::Refused));
    let ended = hub.authority.client("old", "", 1, now() - 10 * 24 * 3600).expect("a certificate");
    assert_eq!(shake(&hub.tls, &hub.authority, Some(ended)), Ok(Peer::Refused));
    assert!(shake(&hub.tls, &stranger.authority, None).is_err(), "a client must not trust a stranger's hub");
}

#[test]
fn a_request_gets_the_name_the_caller_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let hub = open(&config(dir.path()), now()).expect("a hub");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec!["evil.example.com".to_owned()]).expect("parameters");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, MASTERS);
    let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let until = (now() - 60, now() + 60);
    let cert = hub.authority.edge(&request, ("edge-1", "landfall:edges", "u-1"), until, false);
    assert!(!serves(cert.as_ref().expect("a certificate")));
    let both = hub.authority.edge(&request, ("edge-1", "landfall:edges", "u-1"), until, true);
    assert!(serves(&both.expect("a certificate")));
    let Ok(Peer::User(user)) =
        shake(&hub.tls, &hub.authority, Some((cert.expect("a certificate"), key.serialize_pem())))
    else {
        panic!("no user")
    };
    assert_eq!((user.name.as_str(), user.groups[0].as_str()), ("edge-1", "landfall:edges"));
    assert_eq!(user.uid, "u-1");
    assert!(!user.in_group(MASTERS));
    assert!(hub.authority.edge("nonsense", ("x", "", ""), until, false).is_err());
}

/// Whether a certificate (PEM) is good for servers; it must be for clients.
fn serves(pem: &str) -> bool {
    use x509_parser::prelude::FromDer as _;
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(&der).expect("a certificate");
    let usage = parsed.extended_key_usage().expect("readable").expect("usages");
    assert!(usage.value.client_auth);
    usage.value.server_auth
}
