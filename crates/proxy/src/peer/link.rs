//! The link: what this edge shows to other edges, whom it believes, and connections both ways.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use landfall_api::landfall::PlanFederation;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::verify::{ClientEdges, Named, Roster, ServerEdge};

/// How long a connection to another edge may take to be made, handshake included.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long another edge's handshake may take.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);
/// What is spoken on the link.
const PROTOCOL: &[u8] = b"h2";

/// What an edge shows to other edges, and who vouches for them.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its certificate, PEM, which the hub has signed for client and server authentication.
    pub certificate_pem: Vec<u8>,
    /// The key of it, PEM.
    pub key_pem: Vec<u8>,
    /// The hub's authority, PEM.
    pub authority_pem: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is nobody's business.
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// There is no certificate.
    #[error("the identity holds no PEM certificate")]
    Certificate,
    /// There is no key.
    #[error("the identity holds no PEM private key")]
    Key,
    /// Nobody vouches for other edges.
    #[error("the identity holds no PEM certificate of the hub's authority")]
    Authority,
    /// They do not belong together, or TLS does not take them.
    #[error("the identity cannot be used")]
    Unusable(#[source] rustls::Error),
}

/// Why there is no connection to another edge.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// This edge has nothing to show yet.
    #[error("this edge has no certificate to show to others")]
    Nobody,
    /// It cannot be reached.
    #[error("the edge cannot be reached")]
    Unreachable(#[source] io::Error),
    /// It is not the one that is meant, or does not take us for an edge.
    #[error("the handshake with the edge failed")]
    Handshake(#[source] io::Error),
    /// It takes too long.
    #[error("the edge does not answer")]
    Slow,
}

/// The link between edges, as one edge has it.
#[derive(Default)]
pub struct Link {
    badge: ArcSwapOption<Badge>,
    roster: Arc<Roster>,
    /// Where connections to other edges come from; left to the system when not given.
    source: Option<IpAddr>,
}

/// An identity, ready to be shown.
struct Badge {
    identity: Identity,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Link {
    /// A link whose connections come from this address.
    pub(crate) fn from_address(source: Option<IpAddr>) -> Self {
        Self { source, ..Self::default() }
    }

    /// From now on new connections are made with this. Those that are open stay as they are.
    pub fn identify(&self, identity: &Identity) -> Result<(), IdentityError> {
        if self.badge.load().as_ref().is_some_and(|badge| badge.identity == *identity) {
            return Ok(());
        }
        self.badge.store(Some(Arc::new(Badge::new(identity, &self.roster)?)));
        Ok(())
    }

    /// From now on these are the edges.
    pub(crate) fn follow(&self, federation: Option<&Arc<PlanFederation>>) {
        self.roster.follow(federation);
    }

    /// Whether an edge that was let in is still one.
    pub(crate) fn still_has(&self, named: &Named) -> bool {
        self.roster.has(named)
    }

    /// A connection to an edge, by its name and where it listens.
    pub(crate) async fn connect(
        &self,
        edge: &str,
        address: &str,
    ) -> Result<client::TlsStream<TcpStream>, ConnectError> {
        let connecting = self.connect_at_leisure(edge, address);
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| ConnectError::Slow)?
    }

    async fn reach(&self, address: &str) -> io::Result<TcpStream> {
        let Some(source) = self.source else { return TcpStream::connect(address).await };
        let mut all = tokio::net::lookup_host(address).await?;
        let to = all.find(|to| to.is_ipv4() == source.is_ipv4());
        let to = to.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind((source, 0).into())?;
        socket.connect(to).await
    }

    async fn connect_at_leisure(
        &self,
        edge: &str,
        address: &str,
    ) -> Result<client::TlsStream<TcpStream>, ConnectError> {
        let config = self.badge.load().as_ref().map(|badge| badge.client.clone());
        let config = config.ok_or(ConnectError::Nobody)?;
        let name = ServerName::try_from(edge.to_owned())
            .map_err(|error| ConnectError::Handshake(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let stream = self.reach(address).await.map_err(ConnectError::Unreachable)?;
        stream.set_nodelay(true).map_err(ConnectError::Unreachable)?;
        let stream =
            TlsConnector::from(config).connect(name, stream).await.map_err(ConnectError::Handshake)?;
        if stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
            let error = io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP/2");
            return Err(ConnectError::Handshake(error));
        }
        Ok(stream)
    }

    /// Lets another edge in, and tells which one it is.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<(server::TlsStream<TcpStream>, Named), ConnectError> {
        let config = self.badge.load().as_ref().map(|badge| badge.server.clone());
        let config = config.ok_or(ConnectError::Nobody)?;
        stream.set_nodelay(true).map_err(ConnectError::Unreachable)?;
        let accepting = TlsAcceptor::from(config).accept(stream);
        let stream = tokio::time::timeout(ACCEPT_TIMEOUT, accepting).await.map_err(|_| ConnectError::Slow)?;
        let stream = stream.map_err(ConnectError::Handshake)?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let named = shown.and_then(|der| Named::of(der)).ok_or(ConnectError::Nobody)?;
        Ok((stream, named))
    }
}

impl Badge {
    fn new(identity: &Identity, roster: &Arc<Roster>) -> Result<Self, IdentityError> {
        let chain = certificates(&identity.certificate_pem).ok_or(IdentityError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&identity.key_pem).map_err(|_| IdentityError::Key)?;
        let mut roots = RootCertStore::empty();
        for der in certificates(&identity.authority_pem).ok_or(IdentityError::Authority)? {
            roots.add(der).map_err(|_| IdentityError::Authority)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(aws_lc_rs::default_provider()));
        let unusable = IdentityError::Unusable;

        let verifier =
            ServerEdge { roots: roots.clone(), provider: provider.clone(), roster: roster.clone() };
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Connections are few and long: each one shows who it is.
        client.resumption = Resumption::disabled();

        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        let chain_verifier = verifier.build().map_err(|_| IdentityError::Authority)?;
        let verifier = ClientEdges { chain: chain_verifier, roster: roster.clone() };
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { identity: identity.clone(), client: Arc::new(client), server: Arc::new(server) })
    }
}

/// The certificates in a PEM text: one at least.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    (!all.is_empty()).then_some(all)
}
