//! Seeing: one probe of one point, from connecting to the outcome. No choices are made here.

mod grpc;
mod http;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use landfall_runtime::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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

/// Where probes come from; the system chooses when nothing is said.
#[derive(Clone, Default)]
pub struct Source {
    /// The address that connections are made from.
    pub address: Option<IpAddr>,
    /// The way that packets take, where it is simulated.
    pub road: Option<Arc<dyn Road>>,
}

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

async fn look(point: &Point, check: &Check, source: &Source) -> Result<(), String> {
    let stream = connect(point, source).await?;
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

/// How long an edge takes to answer a question over a connection that stands; none when it does not, or takes longer than that.
pub async fn answer_time(point: &Point, source: &Source, timeout: Duration) -> Option<Duration> {
    let ask = async {
        let mut stream = connect(point, source).await.ok()?;
        // The first question finds what has to be set up; the second takes the way there and back and nothing else.
        ask_edge(&mut stream).await?;
        let began = clock::instant();
        ask_edge(&mut stream).await?;
        Some(began.elapsed())
    };
    tokio::time::timeout(timeout, ask).await.ok()?
}

async fn ask_edge(stream: &mut TcpStream) -> Option<()> {
    stream.write_all(&QUESTION).await.ok()?;
    let length = stream.read_u16().await.ok()?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.ok().map(drop)
}

/// A DNS message over TCP that any name server answers: its length, a head with one question, and who serves the root.
const QUESTION: [u8; 19] = [0, 17, 0x4c, 0x46, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];

/// How long connecting to a point takes; none when it fails or takes longer than that.
pub async fn connect_time(point: &Point, source: &Source, timeout: Duration) -> Option<Duration> {
    let began = clock::instant();
    let connected = tokio::time::timeout(timeout, connect(point, source)).await;
    connected.ok()?.ok().map(|_| began.elapsed())
}
