//! TLS at the edge: which certificate a client is shown, how it is spoken to, and what is carried on unopened.
//!
//! ```text
//!   World ─► table (what routes say, by host) ─► Tls        when something changes; connections stay as they are
//!   bytes ─► hello (the name asked for) ─┬─► handshake ─► stream + TlsInfo
//!                                        └─► passthrough: the bytes read so far, and where they go
//! ```
//!
//! A bad certificate, key or authority leaves the last good one in its place, and stands in [`Tls::problems`]. A host whose
//! clients must show a certificate, and whose authority was never good, is spoken to with an alert.
//!
//! Reading order: this file, `table`, `keys`, `speaking`, `names`; `backend` is TLS to endpoints.

pub(crate) mod backend;
mod keys;
mod names;
mod speaking;
mod table;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use landfall_runtime::clock;
use parking_lot::Mutex;
use rustls::ProtocolVersion;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::carried::Carried;
use crate::sni::{Prefixed, Recorder};
use crate::world::World;
use keys::Shelf;
use speaking::{Clients, Manner, Speaking};
use table::{Certificates, Said, Shelves};
pub use table::{Passthrough, Problem};

/// How long a handshake may take when nothing else is said.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How TLS is ended.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long a handshake may take, from the first byte on.
    pub handshake_timeout: Duration,
    /// The group of edges this one belongs to: it carries the routes of that group, or those of no group.
    pub group: Option<String>,
    /// Names that no certificate is for are shown one that nobody vouches for; otherwise they are answered with an alert.
    pub self_signed: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { handshake_timeout: HANDSHAKE_TIMEOUT, group: None, self_signed: true }
    }
}

/// Ends TLS.
pub struct Tls {
    config: Config,
    provider: Arc<CryptoProvider>,
    resolver: Arc<Resolver>,
    table: ArcSwap<Table>,
    state: Mutex<State>,
}

/// What a client gets.
pub enum Incoming<IO> {
    /// Its TLS was ended.
    Ended(Box<TlsStream<Recorder<IO>>>, TlsInfo),
    /// Its TLS goes on as it is.
    Passthrough {
        /// What it sent, from the first byte on.
        stream: Prefixed<IO>,
        /// The name it asks for.
        server_name: String,
        /// Where it goes.
        to: Arc<Passthrough>,
    },
}

/// What is known of a client from its handshake.
#[derive(Clone, Debug)]
pub struct TlsInfo {
    /// The name it asked for, in lower case.
    pub server_name: Option<Arc<str>>,
    /// The version that is spoken: `1.2` or `1.3`.
    pub version: &'static str,
    /// Whether HTTP/2 was agreed on.
    pub http2: bool,
    /// Whom its certificate names, where it had to show one.
    pub client: Option<Arc<str>>,
    manner: Manner,
}

/// Why a client gets nothing.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It was too slow.
    #[error("the handshake took too long")]
    Slow,
    /// It could not be agreed with.
    #[error("the handshake failed")]
    Handshake(#[source] std::io::Error),
}

