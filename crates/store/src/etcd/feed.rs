//! Fills the mirror: one list at one revision, then a watch from there for ever.
//!
//! A lost stream is opened again at the next revision, on any endpoint: nothing is missed and nothing comes twice. Only
//! when etcd has compacted that revision, or lost it, the state is listed anew, and local watches end with "too old".

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Notify;
use tonic::Streaming;

use super::client::{Client, signed, unsigned};
use super::keys::Keys;
use super::wire::{
    self, KeyValue, RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse, WatchUnion,
};
use crate::mirror::Mirror;
use crate::seal::{Seals, Unopened};
use crate::{Change, Entry, Error, Revision, Snapshot};

/// How many keys are listed in one call.
const PAGE: i64 = 1000;
/// How many watch responses that are ready are published together.
const TOGETHER_MAX: usize = 256;
/// How long to wait before a value that cannot be opened is looked at again.
const SEALED_EVERY: Duration = Duration::from_secs(2);
/// How long to wait before a lost stream is opened again.
const RECONNECT_EVERY: Duration = Duration::from_millis(100);

/// The revision that etcd is at.
pub(super) async fn newest(client: &Client, keys: &Keys) -> Result<Revision, Error> {
    let (key, range_end) = keys.objects();
    let request = RangeRequest { key, range_end, limit: 1, keys_only: true, ..RangeRequest::default() };
    let answer = client.range(request).await?;
    Ok(unsigned(answer.header.map_or(0, |header| header.revision)))
}

/// Lists all keys at a revision (0: the newest) and gives the state there.
pub(super) async fn list(client: &Client, keys: &Keys, revision: Revision) -> Result<Snapshot, Error> {
    let (mut key, range_end) = keys.objects();
    let mut state = Snapshot::empty(revision);
    loop {
        let revision = signed(state.revision());
        let request = RangeRequest {
            key,
            range_end: range_end.clone(),
            limit: PAGE,
            revision,
            ..RangeRequest::default()
        };
        let page = client.range(request).await?;
        if state.revision() == 0 {
            state.set_revision(unsigned(page.header.map_or(0, |header| header.revision)));
        }
        let last = page.kvs.last().map(|kv| kv.key.clone());
        for kv in &page.kvs {
            if let Some(name) = keys.strip(&kv.key) {
                state.put(entry(&keys.seals, name.into(), kv)?);
            }
        }
        match last {
            // The smallest key after the last.
            Some(last) if page.more => key = [&last[..], &[0]].concat().into(),
            _ => return Ok(state),
        }
    }
}

/// The oldest revision that etcd has, learned by asking for a watch from an older one; none when that is not refused.
pub(super) async fn oldest(
    client: &Client,
    keys: &Keys,
    compacted: Revision,
) -> Result<Option<Revision>, Error> {
    let mut stream = client.watch(watch_from(keys, compacted)).await?;
    loop {
        match stream.message().await {
            Ok(Some(response)) if response.created && response.events.is_empty() && !response.canceled => {}
            Ok(Some(response)) => {
                return Ok((response.compact_revision > 0).then(|| unsigned(response.compact_revision)));
            }
            Ok(None) => return Ok(None),
            Err(status) => return Err(Error::Unavailable(status.message().to_owned())),
        }
    }
}

fn watch_from(keys: &Keys, revision: Revision) -> WatchRequest {
    let (key, range_end) = keys.all();
    let create = WatchCreateRequest { key, range_end, start_revision: signed(revision) };
    WatchRequest { request: Some(WatchUnion::Create(create)) }
}

/// An entry from etcd. The value is copied, since it is a slice of a much larger message.
pub(super) fn entry(seals: &Seals, key: Arc<str>, kv: &KeyValue) -> Result<Arc<Entry>, Error> {
    let value = seals.open(&key, &kv.value).map_err(|Unopened(why)| Error::Sealed(why))?;
    Ok(Entry::new(key, value, unsigned(kv.create_revision), unsigned(kv.mod_revision)))
}

/// Keeps the mirror up to date until it is dropped.
pub(super) async fn run(client: Arc<Client>, keys: Keys, mirror: Arc<Mirror>, went_back: Arc<Notify>) {
    loop {
        let end = tokio::select! {
            end = follow(&client, &keys, &mirror) => end,
            () = went_back.notified() => End::Gone,
        };
        match end {
            End::Lost(why) => {
                tracing::warn!(%why, "the watch on etcd ended; opening it again");
                client.rotate();
            }
            // It may be of the past, sealed with a key that is gone since. If it is of the present, nothing after it is
            // told until it can be opened: what cannot be seen must not look deleted.
            End::Sealed(why) => match list(&client, &keys, 0).await {
                Ok(state) => {
                    mirror.reset(state);
                    continue;
                }
                Err(error) => {
                    tracing::error!(why, %error, "a value cannot be opened; all hubs need the same keys");
                    tokio::time::sleep(SEALED_EVERY).await;
                }
            },
            End::Gone => match list(&client, &keys, 0).await {
                Ok(state) => {
                    tracing::warn!(
                        "etcd no longer has what this hub should see next; everything is listed anew"
                    );
                    mirror.reset(state);
                    continue;
                }
                Err(error) => tracing::warn!(%error, "listing etcd failed; trying again"),
            },
        }
        tokio::time::sleep(RECONNECT_EVERY).await;
    }
}

