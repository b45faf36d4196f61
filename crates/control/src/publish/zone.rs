//! One zone's worker: reads the zone, has it decided what to change, changes it, tells, and waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_api::landfall::DNSZone;
use landfall_plan::publish::{Found, Wanted, apply, decide, mark};
use landfall_runtime::clock;
use tokio::sync::{Notify, watch};

use super::open::{self, Opening};
use super::publisher::{Fault, Publisher};
use super::tell::{self, News};
use super::{Metrics, Publish};
use crate::federation::{Federation, now_ms};
use crate::shelf::Key;

/// How often a zone is read again although nobody told of a change.
const RESYNC: Duration = Duration::from_secs(600);
/// The same where somebody else has names that we want: they may have gone.
const RESYNC_CONFLICT: Duration = Duration::from_secs(60);
/// How long changes of plans are gathered.
const GATHER: Duration = Duration::from_millis(50);
/// How long after a fault it is tried again: at first, and at most.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How often it is looked, after a fault, whether a Secret has changed.
const SECRET_LOOK: Duration = Duration::from_secs(1);
/// How long a zone that is deleted waits for its server to take our records out.
const FAREWELL_MAX_MS: i64 = 120_000;

/// A zone's worker.
pub(super) struct Zone {
    pub(super) federation: Arc<Federation>,
    pub(super) publish: Arc<Publish>,
    pub(super) key: Key,
    changed: Arc<Notify>,
    news: watch::Receiver<u64>,
    metrics: Metrics,
    opened: Option<(Opening, Arc<dyn Publisher>)>,
    /// What the zone has, and when that was read.
    found: Option<(Found, Instant)>,
    /// How long that is believed.
    resync: Duration,
    faults: u32,
}

/// What comes after a pass.
enum Next {
    /// Nothing is left to do here, ever.
    End,
    /// Something changes, or it is time to look again.
    Wait,
    /// Soon again: what was found is not what is there.
    Again,
    /// After a while, or when the Secret is another.
    Retry(Duration),
}

impl Zone {
    /// A worker that has done nothing yet.
    pub(super) fn new(
        federation: &Arc<Federation>,
        publish: &Arc<Publish>,
        key: Key,
        changed: Arc<Notify>,
        metrics: Metrics,
    ) -> Self {
        let (federation, news) = (federation.clone(), publish.index.news());
        let publish = publish.clone();
        let (resync, faults) = (RESYNC, 0);
        Self { federation, publish, key, changed, news, metrics, opened: None, found: None, resync, faults }
    }

    /// Works until the zone is gone.
    pub(super) async fn run(mut self) {
        loop {
            let next = self.pass().await;
            match next {
                Next::End => break,
                Next::Again => tokio::time::sleep(GATHER).await,
                Next::Retry(wait) => self.rest(wait).await,
                Next::Wait => {
                    let resync = self.until_resync();
                    tokio::select! {
                        () = self.changed.notified() => {}
                        // The sender lives as long as we do.
                        _ = self.news.changed() => tokio::time::sleep(GATHER).await,
                        () = tokio::time::sleep(resync) => {}
                    }
                }
            }
        }
        self.metrics.names.set(0);
        self.publish.workers.lock().remove(&self.key);
        // Somebody may have made it again meanwhile.
        self.publish.changed.notify_one();
    }

    /// Where its object is at the hub.
    pub(super) fn path(&self) -> String {
        self.publish.zones.row.path("", &self.key.name)
    }

    fn until_resync(&self) -> Duration {
        self.found.as_ref().map_or(RESYNC, |(_, read)| self.resync.saturating_sub(read.elapsed()))
    }

    /// Waits after a fault; less long when the object or its Secret changes.
    async fn rest(&mut self, wait: Duration) {
        let before = self.object().and_then(|zone| open::gather(&self.federation, &zone).ok());
        let until = clock::instant() + wait;
        while clock::instant() < until {
            let left = until.saturating_duration_since(clock::instant()).min(SECRET_LOOK);
            if tokio::time::timeout(left, self.changed.notified()).await.is_ok() {
                // Our own word on the status is no news.
                let now = self.object();
                if now.as_ref().is_none_or(|zone| zone.metadata.deletion_timestamp.is_some()) {
                    return;
                }
            }
            let now = self.object().and_then(|zone| open::gather(&self.federation, &zone).ok());
            if now != before {
                self.faults = 0;
                return;
            }
        }
    }

    fn object(&self) -> Option<DNSZone> {
        let seen = self.publish.zones.get(&self.key)?;
        serde_json::from_value(seen.value()).ok()
    }

