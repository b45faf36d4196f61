//! What the hub and users see of members' APIs while something is cut, down or dead.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use landfall_sim::member::Credentials;
use landfall_sim::world::config::WorldConfig;
use landfall_sim::world::fault::{BadFault, Fault};
use landfall_sim::world::{Site, Start, World};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long nothing must come for it to be silence.
const SILENCE: Duration = Duration::from_millis(300);
/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client sees of an API.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Answer,
    Silence,
    Refusal,
}

async fn world() -> World {
    let config: WorldConfig = "clusters: [{name: a, nodes: 1}, {name: b, nodes: 1}]".parse().unwrap();
    World::start(&config, &Start::default(), |_| {}).await.unwrap()
}

/// Connects as a client that trusts the member's authority.
pub(crate) async fn connect(url: &str, credentials: &Credentials) -> io::Result<TlsStream<TcpStream>> {
    let authority = url.strip_prefix("https://").unwrap();
    let stream = TcpStream::connect(authority).await?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(credentials.ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(authority.split(':').next().unwrap().to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Asks whether the server lives, and reads no more than its answer.
pub(crate) async fn ask(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: member\r\n\r\n").await?;
    answer(stream).await
}

async fn answer(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\nok") {
        text.push(stream.read_u8().await?);
    }
    assert!(text.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&text));
    Ok(())
}

async fn look(url: &str, credentials: &Credentials, patience: Duration) -> Seen {
    let asking = async { ask(&mut connect(url, credentials).await?).await };
    match tokio::time::timeout(patience, asking).await {
        Ok(Ok(())) => Seen::Answer,
        Ok(Err(error)) => {
            let refused = [io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset];
            assert!(refused.contains(&error.kind()), "{error}");
            Seen::Refusal
        }
        Err(_) => Seen::Silence,
    }
}

async fn check(site: &Site, hub: Seen, user: Seen) {
    let credentials = site.member.credentials();
    for (url, want) in [(site.backbone_url(), hub), (credentials.server.clone(), user)] {
        let patience = if want == Seen::Silence { SILENCE } else { PATIENCE };
        assert_eq!(look(&url, credentials, patience).await, want, "{url} of {}", site.config.name);
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn cut(clusters: &[&str]) -> Fault {
    Fault::Cut { clusters: names(clusters) }
}

fn heal(clusters: &[&str]) -> Fault {
    Fault::Heal { clusters: names(clusters) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_is_silence_for_the_hub_and_nothing_for_users() {
    use Seen::{Answer, Refusal, Silence};
    let world = world().await;
    let [a, b] = world.sites() else { panic!("two clusters") };
    check(a, Answer, Answer).await;
    for (faults, says, a_seen, b_seen) in [
        (vec![cut(&["a"])], "a: cut off from all others and from the hub", Silence, Answer),
        (vec![cut(&["a", "b"])], "a: cut off from b", Answer, Answer),
        (vec![cut(&["a", "hub"])], "a: cut off from hub", Silence, Answer),
        (vec![cut(&["hub", "a", "b"])], "hub: cut off from a, b", Silence, Silence),
        (vec![cut(&["hub"])], "hub: cut off from all clusters", Silence, Silence),
        (vec![cut(&["hub"]), heal(&["a"])], "a: healed", Answer, Silence),
        (vec![cut(&["a"]), cut(&["b", "hub"]), heal(&["hub"])], "hub: healed", Answer, Answer),
    ] {
        let mut said = String::new();
        for fault in &faults {
            said = world.break_or_mend(fault).await.unwrap();
        }
        assert_eq!(said, says);
        check(a, a_seen, Answer).await;
        check(b, b_seen, Answer).await;
        world.break_or_mend(&heal(&[])).await.unwrap();
        check(a, Answer, Answer).await;
    }
    for (fault, hub, user) in [
        (Fault::ApiDown { clusters: names(&["a"]) }, Refusal, Refusal),
        (cut(&["a"]), Silence, Refusal),
        (Fault::Kill { clusters: names(&["a"]) }, Refusal, Refusal),
        (heal(&[]), Answer, Answer),
    ] {
        world.break_or_mend(&fault).await.unwrap();
        check(a, hub, user).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_the_hub_stall_and_go_on() {
    let world = world().await;
    let site = &world.sites()[0];
    let (url, credentials) = (site.backbone_url(), site.member.credentials());
    let mut open = connect(&url, credentials).await.unwrap();
    ask(&mut open).await.unwrap();
    world.break_or_mend(&cut(&["a"])).await.unwrap();
    let waiting = tokio::time::timeout(SILENCE, ask(&mut open)).await;
    assert!(waiting.is_err(), "nothing comes through: {waiting:?}");
    let mut new = Box::pin(look(&url, credentials, PATIENCE));
    assert!(tokio::time::timeout(SILENCE, &mut new).await.is_err(), "nobody answers a new one");
    world.break_or_mend(&heal(&["a"])).await.unwrap();
    answer(&mut open).await.unwrap();
    ask(&mut open).await.unwrap();
    assert_eq!(new.await, Seen::Answer);
    world.break_or_mend(&Fault::Kill { clusters: names(&["a"]) }).await.unwrap();
    assert!(ask(&mut open).await.is_err(), "a dead cluster resets connections");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_that_cannot_be() {
    let world = world().await;
    for (fault, says) in [
        (cut(&["a", "a"]), "\"a\" cannot be cut from itself: name another cluster, or the hub"),
        (cut(&["hub", "a", "hub"]), "\"hub\" cannot be cut from itself: name another cluster, or the hub"),
        (cut(&["a", "mars"]), "there is no cluster \"mars\"; there are a, b"),
        (Fault::Kill { clusters: names(&["hub"]) }, "there is no cluster \"hub\"; there are a, b"),
        (cut(&[]), "name at least one cluster: a, b"),
    ] {
        let error: BadFault = world.break_or_mend(&fault).await.unwrap_err();
        assert_eq!(error.to_string(), says);
    }
    assert!(world.sites().iter().all(|site| site.gate().now().cut.is_empty()), "nothing was changed");
    world.stop().await;
}
