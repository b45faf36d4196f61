//! One endpoint as one thread sees it: its open connections, and how busy it is.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;

use super::Sender;
use crate::table::{Reach, Vitals};
use crate::ticker::millis;

/// However often it fails, it is left out for so many times the first time.
const OUT_TIMES_MAX: u32 = 10;

/// How long the lane leaves to hyper whose answer it could not read: it may have been the only one of its kind.
const ODD_MS: u64 = 60_000;

/// The part that one answer has in what is known of an endpoint's latency, and how many it takes to be judged by it.
const LATENCY_PART: u64 = 8;
const TIMED_LEAST: u32 = 10;

/// One endpoint as one thread sees it.
pub(crate) struct Endpoint {
    /// How it is reached.
    pub(crate) reach: Reach,
    /// What all threads know of it.
    pub(crate) vitals: Arc<Vitals>,
    /// Requests of this thread in flight. Others look at it, so it is atomic; nobody else writes it.
    active: Arc<AtomicU32>,
    /// Until then this thread sends it nothing new if there is somebody else.
    spared_until_ms: Cell<u64>,
    /// Connections that wait for a request, the last used last, and since when.
    idle: RefCell<Vec<(u64, Sender)>>,
    /// The same of the lane for plain requests, which are not hyper's.
    streams: RefCell<Vec<(u64, TcpStream)>>,
    /// A connection that takes many requests at once.
    many: RefCell<Option<Sender>>,
    /// It has answered with something that the lane does not read: until then hyper reads its answers.
    odd_until_ms: Cell<u64>,
}

/// A request in flight at an endpoint.
pub(crate) struct Active {
    /// The endpoint.
    pub(crate) endpoint: Rc<Endpoint>,
    counted: bool,
    /// Where requests of its cluster are counted.
    cluster: Option<Arc<AtomicU32>>,
}

impl Endpoint {
    pub(super) fn new(reach: Reach, vitals: Arc<Vitals>) -> Self {
        Self {
            reach,
            active: vitals.thread(),
            vitals,
            spared_until_ms: Cell::default(),
            idle: RefCell::default(),
            streams: RefCell::default(),
            many: RefCell::default(),
            odd_until_ms: Cell::default(),
        }
    }

    /// Whether it is left out.
    pub(crate) fn is_out(&self, now_ms: u64) -> bool {
        self.vitals.out_until_ms.load(Ordering::Relaxed) > now_ms
    }

    /// Whether it can take a request.
    pub(super) fn can_take(&self, now_ms: u64, limit: Option<u32>) -> bool {
        let full = self.own(limit).is_some_and(|limit| self.vitals.active.load(Ordering::Relaxed) >= limit);
        // One that was left out is tried by one request, and the others do not wait for what becomes of it.
        let failed = self.vitals.failures.load(Ordering::Relaxed) > 0;
        let on_trial = failed && self.vitals.times_out.load(Ordering::Relaxed) > 0 && self.in_flight() > 0;
        !full && !on_trial && !self.is_out(now_ms) && self.spared_until_ms.get() <= now_ms
    }

    /// Nothing new is sent to it until then, if there is somebody else.
    pub(super) fn spare(&self, until_ms: u64) {
        self.spared_until_ms.set(until_ms);
    }

