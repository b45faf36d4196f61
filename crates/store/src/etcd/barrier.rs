//! Learns how far the last acknowledged write is, with few reads for many who ask.
//!
//! Who asks waits for a read that begins after it asked; all who wait share the next one. Two reads may be on their way
//! at once. The read is of the tick key, which every write puts: the revision in a response's header would count other
//! users of the same etcd, whose changes never reach our mirror. It has one use: when it is behind what we have seen, this
//! is not the etcd that we knew (it was restored from a backup, or emptied), and everything must be listed anew.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify, mpsc, oneshot};

use super::client::{Client, unsigned};
use super::keys::Keys;
use super::wire::RangeRequest;
use crate::mirror::Mirror;
use crate::{Error, Revision};

/// How many may wait; more wait at the door.
const WAITING_MAX: usize = 4096;
/// How many reads may be on their way.
pub(super) const READS_MAX: usize = 2;

/// Who waits.
type Waiting = oneshot::Sender<Result<Revision, Error>>;

/// Where to ask.
#[derive(Clone)]
pub(super) struct Barrier(mpsc::Sender<Waiting>);

/// Where the asking arrives; shared by the readers.
pub(super) type Arrivals = Arc<Mutex<mpsc::Receiver<Waiting>>>;

impl Barrier {
    pub(super) fn new() -> (Self, Arrivals) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), Arc::new(Mutex::new(receiver)))
    }

    /// The revision of the last write acknowledged before the call, or a later one.
    pub(super) async fn revision(&self) -> Result<Revision, Error> {
        let (waiting, answer) = oneshot::channel();
        self.0.send(waiting).await.map_err(|_| Error::Closed)?;
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

/// One of the readers; ends when nobody can ask any more. Tells `went_back` when etcd did.
pub(super) async fn run(
    client: Arc<Client>,
    keys: Keys,
    mirror: Arc<Mirror>,
    arrivals: Arrivals,
    went_back: Arc<Notify>,
) {
    let mut waiting = Vec::new();
    loop {
        let count = arrivals.lock().await.recv_many(&mut waiting, WAITING_MAX).await;
        if count == 0 {
            return;
        }
        let revision = read(&client, &keys, &mirror).await;
        if let Err(Error::Future { .. }) = revision {
            went_back.notify_one();
        }
        let revision = revision.map_err(|error| match error {
            Error::Future { asked, current } => Error::Unavailable(format!(
                "etcd went back from revision {asked} to {current}; everything is listed anew"
            )),
            other => other,
        });
        for one in waiting.drain(..) {
            let _gone = one.send(revision.clone());
        }
    }
}

/// The revision of the tick key; 0 before the first write. [`Error::Future`] when we have seen more than etcd has.
async fn read(client: &Client, keys: &Keys, mirror: &Mirror) -> Result<Revision, Error> {
    let asked = mirror.settled();
    let request = RangeRequest { key: keys.tick(), keys_only: true, ..RangeRequest::default() };
    let found = client.range(request).await?;
    let current = unsigned(found.header.map_or(0, |header| header.revision));
    if current < asked {
        return Err(Error::Future { asked, current });
    }
    Ok(found.kvs.first().map_or(0, |kv| unsigned(kv.mod_revision)))
}
