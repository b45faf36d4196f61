//! Listing: a consistent snapshot, selected, in chunks if asked, in any form.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use landfall_api::field::{ErrorList, ErrorType, Path};
use landfall_api::{Reason, Status};
use landfall_store::{Entry, Error, Snapshot, Store};
use serde_json::{Map, Value, json};

use super::page::Token;
use super::select::Selection;
use super::shape::Shape;
use crate::http::negotiate::Form;
use crate::options::Options;
use crate::{encode, errors, keys};

/// A resourceVersion parameter: none when absent.
pub fn parse_revision(text: &str) -> Result<Option<u64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: \
             parsing {text:?}: invalid syntax"
        ))
    })
}

/// How long a client waits for a revision that it has from another hub and this one has not reached.
const BEHIND_MAX: Duration = Duration::from_secs(3);

/// The newest state here, once it is not older than `wanted`; 504 when that takes too long.
pub async fn reach(store: &dyn Store, wanted: Option<u64>) -> Result<Snapshot, Status> {
    let snapshot = store.snapshot();
    let asked = wanted.unwrap_or(0);
    if snapshot.revision() >= asked {
        return Ok(snapshot);
    }
    store.barrier().await.map_err(|e| errors::general(&e))?;
    // Whoever asks for something that has not happened anywhere gets a moment for it to happen.
    let _late = tokio::time::timeout(BEHIND_MAX, pass(store, asked)).await;
    let snapshot = store.snapshot();
    let current = snapshot.revision();
    if current < asked { Err(errors::general(&Error::Future { asked, current })) } else { Ok(snapshot) }
}

/// Returns once the store's state is at a revision, or can no longer be followed.
async fn pass(store: &dyn Store, revision: u64) {
    let Ok(mut watch) = store.watch("", store.snapshot().revision()) else { return };
    let mut events = Vec::new();
    while store.snapshot().revision() < revision {
        events.clear();
        if watch.next_batch(&mut events, FOLLOW_EVENTS).await.is_err() {
            return;
        }
    }
}

/// How many changes are skipped at once while waiting for a revision.
const FOLLOW_EVENTS: usize = 1024;

/// Lists; the encoded answer.
pub async fn list(
    store: &dyn Store,
    shape: &Shape,
    selection: &Selection,
    options: &Options<'_>,
) -> Result<Bytes, Status> {
    let (page, metadata) = take(store, shape, selection, options).await?;
    page.write(shape, &metadata)
}

/// The entries of a list and its metadata, for those who want more than to send them.
pub async fn page(
    store: &dyn Store,
    shape: &Shape,
    selection: &Selection,
    options: &Options<'_>,
) -> Result<(Vec<Arc<Entry>>, Map<String, Value>), Status> {
    let (page, metadata) = take(store, shape, selection, options).await?;
    Ok((page.entries, metadata))
}

async fn take(
    store: &dyn Store,
    shape: &Shape,
    selection: &Selection,
    options: &Options<'_>,
) -> Result<(Page, Map<String, Value>), Status> {
    let (snapshot, after) = start(store, shape, selection, options).await?;
    let page = Page::take(&snapshot, selection, &after, options.limit);
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), json!(snapshot.revision().to_string()));
    if let Some(last) = page.more.then(|| page.entries.last()).flatten() {
        let collection = keys::collection(&shape.kind.stored_as.0, &shape.kind.stored_as.1);
        let after = last.key.strip_prefix(&*collection).unwrap_or(&last.key).to_owned();
        metadata.insert("continue".into(), json!(Token { revision: snapshot.revision(), after }.encode()));
        if selection.is_everything() {
            let last_key = &*last.key;
            let remaining = snapshot.range(&selection.prefix, last_key).count();
            metadata.insert("remainingItemCount".into(), json!(remaining));
        }
    }
    Ok((page, metadata))
}

/// The snapshot to list from, and the key to begin after.
async fn start(
    store: &dyn Store,
    shape: &Shape,
    selection: &Selection,
    options: &Options<'_>,
) -> Result<(Snapshot, String), Status> {
    let wanted = parse_revision(&options.resource_version)?;
    check_match(options, wanted)?;
    if !options.continue_token.is_empty() {
        return resume(store, shape, selection, options, wanted).await;
    }
    let snapshot = match wanted {
        Some(revision) => {
            let newest = reach(store, wanted).await?;
            if exactly(options, revision) {
                store.snapshot_at(revision).await.map_err(|e| errors::general(&e))?
            } else {
                newest
            }
        }
        None => {
            store.barrier().await.map_err(|e| errors::general(&e))?;
            store.snapshot()
        }
    };
    Ok((snapshot, String::new()))
}

/// Whether a list is of that very revision. Chunks are when nothing else is said, for the sake of old clients.
fn exactly(options: &Options<'_>, revision: u64) -> bool {
    match &*options.resource_version_match {
        "" => options.limit > 0 && revision > 0,
        rule => rule == "Exact",
    }
}

