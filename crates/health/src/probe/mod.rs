//! Seeing: one probe of one point, from connecting to the outcome. No choices are made here.

mod grpc;
mod http;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use landfall_runtime::clock;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use crate::check::{Check, Protocol};
use crate::opinion::Outcome;

/// Where a target is reached: a host name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// The host name or address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A way to a service of another member that has no address outside: through one of that member's edges.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Door {
    /// The edge.
    pub edge: String,
    /// Where it lets other edges in, as `host:port`.
    pub address: String,
    /// The service's namespace.
    pub namespace: String,
    /// The service.
    pub service: String,
    /// The service's port.
    pub port: u16,
    /// The port's name.
    pub port_name: String,
}

/// A stream of bytes, whichever way it takes.
pub struct Stream(Box<dyn Bytes>);

/// What a stream is made of.
trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Bytes for S {}

impl Stream {
    /// A stream of any sort.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self(Box::new(stream))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Why a door does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shut {
    /// The edge or the service behind it does not answer, in these words.
    Down(String),
    /// Nothing can be said of the service.
    Unknown,
}

/// Opens doors.
pub trait Bridge: Send + Sync {
    /// A stream to the service behind a door.
    fn open<'a>(&'a self, door: &'a Door) -> BoxFuture<'a, Result<Stream, Shut>>;
}

/// Where probes come from; the system chooses when nothing is said.
#[derive(Clone, Default)]
pub struct Source {
    /// The address that connections are made from.
    pub address: Option<IpAddr>,
    /// The way that packets take, where it is simulated.
    pub road: Option<Arc<dyn Road>>,
    /// The way through other edges, if there is one.
    pub bridge: Option<Arc<dyn Bridge>>,
    /// What may be spoken to; everything when nothing is said. Plans name addresses that users may have written.
    pub guard: Option<Arc<Admits>>,
}

/// Whether an address may be spoken to.
pub type Admits = dyn Fn(SocketAddr) -> bool + Send + Sync;

/// A simulated way. On a real one lost packets keep a connection from coming about; on the loopback device nothing is lost, and
/// the system connects whatever the simulation says: so it is asked before.
pub trait Road: Send + Sync {
    /// Waits until packets from one address reach the other.
    fn open(&self, from: Option<IpAddr>, to: IpAddr) -> BoxFuture<'_, ()>;
}

/// Probes a point once, within the check's time.
pub async fn probe(point: &Point, check: &Check, source: &Source) -> Outcome {
    let began = clock::instant();
    let result = tokio::time::timeout(check.timeout, look(point, check, source)).await;
    let latency_ms = began.elapsed().as_secs_f64() * 1_000.0;
    match result {
        Ok(Ok(())) => Outcome::up(latency_ms),
        Ok(Err(why)) => Outcome::down(format!("{}:{}: {why}", point.host, point.port), latency_ms),
        Err(_) => {
            let why = format!("{}:{}: no answer in {} ms", point.host, point.port, check.timeout.as_millis());
            Outcome::down(why, latency_ms)
        }
    }
}

/// Probes what is behind a door once, within the check's time; none when nothing can be said of it.
pub async fn probe_through(door: &Door, check: &Check, source: &Source) -> Option<Outcome> {
    let bridge = source.bridge.as_ref()?;
    let began = clock::instant();
    let point = Point { host: format!("{}.{}.svc", door.service, door.namespace), port: door.port };
    let looking = look_through(bridge.as_ref(), door, &point, check);
    let result = tokio::time::timeout(check.timeout, looking).await;
    let latency_ms = began.elapsed().as_secs_f64() * 1_000.0;
    match result {
        Ok(Ok(())) => Some(Outcome::up(latency_ms)),
        Ok(Err(Shut::Down(why))) => Some(Outcome::down(why, latency_ms)),
        Ok(Err(Shut::Unknown)) => None,
        Err(_) => {
            let why = format!("edge {}: no answer in {} ms", door.edge, check.timeout.as_millis());
            Some(Outcome::down(why, latency_ms))
        }
    }
}

async fn look_through(bridge: &dyn Bridge, door: &Door, point: &Point, check: &Check) -> Result<(), Shut> {
    let stream = bridge.open(door).await?;
    let told = |why| Shut::Down(format!("through edge {}: {why}", door.edge));
    speak(stream, point, check).await.map_err(told)
}

