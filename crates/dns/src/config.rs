//! What a server is told at its start.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use landfall_api::addresses::parse_cidr;

/// A server's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to answer on, each by UDP and TCP. Port 0 is any free one, the same for both.
    pub listen: Vec<SocketAddr>,
    /// The same, but whoever asks here stands inside our own member, whatever its address.
    pub listen_inside: Vec<SocketAddr>,
    /// UDP threads for each address; as many as there are cores when 0.
    pub threads: usize,
    /// The member that this edge stands in.
    pub cluster: Option<String>,
    /// Prefixes of pods, services and nodes of that member, such as `10.0.0.0/8`: these clients are inside it.
    pub inside: Vec<String>,
    /// Who we are, for those who ask with NSID; 64 bytes at most.
    pub nsid: Option<String>,
    /// Secrets for cookies: the first makes them, all of them are taken. A random one when none is given; edges behind one
    /// address should share theirs.
    pub cookie_secrets: Vec<[u8; 16]>,
    /// The limit on equal answers to one prefix.
    pub rate: Option<Rate>,
    /// Keys that may transfer zones.
    pub keys: Vec<Key>,
    /// Servers that transfer zones, and are told when they have changed.
    pub secondaries: Vec<Secondary>,
    /// A database of the world's addresses in MaxMind's format.
    pub world: Option<PathBuf>,
    /// How long a TCP connection may be silent between two questions.
    pub tcp_idle: Duration,
}

/// A limit on equal answers to one prefix (IPv4 /24, IPv6 /56).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// So many a second; 4095 at most.
    pub per_second: u16,
    /// One of so many that are held back becomes a short reply with TC; none when 0.
    pub slip: u16,
}

/// A key for TSIG, HMAC-SHA256.
#[derive(Clone)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// The secret.
    pub secret: Vec<u8>,
}

/// A server that transfers zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secondary {
    /// Where it is told.
    pub address: SocketAddr,
    /// The key that signs it, by its name.
    pub key: Option<String>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self { per_second: 200, slip: 2 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            listen_inside: Vec::new(),
            threads: 0,
            cluster: None,
            inside: Vec::new(),
            nsid: None,
            cookie_secrets: Vec::new(),
            rate: Some(Rate::default()),
            keys: Vec::new(),
            secondaries: Vec::new(),
            world: None,
            tcp_idle: Duration::from_secs(10),
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A prefix is none.
    #[error("not a prefix: {0:?}")]
    Prefix(String),
    /// A key cannot be used.
    #[error("key {0:?} cannot be used")]
    Key(String),
    /// The database cannot be read.
    #[error("cannot read the database {path}")]
    World {
        /// The database.
        path: PathBuf,
        /// Why.
        #[source]
        source: maxminddb::MaxMindDbError,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

/// Prefixes from their text.
pub(crate) fn prefixes(texts: &[String]) -> Result<Vec<(IpAddr, u8)>, StartError> {
    let parse = |text: &String| {
        let (address, length) = parse_cidr(text).ok_or_else(|| StartError::Prefix(text.clone()))?;
        Ok((landfall_api::addresses::network(address, length), length))
    };
    texts.iter().map(parse).collect()
}
