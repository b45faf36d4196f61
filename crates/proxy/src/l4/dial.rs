//! Dialling: a stream or a socket to an endpoint of a service, in the cluster that the plan chooses; where that cannot be
//! reached, elsewhere, as long as nothing was sent.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use landfall_plan::choose::{Affinity, Ask, luck_of};
use landfall_runtime::clock;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};

use crate::guard::Guard;
use crate::haproxy::{self, Ends};
use crate::peer::tunnel::{Tunnel, TunnelError, Tunnels};
use crate::peer::wire::{Carries, Order};
use crate::table::{Reach, Service, Target, Vitals};
use crate::ticker::millis;

/// So many ways are tried for one client, and so many of them in one cluster as long as there is another.
const TRIES_MAX: usize = 4;
const TRIES_PER_CLUSTER: usize = 2;

/// Reaches endpoints.
pub(crate) struct Dialer {
    tunnels: Tunnels,
    pub(crate) guard: Arc<Guard>,
    luck: AtomicU64,
    /// The proxy's clock begins here, too, give or take a moment.
    began: std::time::Instant,
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Of which service.
    pub(crate) target: &'a Target,
    /// For whom.
    pub(crate) ends: Ends,
    /// Whether endpoints are told of both ends.
    pub(crate) send_proxy: bool,
    /// Only endpoints of the own member: another edge asks.
    pub(crate) own: bool,
}

/// A stream to an endpoint.
pub(crate) enum Stream {
    /// To the endpoint itself.
    Direct(TcpStream),
    /// Through another edge.
    Tunnel(Box<Tunnel>),
}

/// Datagrams to an endpoint.
pub(crate) enum Datagrams {
    /// To the endpoint itself.
    Direct(UdpSocket),
    /// Through another edge, each with its length before it.
    Tunnel(Box<Tunnel>),
}

/// The way that was taken: where it leads, and whom to blame when the endpoint turns out to be gone, which nobody knows of
/// datagrams before something was sent.
/// As long as it lives, the endpoint is that much busier.
pub(crate) struct Way {
    pub(crate) cluster: Arc<str>,
    service: Arc<Service>,
    vitals: Arc<Vitals>,
}

