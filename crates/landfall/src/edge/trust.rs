//! Which hub we trust: by its authority's certificate, or by the hash of its key, with which we find the certificate in the
//! hub's own handshake.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use landfall_apiserver::pki::key_hash;
use landfall_runtime::files::write_whole;
use landfall_runtime::tls::{Judge, Shown, Verifier};
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long finding the authority may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The file in the data directory that keeps the authority.
const FILE: &str = "hub-ca.crt";

/// What we were told about the hub.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    /// Its URL.
    pub(crate) url: String,
    /// A file with its authority.
    pub(crate) ca_file: Option<PathBuf>,
    /// The hash of its authority's key.
    pub(crate) ca_hash: Option<String>,
}

impl Trust {
    /// The authority of the hub (PEM). What was found by a hash is kept in the data directory.
    pub(crate) async fn authority(&self, data_dir: &Path) -> Result<String> {
        if let Some(file) = &self.ca_file {
            return std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
        }
        let kept = data_dir.join(FILE);
        let known = std::fs::read_to_string(&kept).ok().filter(|pem| self.is_known(pem));
        if let Some(pem) = known {
            return Ok(pem);
        }
        let Some(hash) = &self.ca_hash else {
            bail!("say which hub to trust, with --hub-ca FILE or --hub-ca-hash sha256:…");
        };
        let der = tokio::time::timeout(TIMEOUT, find(&self.url, hash)).await;
        let pem = pem(&der.context("the hub does not answer")??);
        write_whole(&kept, pem.as_bytes()).with_context(|| format!("cannot write {}", kept.display()))?;
        Ok(pem)
    }

    /// Whether an authority that was kept is the one we were told of.
    fn is_known(&self, pem: &str) -> bool {
        let hash = CertificateDer::from_pem_slice(pem.as_bytes()).ok().and_then(|der| key_hash(&der));
        hash.is_some() && (self.ca_hash.is_none() || hash == self.ca_hash)
    }
}

/// The authority with that hash, from the handshake of a server that it vouches for.
async fn find(url: &str, hash: &str) -> Result<CertificateDer<'static>> {
    let digits = hash.strip_prefix("sha256:").unwrap_or("");
    ensure!(
        digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')),
        "--hub-ca-hash: expected sha256: and 64 hexadecimal digits"
    );
    let uri: http::Uri = url.parse().with_context(|| format!("{url:?} is no URL"))?;
    let host = uri.host().with_context(|| format!("{url:?} has no host"))?.trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(443);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Verifier {
        judge: Pinned { hash: hash.into(), found: Mutex::default() },
        provider: provider.clone(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_no_client_auth();
    let stream =
        TcpStream::connect((host, port)).await.with_context(|| format!("cannot reach the hub at {url}"))?;
    let name = ServerName::try_from(host.to_owned()).with_context(|| format!("{host:?} is no host"))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.with_context(|| format!("{url} is not the hub with the authority {hash}"))?;
    let found = verifier.judge.found.lock().take();
    found.context("the hub's handshake has no certificate")
}

/// A certificate as PEM.
fn pem(der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let lines: Vec<&str> =
        (0..text.len()).step_by(64).filter_map(|at| text.get(at..text.len().min(at + 64))).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// Trusts the authority whose key has the hash, if the server shows it, and what that authority vouches for.
#[derive(Debug)]
struct Pinned {
    hash: String,
    found: Mutex<Option<CertificateDer<'static>>>,
}

impl Judge for Pinned {
    fn judge(&self, shown: &Shown<'_>, provider: &Arc<CryptoProvider>) -> Result<(), rustls::Error> {
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let authority = shown.intermediates.iter().find(|der| key_hash(der).as_ref() == Some(&self.hash));
        let authority = authority.ok_or_else(unknown)?.clone().into_owned();
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.build().map_err(|_| unknown())?;
        let Shown { end_entity, intermediates, name, ocsp, now } = shown;
        verifier.verify_server_cert(end_entity, intermediates, name, ocsp, *now)?;
        *self.found.lock() = Some(authority);
        Ok(())
    }
}
