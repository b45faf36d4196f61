//! Fills shelves: lists, then watches, and says what changed.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use kube::core::{ApiResource, DynamicResourceScope, Resource};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::kinds::Row;
use crate::lean::Lean;
use crate::shelf::{Key, Seen, Shelf};

/// What a watch saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// One object is different, or gone.
    Object(Key),
    /// Everything has been read; these are different from what was known before.
    Synced(Vec<Key>),
    /// Everything has been read once more; these are different from what was known. Nobody waited for it.
    Compared(Vec<Key>),
}

/// An object as it arrives: any JSON, with the little metadata that a watch needs.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    metadata: ObjectMeta,
    /// The object.
    pub(crate) value: Value,
}

impl<'de> Deserialize<'de> for Arrived {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Lean(value) = Lean::deserialize(deserializer)?;
        let text = |key: &str| value.get("metadata")?.get(key)?.as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            // Where a bookmark says that the first list is complete.
            annotations: value
                .get("metadata")
                .and_then(|metadata| metadata.get("annotations"))
                .and_then(|annotations| annotations.get(INITIAL_END))
                .map(|_| [(INITIAL_END.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, value })
    }
}

/// How long a watch lives, at least and at most.
const TIMEOUT_S: (u32, u32) = (180, 290);
const INITIAL_END: &str = "k8s.io/initial-events-end";

impl Resource for Arrived {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(row: &ApiResource) -> std::borrow::Cow<'_, str> {
        row.kind.as_str().into()
    }

    fn group(row: &ApiResource) -> std::borrow::Cow<'_, str> {
        row.group.as_str().into()
    }

    fn version(row: &ApiResource) -> std::borrow::Cow<'_, str> {
        row.version.as_str().into()
    }

    fn api_version(row: &ApiResource) -> std::borrow::Cow<'_, str> {
        row.api_version.as_str().into()
    }

    fn plural(row: &ApiResource) -> std::borrow::Cow<'_, str> {
        row.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// How long a watch lives: not as long as all the others that began with it, so that they do not all begin anew at once.
pub(crate) fn timeout_s() -> u32 {
    between(TIMEOUT_S)
}

/// Some number between two.
pub(crate) fn between((least, most): (u32, u32)) -> u32 {
    least + u32::from(uuid::Uuid::new_v4().as_bytes()[15]) * (most - least) / 255
}

/// Keeps a shelf as its place has it, for ever; `tell` is told of every change.
pub async fn follow(client: kube::Client, row: Arc<Row>, labels: &str, shelf: &Shelf, tell: impl Fn(Change)) {
    let api: Api<Arrived> = Api::all_with(client, &row.resource());
    let mut config = watcher::Config::default().timeout(timeout_s());
    if !labels.is_empty() {
        config = config.labels(labels);
    }
    let mut listed = HashMap::new();
    let mut events = watcher(api, config).default_backoff().boxed();
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                let known = shelf.synced() && !shelf.unserved();
                if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
                    shelf.set_unserved(false);
                }
                take(&row, shelf, &mut listed, event, |change| match change {
                    Change::Synced(keys) if known => tell(Change::Compared(keys)),
                    change => tell(change),
                });
            }
            Ok(None) => return,
            Err(error) => fail(&row, shelf, &error, &tell),
        }
    }
}

fn take(
    row: &Row,
    shelf: &Shelf,
    listed: &mut HashMap<Key, Arc<Seen>>,
    event: watcher::Event<Arrived>,
    tell: impl Fn(Change),
) {
    let kept = |arrived: Arrived| {
        let key = shelf.key(&arrived.value)?;
        Some((key, Arc::new(Seen::new(row, arrived.value))))
    };
    // The answer to our own write has mostly told it already.
    let told = |arrived: &Arrived| {
        let version = arrived.metadata.resource_version.as_deref();
        version.zip(shelf.key(&arrived.value)).is_some_and(|(version, key)| shelf.has(&key, version))
    };
    match event {
        watcher::Event::Init => {
            listed.clear();
            shelf.listing();
        }
        watcher::Event::InitApply(arrived) => listed.extend(kept(arrived)),
        watcher::Event::InitDone => tell(Change::Synced(shelf.replace(std::mem::take(listed)))),
        watcher::Event::Apply(arrived) if told(&arrived) => {}
        watcher::Event::Apply(arrived) => {
            if let Some((key, seen)) = kept(arrived)
                && shelf.put(&key, seen)
            {
                tell(Change::Object(key));
            }
        }
        watcher::Event::Delete(arrived) => {
            if let Some((key, seen)) = kept(arrived)
                && shelf.take(&key, Some(&seen))
            {
                tell(Change::Object(key));
            }
        }
    }
}

/// Whether an API server itself says that it does not serve a kind, and not something that stands before it.
fn is_unserved(status: &kube::core::Status) -> bool {
    status.code == 404 && (status.reason == "NotFound" || status.message.trim() == "404 page not found")
}

fn fail(row: &Row, shelf: &Shelf, error: &watcher::Error, tell: &impl Fn(Change)) {
    // What may not be seen and never was is as good as not there.
    let never = shelf.is_empty();
    let missing = |error: &kube::Error| match error {
        kube::Error::Api(status) => is_unserved(status) || status.code == 403 && never,
        _ => false,
    };
    let unserved = match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => missing(error),
        _ => false,
    };
    tracing::debug!(kind = row.kind, %error, "a watch failed and is begun again");
    if unserved && !shelf.unserved() {
        shelf.set_unserved(true);
        tell(Change::Synced(shelf.replace(HashMap::new())));
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    /// A proxy before a member said 404 for everything, and its shards counted as gone.
    #[test]
    fn only_the_api_itself_can_say_that_a_kind_is_not_served() {
        for (message, reason, code, expected) in [
            ("404 page not found\n", "Failed to parse error data", 404, true),
            ("the server could not find the requested resource", "NotFound", 404, true),
            ("<html><h1>404 Not Found</h1></html>", "Failed to parse error data", 404, false),
            ("404 page not found", "Failed to parse error data", 502, false),
        ] {
            let status = Status::failure(message, reason).with_code(code);
            assert_eq!(is_unserved(&status), expected, "{code} {reason}: {message}");
        }
    }
}
