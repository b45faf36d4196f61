//! Watching: the current state if asked, then every change in order, as lines of JSON.
//!
//! An event of an object that is sent as stored is encoded once and shared by all watchers.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use landfall_api::Status;
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

/// The most events taken from the store, and the most bytes joined, for one frame.
const BATCH_EVENTS_MAX: usize = 256;
const FRAME_BYTES_MAX: usize = 256 * 1024;

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
    let snapshot = store.snapshot();
    let after = match initial {
        Initial::None => wanted.unwrap_or_else(|| snapshot.revision()),
        _ => snapshot.revision(),
    };
    if initial != Initial::None {
        super::list::reached(snapshot.revision(), wanted)?;
    }
    let opened = match store.watch(&selection.prefix, after) {
        Ok(watch) if options.bookmarks => Ok(watch.with_progress(BOOKMARK_EVERY)),
        other => other,
    };
    let watch = match opened {
        Ok(watch) => watch,
        // Kubernetes answers 200 with an ERROR event here; clients relist on either.
        Err(Error::TooOld { asked, oldest }) => {
            let line = error_line(&errors::too_old(asked, oldest));
            return Ok(stream::once(async move { line }).boxed());
        }
        Err(error) => return Err(errors::general(&error)),
    };
    let mut writer = Writer { shape, selection, headings: true };
    let first = writer.initial(&snapshot, initial, options.bookmarks)?;
    let timeout = options.timeout_s.filter(|s| *s > 0).map_or_else(spread_timeout, Duration::from_secs);
    let live = live(watch, writer);
    let end = async move {
        tokio::select! { () = tokio::time::sleep(timeout) => {}, () = stop => {} }
    };
    let head = stream::iter(first);
    Ok(head.chain(live.take_until(Box::pin(end))).boxed())
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
    // The address of a fresh allocation is luck enough to spread reconnects.
    let luck = uuid::Uuid::new_v4().as_u128() % 1800;
    TIMEOUT_DEFAULT + Duration::from_secs(u64::try_from(luck).unwrap_or(0))
}

/// Frames of live changes until the watch fails.
fn live(watch: Watch, writer: Writer) -> impl futures::Stream<Item = Bytes> + Send {
    let state = Some((watch, writer, Vec::with_capacity(BATCH_EVENTS_MAX)));
    stream::unfold(state, |state| async move {
        let (mut watch, mut writer, mut events) = state?;
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
                Ok(frame) => return Some((frame, Some((watch, writer, events)))),
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
    fn initial(
        &mut self,
        snapshot: &Snapshot,
        initial: Initial,
        bookmarks: bool,
    ) -> Result<Vec<Bytes>, Status> {
        let mut frames = Vec::new();
        if initial == Initial::None {
            return Ok(frames);
        }
        let mut out = Vec::new();
        let prefix = self.selection.prefix.clone();
        for entry in snapshot.range(&prefix, "") {
            if self.selection.matches(entry) {
                self.line(&mut out, "ADDED", entry)?;
            }
            if out.len() > FRAME_BYTES_MAX {
                frames.push(std::mem::take(&mut out).into());
            }
        }
        if initial == Initial::StateThenMark && bookmarks {
            self.bookmark(&mut out, snapshot.revision(), true);
        }
        if !out.is_empty() {
            frames.push(out.into());
        }
        Ok(frames)
    }

    /// One frame for a batch of events; a single shared line is sent without copying it.
    fn frame(&mut self, events: &[Event]) -> Result<Bytes, Status> {
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
