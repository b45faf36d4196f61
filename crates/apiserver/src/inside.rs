//! The API from inside: what housekeeping sees of this server, with all rights and no HTTP between.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use landfall_api::{Kind, Scope, Status};
use landfall_store::{Entry, Event as StoreEvent, Snapshot, Watch};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::bootstrap::{by, server};
use crate::housekeeping::ObjectClient;
use crate::housekeeping::client::{Delete, Event, Events, Part, Place, Propagation, Resource};
use crate::write::delete::{self, DeleteOptions};
use crate::write::{Wanted, create, update};
use crate::{encode, errors, keys, read};

/// The most changes taken from the store at once.
const BATCH_MAX: usize = 512;

/// This server as housekeeping uses it.
pub struct Inside(pub Arc<Api>);

impl Inside {
    fn kind(&self, group: &str, plural: &str) -> Result<Arc<Kind>, Status> {
        let catalog = self.0.catalog.load();
        let found = catalog.stored().find(|k| k.group == group && k.plural == plural).cloned();
        found.ok_or_else(|| Status::not_found(group, plural, ""))
    }
}

impl ObjectClient for Inside {
    fn resources(&self) -> Vec<Resource> {
        let catalog = self.0.catalog.load();
        let resource = |kind: &Arc<Kind>| Resource {
            group: (*kind.group).into(),
            kind: (*kind.kind).into(),
            plural: (*kind.plural).into(),
            namespaced: kind.scope == Scope::Namespaced,
            deletable: kind.verbs.contains(&"delete"),
        };
        catalog.stored().map(resource).collect()
    }

    fn get(&self, place: Place) -> BoxFuture<'_, Result<Arc<Value>, Status>> {
        async move {
            let kind = self.kind(&place.group, &place.plural)?;
            let entry = read::get::entry(&*self.0.store, &kind, &place.namespace, &place.name, "").await?;
            update::current(&kind, &entry).map(Arc::new)
        }
        .boxed()
    }

    fn list(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
    ) -> BoxFuture<'_, Result<Vec<Arc<Value>>, Status>> {
        let prefix = keys::namespace(group, plural, namespace);
        async move {
            self.0.store.barrier().await.map_err(|e| errors::general(&e))?;
            let snapshot = self.0.store.snapshot();
            Ok(snapshot.range(&prefix, "").filter_map(|e| encode::decode(e).ok()).map(Arc::new).collect())
        }
        .boxed()
    }

    fn create(&self, place: Place, object: Value) -> BoxFuture<'_, Result<(), Status>> {
        async move {
            let kind = self.kind(&place.group, &place.plural)?;
            let user = server();
            let wanted = Wanted::new(object, Vec::new());
            create::create(&self.0, &kind, &place.namespace, wanted, &by(&user)).await.map(drop)
        }
        .boxed()
    }

    fn update(&self, place: Place, object: Value, part: Part) -> BoxFuture<'_, Result<(), Status>> {
        async move {
            let kind = self.kind(&place.group, &place.plural)?;
            let user = server();
            let part = match part {
                Part::Main => update::Part::Main,
                Part::Status => update::Part::Status,
                Part::Finalize => update::Part::Finalize,
            };
            let wanted = |_: &Value| Ok(Wanted::new(object.clone(), Vec::new()));
            update::update(&self.0, &kind, &place.namespace, &place.name, part, &by(&user), wanted)
                .await
                .map(drop)
        }
        .boxed()
    }

    fn delete(&self, place: Place, how: Delete) -> BoxFuture<'_, Result<(), Status>> {
        async move {
            let kind = self.kind(&place.group, &place.plural)?;
            let user = server();
            let options = DeleteOptions {
                propagation: match how.propagation {
                    Propagation::Background => delete::Propagation::Background,
                    Propagation::Foreground => delete::Propagation::Foreground,
                    Propagation::Orphan => delete::Propagation::Orphan,
                },
                uid: how.uid.to_string(),
                resource_version: how.resource_version,
                ..DeleteOptions::BACKGROUND
            };
            delete::delete(&self.0, &kind, &place.namespace, &place.name, &options, &by(&user))
                .await
                .map(drop)
        }
        .boxed()
    }

    fn watch(&self) -> Result<Box<dyn Events>, Status> {
        let snapshot = self.0.store.snapshot();
        let watch = self.0.store.watch("", snapshot.revision()).map_err(|e| errors::general(&e))?;
        Ok(Box::new(Everything { first: Some((snapshot, "".into())), watch }))
    }
}

/// The whole store, then every change of it.
struct Everything {
    /// The state at the start while it is told, and the last key that was.
    first: Option<(Snapshot, Arc<str>)>,
    watch: Watch,
}

impl Everything {
    /// The next objects of the state at the start, and at its end that this was all; none after that.
    fn next_first(&mut self) -> Option<Vec<Event>> {
        let (snapshot, after) = self.first.as_mut()?;
        let entries: Vec<_> = snapshot.range("", after).take(BATCH_MAX).cloned().collect();
        let put = |entry: &Arc<Entry>| Some(Event::Put(place(entry)?, seen(entry)?));
        let mut events: Vec<Event> = entries.iter().filter_map(put).collect();
        match entries.last() {
            Some(last) if entries.len() == BATCH_MAX => *after = last.key.clone(),
            _ => {
                events.push(Event::Synced);
                self.first = None;
            }
        }
        Some(events)
    }
}