impl Way {
    fn new(service: &Arc<Service>, at: u16, vitals: &Arc<Vitals>) -> Self {
        let place = service.places.get(usize::from(at));
        let cluster = place.map_or_else(|| "".into(), |place| place.choice.cluster.clone());
        vitals.carried.fetch_add(1, Ordering::Relaxed);
        Self { cluster, service: service.clone(), vitals: vitals.clone() }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.vitals.carried.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What was reached.
enum Reached {
    Stream(TcpStream),
    Socket(UdpSocket),
    Tunnel(Box<Tunnel>),
}

/// Why nothing was reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// No endpoint is known.
    #[error("no endpoint can be asked")]
    Nowhere,
    /// The last that was tried failed.
    #[error("no endpoint can be reached")]
    Failed(#[source] io::Error),
}

impl Dialer {
    pub(crate) fn new(tunnels: Tunnels, guard: Arc<Guard>, seed: u64) -> Self {
        Self { tunnels, guard, luck: AtomicU64::new(seed), began: clock::instant() }
    }

    /// A stream to an endpoint.
    pub(crate) async fn stream(&self, wanted: Wanted<'_>) -> Result<(Stream, Way), DialError> {
        let (reached, way) = self.reach(wanted, Carries::Stream).await?;
        match reached {
            Reached::Stream(stream) => Ok((Stream::Direct(stream), way)),
            Reached::Tunnel(tunnel) => Ok((Stream::Tunnel(tunnel), way)),
            Reached::Socket(_) => Err(DialError::Nowhere),
        }
    }

    /// A way for datagrams to an endpoint.
    pub(crate) async fn datagrams(&self, wanted: Wanted<'_>) -> Result<(Datagrams, Way), DialError> {
        let (reached, way) = self.reach(wanted, Carries::Datagrams).await?;
        match reached {
            Reached::Socket(socket) => Ok((Datagrams::Direct(socket), way)),
            Reached::Tunnel(tunnel) => Ok((Datagrams::Tunnel(tunnel), way)),
            Reached::Stream(_) => Err(DialError::Nowhere),
        }
    }

    /// Tries one way.
    async fn attempt(&self, wanted: Wanted<'_>, reach: &Reach, carries: Carries) -> io::Result<Reached> {
        match (reach, carries) {
            (Reach::Direct(address), _) if !self.guard.admits(*address) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is nobody's backend"))
            }
            (Reach::Direct(address), Carries::Stream | Carries::Look) => {
                let mut stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                if wanted.send_proxy {
                    stream.write_all(&haproxy::header(wanted.ends)).await?;
                }
                Ok(Reached::Stream(stream))
            }
            (Reach::Direct(address), Carries::Datagrams) => {
                let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
                let socket = UdpSocket::bind((any, 0)).await?;
                socket.connect(address).await?;
                Ok(Reached::Socket(socket))
            }
            (Reach::Peer { edge, address }, carries) => {
                // In a box: a handshake between edges is large, and streams to own endpoints would have room for it as long as they live.
                let tunnel = Box::pin(self.tunnel(wanted, edge, address, carries)).await?;
                Ok(Reached::Tunnel(Box::new(tunnel)))
            }
        }
    }

    /// A stream through an edge to one of its endpoints.
    pub(crate) async fn tunnel(
        &self,
        wanted: Wanted<'_>,
        edge: &str,
        address: &str,
        carries: Carries,
    ) -> io::Result<Tunnel> {
        let (service, Ends { client, server }) = ((*wanted.target.service).clone(), wanted.ends);
        let order = Order { service, client, server, send_proxy: wanted.send_proxy, carries };
        self.tunnels.open(edge, address, &order).await.map_err(|error| match error {
            TunnelError::Connect(error) => io::Error::new(io::ErrorKind::ConnectionRefused, error),
            other => io::Error::other(other),
        })
    }

    /// Tries ways until one works.
    async fn reach(&self, wanted: Wanted<'_>, carries: Carries) -> Result<(Reached, Way), DialError> {
        let whole = wanted.target.service();
        let service = &*whole;
        let stays = matches!(service.chooser.affinity(), Affinity::ClientIp);
        let luck = if stays { luck_of_ip(wanted.ends.client.ip()) } else { self.luck() };
        let mut tried = Tried::default();
        let mut last = None;
        while tried.ways.len() < TRIES_MAX {
            let left = Left { service, own: wanted.own, luck, stays, now_ms: self.now_ms() };
            let Some((at, (reach, vitals))) = left.pick(&tried) else { break };
            tried.add(at, reach);
            // From now on, so that many who come at once do not all go the same way.
            let way = Way::new(&whole, at, vitals);
            let result =
                match tokio::time::timeout(service.times.connect, self.attempt(wanted, reach, carries)).await
                {
                    Ok(result) => result,
                    Err(_) => Err(io::ErrorKind::TimedOut.into()),
                };
            match result {
                Ok(reached) => {
                    if carries == Carries::Stream {
                        vitals.failures.store(0, Ordering::Relaxed);
                    }
                    return Ok((reached, way));
                }
                Err(error) => {
                    self.blame(service, vitals);
                    tracing::debug!(service = %wanted.target.name, ?reach, %error, "an endpoint cannot be reached");
                    last = Some(error);
                }
            }
        }
        Err(last.map_or(DialError::Nowhere, DialError::Failed))
    }

    /// An endpoint of datagrams has turned out to be gone.
    pub(crate) fn is_gone(&self, Way { service, vitals, .. }: &Way) {
        let until_ms = self.now_ms().saturating_add(millis(service.outlier.out));
        vitals.out_until_ms.store(until_ms, Ordering::Relaxed);
    }

    /// An endpoint that fails too often in a row is left out for a while, by all that dial.
    fn blame(&self, service: &Service, vitals: &Vitals) {
        let failures = vitals.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures >= service.outlier.failures {
            let until_ms = self.now_ms().saturating_add(millis(service.outlier.out));
            vitals.out_until_ms.store(until_ms, Ordering::Relaxed);
        }
    }

    fn now_ms(&self) -> u64 {
        millis(self.began.elapsed())
    }

    /// A random number; fit for choices, not for secrets.
    fn luck(&self) -> u64 {
        luck_of(&self.luck.fetch_add(1, Ordering::Relaxed).to_le_bytes())
    }
}

/// Luck that a client keeps.
pub(crate) fn luck_of_ip(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => luck_of(&ip.octets()),
        IpAddr::V6(ip) => luck_of(&ip.octets()),
    }
}

