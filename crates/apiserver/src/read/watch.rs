//! Watching: the current state if asked, then every change in order, as lines of JSON.
//!
//! An event of an object that is sent as stored is encoded once and shared by all watchers.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use landfall_api::Status;
use landfall_runtime::clock;
use landfall_store::{Change, Entry, Error, Event, Memo, Snapshot, Store, Watch};
use serde_json::{Value, json};

use super::list::{MATCH, forbidden, parse_revision};
use super::select::Selection;
use super::shape::Shape;
use crate::http::negotiate::Form;
use crate::options::Options;
use crate::{encode, errors};

/// How often a watch that allows bookmarks gets one, as in Kubernetes.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// And one so long before it ends, as in Kubernetes: who goes on from there need not read everything again.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// The most events taken from the store, and the most bytes joined, for one frame.
const BATCH_EVENTS_MAX: usize = 256;
const FRAME_BYTES_MAX: usize = 256 * 1024;

/// How many objects of the initial state are looked at before others get their turn.
const WALK_MAX: usize = 1024;

/// Batches come at least this far apart, so that under many writes a watcher gets fewer and larger frames.
const PACE: Duration = Duration::from_millis(10);

/// A watch without a timeout ends after this long plus a part of it, so that clients spread over several hubs.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30 * 60);

