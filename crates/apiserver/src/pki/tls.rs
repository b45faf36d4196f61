//! TLS as the server speaks it, and who is at the other end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme, version,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use super::{Authority, Error};
use crate::authn::{Peer, x509};

/// How many sessions of clients that cannot use tickets are remembered.
const SESSIONS_MAX: usize = 4096;

/// The server's side of TLS.
pub struct Tls {
    config: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Tls {
    /// TLS 1.2 and 1.3, HTTP/2 or HTTP/1.1, client certificates of `authority` and `others` asked for, not demanded.
    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authority: &Authority,
        others: &[CertificateDer<'static>],
    ) -> Result<Self, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in std::iter::once(authority.der()).chain(others) {
            roots.add(certificate.clone())?;
        }
        let clients = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::<CryptoProvider>::clone(&provider),
        )
        .allow_unauthenticated()
        .build()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
            .with_client_cert_verifier(Arc::new(Lenient(Arc::clone(&clients))))
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        Ok(Self { config: Arc::new(config), clients })
    }

    /// For `tokio_rustls::TlsAcceptor`.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Who an accepted connection's certificates (`peer_certificates()`) name. Once per connection, resumed ones
    /// included: a certificate may have ended meanwhile.
    pub fn peer(&self, certificates: Option<&[CertificateDer<'_>]>, now_s: i64) -> Peer {
        let Some((first, rest)) = certificates.and_then(<[_]>::split_first) else { return Peer::Nobody };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now_s).unwrap_or(0)));
        if let Err(why) = self.clients.verify_client_cert(first, rest, now) {
            tracing::debug!(%why, "a client certificate is not trusted");
            return Peer::Refused;
        }
        x509::user(first).map_or(Peer::Nobody, |user| Peer::User(Arc::new(user)))
    }
}

/// Lets the handshake go on with a certificate that is not trusted, as kube-apiserver does: the client has proved
/// that it holds the key, [`Tls::peer`] decides what that is worth, and the client reads `401 Unauthorized` instead
/// of a broken connection.
struct Lenient(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for Lenient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lenient")
    }
}

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