impl Events for Everything {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Event>, Status>> {
        async move {
            while let Some(events) = self.next_first() {
                if !events.is_empty() {
                    return Ok(events);
                }
            }
            let mut changes = Vec::new();
            loop {
                self.watch.next_batch(&mut changes, BATCH_MAX).await.map_err(|e| errors::general(&e))?;
                let events: Vec<Event> = changes.drain(..).filter_map(event).collect();
                if !events.is_empty() {
                    return Ok(events);
                }
            }
        }
        .boxed()
    }
}

fn event(event: StoreEvent) -> Option<Event> {
    let StoreEvent::Change(change) = event else { return None };
    let (place, object) = (place(&change.entry)?, seen(&change.entry)?);
    Some(if change.removed { Event::Gone(place, object) } else { Event::Put(place, object) })
}

/// Where the object of an entry is: its key says it.
pub(crate) fn place(entry: &Entry) -> Option<Place> {
    let mut parts = entry.key.split('/');
    let group = parts.next().map(|g| if g == "core" { "" } else { g })?;
    let plural = parts.next()?;
    let (first, second) = (parts.next()?, parts.next());
    Some(match second {
        Some(name) => Place::new(group, plural, first, name),
        None => Place::new(group, plural, "", first),
    })
}

/// What housekeeping looks at: all of an object of the few kinds it knows, the metadata of the others.
fn seen(entry: &Entry) -> Option<Arc<Value>> {
    const WHOLE: [&str; 3] = ["core/namespaces/", "apiextensions.k8s.io/", "rbac.authorization.k8s.io/"];
    if WHOLE.iter().any(|prefix| entry.key.starts_with(prefix)) {
        return encode::decode(entry).ok().map(Arc::new);
    }
    let Head { api_version, kind, metadata: Metadata(mut metadata) } =
        serde_json::from_slice(&entry.value).ok()?;
    metadata.insert("resourceVersion".into(), entry.revision.to_string().into());
    Some(Arc::new(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})))
}

/// What every object begins with; the rest is passed over.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    metadata: Metadata,
}

/// Metadata without what housekeeping never looks at and what is large.
struct Metadata(Map<String, Value>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(MetadataVisitor)
    }
}

struct MetadataVisitor;

impl<'de> Visitor<'de> for MetadataVisitor {
    type Value = Metadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Metadata, A::Error> {
        let mut kept = Map::new();
        while let Some(field) = fields.next_key::<String>()? {
            if matches!(field.as_str(), "managedFields" | "annotations" | "labels") {
                fields.next_value::<IgnoredAny>()?;
            } else {
                kept.insert(field, fields.next_value()?);
            }
        }
        Ok(Metadata(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, object: &Value, wanted: &Value) {
        let entry = Entry {
            key: key.into(),
            value: object.to_string().into(),
            created: 1,
            revision: 7,
            memo: landfall_store::Memo::default(),
        };
        assert_eq!(seen(&entry).as_deref(), Some(wanted), "{key}");
    }

    #[test]
    fn only_what_is_looked_at_is_kept() {
        let object = json!({"apiVersion": "v1", "kind": "X", "metadata": {
            "annotations": {"a": "b"}, "labels": {"c": "d"}, "managedFields": [{"manager": "m"}], "name": "x",
            "ownerReferences": [{"uid": "u"}]}, "spec": {"large": [1, {"a": 2}]}});
        let head = json!({"apiVersion": "v1", "kind": "X", "metadata": {
            "name": "x", "ownerReferences": [{"uid": "u"}], "resourceVersion": "7"}});
        let mut whole = object.clone();
        whole["metadata"]["resourceVersion"] = json!("7");
        check("core/configmaps/default/x", &object, &head);
        check("core/namespaces/x", &object, &whole);
    }

    #[tokio::test]
    async fn a_large_state_comes_in_chunks() {
        let directory = tempfile::tempdir().unwrap();
        let config = landfall_store::embedded::Config::new(directory.path());
        let store = landfall_store::open_embedded(config).unwrap();
        let object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}}).to_string();
        let total = BATCH_MAX * 2;
        let writes = (0..total)
            .map(|n| store.create(&format!("core/configmaps/default/x{n}"), object.clone().into(), None));
        futures::future::try_join_all(writes).await.unwrap();
        let snapshot = store.snapshot();
        let watch = store.watch("", snapshot.revision()).unwrap();
        let mut events = Everything { first: Some((snapshot, "".into())), watch };
        let mut sizes = Vec::new();
        while events.first.is_some() {
            sizes.push(events.next().await.unwrap().len());
        }
        assert_eq!(sizes, [BATCH_MAX, BATCH_MAX, 1], "the last says that this was all");
        store.close().await;
    }
}
