//! A stream of changes under a prefix.
//!
//! A watch reads the history until it stands where its topic's ring begins, and the ring from then on. Both are shared
//! by all watches and bounded, so a slow watch costs nothing: it falls out with [`Error::TooOld`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::mirror::{Mirror, Position, Replay, Ring};
use crate::{Change, Error, Revision};

/// What a watch yields.
#[derive(Clone, Debug)]
pub enum Event {
    /// The next change, in order, none missing, none twice.
    Change(Arc<Change>),
    /// Everything up to this revision has been yielded.
    Progress(Revision),
}

/// A stream of changes. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    mirror: Arc<Mirror>,
    prefix: Box<str>,
    /// Changes up to this revision are not wanted, or have been yielded.
    after: Revision,
    /// Where the store was when the watch began.
    began: Revision,
    /// The first position not yet looked at.
    next: Position,
    /// None only while dropping.
    ring: Option<watch::Receiver<Ring>>,
    progress: Option<Ticks>,
    pace: Option<Ticks>,
}

/// Something that is due from time to time.
#[derive(Debug)]
struct Ticks {
    every: Duration,
    due: Instant,
    /// Due then in any case.
    also: Option<Instant>,
}

impl Ticks {
    /// When it is due next.
    fn after(&self, now: Instant) -> Instant {
        let next = now + self.every;
        self.also.filter(|also| *also > now && *also < next).unwrap_or(next)
    }
}

impl Watch {
    pub(crate) fn new(
        mirror: Arc<Mirror>,
        prefix: &str,
        after: Revision,
        began: Revision,
        next: Position,
        ring: watch::Receiver<Ring>,
    ) -> Self {
        let ring = Some(ring);
        Self { mirror, prefix: prefix.into(), after, began, next, ring, progress: None, pace: None }
    }

    /// Waits for the next events and appends all that are ready (about `max`: changes of one revision stay together)
    /// to `into`. [`Error::TooOld`] when this watch fell out of the retained history, [`Error::Closed`] at shutdown.
    /// May be cancelled: nothing is lost.
    pub async fn next_batch(&mut self, into: &mut Vec<Event>, max: usize) -> Result<(), Error> {
        if let Some(pace) = &mut self.pace {
            tokio::time::sleep_until(pace.due).await;
        }
        loop {
            // Read before looking: what is settled now is in the ring now.
            let settled = self.mirror.settled();
            let before = into.len();
            let drained = self.look(into, max.max(1))?;
            let found = into.len() > before;
            let reached = if found { settled.max(self.after) } else { settled };
            if drained && self.progress_is_due() && reached >= self.after {
                into.push(Event::Progress(reached));
            }
            if into.len() > before {
                if let Some(pace) = &mut self.pace {
                    pace.due = Instant::now() + pace.every;
                }
                return Ok(());
            }
            self.wait().await?;
        }
    }

    /// Asks that an [`Event::Progress`] be yielded every `every`, once everything before it has been yielded.
    #[must_use]
    pub fn with_progress(mut self, every: Duration) -> Self {
        self.progress = Some(Ticks { every, due: Instant::now() + every, also: None });
        self
    }

    /// Asks for one at a certain time, too.
    #[must_use]
    pub fn with_progress_at(mut self, at: Instant) -> Self {
        if let Some(progress) = &mut self.progress {
            progress.also = Some(at);
            progress.due = progress.due.min(at);
        }
        self
    }

    /// Asks that batches come at least `every` apart, so that under many writes they are larger and fewer. The first
    /// change after a quiet time still comes at once.
    #[must_use]
    pub fn with_pace(mut self, every: Duration) -> Self {
        self.pace = Some(Ticks { every, due: Instant::now(), also: None });
        self
    }

    /// Where the store was when the watch began: it has caught up when it yielded everything up to here.
    pub fn began_at(&self) -> Revision {
        self.began
    }

    /// Everything up to this revision has been yielded: what a progress event would say now.
    pub fn yielded(&self) -> Revision {
        let settled = self.mirror.settled();
        let ring = self.ring.as_ref().expect("taken only by drop").borrow();
        let more = self.next < ring.from || ring.changes.back().is_some_and(|(last, _)| *last >= self.next);
        if more { self.after } else { self.after.max(settled) }
    }

    /// Appends what is ready; true when that was all.
    fn look(&mut self, into: &mut Vec<Event>, max: usize) -> Result<bool, Error> {
        let ring_receiver = self.ring.as_mut().expect("taken only by drop");
        let from = ring_receiver.borrow().from;
        let mut taker = Taker { after: self.after, taken: false, into, left: max };
        if self.next < from {
            let prefix = &*self.prefix;
            let replayed = self
                .mirror
                .replay(self.next, from, |change| !concerns(prefix, &change.entry.key) || taker.take(change));
            match replayed {
                Replay::Upto(position) => self.next = position,
                Replay::Lost => return Err(too_old(&self.mirror, self.after)),
            }
        }
        let mut drained = false;
        if self.next >= from {
            drained = true;
            let ring = ring_receiver.borrow_and_update();
            if self.next < ring.lost {
                return Err(too_old(&self.mirror, self.after));
            }
            let start = ring.changes.partition_point(|(position, _)| *position < self.next);
            for (position, change) in ring.changes.range(start..) {
                if !taker.take(change) {
                    drained = false;
                    break;
                }
                self.next = position + 1;
            }
        }
        self.after = taker.after;
        Ok(drained)
    }

    /// Whether a progress event is due; if so the next one is due a period later.
    fn progress_is_due(&mut self) -> bool {
        let now = Instant::now();
        match &mut self.progress {
            Some(progress) if progress.due <= now => {
                progress.due = progress.after(now);
                true
            }
            _ => false,
        }
    }

    /// Waits until there may be something.
    async fn wait(&mut self) -> Result<(), Error> {
        let ring = self.ring.as_mut().expect("taken only by drop");
        let due = self.progress.as_ref().map(|progress| progress.due);
        let changed = match due {
            None => ring.changed().await,
            Some(due) => match tokio::time::timeout_at(due, ring.changed()).await {
                Ok(changed) => changed,
                Err(_elapsed) => Ok(()),
            },
        };
        // The topic is gone and everything in it was read. (A topic that breaks says so in its ring first.)
        changed.map_err(|_| Error::Closed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ring = None;
        self.mirror.leave(&self.prefix);
    }
}

/// Appends changes after a revision until enough are taken and the last one's revision is complete.
struct Taker<'a> {
    after: Revision,
    /// Whether the change at `after` was taken in this batch.
    taken: bool,
    into: &'a mut Vec<Event>,
    left: usize,
}

impl Taker<'_> {
    /// False when the change must wait for the next batch.
    fn take(&mut self, change: &Arc<Change>) -> bool {
        let revision = change.revision();
        let together = self.taken && revision == self.after;
        if self.left == 0 && !together {
            return false;
        }
        if revision > self.after || together {
            self.into.push(Event::Change(Arc::clone(change)));
            self.after = revision;
            self.taken = true;
            self.left = self.left.saturating_sub(1);
        }
        true
    }
}

/// Whether a watch of `prefix` is told of a change to `key`.
fn concerns(prefix: &str, key: &str) -> bool {
    if prefix.is_empty() || prefix.ends_with('/') { key.starts_with(prefix) } else { key == prefix }
}

fn too_old(mirror: &Mirror, asked: Revision) -> Error {
    Error::TooOld { asked, oldest: mirror.oldest() }
}
