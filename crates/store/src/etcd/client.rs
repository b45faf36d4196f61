//! Calls to etcd: one connection to each endpoint, one of them in use, the next one after a failure.

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use prost::Message;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::wire::{
    AuthenticateRequest, AuthenticateResponse, CompactionRequest, Done, LeaseGrantRequest,
    LeaseGrantResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use super::{Config, Tls};
use crate::{Error, OpenError, Revision};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const COMPACT: &str = "/etcdserverpb.KV/Compact";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";

/// How long to wait between attempts.
const RETRY_EVERY: Duration = Duration::from_millis(50);
/// How long one attempt of a read may take before another endpoint is tried.
const READ_ATTEMPT: Duration = Duration::from_secs(2);
/// How often a silent connection is tested, and how long an answer may take.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The largest message taken from etcd: a page of large values.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// See the module.
pub(super) struct Client {
    channels: Vec<Channel>,
    /// Which channel is in use; counts up, taken modulo their number.
    current: AtomicUsize,
    timeout: Duration,
    /// What shows who we are, where etcd asks for a password.
    token: Mutex<Option<MetadataValue<Ascii>>>,
}

/// Which failed calls may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// All: the call changes nothing, or twice is as good as once.
    Always,
    /// Only those that surely did not reach etcd.
    IfNotSent,
}

impl Client {
    /// Prepares connections; they are made when needed.
    pub(super) fn new(config: &Config) -> Result<Self, OpenError> {
        if config.endpoints.is_empty() {
            return Err(OpenError::Config("etcd needs at least one endpoint".into()));
        }
        let channels = config
            .endpoints
            .iter()
            .map(|endpoint| channel(endpoint, config))
            .collect::<Result<Vec<_>, _>>()?;
        // Several hubs with the same list need not all begin with the first.
        let current = AtomicUsize::new(std::process::id() as usize % channels.len());
        Ok(Self { channels, current, timeout: config.request_timeout, token: Mutex::default() })
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Error> {
        self.call(RANGE, request, Again::Always).await
    }

    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Error> {
        self.call(TXN, request, Again::IfNotSent).await
    }

    /// Logs in: calls after this one are this user's.
    pub(super) async fn authenticate(&self, name: &str, password: &str) -> Result<(), Error> {
        *self.token.lock() = None;
        let request = AuthenticateRequest { name: name.into(), password: password.into() };
        let answer: AuthenticateResponse = self.call(AUTHENTICATE, request, Again::Always).await?;
        let token = MetadataValue::try_from(answer.token)
            .map_err(|_| Error::Unavailable("etcd: a token that cannot be sent".into()))?;
        *self.token.lock() = Some(token);
        Ok(())
    }

    pub(super) async fn lease_grant(&self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, Error> {
        self.call(LEASE_GRANT, request, Again::Always).await
    }

    pub(super) async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let request = CompactionRequest { revision: signed(revision) };
        self.call::<_, Done>(COMPACT, request, Again::Always).await.map(|_| ())
    }

    /// Opens a watch stream.
    pub(super) async fn watch(&self, request: WatchRequest) -> Result<Streaming<WatchResponse>, Error> {
        let open = async {
            let mut grpc = self.grpc(self.current.load(Ordering::Relaxed));
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            // The request side stays open: closing it would end the watch.
            let requests = futures::stream::StreamExt::chain(
                futures::stream::once(std::future::ready(request)),
                futures::stream::pending(),
            );
            grpc.streaming(
                with_leader(requests),
                PathAndQuery::from_static(WATCH),
                ProstCodec::<WatchRequest, WatchResponse>::new(),
            )
            .await
        };
        match tokio::time::timeout(self.timeout, open).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(explain(&status)),
            Err(_elapsed) => Err(Error::Unavailable("etcd did not open a watch in time".into())),
        }
    }

    /// Uses the next endpoint from now on.
    pub(super) fn rotate(&self) {
        self.rotate_from(self.current.load(Ordering::Relaxed));
    }

