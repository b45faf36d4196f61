//! The link: who gets through, who does not, and a certificate that is renewed under way.

use std::sync::Arc;

use landfall_api::landfall::{EDGE_USER_PREFIX, EDGES_GROUP, PlanEdge, PlanFederation};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::link::{ConnectError, Identity, Link};

/// A hub: it signs for edges.
struct Hub {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What a certificate says.
#[derive(Clone, Copy)]
struct Says<'a> {
    name: &'a str,
    group: &'a str,
    uid: &'a str,
    /// Days from now until it ends.
    days: i64,
    serves: bool,
}

const GOOD: Says<'static> = Says { name: "b", group: EDGES_GROUP, uid: "ub", days: 1, serves: true };

impl Hub {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn identity(&self, says: Says<'_>) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, says.group);
        params.distinguished_name.push(DnType::CommonName, format!("{EDGE_USER_PREFIX}{}", says.name));
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        params.distinguished_name.push(uid, says.uid);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if says.serves {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let now_s = landfall_runtime::clock::epoch_s();
        let date = |days: i64| {
            let year = 1970 + i32::try_from((now_s / 86_400 + days) / 365).unwrap();
            rcgen::date_time_ymd(year, 1, 1)
        };
        params.not_before = date(-3 * 365);
        params.not_after = if says.days > 0 { date(3 * 365) } else { date(-365) };
        Identity {
            certificate_pem: params.signed_by(&key, &self.issuer).unwrap().pem().into_bytes(),
            key_pem: key.serialize_pem().into_bytes(),
            authority_pem: self.pem.clone().into_bytes(),
        }
    }
}

/// Edges by their names and uids; the first letter is the member's.
fn federation(edges: &[(&str, &str)]) -> Arc<PlanFederation> {
    let edge = |&(name, uid): &(&str, &str)| PlanEdge {
        name: name.into(),
        uid: uid.into(),
        cluster: name.chars().take(1).collect(),
        ..PlanEdge::default()
    };
    Arc::new(PlanFederation { edges: edges.iter().map(edge).collect(), ..PlanFederation::default() })
}

/// An edge's link, with what it shows and whom it knows.
fn link(identity: Option<&Identity>, edges: &[(&str, &str)]) -> Arc<Link> {
    let link = Link::default();
    link.follow(Some(&federation(edges)));
    if let Some(identity) = identity {
        link.identify(identity).unwrap();
    }
    Arc::new(link)
}

/// Whether `a` gets through to `b`, and whom `b` takes it for.
async fn meet(a: &Link, b: &Arc<Link>, edge: &str) -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut stream, named) = b.accept(stream).await.map_err(|error| format!("b: {error}"))?;
        stream.write_all(b"x").await.unwrap();
        Ok::<_, String>(named.name)
    };
    let connecting = async {
        let mut stream = a.connect(edge, &address).await.map_err(|error| format!("a: {error}"))?;
        // Only a byte tells a client of TLS 1.3 that it was let in.
        stream.read_u8().await.map_err(|_| "a: refused".to_owned())?;
        Ok::<_, String>(())
    };
    let (accepted, connected) = tokio::join!(accepting, connecting);
    connected.and(accepted)
}

#[tokio::test]
async fn edges_meet_and_nobody_else() {
    let (hub, stranger) = (Hub::new(), Hub::new());
    let roster = [("a", "ua"), ("b", "ub"), ("b2", "ub2")];
    let a = Says { name: "a", uid: "ua", ..GOOD };
    let check = async |hub_a: &Hub, says_a: Says<'_>, says_b: Says<'_>, want: &str| {
        let (a, b) =
            (link(Some(&hub_a.identity(says_a)), &roster), link(Some(&hub.identity(says_b)), &roster));
        let got = match meet(&a, &b, "b").await {
            Ok(name) => name,
            Err(why) => why,
        };
        assert!(got.contains(want), "{got:?}, not {want:?}");
    };
    check(&hub, a, GOOD, "a").await;
    // The load balancer that both stand behind has taken the other.
    check(&hub, a, Says { name: "b2", uid: "ub2", ..GOOD }, "a").await;
    check(&stranger, a, GOOD, "handshake").await;
    // Whom `b` does not let in.
    check(&hub, Says { name: "c", ..a }, GOOD, "a: refused").await;
    check(&hub, Says { uid: "before", ..a }, GOOD, "a: refused").await;
    check(&hub, Says { group: "system:masters", ..a }, GOOD, "a: refused").await;
    check(&hub, Says { days: -1, ..a }, GOOD, "a: refused").await;
    // Whom `a` does not speak with.
    check(&hub, a, Says { name: "a", uid: "ua", ..GOOD }, "handshake").await;
    check(&hub, a, Says { serves: false, ..GOOD }, "handshake").await;
    check(&hub, a, Says { uid: "before", ..GOOD }, "handshake").await;
    check(&hub, a, Says { days: -1, ..GOOD }, "handshake").await;
}

#[tokio::test]
async fn who_is_taken_from_the_roster_is_nobody_at_once() {
    let hub = Hub::new();
    let a = hub.identity(Says { name: "a", uid: "ua", ..GOOD });
    let roster = [("a", "ua"), ("b", "ub")];
    let (a, b) = (link(Some(&a), &roster), link(Some(&hub.identity(GOOD)), &roster));
    assert_eq!(meet(&a, &b, "b").await.as_deref(), Ok("a"));
    b.follow(Some(&federation(&[("b", "ub")])));
    assert!(meet(&a, &b, "b").await.is_err());
    let named = super::verify::Named { name: "a".into(), uid: "ua".into() };
    assert!(!b.still_has(&named), "its open connections are told so, too");
}

#[tokio::test]
async fn without_an_identity_there_is_no_link() {
    let hub = Hub::new();
    let (a, b) = (link(None, &[("b", "ub")]), link(Some(&hub.identity(GOOD)), &[]));
    assert!(matches!(a.connect("b", "127.0.0.1:1").await, Err(ConnectError::Nobody)));
    let nonsense = Identity { key_pem: b"x".to_vec(), ..hub.identity(GOOD) };
    assert!(b.identify(&nonsense).is_err());
    let mixed = Identity { key_pem: hub.identity(GOOD).key_pem, ..hub.identity(GOOD) };
    assert!(b.identify(&mixed).is_err(), "a key and a certificate that do not belong together");
}

#[tokio::test]
async fn a_new_certificate_leaves_open_connections_as_they_are() {
    let hub = Hub::new();
    let roster = [("a", "ua"), ("b", "ub")];
    let says = Says { name: "a", uid: "ua", ..GOOD };
    let (a, b) = (link(Some(&hub.identity(says)), &roster), link(Some(&hub.identity(GOOD)), &roster));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (near, far) =
        tokio::join!(a.connect("b", &address), async { b.accept(listener.accept().await.unwrap().0).await });
    let (mut near, mut far) = (near.unwrap(), far.unwrap().0);
    a.identify(&hub.identity(says)).unwrap();
    b.identify(&hub.identity(GOOD)).unwrap();
    near.write_all(b"still").await.unwrap();
    let mut word = [0; 5];
    far.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"still");
    assert_eq!(meet(&a, &b, "b").await.as_deref(), Ok("a"));
}