    /// Whether whoever could not reach the other cannot reach this one either: edges that are pods share an address.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        match (&self.reach, &other.reach) {
            (Reach::Peer { address: own, .. }, Reach::Peer { address, .. }) => own == address,
            (own, other) => own == other,
        }
    }

    /// How busy it is; a new one seems busier than it is.
    pub(super) fn burden(&self, now_ms: u64) -> u64 {
        self.vitals.burden(self.in_flight(), now_ms)
    }

    fn in_flight(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// Takes a request: none when it has as many as it may.
    pub(crate) fn enter(self: &Rc<Self>, limit: Option<u32>) -> Option<Active> {
        let limit = self.own(limit);
        if let Some(limit) = limit
            && self.vitals.active.fetch_add(1, Ordering::Relaxed) >= limit
        {
            self.vitals.active.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        self.active.store(self.in_flight() + 1, Ordering::Relaxed);
        Some(Active { endpoint: self.clone(), counted: limit.is_some(), cluster: None })
    }

    /// The limit that holds for it: another edge stands for many endpoints, and keeps their limits itself.
    fn own(&self, limit: Option<u32>) -> Option<u32> {
        limit.filter(|_| matches!(self.reach, Reach::Direct(_)))
    }

    /// An open connection, if there is one; with `whole`, one that takes a request at a time: only such can become something else.
    pub(crate) fn take(&self, whole: bool) -> Option<Sender> {
        if !whole
            && let Some(many) = &*self.many.borrow()
            && let Some(sender) = many.share()
        {
            return Some(sender);
        }
        let mut idle = self.idle.borrow_mut();
        while let Some((_, sender)) = idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    /// An open connection of the lane for plain requests, if there is one.
    pub(crate) fn take_stream(&self) -> Option<TcpStream> {
        let mut streams = self.streams.borrow_mut();
        while let Some((_, stream)) = streams.pop() {
            // Whatever there is to be read, nobody asked for it; mostly it is the end.
            let nothing =
                stream.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            if nothing {
                return Some(stream);
            }
        }
        None
    }

    /// The lane does not read its answers: for a while hyper does.
    pub(crate) fn turns_odd(&self, now_ms: u64) {
        self.odd_until_ms.set(now_ms.saturating_add(ODD_MS));
    }

    /// Whether that is so.
    pub(crate) fn is_odd(&self, now_ms: u64) -> bool {
        self.odd_until_ms.get() > now_ms
    }

    /// Keeps it for later.
    pub(crate) fn give_stream(&self, stream: TcpStream, now_ms: u64, most: usize) {
        let mut streams = self.streams.borrow_mut();
        if streams.len() < most {
            streams.push((now_ms, stream));
        }
    }

    /// Keeps a connection for later.
    pub(crate) fn give(&self, sender: Sender, now_ms: u64, most: usize) {
        if sender.is_closed() {
            return;
        }
        if sender.takes_many() {
            *self.many.borrow_mut() = Some(sender);
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() < most {
            idle.push((now_ms, sender));
        }
    }

    /// It has answered.
    pub(crate) fn answered(&self) {
        // Written only when it changes: the line is shared by all threads.
        if self.vitals.failures.load(Ordering::Relaxed) != 0 {
            self.vitals.failures.store(0, Ordering::Relaxed);
            self.vitals.times_out.store(0, Ordering::Relaxed);
        }
    }

    /// An answer has begun after so long.
    pub(crate) fn took(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let vitals = &self.vitals;
        let timed = vitals.timed.load(Ordering::Relaxed);
        let before = vitals.latency_us.load(Ordering::Relaxed);
        // What another thread writes in the same moment is lost, and not missed.
        let now = if timed == 0 { us } else { before - before / LATENCY_PART + us / LATENCY_PART };
        vitals.latency_us.store(now, Ordering::Relaxed);
        vitals.timed.store(timed.saturating_add(1), Ordering::Relaxed);
    }

    /// How long its answers take to begin, if enough have lately.
    pub(super) fn latency_us(&self) -> Option<u64> {
        let enough = self.vitals.timed.load(Ordering::Relaxed) >= TIMED_LEAST;
        enough.then(|| self.vitals.latency_us.load(Ordering::Relaxed))
    }

    /// It has failed; tells whether that was once too often.
    pub(super) fn failed(&self, most: u32) -> bool {
        self.vitals.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= most
    }

    /// Leaves it out, each time for longer; tells whether it was this call that did.
    pub(super) fn leave_out(&self, now_ms: u64, first: Duration) -> bool {
        if self.is_out(now_ms) {
            return false;
        }
        let times =
            self.vitals.times_out.fetch_add(1, Ordering::Relaxed).saturating_add(1).min(OUT_TIMES_MAX);
        let until_ms = now_ms.saturating_add(millis(first).saturating_mul(times.into()));
        self.vitals.out_until_ms.store(until_ms, Ordering::Relaxed);
        self.vitals.timed.store(0, Ordering::Relaxed);
        // It is tried once when it is back: one more failure is enough.
        self.idle.borrow_mut().clear();
        self.streams.borrow_mut().clear();
        true
    }

    /// It is left out until then.
    pub(super) fn stay_out(&self, until_ms: u64) {
        self.vitals.out_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Closes connections that nobody has needed since then.
    pub(super) fn sweep(&self, oldest_ms: u64) {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|(since_ms, sender)| *since_ms >= oldest_ms && !sender.is_closed());
        self.streams.borrow_mut().retain(|(since_ms, _)| *since_ms >= oldest_ms);
        let mut many = self.many.borrow_mut();
        if many.as_ref().is_some_and(Sender::is_closed) {
            *many = None;
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let left = self.endpoint.in_flight().saturating_sub(1);
        self.endpoint.active.store(left, Ordering::Relaxed);
        if self.counted {
            self.endpoint.vitals.active.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(cluster) = &self.cluster {
            cluster.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Active {
    /// It counts among the requests of its cluster, which the caller has added it to.
    pub(super) fn in_cluster(mut self, active: Arc<AtomicU32>) -> Self {
        self.cluster = Some(active);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn endpoint(since_ms: u64) -> Rc<Endpoint> {
        let vitals = Vitals { since_ms: AtomicU64::new(since_ms), ..Vitals::default() };
        Rc::new(Endpoint::new(Reach::Direct(([127, 0, 0, 1], 1).into()), Arc::new(vitals)))
    }

    #[test]
    fn one_request_tries_whom_others_left_out() {
        let endpoint = endpoint(0);
        assert!(endpoint.failed(1) && endpoint.leave_out(1_000, Duration::from_secs(1)));
        assert!(!endpoint.can_take(1_500, None), "it is out");
        let trial = endpoint.enter(None);
        assert!(!endpoint.can_take(2_500, None), "one is enough");
        drop(trial);
        assert!(endpoint.can_take(2_500, None));
        endpoint.answered();
        let _one = endpoint.enter(None);
        assert!(endpoint.can_take(2_500, None), "it has answered");
    }

    #[test]
    fn a_new_endpoint_is_spared_and_then_is_like_the_others() {
        let (old, new) = (endpoint(0), endpoint(1_000));
        assert_eq!(old.burden(1_000) * 10, new.burden(1_000));
        assert_eq!(old.burden(6_000) * 2, new.burden(6_000));
        assert_eq!(old.burden(11_000), new.burden(11_000));
    }

    #[test]
    fn a_limit_holds_and_is_given_back() {
        let one = endpoint(0);
        let first = one.enter(Some(1));
        assert!(first.is_some() && one.enter(Some(1)).is_none() && !one.can_take(0, Some(1)));
        drop(first);
        assert!(one.can_take(0, Some(1)) && one.enter(Some(1)).is_some());
    }

    #[test]
    fn each_time_it_is_left_out_for_longer() {
        let one = endpoint(0);
        assert!(one.leave_out(0, Duration::from_secs(1)) && one.is_out(999) && !one.is_out(1_000));
        assert!(!one.leave_out(500, Duration::from_secs(1)), "it is out already");
        assert!(one.leave_out(1_000, Duration::from_secs(1)) && one.is_out(2_999) && !one.is_out(3_000));
        one.failed(5);
        one.answered();
        assert!(one.leave_out(3_000, Duration::from_secs(1)) && !one.is_out(4_000));
    }
}