    fn rotate_from(&self, used: usize) {
        // Only the first of many calls that failed together moves on.
        let _moved =
            self.current.compare_exchange(used, used.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    fn grpc(&self, index: usize) -> Grpc<Channel> {
        let channel = &self.channels[index % self.channels.len()];
        Grpc::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// One call with its deadline, on as many endpoints as needed and allowed.
    async fn call<Q, A>(&self, path: &'static str, request: Q, again: Again) -> Result<A, Error>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let deadline = Instant::now() + self.timeout;
        loop {
            let used = self.current.load(Ordering::Relaxed);
            let until = match again {
                Again::Always => deadline.min(Instant::now() + READ_ATTEMPT),
                Again::IfNotSent => deadline,
            };
            let attempt = tokio::time::timeout_at(until, self.attempt(used, path, request.clone())).await;
            let status = match attempt {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_elapsed) => Status::deadline_exceeded("etcd did not answer in time"),
            };
            if !is_outage(&status) {
                return Err(explain(&status));
            }
            self.rotate_from(used);
            let allowed = again == Again::Always || was_not_sent(&status);
            if !allowed || Instant::now() + RETRY_EVERY >= deadline {
                return Err(explain(&status));
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    async fn attempt<Q, A>(&self, index: usize, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc(index);
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let path = PathAndQuery::from_static(path);
        let mut request = with_leader(request);
        if let Some(token) = self.token.lock().clone() {
            request.metadata_mut().insert("token", token);
        }
        grpc.unary(request, path, ProstCodec::<Q, A>::new()).await.map(tonic::Response::into_inner)
    }
}

fn channel(endpoint: &str, config: &Config) -> Result<Channel, OpenError> {
    let wrong = |why: String| OpenError::Config(format!("etcd endpoint {endpoint:?}: {why}"));
    let mut address = Endpoint::from_shared(endpoint.to_owned())
        .map_err(|error| wrong(error.to_string()))?
        .connect_timeout(config.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(16 << 20)
        .initial_stream_window_size(8 << 20);
    let wants_tls = endpoint.starts_with("https://");
    match (&config.tls, wants_tls) {
        (Some(tls), true) => {
            address = address.tls_config(tls_config(tls)).map_err(|error| {
                wrong(error.source().map_or_else(|| error.to_string(), ToString::to_string))
            })?;
        }
        (None, true) => return Err(wrong("https needs a CA certificate".into())),
        (Some(_), false) => return Err(wrong("TLS is configured, so it must begin with https://".into())),
        (None, false) => {}
    }
    Ok(address.connect_lazy())
}

fn tls_config(tls: &Tls) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca_pem));
    if let Some((certificate, key)) = &tls.client_pem {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    config
}

/// A request that a member without a leader refuses at once instead of letting it hang.
fn with_leader<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

/// Whether another endpoint or a later moment may do better.
fn is_outage(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal => true,
        Code::ResourceExhausted => status.message().contains("too many requests"),
        _ => false,
    }
}

/// Whether the call surely was not done.
fn was_not_sent(status: &Status) -> bool {
    if status.message() == "etcdserver: no leader" {
        return true;
    }
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What the store's users are told.
fn explain(status: &Status) -> Error {
    let text = status.message().to_owned();
    match status.code() {
        Code::ResourceExhausted if text.contains("space exceeded") => Error::Full(text),
        Code::ResourceExhausted if text.contains("larger than max") => Error::TooLarge(text),
        Code::Unauthenticated | Code::PermissionDenied => Error::Denied(text),
        Code::InvalidArgument if text.contains("authentication failed") => Error::Denied(text),
        Code::InvalidArgument if text.contains("too large") => Error::TooLarge(text),
        // The revisions are filled in by who asked.
        Code::OutOfRange if text.contains("compacted") => Error::TooOld { asked: 0, oldest: 0 },
        Code::OutOfRange if text.contains("future") => Error::Future { asked: 0, current: 0 },
        code => {
            let cause = status.source().map(|cause| format!(" ({cause})")).unwrap_or_default();
            Error::Unavailable(format!("etcd: {code:?}: {text}{cause}"))
        }
    }
}

/// A revision as etcd has it.
pub(super) fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// A revision as we have it; etcd's are never negative.
pub(super) fn unsigned(revision: i64) -> Revision {
    u64::try_from(revision).unwrap_or(0)
}
