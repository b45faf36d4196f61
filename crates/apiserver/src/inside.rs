//! The API from inside: what housekeeping sees of this server, with all rights and no HTTP between.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use landfall_api::{Kind, Scope, Status, meta};
use landfall_store::{Entry, Event as StoreEvent, Watch};
use serde_json::Value;

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
        let mut first: Vec<Event> =
            snapshot.range("", "").filter_map(|e| Some(Event::Put(place(e)?, seen(e)?))).collect();
        first.push(Event::Synced);
        Ok(Box::new(Everything { first, watch }))
    }
}

/// The whole store, then every change of it.
struct Everything {
    first: Vec<Event>,
    watch: Watch,
}

impl Events for Everything {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Event>, Status>> {
        async move {
            if !self.first.is_empty() {
                return Ok(std::mem::take(&mut self.first));
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
fn place(entry: &Entry) -> Option<Place> {
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
    let mut object = encode::decode(entry).ok()?;
    if !WHOLE.iter().any(|prefix| entry.key.starts_with(prefix)) {
        let metadata = meta::metadata_mut(&mut object);
        for field in ["managedFields", "annotations", "labels"] {
            metadata.remove(field);
        }
        if let Some(map) = object.as_object_mut() {
            map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
        }
    }
    Some(Arc::new(object))
}