/// Why a stream ended.
enum End {
    /// The connection or the member went away.
    Lost(String),
    /// What should come next is gone.
    Gone,
    /// What comes next cannot be opened.
    Sealed(String),
}

async fn follow(client: &Client, keys: &Keys, mirror: &Mirror) -> End {
    let mut stream = match client.watch(watch_from(keys, mirror.settled() + 1)).await {
        Ok(stream) => stream,
        Err(error) => return End::Lost(error.to_string()),
    };
    loop {
        let (responses, end) = next_responses(&mut stream).await;
        let mut state = mirror.snapshot();
        let before = state.revision();
        let mut changes = Vec::new();
        let mut events = responses.iter().flat_map(|response| &response.events);
        let sealed = events.find_map(|event| apply(keys, &mut state, event, &mut changes).err());
        let end = sealed.map(|error| End::Sealed(error.to_string())).or(end);
        if state.revision() > before {
            mirror.publish(&changes, state);
        }
        if let Some(end) = end {
            return end;
        }
    }
}

/// Waits for a response and takes those that are ready with it; also why there will be no more, if so.
async fn next_responses(stream: &mut Streaming<WatchResponse>) -> (VecDeque<WatchResponse>, Option<End>) {
    let mut responses = VecDeque::new();
    let mut next = stream.message().await;
    loop {
        match next {
            Ok(Some(response)) if response.compact_revision > 0 => return (responses, Some(End::Gone)),
            Ok(Some(response)) if response.canceled => {
                return (responses, Some(End::Lost(format!("cancelled: {}", response.cancel_reason))));
            }
            Ok(Some(response)) => responses.push_back(response),
            Ok(None) => return (responses, Some(End::Lost("the stream ended".into()))),
            Err(status) => return (responses, Some(End::Lost(status.message().to_owned()))),
        }
        if responses.len() >= TOGETHER_MAX {
            return (responses, None);
        }
        match stream.message().now_or_never() {
            Some(ready) => next = ready,
            None => return (responses, None),
        }
    }
}

/// Does one event to the state and notes the change.
fn apply(
    keys: &Keys,
    state: &mut Snapshot,
    event: &wire::Event,
    changes: &mut Vec<Arc<Change>>,
) -> Result<(), Error> {
    let Some(kv) = &event.kv else { return Ok(()) };
    let revision = unsigned(kv.mod_revision);
    if let Some(name) = keys.strip(&kv.key) {
        let previous = state.get(name).cloned();
        let change = match (event.kind, previous) {
            (wire::DELETE, Some(last)) => Some(Change::removed(last, revision)),
            // Created and removed between two states that we have: never seen by anybody here.
            (wire::DELETE, None) => None,
            (_, previous) => {
                let key = previous.as_ref().map_or_else(|| name.into(), |previous| Arc::clone(&previous.key));
                Some(Change::written(entry(&keys.seals, key, kv)?, previous))
            }
        };
        if let Some(change) = change {
            state.apply(&change);
            changes.push(change);
        }
    }
    state.set_revision(revision.max(state.revision()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn event(kind: i32, key: &str, created: i64, revision: i64) -> wire::Event {
        let kv = KeyValue {
            key: Bytes::copy_from_slice(key.as_bytes()),
            create_revision: created,
            mod_revision: revision,
            ..KeyValue::default()
        };
        wire::Event { kind, kv: Some(kv) }
    }

    #[test]
    fn events_become_changes() {
        let keys = Keys::new("/r", Seals::default());
        let mut state = Snapshot::empty(1);
        let mut changes = Vec::new();
        for event in [
            event(0, "/r/o/a", 2, 2),
            event(0, "/r/tick", 1, 2),
            event(0, "/r/o/b", 3, 3),
            event(0, "/r/o/a", 2, 4),
            // A lease ends: two keys at one revision.
            event(wire::DELETE, "/r/o/a", 0, 5),
            event(wire::DELETE, "/r/o/b", 0, 5),
            event(wire::DELETE, "/r/o/unknown", 0, 5),
            event(0, "/r/tick", 1, 6),
        ] {
            apply(&keys, &mut state, &event, &mut changes).unwrap();
        }
        assert_eq!((state.len(), state.revision()), (0, 6));
        let seen: Vec<_> = changes
            .iter()
            .map(|change| (&*change.entry.key, change.revision(), change.removed, change.previous.is_some()))
            .collect();
        assert_eq!(
            seen,
            [
                ("a", 2, false, false),
                ("b", 3, false, false),
                ("a", 4, false, true),
                ("a", 5, true, true),
                ("b", 5, true, true),
            ]
        );
    }
}
