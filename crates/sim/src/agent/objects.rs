//! The member's API as its node agents and its forwarder use it: whole objects followed from the store, and writes in
//! the name of a kubelet. It fails while the API is down, as it would over a network.

use std::collections::HashMap;
use std::sync::Arc;

use landfall_api::{Reason, Status, meta};
use landfall_apiserver::api::Api;
use landfall_apiserver::housekeeping::client::Place;
use landfall_apiserver::local::Local;
use landfall_apiserver::write::delete::DeleteOptions;
use landfall_apiserver::write::update::Part;
use landfall_apiserver::{encode, errors, keys};
use landfall_store::{Entry, Event, Revision, Watch};
use serde_json::Value;

use crate::gate::Gate;

/// The most changes taken from the store at once.
const BATCH_MAX: usize = 512;

/// The name that kubelets write under.
pub(crate) const KUBELET: &str = "kubelet";

/// Writes objects of one member, while its API is up.
#[derive(Clone)]
pub(crate) struct Client {
    api: Arc<Api>,
    local: Local,
    gate: Gate,
}

impl Client {
    pub(crate) fn new(api: Arc<Api>, gate: Gate) -> Self {
        Self { local: Local::new(api.clone(), KUBELET), api, gate }
    }

    /// The API, unless it is down.
    pub(crate) fn reachable(&self) -> Result<&Local, Status> {
        if self.gate.api_down() {
            return Err(Status::new(Reason::ServiceUnavailable, "the API server does not answer"));
        }
        Ok(&self.local)
    }

    /// Creates an object in the namespace its metadata names.
    pub(crate) async fn create(&self, group: &str, plural: &str, object: Value) -> Result<(), Status> {
        let place = Place::new(group, plural, meta::namespace(&object), "");
        self.reachable()?.create(&place, object).await.map(drop)
    }

    /// Changes a part of an object: `change` is given the newest one and says what it should be. Says at which
    /// revision it is so.
    pub(crate) async fn update(
        &self,
        (group, plural): (&str, &str),
        (namespace, name): (&str, &str),
        part: Part,
        change: impl FnMut(&Value) -> Result<Value, Status> + Send,
    ) -> Result<Revision, Status> {
        self.reachable()?.modify(&Place::new(group, plural, namespace, name), part, change).await
    }

    /// Deletes a pod for good: nothing of it runs any more.
    pub(crate) async fn delete_pod(&self, namespace: &str, name: &str, uid: &str) -> Result<(), Status> {
        let (api, place) = (self.reachable()?, Place::new("", "pods", namespace, name));
        let options =
            DeleteOptions { uid: uid.to_owned(), grace_period_s: Some(0), ..DeleteOptions::BACKGROUND };
        // The first shortens the time it has to nothing, if that is not so yet; the second removes it.
        for _ in 0..2 {
            match api.delete(&place, &options).await {
                Ok(_) => {}
                Err(status) if matches!(status.reason, Reason::NotFound | Reason::Conflict) => return Ok(()),
                Err(status) => return Err(status),
            }
        }
        Ok(())
    }

    /// Follows all objects of some kinds, each a group and a plural.
    pub(crate) fn follow(&self, kinds: &[(&str, &str)]) -> Follow {
        let prefixes = kinds.iter().map(|(group, plural)| keys::namespace(group, plural, "")).collect();
        Follow { api: self.api.clone(), prefixes, watches: Vec::new(), seen: HashMap::new() }
    }
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Its key in the store, which tells objects apart.
    pub(crate) key: Arc<str>,
    /// The object as it is now; none when it is gone.
    pub(crate) object: Option<Arc<Value>>,
}

/// All objects of some kinds, then their changes. When a watch falls behind, the difference is told, so that nothing
/// is missed.
pub(crate) struct Follow {
    api: Arc<Api>,
    prefixes: Vec<String>,
    watches: Vec<Watch>,
    /// What has been told, by key and revision.
    seen: HashMap<Arc<str>, u64>,
}

impl Follow {
    /// Waits for the next changes; the first time it tells all there is, which may be nothing. None when the member
    /// is being stopped.
    pub(crate) async fn next(&mut self) -> Option<Vec<Change>> {
        loop {
            if self.watches.is_empty() {
                return self.resync();
            }
            let mut events = Vec::new();
            let result = {
                let waiting = self.watches.iter_mut().map(|watch| {
                    Box::pin(async move {
                        let mut events = Vec::new();
                        watch.next_batch(&mut events, BATCH_MAX).await.map(|()| events)
                    })
                });
                let (result, _, _) = futures::future::select_all(waiting).await;
                result
            };
            match result {
                Ok(found) => events = found,
                Err(landfall_store::Error::Closed) => return None,
                Err(error) => {
                    tracing::debug!(error = %errors::general(&error).message, "a watch starts anew");
                    self.watches.clear();
                }
            }
            let changes: Vec<Change> = events.into_iter().filter_map(|event| self.told(event)).collect();
            if !changes.is_empty() {
                return Some(changes);
            }
        }
    }

    fn told(&mut self, event: Event) -> Option<Change> {
        let Event::Change(change) = event else { return None };
        let key = change.entry.key.clone();
        if change.removed {
            self.seen.remove(&key);
            return Some(Change { key, object: None });
        }
        self.seen.insert(key.clone(), change.entry.revision);
        Some(Change { object: Some(decoded(&change.entry)?), key })
    }

    /// Opens the watches and tells what differs from what was told.
    fn resync(&mut self) -> Option<Vec<Change>> {
        let snapshot = self.api.store.snapshot();
        let open = |prefix: &String| self.api.store.watch(prefix, snapshot.revision()).ok();
        self.watches = self.prefixes.iter().map(open).collect::<Option<_>>()?;
        let mut old = std::mem::take(&mut self.seen);
        let mut changes = Vec::new();
        for entry in self.prefixes.iter().flat_map(|prefix| snapshot.range(prefix, "")) {
            let told = old.remove(&entry.key);
            self.seen.insert(entry.key.clone(), entry.revision);
            if told != Some(entry.revision) {
                let Some(object) = decoded(entry) else { continue };
                changes.push(Change { key: entry.key.clone(), object: Some(object) });
            }
        }
        changes.extend(old.into_keys().map(|key| Change { key, object: None }));
        Some(changes)
    }
}

/// An object without what nobody here looks at and what is large.
fn decoded(entry: &Entry) -> Option<Arc<Value>> {
    let mut object = encode::decode(entry).ok()?;
    meta::metadata_mut(&mut object).remove("managedFields");
    Some(Arc::new(object))
}