/// Opens a watch; its frames. Errors before the first frame are an HTTP status, later ones an ERROR event.
pub async fn watch(
    store: &dyn Store,
    shape: Shape,
    selection: Selection,
    options: &Options<'_>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<BoxStream<'static, Bytes>, Status> {
    let wanted = parse_revision(&options.resource_version)?;
    let initial = initial_state(options, wanted)?;
    // Without a revision, or for a streamed list, the newest state is meant.
    if wanted.is_none() || (initial == Initial::StateThenMark && wanted != Some(0)) {
        store.barrier().await.map_err(|e| errors::general(&e))?;
    }
    let (snapshot, after) = match (initial, wanted) {
        (Initial::None, Some(after)) if after > 0 => (store.snapshot(), after),
        _ => {
            let snapshot = super::list::reach(store, wanted).await?;
            let now = snapshot.revision();
            (snapshot, now)
        }
    };
    let mut opened = store.watch(&selection.prefix, after);
    if matches!(opened, Err(Error::Future { .. })) {
        // The client heard of it through another hub, a moment ago.
        store.barrier().await.map_err(|e| errors::general(&e))?;
        opened = store.watch(&selection.prefix, after);
    }
    let timeout = options.timeout_s.filter(|s| *s > 0).map_or_else(spread_timeout, Duration::from_secs);
    let end = async move {
        tokio::select! { () = tokio::time::sleep(timeout) => {}, () = stop => {} }
    };
    let opened = match opened {
        Ok(watch) if options.bookmarks => {
            let last = tokio::time::Instant::now() + timeout.saturating_sub(BOOKMARK_BEFORE_END);
            Ok(watch.with_pace(PACE).with_progress(BOOKMARK_EVERY).with_progress_at(last))
        }
        Ok(watch) => Ok(watch.with_pace(PACE)),
        Err(error) => Err(error),
    };
    let watch = match opened {
        Ok(watch) => watch,
        // Kubernetes answers 200 with an ERROR event here; clients relist on either.
        Err(Error::TooOld { asked, oldest }) => {
            let line = error_line(&errors::too_old(asked, oldest));
            return Ok(stream::once(async move { line }).boxed());
        }
        // Nothing has happened after a revision that is still to come; the client asks again when its time is up.
        Err(Error::Future { .. }) => return Ok(stream::pending().take_until(Box::pin(end)).boxed()),
        Err(error) => return Err(errors::general(&error)),
    };
    let writer = Writer { shape, selection, headings: true };
    let walk = (initial != Initial::None).then(|| Walk {
        snapshot,
        after: String::new(),
        mark: initial == Initial::StateThenMark && options.bookmarks,
    });
    Ok(frames(watch, writer, walk).take_until(Box::pin(end)).boxed())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Initial {
    /// Only changes.
    None,
    /// The state as ADDED events.
    State,
    /// The state, then the bookmark that ends it.
    StateThenMark,
}

fn initial_state(options: &Options<'_>, wanted: Option<u64>) -> Result<Initial, Status> {
    let rule = &*options.resource_version_match;
    match options.send_initial_events {
        Some(_) if rule != "NotOlderThan" => {
            Err(forbidden(MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
        }
        Some(true) if options.bookmarks => Ok(Initial::StateThenMark),
        Some(true) => Ok(Initial::State),
        Some(false) => Ok(Initial::None),
        None if !rule.is_empty() => Err(forbidden(
            MATCH,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        None if matches!(wanted, None | Some(0)) => Ok(Initial::State),
        None => Ok(Initial::None),
    }
}

fn spread_timeout() -> Duration {
    let luck = uuid::Uuid::new_v4().as_u128() % 1800;
    TIMEOUT_DEFAULT + Duration::from_secs(u64::try_from(luck).unwrap_or(0))
}

/// The initial state on its way to a client: made frame by frame, as fast as the client takes it.
struct Walk {
    snapshot: Snapshot,
    /// The last key looked at.
    after: String,
    /// Whether a bookmark ends it.
    mark: bool,
}

/// Frames of the initial state, then of live changes, until the watch fails.
fn frames(watch: Watch, writer: Writer, walk: Option<Walk>) -> impl futures::Stream<Item = Bytes> + Send {
    let state = Some((watch, writer, walk, Vec::new()));
    stream::unfold(state, |state| async move {
        let (mut watch, mut writer, mut walk, mut events) = state?;
        while let Some(left) = walk.take() {
            let frame = match writer.walk(left) {
                Ok((frame, rest)) => {
                    walk = rest;
                    frame
                }
                Err(status) => return Some((error_line(&status), None)),
            };
            if !frame.is_empty() {
                return Some((frame, Some((watch, writer, walk, events))));
            }
            tokio::task::yield_now().await;
        }
        loop {
            events.clear();
            if let Err(error) = watch.next_batch(&mut events, BATCH_EVENTS_MAX).await {
                return match error {
                    Error::Closed => None,
                    error => Some((error_line(&errors::general(&error)), None)),
                };
            }
            match writer.frame(&events) {
                Ok(frame) if frame.is_empty() => {}
                Ok(frame) => return Some((frame, Some((watch, writer, None, events)))),
                Err(status) => return Some((error_line(&status), None)),
            }
        }
    })
}

/// Turns changes into lines.
struct Writer {
    shape: Shape,
    selection: Selection,
    /// For tables: whether the next event is the first.
    headings: bool,
}

impl Writer {
    /// The next frame of the initial state (it may be empty), and what is left of it.
    fn walk(&mut self, mut walk: Walk) -> Result<(Bytes, Option<Walk>), Status> {
        self.shape.now_s = clock::epoch_s();
        let mut out = Vec::new();
        let prefix = self.selection.prefix.clone();
        // A whole key is not a range.
        let one = self.selection.exact.then(|| walk.snapshot.get(&prefix)).flatten();
        let range = (!self.selection.exact).then(|| walk.snapshot.range(&prefix, &walk.after));
        let (mut seen, mut stopped) = (0, None);
        for entry in one.into_iter().chain(range.into_iter().flatten()) {
            if self.selection.matches(entry) {
                self.line(&mut out, "ADDED", entry)?;
            }
            seen += 1;
            if !self.selection.exact && (seen >= WALK_MAX || out.len() > FRAME_BYTES_MAX) {
                stopped = Some(entry.key.to_string());
                break;
            }
        }
        if let Some(after) = stopped {
            walk.after = after;
            return Ok((out.into(), Some(walk)));
        }
        if walk.mark {
            self.bookmark(&mut out, walk.snapshot.revision(), true);
        }
        Ok((out.into(), None))
    }

    /// One frame for a batch of events; a single shared line is sent without copying it.
    fn frame(&mut self, events: &[Event]) -> Result<Bytes, Status> {
        // Ages are counted to the moment they are written.
        self.shape.now_s = clock::epoch_s();
        if let [Event::Change(change)] = events
            && let Some(line) = self.shared(change)
        {
            return Ok(line.clone());
        }
        let mut out = Vec::new();
        for event in events {
            match event {
                Event::Change(change) => match self.shared(change) {
                    Some(line) => out.extend_from_slice(line),
                    None => self.change(&mut out, change)?,
                },
                Event::Progress(revision) => self.bookmark(&mut out, *revision, false),
            }
        }
        Ok(out.into())
    }

    /// The line that every watcher of the plain objects shares.
    fn shared<'a>(&self, change: &'a Change) -> Option<&'a Bytes> {
        let everything = self.selection.is_everything()
            && (!self.selection.exact || *change.entry.key == *self.selection.prefix);
        let same =
            everything && self.shape.is_stored() && encode::is_stored_as(&change.entry, &self.shape.kind);
        same.then(|| change.memo.get_or_init(|| plain_line(change)))
    }

    /// The line of a change as this watcher sees it: an object may enter or leave its selection.
    fn change(&mut self, out: &mut Vec<u8>, change: &Change) -> Result<(), Status> {
        let before = change.previous.as_ref().is_some_and(|e| self.selection.matches(e));
        let now = !change.removed && self.selection.matches(&change.entry);
        match (before, now) {
            (false, false) => Ok(()),
            (false, true) => self.line(out, "ADDED", &change.entry),
            (true, true) => self.line(out, "MODIFIED", &change.entry),
            (true, false) => {
                // What left is shown as it was, at the revision of its leaving.
                let last = change.previous.as_ref().unwrap_or(&change.entry);
                let left = Entry {
                    key: last.key.clone(),
                    value: last.value.clone(),
                    created: last.created,
                    revision: change.entry.revision,
                    memo: Memo::default(),
                };
                self.line(out, "DELETED", &left)
            }
        }
    }

    fn line(&mut self, out: &mut Vec<u8>, event: &str, entry: &Entry) -> Result<(), Status> {
        open_line(out, event);
        if let Form::Table(version) = self.shape.form {
            let row = self.shape.row(entry)?;
            let metadata = json!({"resourceVersion": entry.revision.to_string()});
            let table = self.shape.table(version, &metadata, std::mem::take(&mut self.headings), &[row]);
            serde_json::to_writer(&mut *out, &table).expect("writing to memory cannot fail");
        } else {
            self.shape.write(out, entry, false)?;
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    fn bookmark(&self, out: &mut Vec<u8>, revision: u64, ends_initial: bool) {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let kind = &self.shape.kind;
        let object: Value = match self.shape.form {
            Form::Partial(version) => json!({
                "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata,
            }),
            _ => json!({
                "kind": &*kind.kind, "apiVersion": encode::api_version(&kind.group, &kind.version),
                "metadata": metadata,
            }),
        };
        open_line(out, "BOOKMARK");
        serde_json::to_writer(&mut *out, &object).expect("writing to memory cannot fail");
        out.extend_from_slice(b"}\n");
    }
}

fn plain_line(change: &Change) -> Bytes {
    let event = match (change.removed, &change.previous) {
        (true, _) => "DELETED",
        (false, None) => "ADDED",
        (false, Some(_)) => "MODIFIED",
    };
    let mut out = Vec::with_capacity(change.entry.value.len() + 96);
    open_line(&mut out, event);
    encode::write_object(&mut out, &change.entry, encode::Head::Stored);
    out.extend_from_slice(b"}\n");
    out.into()
}

fn open_line(out: &mut Vec<u8>, event: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

fn error_line(status: &Status) -> Bytes {
    let mut line = json!({"type": "ERROR", "object": status.to_value()}).to_string();
    line.push('\n');
    line.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::shape::Include;
    use super::*;

    fn kind() -> landfall_api::Kind {
        landfall_api::kinds::federation().into_iter().find(|k| k.kind == "ConfigMap").unwrap()
    }

    async fn open(
        store: &Arc<dyn Store>,
        options: &Options<'_>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> BoxStream<'static, Bytes> {
        let kind = kind();
        let selection = Selection::parse(&kind, "", "", options).unwrap();
        let shape = Shape::new(Arc::new(kind), Form::Plain, Include::Metadata, 0);
        watch(&**store, shape, selection, options, stop).await.unwrap()
    }

    async fn put(store: &Arc<dyn Store>, name: &str, size: usize) -> u64 {
        let object = json!({"metadata": {"name": name, "namespace": "dev"}, "data": {"x": "x".repeat(size)}});
        let key = format!("core/configmaps/dev/{name}");
        store.create(&key, encode::stored(&kind(), &object), None).await.unwrap().revision
    }

    fn lines(frame: &Bytes) -> usize {
        frame.iter().filter(|b| **b == b'\n').count()
    }

    #[tokio::test]
    async fn the_state_comes_in_frames_and_then_changes() {
        let dir = tempfile::tempdir().unwrap();
        let store = landfall_store::open_embedded(landfall_store::embedded::Config::new(dir.path())).unwrap();
        for number in 0..5 {
            put(&store, &format!("c{number}"), 100_000).await;
        }
        let options = Options { resource_version: "0".into(), ..Options::default() };
        let mut frames = open(&store, &options, std::future::pending()).await;
        let (first, second) = (frames.next().await.unwrap(), frames.next().await.unwrap());
        assert_eq!((lines(&first), lines(&second)), (3, 2));
        put(&store, "new", 1).await;
        assert!(frames.next().await.unwrap().starts_with(b"{\"type\":\"ADDED\""));

        // Without initial events a watch from anywhere begins now.
        let options = Options {
            send_initial_events: Some(false),
            resource_version: "0".into(),
            resource_version_match: "NotOlderThan".into(),
            ..Options::default()
        };
        let mut frames = open(&store, &options, std::future::pending()).await;
        let revision = put(&store, "newer", 1).await;
        let frame = frames.next().await.unwrap();
        assert!(String::from_utf8_lossy(&frame).contains(&format!("\"resourceVersion\":\"{revision}\"")));

        // Stopping cuts off what is left of the state too.
        let options = Options::default();
        let mut frames = open(&store, &options, std::future::ready(())).await;
        assert_eq!(frames.next().await, None);
        store.close().await;
    }
}
