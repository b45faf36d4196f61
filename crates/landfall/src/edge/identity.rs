//! Who this edge is: a key that never leaves it, and a certificate that the hub signs for it and renews.
//!
//! ```text
//!   token ──► request for a certificate ──► DIR/edge.key, DIR/edge.crt ──► (after two thirds of its life) the same again
//! ```

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{Method, Request};
use landfall_api::rules::read::{child, list, text};
use landfall_apiserver::authn::x509;
use landfall_apiserver::edges;
use landfall_control::client::{self, Credentials, Opening};
use landfall_runtime::clock;
use landfall_runtime::files::write_whole;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// How often a request is looked at, and for how long.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(15);
/// How long one question to the hub may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// An edge's key and certificate.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(super) key_pem: String,
    pub(super) certificate_pem: String,
    from_s: i64,
    until_s: i64,
}

/// Where the hub is, and by what it is known.
#[derive(Clone)]
pub(crate) struct Door {
    /// Its URL.
    pub(crate) url: String,
    /// Its authority, PEM.
    pub(crate) ca_pem: String,
}

/// Whom an edge asks to be.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// The edge.
    pub(crate) name: &'a str,
    /// Where it stands.
    pub(crate) cluster: &'a str,
    /// The group it belongs to.
    pub(crate) group: Option<&'a str>,
}

impl Identity {
    /// The one that is kept, if it is this edge's and still good.
    pub(crate) fn load(dir: &Path, name: &str) -> Option<Self> {
        let key_pem = std::fs::read_to_string(dir.join("edge.key")).ok()?;
        let certificate_pem = std::fs::read_to_string(dir.join("edge.crt")).ok()?;
        let this = Self::new(key_pem, certificate_pem)?;
        let der = CertificateDer::from_pem_slice(this.certificate_pem.as_bytes()).ok()?;
        let own = x509::user(&der).is_some_and(|user| edges::name_of(&user) == Some(name));
        (own && this.until_s > clock::epoch_s()).then_some(this)
    }

    /// Keeps it. The key is written first: a certificate is never there without its key.
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        // Until both are written there is no certificate: it would be another key's.
        let _ = std::fs::remove_file(dir.join("edge.crt"));
        for (file, text) in [("edge.key", &self.key_pem), ("edge.crt", &self.certificate_pem)] {
            let path = dir.join(file);
            write_whole(&path, text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// How long until it should be renewed: after two thirds of its life.
    pub(crate) fn renew_in(&self, now_s: i64) -> Duration {
        let life_s = self.until_s.saturating_sub(self.from_s);
        let at_s = self.from_s.saturating_add(life_s / 3 * 2);
        Duration::from_secs(u64::try_from(at_s.saturating_sub(now_s)).unwrap_or(0))
    }

    /// A client of the hub in its name.
    pub(crate) async fn client(&self, door: &Door) -> Result<kube::Client> {
        let credentials = Credentials::Certificate {
            certificate: self.certificate_pem.clone().into_bytes(),
            key: self.key_pem.clone().into_bytes(),
        };
        open(door, credentials).await
    }

    fn new(key_pem: String, certificate_pem: String) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
        let (from_s, until_s) = x509::validity(&der)?;
        Some(Self { key_pem, certificate_pem, from_s, until_s })
    }
}

/// Comes in with a token.
pub(crate) async fn register(door: &Door, token: &str, claim: Claim<'_>) -> Result<Identity> {
    let client = open(door, Credentials::Token(token.to_owned())).await?;
    obtain(&client, claim).await.context("the hub does not let this edge in")
}

/// Asks for a certificate for a new key.
pub(crate) async fn obtain(client: &kube::Client, claim: Claim<'_>) -> Result<Identity> {
    let key = KeyPair::generate().context("cannot make a key")?;
    let made = ask(client, Method::POST, REQUESTS, request(&key, claim)?.to_string().into_bytes()).await?;
    let name = landfall_api::meta::name(&made).to_owned();
    let path = format!("{REQUESTS}/{}", crate::basics::target::escape(&name));
    let began = clock::instant();
    while began.elapsed() < PATIENCE {
        let request = ask(client, Method::GET, &path, Vec::new()).await?;
        let status = child(&request, "status");
        let refused =
            list(status, "conditions").iter().find(|c| matches!(text(c, "type"), "Denied" | "Failed"));
        if let Some(refused) = refused {
            bail!("{}", text(refused, "message"));
        }
        let certificate = BASE64.decode(text(status, "certificate")).unwrap_or_default();
        if !certificate.is_empty() {
            let pem = String::from_utf8(certificate).context("the hub's certificate is no PEM")?;
            return Identity::new(key.serialize_pem(), pem).context("the hub's certificate cannot be read");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    bail!("nobody has settled the request {name}; is a hub leading?")
}

fn request(key: &KeyPair, claim: Claim<'_>) -> Result<Value> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{}{}", edges::USER_PREFIX, claim.name));
    params.distinguished_name.push(DnType::OrganizationName, edges::EDGES);
    let pem = params.serialize_request(key).and_then(|request| request.pem());
    let pem = pem.context("cannot make a request for a certificate")?;
    let mut annotations = json!({edges::CLUSTER_ANNOTATION: claim.cluster});
    if let Some(group) = claim.group {
        annotations[edges::GROUP_ANNOTATION] = group.into();
    }
    Ok(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "edge-", "annotations": annotations},
        "spec": {
            "request": BASE64.encode(pem), "signerName": edges::SIGNER,
            // One certificate serves both ways: towards the hub, and between edges.
            "usages": ["client auth", "server auth", "digital signature"],
        },
    }))
}

async fn ask(client: &kube::Client, method: Method, path: &str, body: Vec<u8>) -> Result<Value> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answer = client.request::<Value>(request.body(body)?);
    Ok(tokio::time::timeout(ANSWER_MAX, answer).await.context("the hub does not answer")??)
}

async fn open(door: &Door, credentials: Credentials) -> Result<kube::Client> {
    let opening = Opening {
        server: door.url.clone(),
        ca_bundle: Some(BASE64.encode(&door.ca_pem)),
        tls_server_name: None,
        credentials,
    };
    Ok(client::open(&opening).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_comes_after_two_thirds() {
        let identity = Identity {
            key_pem: String::new(),
            certificate_pem: String::new(),
            from_s: 1_000,
            until_s: 4_000,
        };
        assert_eq!(identity.renew_in(1_000), Duration::from_secs(2_000));
        assert_eq!(identity.renew_in(3_500), Duration::ZERO);
    }

    #[test]
    fn what_is_no_identity_is_not_taken_for_one() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Identity::load(dir.path(), "e1").is_none());
        std::fs::write(dir.path().join("edge.key"), "x").unwrap();
        std::fs::write(dir.path().join("edge.crt"), "x").unwrap();
        assert!(Identity::load(dir.path(), "e1").is_none());
    }
}
