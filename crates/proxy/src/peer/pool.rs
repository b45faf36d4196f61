//! Connections to other edges, as one thread keeps them: a few to each, shared by many requests at once, whatever they are for.
//!
//! Whoever wants a connection while one is being made waits for that one, and fails with it: an edge that does not answer is
//! waited for once, not once for every request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::client::conn::http2::SendRequest;
use landfall_runtime::clock;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Mutex as Turn;
use tokio_rustls::client::TlsStream;

use super::link::{ConnectError, Link};
use super::pulse::Silence;

/// Connections to one edge.
pub(super) const CONNECTIONS: usize = 2;
/// A connection takes nothing new after this long: it was made with a certificate of that time.
const AGE_MAX: Duration = Duration::from_secs(3600);
/// The most edges that are remembered. Beyond that those whose connections are gone are forgotten.
const EDGES_MAX: usize = 4096;

/// Connections to other edges.
pub(crate) struct Pool<B> {
    link: Arc<Link>,
    edges: Mutex<HashMap<String, Arc<Edge<B>>>>,
}

/// One edge.
struct Edge<B> {
    next: AtomicUsize,
    /// A connection has ended by silence, and nobody was told yet.
    ended: AtomicBool,
    slots: [Slot<B>; CONNECTIONS],
}

/// Room for one connection.
struct Slot<B> {
    /// So many times a connection was tried to be made.
    tries: AtomicUsize,
    open: Turn<Option<Open<B>>>,
}

/// A connection.
struct Open<B> {
    sender: SendRequest<B>,
    silence: Silence,
    since: Instant,
    /// Where it leads.
    address: String,
}

impl<B> Pool<B> {
    /// No connections yet.
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, edges: Mutex::default() }
    }

    /// A connection to an edge, by its name and where it listens. Where there is none, `speak` begins to speak HTTP/2 over a
    /// new stream.
    pub(crate) async fn get<F>(
        &self,
        edge: &str,
        address: &str,
        speak: impl FnOnce(TlsStream<TcpStream>) -> F,
    ) -> Result<SendRequest<B>, ConnectError>
    where
        F: Future<Output = hyper::Result<(SendRequest<B>, Silence)>>,
    {
        let known = self.edge(edge);
        let slot = known.slot(known.next.fetch_add(1, Ordering::Relaxed));
        let tries = slot.tries.load(Ordering::Acquire);
        let mut open = slot.open.lock().await;
        if let Some(open) = open.as_ref().filter(|open| open.leads_to(address)) {
            return Ok(open.sender.clone());
        }
        // Somebody has tried in vain while we waited for our turn.
        if slot.tries.load(Ordering::Acquire) != tries && open.is_none() {
            return Err(ConnectError::Slow);
        }
        if open.take().is_some_and(|open| open.silence.take_ended()) {
            known.ended.store(true, Ordering::Relaxed);
        }
        let made = self.open(edge, address, speak).await;
        slot.tries.fetch_add(1, Ordering::AcqRel);
        let (sender, silence) = made?;
        let (since, address) = (clock::instant(), address.to_owned());
        *open = Some(Open { sender: sender.clone(), silence, since, address });
        Ok(sender)
    }

    /// The one whose turn it is, if it is open: nobody has to wait for that. If it is not, it is still its turn.
    pub(crate) fn at_hand(&self, edge: &str, address: &str) -> Option<SendRequest<B>> {
        let known = self.edges.lock().get(edge).cloned()?;
        let turn = known.next.load(Ordering::Relaxed);
        let open = known.slot(turn).open.try_lock().ok()?;
        let sender = open.as_ref().filter(|open| open.leads_to(address)).map(|open| open.sender.clone())?;
        known.next.store(turn.wrapping_add(1), Ordering::Relaxed);
        Some(sender)
    }

    /// Whether every connection that an edge may have is open, or being made.
    pub(crate) fn is_warm(&self, edge: &str, address: &str) -> bool {
        let known = self.edges.lock().get(edge).cloned();
        known.is_some_and(|known| known.slots.iter().all(|slot| slot.is_warm(address)))
    }

    /// Whether there is a connection to an edge.
    pub(crate) fn is_open(&self, edge: &str, address: &str) -> bool {
        let known = self.edges.lock().get(edge).cloned();
        known.is_some_and(|known| known.slots.iter().any(|slot| slot.is_open(address)))
    }

    /// Edges that are more silent than usual.
    pub(crate) fn silent(&self) -> Vec<String> {
        let edges = self.edges.lock();
        edges.iter().filter(|(_, edge)| edge.is_silent()).map(|(name, _)| name.clone()).collect()
    }

    /// Edges of which nothing is heard any more, and a connection to which has ended by their silence since this was asked last.
    pub(crate) fn given_up(&self) -> Vec<String> {
        let edges = self.edges.lock();
        edges.iter().filter(|(_, edge)| edge.take_ended()).map(|(name, _)| name.clone()).collect()
    }

    /// Whether all that is heard of an edge is more silence than usual.
    pub(crate) fn is_silent(&self, edge: &str) -> bool {
        let known = self.edges.lock().get(edge).cloned();
        known.is_some_and(|known| known.is_silent() && !known.speaks())
    }

    fn edge(&self, name: &str) -> Arc<Edge<B>> {
        let mut edges = self.edges.lock();
        if let Some(edge) = edges.get(name) {
            return edge.clone();
        }
        if edges.len() >= EDGES_MAX {
            edges.retain(|_, edge| Arc::strong_count(edge) > 1 || edge.is_open());
        }
        edges.entry(name.to_owned()).or_insert_with(|| Arc::new(Edge::new())).clone()
    }

    async fn open<F>(
        &self,
        edge: &str,
        address: &str,
        speak: impl FnOnce(TlsStream<TcpStream>) -> F,
    ) -> Result<(SendRequest<B>, Silence), ConnectError>
    where
        F: Future<Output = hyper::Result<(SendRequest<B>, Silence)>>,
    {
        let stream = self.link.connect(edge, address).await?;
        speak(stream).await.map_err(|error| ConnectError::Handshake(std::io::Error::other(error)))
    }
}

