//! TLS to endpoints: what is spoken to a port whose service says `appProtocol: https`.
//!
//! No object of an Ingress says who vouches for an endpoint, and endpoints are reached by addresses that no certificate names.
//! So, as other Ingress controllers do, their certificates are taken as they are: the bytes on the way are hidden, but whoever
//! sits at the endpoint's address is believed to be the endpoint, as with plain HTTP. Servers outside the federation have names,
//! and must show certificates for them.

use std::io;
use std::sync::{Arc, OnceLock};

use landfall_api::landfall::RouteService;
use landfall_runtime::tls::{Anybody, Verifier};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Error;
use super::speaking::PROTOCOLS;

/// Speaks TLS to endpoints.
#[derive(Clone)]
pub(crate) struct Backend {
    /// HTTP/2 is offered.
    both: TlsConnector,
    /// It is not.
    old: TlsConnector,
    /// To servers outside the federation, whose certificates are checked; made when the first is spoken to.
    outside: Arc<OnceLock<Option<TlsConnector>>>,
    authorities_pem: Arc<Vec<u8>>,
}

impl Backend {
    /// Ready to speak.
    pub(crate) fn new(authorities_pem: Vec<u8>) -> Result<Self, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(Error::Prepare)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { judge: Anybody, provider }))
            .with_no_client_auth();
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        let mut old = config.clone();
        old.alpn_protocols.retain(|protocol| protocol != b"h2");
        Ok(Self {
            both: TlsConnector::from(Arc::new(config)),
            old: TlsConnector::from(Arc::new(old)),
            outside: Arc::default(),
            authorities_pem: Arc::new(authorities_pem),
        })
    }

    /// TLS over a stream to a server outside the federation, which must show a certificate for its name.
    pub(crate) async fn outside<IO>(
        &self,
        stream: IO,
        name: Option<&ServerName<'static>>,
    ) -> io::Result<(TlsStream<IO>, bool)>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = self.outside.get_or_init(|| checking(&self.authorities_pem));
        let (Some(connector), Some(name)) = (connector, name) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok((connector.connect(name.clone(), stream).await?, false))
    }

    /// TLS over a stream to an endpoint of a service, with HTTP/2 if it is offered; whether that was agreed on.
    pub(crate) async fn connect<IO>(
        &self,
        stream: IO,
        service: &RouteService,
        http2: bool,
    ) -> io::Result<(TlsStream<IO>, bool)>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let name = format!("{}.{}.svc", service.name, service.namespace);
        let name = ServerName::try_from(name).map_err(|_| io::ErrorKind::InvalidInput)?;
        let connector = if http2 { &self.both } else { &self.old };
        let stream = connector.connect(name, stream).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((stream, http2))
    }
}

/// Checks certificates by those whom the system trusts, and these.
fn checking(authorities_pem: &[u8]) -> Option<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::debug!(%error, "an authority of the system cannot be read");
    }
    roots.add_parsable_certificates(system.certs);
    let given = CertificateDer::pem_slice_iter(authorities_pem).filter_map(Result::ok);
    roots.add_parsable_certificates(given);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.ok()?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(TlsConnector::from(Arc::new(config)))
}
