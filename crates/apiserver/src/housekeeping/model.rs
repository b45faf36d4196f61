//! A small API server in memory, with deletion as Kubernetes does it: what housekeeping is tested on.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use landfall_api::{Reason, Status, meta};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::client::{Delete, Event, Events, ObjectClient, Part, Place, Propagation, Resource};
use super::graph::{FOREGROUND, ORPHAN, owners};

/// The model. Every operation lets others run first, so that tests can interleave them.
#[derive(Clone, Default)]
pub(super) struct Model(Arc<Mutex<World>>);

#[derive(Default)]
pub(super) struct World {
    objects: BTreeMap<Place, Arc<Value>>,
    revision: u64,
    /// Every change so far, in order.
    pub(super) log: Vec<Event>,
    /// The next this many operations fail.
    pub(super) failures: u32,
    /// Rules that a delete broke.
    pub(super) broken: Vec<String>,
    /// Whether owners protect from deletes (not when whole namespaces go).
    pub(super) owners_protect: bool,
    kinds: Vec<Resource>,
}

impl Model {
    pub(super) fn new(kinds: &[(&str, &str, &str, bool)]) -> Self {
        let model = Self::default();
        let resource = |(group, kind, plural, namespaced): &(&str, &str, &str, bool)| Resource {
            group: (*group).into(),
            kind: (*kind).into(),
            plural: (*plural).into(),
            namespaced: *namespaced,
            deletable: true,
        };
        model.with(|world| {
            world.kinds = kinds.iter().map(resource).collect();
            world.owners_protect = true;
        });
        model
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.0.lock())
    }

    async fn op<T>(&self, act: impl FnOnce(&mut World) -> Result<T, Status>) -> Result<T, Status> {
        Yield(false).await;
        let mut world = self.0.lock();
        if world.failures > 0 {
            world.failures -= 1;
            return Err(Status::new(Reason::ServiceUnavailable, "injected"));
        }
        act(&mut world)
    }
}

impl World {
    pub(super) fn get(&self, place: &Place) -> Option<Arc<Value>> {
        self.objects.get(place).cloned()
    }

    pub(super) fn all(&self) -> Vec<(Place, Arc<Value>)> {
        self.objects.iter().map(|(place, object)| (place.clone(), object.clone())).collect()
    }

    pub(super) fn put(&mut self, place: &Place, mut object: Value) {
        self.revision += 1;
        let metadata = meta::metadata_mut(&mut object);
        metadata.insert("name".into(), (&*place.name).into());
        metadata.insert("namespace".into(), (&*place.namespace).into());
        metadata.insert("resourceVersion".into(), self.revision.to_string().into());
        let fresh = format!("uid-{}", self.revision);
        metadata.entry("uid").or_insert_with(|| fresh.into());
        let object = Arc::new(object);
        self.objects.insert(place.clone(), object.clone());
        self.log.push(Event::Put(place.clone(), object));
    }

    fn remove(&mut self, place: &Place) {
        if let Some(object) = self.objects.remove(place) {
            self.revision += 1;
            self.log.push(Event::Gone(place.clone(), object));
        }
    }

    /// Stores a change, or removes the object when it was only waiting for this.
    pub(super) fn settle(&mut self, place: &Place, object: Value) {
        let held =
            object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
        if meta::deleting(&object) && meta::finalizers(&object).next().is_none() && !held {
            self.remove(place);
        } else {
            self.put(place, object);
        }
    }

    pub(super) fn delete(&mut self, place: &Place, propagation: Propagation) {
        let Some(object) = self.get(place) else { return };
        let mut object = (*object).clone();
        let mut finalizers: Vec<String> = meta::finalizers(&object)
            .filter(|f| !matches!(*f, FOREGROUND | ORPHAN))
            .map(Into::into)
            .collect();
        match propagation {
            Propagation::Background => {}
            Propagation::Foreground => finalizers.push(FOREGROUND.into()),
            Propagation::Orphan => finalizers.push(ORPHAN.into()),
        }
        let metadata = meta::metadata_mut(&mut object);
        metadata.insert("finalizers".into(), finalizers.into());
        metadata.entry("deletionTimestamp").or_insert_with(|| "t".into());
        self.settle(place, object);
    }

    /// An owner that is there, is the one meant, and stays.
    pub(super) fn living_owner(&self, place: &Place, object: &Value) -> Option<String> {
        owners(object).into_iter().find_map(|owner| {
            let kind = self.kinds.iter().find(|k| k.group == owner.group && k.kind == owner.kind)?;
            let namespace = if kind.namespaced { &*place.namespace } else { "" };
            let found = self.get(&Place::new(&kind.group, &kind.plural, namespace, &owner.name))?;
            (meta::uid(&found) == &*owner.uid && !meta::deleting(&found)).then(|| owner.name.to_string())
        })
    }