async fn resume(
    store: &dyn Store,
    shape: &Shape,
    selection: &Selection,
    options: &Options<'_>,
    wanted: Option<u64>,
) -> Result<(Snapshot, String), Status> {
    if wanted.is_some_and(|revision| revision > 0) {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    let token = Token::decode(&options.continue_token)?;
    let after =
        format!("{}{}", keys::collection(&shape.kind.stored_as.0, &shape.kind.stored_as.1), token.after);
    if !after.starts_with(&selection.prefix) {
        return Err(Status::bad_request(
            "invalid continue token: continue key is not valid: it is of another list",
        ));
    }
    store.barrier().await.map_err(|e| errors::general(&e))?;
    if token.revision == 0 {
        return Ok((store.snapshot(), after));
    }
    match store.snapshot_at(token.revision).await {
        Ok(snapshot) => Ok((snapshot, after)),
        Err(Error::TooOld { .. }) => {
            let mut status = Status::new(Reason::Expired, EXPIRED_CONTINUE);
            status.continue_token = Some(Token { revision: 0, after: token.after }.encode());
            Err(status)
        }
        Err(error) => Err(errors::general(&error)),
    }
}

/// What Kubernetes says, since clients show it.
const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

pub(super) const MATCH: &str = "resourceVersionMatch";

fn check_match(options: &Options<'_>, wanted: Option<u64>) -> Result<(), Status> {
    let rule = &*options.resource_version_match;
    if options.send_initial_events.is_some() {
        return Err(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    match (rule, wanted) {
        ("", _) => Ok(()),
        (_, None) => {
            Err(forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        }
        _ if !options.continue_token.is_empty() => {
            Err(forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"))
        }
        ("Exact", Some(0)) => {
            Err(forbidden(MATCH, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
        }
        ("Exact" | "NotOlderThan", _) => Ok(()),
        (other, _) => {
            let mut errors = ErrorList::new();
            let words = "supported values: \"Exact\", \"NotOlderThan\", \"\"";
            errors.add(ErrorType::NotSupported, &Path::new(MATCH), Some(other.into()), words);
            Err(invalid(&errors))
        }
    }
}

/// 422 for a parameter that may not stand where it stands.
pub(super) fn forbidden(parameter: &str, why: &str) -> Status {
    let mut errors = ErrorList::new();
    errors.forbidden(&Path::new(parameter), why);
    invalid(&errors)
}

fn invalid(errors: &ErrorList) -> Status {
    Status::invalid("meta.k8s.io", "ListOptions", "", errors)
}

/// One chunk of a list.
struct Page {
    entries: Vec<Arc<Entry>>,
    more: bool,
}

impl Page {
    fn take(snapshot: &Snapshot, selection: &Selection, after: &str, limit: usize) -> Self {
        if selection.exact {
            let found = snapshot.get(&selection.prefix).filter(|e| selection.matches(e)).cloned();
            return Self { entries: found.into_iter().collect(), more: false };
        }
        let all = selection.is_everything();
        let mut chosen =
            snapshot.range(&selection.prefix, after).filter(|entry| all || selection.matches(entry));
        let cap = if limit == 0 { usize::MAX } else { limit };
        let entries = chosen.by_ref().take(cap).cloned().collect();
        let more = chosen.next().is_some();
        Self { entries, more }
    }

    fn write(&self, shape: &Shape, metadata: &Map<String, Value>) -> Result<Bytes, Status> {
        if let Form::Table(version) = shape.form {
            let rows = self.entries.iter().map(|e| shape.row(e)).collect::<Result<Vec<_>, _>>()?;
            let table = shape.table(version, &json!(metadata), true, &rows);
            return Ok(serde_json::to_vec(&table).expect("JSON values can be written").into());
        }
        let (kind, api_version) = match shape.form {
            Form::Partial(version) => {
                ("PartialObjectMetadataList".to_owned(), version.api_version().to_owned())
            }
            _ => (
                shape.kind.list_kind.to_string(),
                encode::api_version(&shape.kind.group, &shape.kind.version),
            ),
        };
        let size: usize = self.entries.iter().map(|e| e.value.len() + 40).sum();
        let mut out = Vec::with_capacity(size + 200);
        out.extend_from_slice(
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":").as_bytes(),
        );
        serde_json::to_writer(&mut out, metadata).expect("writing to memory cannot fail");
        out.extend_from_slice(b",\"items\":[");
        for (index, entry) in self.entries.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            shape.write(&mut out, entry, true)?;
        }
        out.extend_from_slice(b"]}");
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_a_revision_are_exact() {
        let check = |limit, rule: &'static str, revision, want| {
            let options = Options { limit, resource_version_match: rule.into(), ..Options::default() };
            assert_eq!(exactly(&options, revision), want, "{limit} {rule:?} {revision}");
        };
        check(0, "", 5, false);
        check(1, "", 5, true);
        check(1, "", 0, false);
        check(1, "NotOlderThan", 5, false);
        check(0, "Exact", 5, true);
    }

    #[tokio::test]
    async fn a_revision_that_comes_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let store = landfall_store::open_embedded(landfall_store::embedded::Config::new(dir.path())).unwrap();
        let first = store.create("a/b", "1".into(), None).await.unwrap();
        let (got, second) =
            tokio::join!(reach(&*store, Some(first.revision + 1)), store.create("a/c", "2".into(), None));
        assert!(got.unwrap().revision() >= second.unwrap().revision);
        store.close().await;
    }
}
