//! What a proxy is given, and why it may refuse to start.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use landfall_runtime::memory::Memory;

/// What a proxy is given.
#[derive(Clone, Debug)]
pub struct Config {
    /// The edge's name.
    pub edge: String,
    /// The member it stands in.
    pub cluster: String,
    /// The group of edges it belongs to: it carries the routes of that group, or those of no group.
    pub group: Option<String>,
    /// Where plain HTTP is served.
    pub http: Vec<SocketAddr>,
    /// Where HTTPS is served.
    pub https: Vec<SocketAddr>,
    /// Where other edges come in.
    pub peer: Vec<SocketAddr>,
    /// Where connections to other edges come from; left to the system when not given.
    pub source: Option<IpAddr>,
    /// How TLS is ended.
    pub tls: crate::tls::Config,
    /// How ports are carried, and who tells us with a PROXY protocol header who the client is.
    pub l4: crate::l4::Config,
    /// Threads, each with its own listeners, connections and pools; as many as there are cores when 0.
    pub threads: usize,
    /// Places that are never a backend, whatever a user writes: the hub, the admin port. An address that is "any" stands for all
    /// of this machine.
    pub never: Vec<SocketAddr>,
    /// Names that lead to such places, with their ports: the hub's. They are looked up again and again.
    pub never_named: Vec<(String, u16)>,
    /// Who vouches for buckets, PEM, beside those whom the system trusts.
    pub bucket_authorities_pem: Vec<u8>,
    /// Whether a bucket may stand on this machine. Only for tests and playgrounds.
    pub buckets_may_be_local: bool,
    /// How much is taken on.
    pub limits: Limits,
    /// How long requests may still take when the proxy is told to stop.
    pub drain: Duration,
    /// How long clients are taken in who were on their way when the proxy was told to stop: about the longest way there and back.
    /// What is open has at least this time, too.
    pub handover: Duration,
    /// Whether, and which, requests are written to the log.
    pub access_log: AccessLog,
    /// Where to.
    pub access_log_to: LogTo,
    /// Who collects traces, if anybody does.
    pub collector: Option<Collect>,
}

/// Who collects traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collect {
    /// Where: OTLP over HTTP is spoken at `/v1/traces` below it.
    pub url: String,
    /// One of so many requests that belong to no trace begins one; none when 0.
    pub one_of: u32,
}

/// Where requests are written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogTo {
    /// In the program's log.
    #[default]
    Program,
    /// On standard output, as lines of JSON.
    Stdout,
    /// At the end of a file, as lines of JSON.
    File(std::path::PathBuf),
}

/// How much is taken on. Everything has a limit.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections of clients, over all threads; more are turned away, those that speak plain HTTP/1.1 with 503.
    pub connections: usize,
    /// Requests in flight, over all threads; more are refused with 503. What each holds of bodies is
    /// limited by the windows and buffers of its two connections, so that this number and the one above bound memory.
    pub requests: usize,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Bytes of a request's body; without a limit when not given.
    pub body_bytes: Option<u64>,
    /// How long a client may take to send a request's head.
    pub head_timeout: Duration,
    /// How long a connection may wait for its next request.
    pub idle_timeout: Duration,
    /// How long a client may take nothing of an answer that is there for it.
    pub write_timeout: Duration,
    /// Connections to one endpoint that are kept for later, by each thread.
    pub idle_per_endpoint: usize,
    /// How long they are kept. Shorter than servers usually wait, so that they do not close under a request.
    pub idle_upstream: Duration,
    /// Streams that one HTTP/2 connection may have open.
    pub streams: u32,
    /// Memory that may be used: when it runs out, only a few requests are carried at once, and then only a few clients let in.
    pub memory: Option<Memory>,
}

/// Which requests are written to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// None.
    #[default]
    Off,
    /// Those that failed: 5xx, and those whose answer broke off.
    Errors,
    /// Those, and those that were asked more than once.
    Retried,
    /// One of so many, and those that failed.
    Sampled(u32),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            edge: String::new(),
            cluster: String::new(),
            group: None,
            http: Vec::new(),
            https: Vec::new(),
            peer: Vec::new(),
            source: None,
            tls: crate::tls::Config::default(),
            l4: crate::l4::Config::default(),
            threads: 0,
            never: Vec::new(),
            never_named: Vec::new(),
            bucket_authorities_pem: Vec::new(),
            buckets_may_be_local: false,
            limits: Limits::default(),
            drain: Duration::from_secs(20),
            handover: Duration::from_millis(500),
            access_log: AccessLog::Off,
            access_log_to: LogTo::Program,
            collector: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 50_000,
            requests: 20_000,
            head_bytes: 64 << 10,
            body_bytes: None,
            head_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(60),
            idle_per_endpoint: 256,
            idle_upstream: Duration::from_secs(30),
            streams: 200,
            memory: None,
        }
    }
}

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// TLS cannot be used.
    #[error("cannot use TLS")]
    Tls(#[source] crate::tls::Error),
    /// The access log cannot be written.
    #[error("cannot write the access log {}", path.display())]
    Log {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Traces cannot be sent.
    #[error("cannot send traces")]
    Collector(#[source] CollectorError),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// A collector that cannot be spoken to.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no URL of a collector such as http://127.0.0.1:4318")]
pub struct CollectorError(pub String);

impl Config {
    /// How many threads.
    pub(crate) fn cores(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if self.threads == 0 { cores() } else { self.threads }
    }
}