    fn client_delete(&mut self, place: &Place, how: &Delete) -> Result<(), Status> {
        let object =
            self.get(place).ok_or_else(|| Status::not_found(&place.group, &place.plural, &place.name))?;
        let same_version =
            how.resource_version.is_empty() || how.resource_version == meta::resource_version(&object);
        if meta::uid(&object) != &*how.uid || !same_version {
            return Err(Status::conflict(&place.group, &place.plural, &place.name, "precondition"));
        }
        if let Some(owner) = self.living_owner(place, &object).filter(|_| self.owners_protect) {
            self.broken.push(format!("{place} was deleted though its owner {owner} lives"));
        }
        self.delete(place, how.propagation);
        Ok(())
    }

    fn client_update(&mut self, place: &Place, object: Value, part: Part) -> Result<(), Status> {
        let stored =
            self.get(place).ok_or_else(|| Status::not_found(&place.group, &place.plural, &place.name))?;
        if meta::resource_version(&stored) != meta::resource_version(&object) {
            return Err(Status::conflict(&place.group, &place.plural, &place.name, "changed"));
        }
        let mut next = (*stored).clone();
        match part {
            Part::Main => {
                let status = next.get("status").cloned();
                next = object;
                if let Some(status) = status {
                    next["status"] = status;
                }
            }
            Part::Status => next["status"] = object["status"].clone(),
            Part::Finalize => next["spec"]["finalizers"] = object["spec"]["finalizers"].clone(),
        }
        self.settle(place, next);
        Ok(())
    }
}

impl ObjectClient for Model {
    fn resources(&self) -> Vec<Resource> {
        self.with(|world| world.kinds.clone())
    }
    fn get(&self, place: Place) -> BoxFuture<'_, Result<Arc<Value>, Status>> {
        Box::pin(self.op(move |world| {
            world.get(&place).ok_or_else(|| Status::not_found(&place.group, &place.plural, &place.name))
        }))
    }
    fn list(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
    ) -> BoxFuture<'_, Result<Vec<Arc<Value>>, Status>> {
        let (group, plural, namespace) = (group.to_owned(), plural.to_owned(), namespace.to_owned());
        Box::pin(self.op(move |world| {
            let here = |place: &Place| {
                *place.group == *group
                    && *place.plural == *plural
                    && (namespace.is_empty() || *place.namespace == *namespace)
            };
            Ok(world.objects.iter().filter(|(place, _)| here(place)).map(|(_, o)| o.clone()).collect())
        }))
    }
    fn create(&self, place: Place, object: Value) -> BoxFuture<'_, Result<(), Status>> {
        Box::pin(self.op(move |world| {
            if world.get(&place).is_some() {
                return Err(Status::already_exists(&place.group, &place.plural, &place.name));
            }
            world.put(&place, object);
            Ok(())
        }))
    }
    fn update(&self, place: Place, object: Value, part: Part) -> BoxFuture<'_, Result<(), Status>> {
        Box::pin(self.op(move |world| world.client_update(&place, object, part)))
    }
    fn delete(&self, place: Place, how: Delete) -> BoxFuture<'_, Result<(), Status>> {
        Box::pin(self.op(move |world| world.client_delete(&place, &how)))
    }
    fn watch(&self) -> Result<Box<dyn Events>, Status> {
        let start = self.with(|world| {
            let mut start: Vec<Event> = world
                .objects
                .iter()
                .map(|(place, object)| Event::Put(place.clone(), object.clone()))
                .collect();
            start.push(Event::Synced);
            (start, world.log.len())
        });
        Ok(Box::new(Log { model: self.clone(), start: start.0, at: start.1 }))
    }
}

/// The stream of events for the loop that runs in earnest.
struct Log {
    model: Model,
    start: Vec<Event>,
    at: usize,
}

impl Events for Log {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Event>, Status>> {
        Box::pin(async move {
            if !self.start.is_empty() {
                return Ok(std::mem::take(&mut self.start));
            }
            loop {
                let new = self.model.with(|world| world.log[self.at..].to_vec());
                if !new.is_empty() {
                    self.at += new.len();
                    return Ok(new);
                }
                tokio::task::yield_now().await;
            }
        })
    }
}

/// Lets others run once.
struct Yield(bool);

impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A reference to an owner.
pub(super) fn reference(kind: &str, name: &str, uid: &str, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": blocks})
}