/// What was tried in vain.
#[derive(Default)]
struct Tried<'a> {
    ways: Vec<(u16, &'a Reach)>,
    /// Clusters where enough was tried.
    clusters: Vec<u16>,
}

impl<'a> Tried<'a> {
    fn add(&mut self, at: u16, reach: &'a Reach) {
        self.ways.push((at, reach));
        if self.ways.iter().filter(|(one, _)| *one == at).count() >= TRIES_PER_CLUSTER {
            self.clusters.push(at);
        }
    }
}

/// What may be tried.
struct Left<'a> {
    service: &'a Service,
    own: bool,
    luck: u64,
    /// The client goes where it went before, however busy that is.
    stays: bool,
    now_ms: u64,
}

impl<'a> Left<'a> {
    /// The next way: in the cluster that the plan chooses, one that nothing is known against; failing that, any that was not
    /// tried.
    fn pick(&self, tried: &Tried<'_>) -> Option<(u16, &'a (Reach, Arc<Vitals>))> {
        let elsewhere = |desperate| self.pick_from(tried, &tried.clusters, desperate);
        let anywhere = |desperate| self.pick_from(tried, &[], desperate);
        elsewhere(false).or_else(|| elsewhere(true)).or_else(|| anywhere(true))
    }

    fn pick_from(
        &self,
        tried: &Tried<'_>,
        without: &[u16],
        desperate: bool,
    ) -> Option<(u16, &'a (Reach, Arc<Vitals>))> {
        let fit = |(reach, vitals): &&(Reach, Arc<Vitals>)| {
            let sound = vitals.out_until_ms.load(Ordering::Relaxed) <= self.now_ms;
            (desperate || sound) && !tried.ways.iter().any(|(_, one)| *one == reach)
        };
        let usable = |at: u16| {
            let place = self.service.places.get(usize::from(at));
            place.is_some_and(|place| {
                (!self.own || place.choice.own) && place.ways.iter().any(|way| fit(&way))
            })
        };
        let ask = Ask { luck: self.luck, tried: without, ..Ask::default() };
        let (at, _) = self.service.chooser.pick(&ask, usable)?;
        let ways = &self.service.places.get(usize::from(at))?.ways;
        // Every way draws a number with the same luck: whoever goes leaves the others' clients where they are.
        let mut drawn: Vec<_> = ways.iter().filter(fit).map(|way| (draw(self.luck, &way.0), way)).collect();
        drawn.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        let drawn = drawn.into_iter().map(|(_, way)| way);
        let way = if self.stays {
            drawn.take(1).next()
        } else {
            drawn
                .take(2)
                .min_by_key(|(_, vitals)| vitals.burden(vitals.carried.load(Ordering::Relaxed), self.now_ms))
        };
        way.map(|way| (at, way))
    }
}

fn draw(luck: u64, reach: &Reach) -> u64 {
    let mut bytes = luck.to_le_bytes().to_vec();
    match reach {
        Reach::Direct(SocketAddr::V4(at)) => {
            bytes.extend(at.ip().octets());
            bytes.extend(at.port().to_le_bytes());
        }
        Reach::Direct(SocketAddr::V6(at)) => {
            bytes.extend(at.ip().octets());
            bytes.extend(at.port().to_le_bytes());
        }
        Reach::Peer { edge, .. } => bytes.extend(edge.as_bytes()),
    }
    luck_of(&bytes)
}

/// Does the same to whichever stream it is.
macro_rules! either {
    ($self:ident, $stream:ident => $do:expr) => {
        match $self.get_mut() {
            Stream::Direct($stream) => $do,
            Stream::Tunnel($stream) => $do,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(cx))
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