async fn look(point: &Point, check: &Check, source: &Source) -> Result<(), String> {
    speak(connect(point, source).await?, point, check).await
}

/// Asks over a stream what the check wants to know.
async fn speak<S>(stream: S, point: &Point, check: &Check) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match check.protocol {
        Protocol::Tcp => Ok(()),
        Protocol::Http => http::get(stream, "http", point, check).await,
        Protocol::Https => {
            http::get(tls::shake(stream, point, check, &[]).await?, "https", point, check).await
        }
        Protocol::Grpc => grpc::ask(stream, point, check).await,
        Protocol::Tls => tls::look(stream, point, check).await,
    }
}

/// Drives a connection beside what is asked over it. It may end before the answer is taken in, and is dropped with it.
async fn drive<T>(ask: impl Future<Output = T>, connection: impl Future) -> T {
    tokio::pin!(ask, connection);
    tokio::select! {
        biased;
        answer = &mut ask => return answer,
        _ = &mut connection => {}
    }
    ask.await
}

/// Connects; the sentence says why that failed.
pub(crate) async fn connect(point: &Point, source: &Source) -> Result<TcpStream, String> {
    let address = resolve(point).await?;
    if source.guard.as_ref().is_some_and(|admits| !admits(address)) {
        return Err("nobody may be led there".to_owned());
    }
    if let Some(road) = &source.road {
        road.open(source.address, address.ip()).await;
    }
    let said = |error: std::io::Error| said(&error);
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(said)?;
    if let Some(from) = source.address.filter(|from| from.is_ipv4() == address.is_ipv4()) {
        socket.bind(SocketAddr::new(from, 0)).map_err(said)?;
    }
    // Probes are many and short: what is closed by us shall not wait for stragglers.
    let _ = socket.set_zero_linger();
    let stream = socket.connect(address).await.map_err(said)?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn resolve(point: &Point) -> Result<SocketAddr, String> {
    if let Ok(ip) = point.host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, point.port));
    }
    let found = lookup_host((point.host.as_str(), point.port)).await;
    let mut found = found.map_err(|_| "the name cannot be resolved".to_owned())?;
    found.next().ok_or_else(|| "the name has no address".to_owned())
}

/// An error in few words, always the same ones: they are told to others.
fn said(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".into(),
        ErrorKind::ConnectionReset => "connection reset".into(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "no route".into(),
        ErrorKind::TimedOut => "connection timed out".into(),
        kind => kind.to_string(),
    }
}

/// How long an edge takes to answer; none when it does not, or takes longer than that.
///
/// Where edges come in for each other, TLS is spoken: whoever asks in plain words is told so at once, which takes the way there
/// and back as any answer does. Where names are answered, the question is.
pub async fn answer_time(point: &Point, source: &Source, timeout: Duration) -> Option<Duration> {
    let ask = async {
        let mut stream = connect(point, source).await.ok()?;
        let began = clock::instant();
        if ask_edge(&mut stream).await? == Heard::Alert {
            return Some(began.elapsed());
        }
        // The first question found what has to be set up; the second takes the way there and back and nothing else.
        let began = clock::instant();
        ask_edge(&mut stream).await?;
        Some(began.elapsed())
    };
    tokio::time::timeout(timeout, ask).await.ok()?
}

/// What an edge says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// An answer.
    Answer,
    /// That it speaks TLS.
    Alert,
}

/// How an alert of TLS begins. No answer to our question is as long as this would be as its length.
const ALERT: u16 = 0x1503;

async fn ask_edge(stream: &mut TcpStream) -> Option<Heard> {
    stream.write_all(&QUESTION).await.ok()?;
    let length = stream.read_u16().await.ok()?;
    if length == ALERT {
        return Some(Heard::Alert);
    }
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.ok().map(|_| Heard::Answer)
}

/// A DNS message over TCP that any name server answers: its length, a head with one question, and who serves the root.
const QUESTION: [u8; 19] = [0, 17, 0x4c, 0x46, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];

/// How long connecting to a point takes; none when it fails or takes longer than that.
pub async fn connect_time(point: &Point, source: &Source, timeout: Duration) -> Option<Duration> {
    let began = clock::instant();
    let connected = tokio::time::timeout(timeout, connect(point, source)).await;
    connected.ok()?.ok().map(|_| began.elapsed())
}