    async fn pass(&mut self) -> Next {
        let Some(zone) = self.object() else { return Next::End };
        let leaving = zone.metadata.deletion_timestamp.is_some();
        let held = tell::held(&zone);
        if leaving && !held {
            return Next::End;
        }
        if !leaving && !held && tell::hold(self, &zone).await.is_err() {
            return Next::Retry(RETRY_MIN);
        }
        if !leaving && *self.news.borrow_and_update() == 0 {
            // What is not read yet is not gone.
            return Next::Wait;
        }
        let outcome = self.publish_once(&zone, leaving).await;
        if let Err(fault) = &outcome {
            self.metrics.failures.inc();
            tracing::debug!(zone = zone.spec.zone, %fault, "publishing failed");
            // Whatever happens meanwhile, it is not known any more what the zone has.
            (self.found, self.opened) = (None, None);
        }
        if leaving {
            return self.leave(&zone, &outcome).await;
        }
        tell::tell(self, &zone, &outcome).await;
        match outcome {
            // Once at once; whoever changes our names all the time is waited for.
            Ok(news) if news.moved => match self.retry() {
                Next::Retry(RETRY_MIN) => Next::Again,
                later => later,
            },
            Ok(_) => {
                self.faults = 0;
                Next::Wait
            }
            Err(_) => self.retry(),
        }
    }

    /// Brings the zone in line with what is wanted: nothing, if it is left.
    async fn publish_once(&mut self, zone: &DNSZone, leaving: bool) -> Result<News, Fault> {
        let publisher = self.publisher(zone)?;
        let fresh = self.found.take().filter(|(_, read)| read.elapsed() < self.resync);
        let (mut found, read) = match fresh {
            Some(fresh) => fresh,
            None => (publisher.read().await?, clock::instant()),
        };
        let mark = mark(&self.federation.config.federation);
        let ttl_min_s = zone.spec.minimum_ttl.and_then(|ttl| u32::try_from(ttl).ok()).unwrap_or(0);
        let wanted = match leaving {
            true => Wanted::new(),
            false => self.publish.index.wanted(&zone.spec.zone, ttl_min_s),
        };
        let decision = decide(&mark, &publisher.fit(wanted, &found), &found);
        for change in &decision.changes {
            tracing::debug!(zone = zone.spec.zone, name = change.name, step = ?change.step, why = %change.reason, "a name");
        }
        self.resync = if decision.conflicts.is_empty() { RESYNC } else { RESYNC_CONFLICT };
        let applied = publisher.apply(&decision.changes).await;
        for change in applied.done.iter().filter_map(|at| decision.changes.get(*at)) {
            apply(&mark, &mut found, change);
        }
        self.metrics.changes.add(u64::try_from(applied.done.len()).unwrap_or(u64::MAX));
        let news = News::new(&mark, &found, &decision, &applied);
        self.metrics.names.set(i64::from(news.names));
        if !news.moved {
            self.found = Some((found, read));
        }
        applied.fault.map_or(Ok(news), Err)
    }

    fn publisher(&mut self, zone: &DNSZone) -> Result<Arc<dyn Publisher>, Fault> {
        let opening = open::gather(&self.federation, zone)?;
        if let Some((known, publisher)) = &self.opened
            && *known == opening
        {
            return Ok(publisher.clone());
        }
        self.found = None;
        let publisher = open::open(&self.federation.config, &opening)?;
        self.opened = Some((opening, publisher.clone()));
        Ok(publisher)
    }

    /// Lets a deleted zone go: when our records are out of it, or when they could not be taken out for too long.
    async fn leave(&mut self, zone: &DNSZone, outcome: &Result<News, Fault>) -> Next {
        let deleted = zone.metadata.deletion_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
        let late = now_ms().saturating_sub(deleted) > FAREWELL_MAX_MS;
        let go = match outcome {
            Ok(news) => !news.moved || late,
            // What was never understood was never published.
            Err(Fault::Misconfigured(_)) => true,
            Err(_) => late,
        };
        if !go {
            tell::tell(self, zone, outcome).await;
            return self.retry();
        }
        if let Err(fault) = outcome {
            tell::left(self, zone, fault).await;
        }
        match tell::release(self, zone).await {
            Ok(()) => Next::Wait,
            Err(_) => Next::Retry(RETRY_MIN),
        }
    }

    fn retry(&mut self) -> Next {
        let wait = RETRY_MIN.saturating_mul(1 << self.faults.min(16)).min(RETRY_MAX);
        self.faults = self.faults.saturating_add(1);
        Next::Retry(wait)
    }
}
