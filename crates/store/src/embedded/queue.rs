//! Where writes wait for the next commit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{Entry, Error, Revision};

/// What to do with a key.
#[derive(Debug)]
pub(super) enum Action {
    /// See [`crate::Store::create`].
    Create { value: Bytes, ttl: Option<Duration> },
    /// See [`crate::Store::update`].
    Update { value: Bytes, expected: Revision, ttl: Option<Duration> },
    /// See [`crate::Store::delete`].
    Delete { expected: Revision },
}

/// A write that waits.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) key: Arc<str>,
    pub(super) action: Action,
    /// Who waits; none for removals of expired keys.
    pub(super) reply: Option<oneshot::Sender<Result<Arc<Entry>, Error>>>,
    /// A place in the queue, given back when the write is done.
    _place: Option<OwnedSemaphorePermit>,
}

/// The queue; bounded by its places.
#[derive(Debug)]
pub(super) struct Queue {
    places: Arc<Semaphore>,
    inner: Mutex<Inner>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Inner {
    ops: VecDeque<Op>,
    closed: bool,
    /// Why writes fail at present.
    trouble: Option<Error>,
}

impl Action {
    pub(super) fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Create { value, .. } | Self::Update { value, .. } => Some(value),
            Self::Delete { .. } => None,
        }
    }
}

impl Op {
    /// A removal that nobody waits for.
    pub(super) fn expire(key: Arc<str>, expected: Revision) -> Self {
        Self { key, action: Action::Delete { expected }, reply: None, _place: None }
    }

    /// Tells who waits, if anybody still does.
    pub(super) fn answer(self, result: Result<Arc<Entry>, Error>) {
        if let Some(reply) = self.reply {
            let _gone = reply.send(result);
        }
    }
}

impl Queue {
    pub(super) fn new(places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places.max(1))),
            inner: Mutex::new(Inner { ops: VecDeque::new(), closed: false, trouble: None }),
            arrived: Condvar::new(),
        }
    }

    /// Queues a write and waits until it is done. A write whose future is dropped may still be done.
    pub(super) async fn submit(&self, key: Arc<str>, action: Action) -> Result<Arc<Entry>, Error> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| Error::Closed)?;
        let (reply, answer) = oneshot::channel();
        {
            let mut inner = self.inner.lock();
            if inner.closed {
                return Err(Error::Closed);
            }
            inner.ops.push_back(Op { key, action, reply: Some(reply), _place: Some(place) });
        }
        self.arrived.notify_one();
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// Waits for writes, at most until `until`, and takes as many as fit in `bytes_max` (at least one). None when the
    /// queue is closed and empty.
    pub(super) fn take(&self, until: Option<Instant>, bytes_max: usize) -> Option<Vec<Op>> {
        let mut inner = self.inner.lock();
        while inner.ops.is_empty() {
            if inner.closed {
                return None;
            }
            match until {
                None => self.arrived.wait(&mut inner),
                Some(until) => {
                    if self.arrived.wait_until(&mut inner, until).timed_out() {
                        break;
                    }
                }
            }
        }
        let mut bytes = 0;
        let fitting = inner
            .ops
            .iter()
            .take_while(|op| {
                let fits = bytes < bytes_max;
                bytes += op.key.len() + op.action.value().map_or(0, Bytes::len);
                fits
            })
            .count();
        Some(inner.ops.drain(..fitting).collect())
    }

    /// No more writes; those that wait are still done.
    pub(super) fn close(&self) {
        self.inner.lock().closed = true;
        self.places.close();
        self.arrived.notify_all();
    }

    /// Nobody will take writes any more: those that wait are told that the store is closed.
    pub(super) fn abandon(&self) {
        self.close();
        self.inner.lock().ops.clear();
    }

    /// Notes whether writes fail at present.
    pub(super) fn set_trouble(&self, trouble: Option<Error>) {
        self.inner.lock().trouble = trouble;
    }

    /// Whether writes work, as far as is known.
    pub(super) fn health(&self) -> Result<(), Error> {
        let inner = self.inner.lock();
        match &inner.trouble {
            _ if inner.closed => Err(Error::Closed),
            Some(trouble) => Err(trouble.clone()),
            None => Ok(()),
        }
    }
}