/// Why TLS cannot be ended at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No certificate could be made.
    #[error("cannot make a certificate for unknown names")]
    SelfSigned(#[source] rcgen::Error),
    /// The library refuses.
    #[error("cannot prepare TLS")]
    Prepare(#[source] rustls::Error),
}

/// What the last world said, ready to be used.
struct Table {
    said: Said,
    /// The ways to speak that are in use; the first is for names that nobody has said anything about.
    speaking: Vec<Arc<Speaking>>,
}

/// What a change is made with.
struct State {
    shelves: Shelves,
    world: Option<World>,
    fallback: Option<Arc<CertifiedKey>>,
}

// === impl Tls ===

impl Tls {
    /// Ends TLS for nobody yet.
    pub fn new(config: Config) -> Result<Self, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let fallback = if config.self_signed { Some(self_signed(&provider)?) } else { None };
        let shelves = Shelves { shown: Shelf::new(keys::shown), authorities: Shelf::new(keys::authorities) };
        let resolver = Arc::new(Resolver(ArcSwap::default()));
        let this = Self {
            config,
            provider,
            resolver,
            table: ArcSwap::new(Arc::new(Table { said: Said::default(), speaking: Vec::new() })),
            state: Mutex::new(State { shelves, world: None, fallback }),
        };
        this.change(&World::default()).map_err(Error::Prepare)?;
        Ok(this)
    }

    /// From now on this world counts, for new connections. Those that are open stay as they are.
    pub fn follow(&self, world: &World) {
        if let Err(error) = self.change(world) {
            tracing::error!(%error, "cannot prepare TLS; the last settings stay");
        }
    }

    /// What is wrong with the Secrets that routes name.
    pub fn problems(&self) -> Vec<Problem> {
        table::problems(&self.state.lock().shelves, clock::epoch_s())
    }

    /// Whether a request for a host may come through a connection that was opened under another name: not where the host asks
    /// for more than the connection has shown. The answer to others is 421.
    pub fn admits(&self, info: &TlsInfo, host: &str) -> bool {
        let host = names::plain(host);
        // Whoever asked for the host itself was let in, by the rules of that time.
        info.server_name.as_deref() == Some(&*host) || {
            let table = self.table.load();
            table.said.manner(Some(&host)).admits(&info.manner)
        }
    }

    /// Whether requests for a host may come from clients who have shown no certificate, such as those that speak no TLS.
    pub fn is_open(&self, host: &str) -> bool {
        let table = self.table.load();
        let clients = || &table.said.manner(Some(&names::plain(host))).clients;
        !table.said.guards_some || matches!(clients(), Clients::Anybody)
    }

    /// Whether clients who come for a host now are asked for what an authority of this Secret vouches for.
    pub(crate) fn asks_for(&self, host: &str, secret: &str) -> bool {
        let table = self.table.load();
        let clients = &table.said.manner(Some(&names::plain(host))).clients;
        matches!(clients, Clients::Known(_, known) if **known == *secret)
    }

    /// Begins to speak with a client.
    pub async fn accept<IO>(&self, io: IO) -> Result<Incoming<IO>, Refused>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        match tokio::time::timeout(self.config.handshake_timeout, self.handshake(io)).await {
            Ok(result) => result.map_err(Refused::Handshake),
            Err(_) => Err(Refused::Slow),
        }
    }

    async fn handshake<IO>(&self, io: IO) -> std::io::Result<Incoming<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let recorder = Recorder::new(io);
        let mut start = LazyConfigAcceptor::new(Acceptor::default(), recorder).await?;
        let server_name = start.client_hello().server_name().map(|name| names::plain(name).into_owned());
        let (config, manner) = {
            let table = self.table.load();
            if let Some(name) = &server_name
                && let Some(to) = table.said.passthrough(name)
            {
                let (to, server_name) = (to.clone(), name.clone());
                return Ok(Incoming::Passthrough { stream: start.io.rewind(), server_name, to });
            }
            let manner = table.said.manner(server_name.as_deref());
            let speaking = table.speaking.iter().find(|speaking| speaking.manner == *manner);
            let speaking = speaking.ok_or(std::io::ErrorKind::NotFound)?;
            (speaking.config.clone(), manner.clone())
        };
        start.io.forget();
        let stream = start.into_stream(config).await?;
        let info = TlsInfo::new(stream.get_ref().1, server_name, manner);
        Ok(Incoming::Ended(Box::new(stream), info))
    }

    fn change(&self, world: &World) -> Result<(), rustls::Error> {
        let mut state = self.state.lock();
        let names_matter = self.table.load().said.names_matter;
        if state.world.as_ref().is_some_and(|before| table::same(before, world, names_matter)) {
            state.world = Some(world.clone());
            return Ok(());
        }
        let State { shelves, fallback, .. } = &mut *state;
        let carried = Carried { world, group: self.config.group.as_deref() };
        let mut said = table::read(carried, shelves, fallback.as_ref(), &self.provider);
        let before = self.table.load_full();
        let mut speaking: Vec<Arc<Speaking>> = Vec::new();
        for manner in std::iter::once(&said.others).chain(said.manners.values()) {
            if speaking.iter().any(|known| known.manner == *manner) {
                continue;
            }
            let known = before.speaking.iter().find(|known| known.manner == *manner).cloned();
            speaking.push(match known {
                Some(known) => known,
                None => {
                    let resolver = self.resolver.clone();
                    Arc::new(Speaking::new(manner.clone(), resolver, &self.provider)?)
                }
            });
        }
        // Certificates first: a name that is new has one when it is first asked for.
        self.resolver.0.store(Arc::new(std::mem::take(&mut said.certificates)));
        self.table.store(Arc::new(Table { said, speaking }));
        state.world = Some(world.clone());
        Ok(())
    }
}

// === impl TlsInfo ===

impl TlsInfo {
    /// Whether an authority of this Secret vouches for the client.
    pub(crate) fn is_vouched_for(&self, secret: &str) -> bool {
        matches!(&self.manner.clients, Clients::Known(_, known) if **known == *secret)
    }

    fn new(connection: &rustls::ServerConnection, server_name: Option<String>, manner: Manner) -> Self {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            _ => "1.2",
        };
        let client = connection.peer_certificates().and_then(|chain| chain.first());
        // A version that is spoken although nobody asked for it counts as if somebody had.
        let oldest = if version == "1.3" { speaking::Oldest::Tls13 } else { manner.oldest };
        Self {
            server_name: server_name.map(Arc::from),
            version,
            http2: connection.alpn_protocol() == Some(b"h2"),
            client: client.and_then(|der| subject(der)).map(Arc::from),
            manner: Manner { oldest, ..manner },
        }
    }
}

/// Finds the certificate for a name among those of the moment.
#[derive(Debug)]
struct Resolver(ArcSwap<Certificates>);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().get(hello.server_name()).cloned()
    }
}

/// Whom a certificate names, as one line.
fn subject(der: &[u8]) -> Option<String> {
    use x509_parser::prelude::FromDer as _;
    let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(der).ok()?;
    Some(parsed.subject().to_string())
}

/// A certificate that nobody vouches for, for names that nobody knows.
fn self_signed(provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
    let key = rcgen::KeyPair::generate().map_err(Error::SelfSigned)?;
    let params = rcgen::CertificateParams::new(vec!["landfall.invalid".to_owned()]);
    let certificate = params.and_then(|params| params.self_signed(&key)).map_err(Error::SelfSigned)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let made = CertifiedKey::from_der(vec![certificate.der().clone()], key.into(), provider);
    Ok(Arc::new(made.map_err(Error::Prepare)?))
}

#[cfg(test)]
mod tests;