impl<B> Slot<B> {
    fn is_open(&self, address: &str) -> bool {
        // Whoever has it makes a connection.
        self.open.try_lock().is_ok_and(|open| open.as_ref().is_some_and(|open| open.leads_to(address)))
    }

    /// Whether there is a connection, which is more silent than usual.
    fn is_silent(&self) -> bool {
        self.open.try_lock().is_ok_and(|open| open.as_ref().is_some_and(Open::is_silent))
    }

    /// Whether there is one that is not.
    fn speaks(&self) -> bool {
        let speaks = |open: &Open<B>| !open.sender.is_closed() && !open.silence.is_unusual();
        self.open.try_lock().is_ok_and(|open| open.as_ref().is_some_and(speaks))
    }

    fn take_ended(&self) -> bool {
        let ended = |open: &Open<B>| open.silence.take_ended();
        self.open.try_lock().is_ok_and(|open| open.as_ref().is_some_and(ended))
    }

    fn is_warm(&self, address: &str) -> bool {
        match self.open.try_lock() {
            Ok(open) => open.as_ref().is_some_and(|open| open.leads_to(address)),
            // Whoever has it makes a connection.
            Err(_) => true,
        }
    }
}

impl<B> Open<B> {
    fn is_silent(&self) -> bool {
        !self.sender.is_closed() && self.silence.is_unusual()
    }

    /// Whether it leads there, and takes something new.
    fn leads_to(&self, address: &str) -> bool {
        !self.sender.is_closed() && self.address == address && self.since.elapsed() < AGE_MAX
    }
}

impl<B> Edge<B> {
    fn new() -> Self {
        let slot = || Slot { tries: AtomicUsize::new(0), open: Turn::new(None) };
        let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { next, ended, slots: std::array::from_fn(|_| slot()) }
    }

    /// The connections have their turns one after the other.
    fn slot(&self, turn: usize) -> &Slot<B> {
        self.slots.get(turn % CONNECTIONS).expect("the remainder is less than the number of slots")
    }

    fn speaks(&self) -> bool {
        self.slots.iter().any(Slot::speaks)
    }

    fn take_ended(&self) -> bool {
        let of_slots = self.slots.iter().filter(|slot| slot.take_ended()).count() > 0;
        (self.ended.swap(false, Ordering::Relaxed) || of_slots) && !self.speaks()
    }

    fn is_silent(&self) -> bool {
        self.slots.iter().any(Slot::is_silent)
    }

    fn is_open(&self) -> bool {
        self.slots.iter().any(|slot| match slot.open.try_lock() {
            Ok(open) => open.as_ref().is_some_and(|open| !open.sender.is_closed()),
            // Whoever has it makes a connection.
            Err(_) => true,
        })
    }
}
