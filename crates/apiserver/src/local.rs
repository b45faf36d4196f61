//! The API for programs in the same process, such as a simulated member's controllers: with all rights, through
//! defaulting, admission and validation like everybody else, but with no HTTP between.

use std::sync::Arc;

use landfall_api::{Kind, Status};
use landfall_store::{Entry, Event, Revision, Snapshot, Watch};
use serde_json::Value;

use crate::api::Api;
use crate::authn::{MASTERS, User};
use crate::housekeeping::client::Place;
use crate::options::FieldValidation;
use crate::write::delete::{self, DeleteOptions};
use crate::write::update::{self, Part};
use crate::write::{By, Wanted, create};
use crate::{encode, errors, keys, read};

/// The most changes taken from the store at once.
const BATCH_MAX: usize = 512;

/// The API as one program in this process uses it. Cheap to clone.
#[derive(Clone)]
pub struct Local {
    api: Arc<Api>,
    user: Arc<User>,
}

impl Local {
    /// For a program of this name, such as `kube-scheduler`; the name stands in managedFields.
    pub fn new(api: Arc<Api>, program: &str) -> Self {
        let user = User { name: program.into(), groups: vec![MASTERS.into()], ..User::default() };
        Self { api, user: Arc::new(user) }
    }

    /// The same API for another program.
    #[must_use]
    pub fn named(&self, program: &str) -> Self {
        Self::new(self.api.clone(), program)
    }

    /// One object.
    pub async fn get(&self, place: &Place) -> Result<Value, Status> {
        let kind = self.kind(place)?;
        let entry = read::get::entry(&*self.api.store, &kind, &place.namespace, &place.name, "").await?;
        update::current(&kind, &entry)
    }

    /// All objects of a kind in a namespace; in all of them when it is empty.
    pub fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let prefix = keys::namespace(group, plural, namespace);
        let snapshot = self.api.store.snapshot();
        snapshot.range(&prefix, "").filter_map(|entry| encode::decode(entry).ok()).collect()
    }

    /// Creates an object; gives it as it is now. The place's name is not looked at.
    pub async fn create(&self, place: &Place, object: Value) -> Result<Value, Status> {
        let kind = self.kind(place)?;
        let wanted = Wanted::new(object, Vec::new());
        let by = self.by();
        let written = create::create(&self.api, &kind, &place.namespace, wanted, &by).await?;
        update::current(&kind, &written.entry)
    }

    /// Replaces part of an object; one that names a resourceVersion must still be at it. Gives the revision.
    pub async fn update(&self, place: &Place, object: Value, part: Part) -> Result<Revision, Status> {
        self.modify(place, part, |_| Ok(object.clone())).await
    }

    /// Changes part of an object from whatever it is to what `change` makes of it, which may be asked several times.
    pub async fn modify(
        &self,
        place: &Place,
        part: Part,
        mut change: impl FnMut(&Value) -> Result<Value, Status> + Send,
    ) -> Result<Revision, Status> {
        let kind = self.kind(place)?;
        let wanted = |old: &Value| change(old).map(|object| Wanted::new(object, Vec::new()));
        let (by, api) = (self.by(), &self.api);
        let written = update::update(api, &kind, &place.namespace, &place.name, part, &by, wanted).await?;
        Ok(written.entry.revision)
    }

    /// Deletes an object, or begins to; gives the revision.
    pub async fn delete(&self, place: &Place, options: &DeleteOptions) -> Result<Revision, Status> {
        let kind = self.kind(place)?;
        let (by, api) = (self.by(), &self.api);
        let written = delete::delete(api, &kind, &place.namespace, &place.name, options, &by).await?;
        Ok(written.entry.revision)
    }

    /// Every object whose key in the store `wanted` takes (`core/pods/NAMESPACE/NAME`), then every change of them.
    pub fn follow(&self, wanted: fn(&str) -> bool) -> Result<Follow, Status> {
        let snapshot = self.api.store.snapshot();
        let watch = self.api.store.watch("", snapshot.revision()).map_err(|e| errors::general(&e))?;
        Ok(Follow { first: Some(snapshot), watch, wanted, events: Vec::new() })
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.api.store.snapshot().revision()
    }

    fn kind(&self, place: &Place) -> Result<Arc<Kind>, Status> {
        let catalog = self.api.catalog.load();
        let found = catalog.stored().find(|k| k.group == *place.group && k.plural == *place.plural).cloned();
        found.ok_or_else(|| Status::not_found(&place.group, &place.plural, ""))
    }

    fn by(&self) -> By<'_> {
        let (user, manager) = (&*self.user, &*self.user.name);
        By { user, manager, dry_run: false, validation: FieldValidation::Ignore, served: None }
    }
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub enum Change {
    /// It is there, new or changed.
    Put(Place, Value),
    /// It is gone.
    Gone(Place),
}

/// Changes in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The changes; the first batch is everything there was.
    pub changes: Vec<Change>,
    /// Everything up to this revision has been told.
    pub revision: Revision,
}

/// A stream of changes. Dropping it ends it.
pub struct Follow {
    first: Option<Snapshot>,
    watch: Watch,
    wanted: fn(&str) -> bool,
    events: Vec<Event>,
}

impl Follow {
    /// Waits for the next changes. May be dropped and called again; nothing is lost. An error ends the stream.
    pub async fn next(&mut self) -> Result<Batch, Status> {
        if let Some(first) = self.first.take() {
            let entries = first.range("", "").filter(|entry| (self.wanted)(&entry.key));
            let changes = entries.filter_map(|entry| put(entry)).collect();
            return Ok(Batch { changes, revision: first.revision() });
        }
        self.watch.next_batch(&mut self.events, BATCH_MAX).await.map_err(|e| errors::general(&e))?;
        let wanted = self.wanted;
        let changes = self.events.drain(..).filter_map(|event| change(&event, wanted)).collect();
        Ok(Batch { changes, revision: self.watch.yielded() })
    }
}

fn change(event: &Event, wanted: fn(&str) -> bool) -> Option<Change> {
    let Event::Change(change) = event else { return None };
    if !wanted(&change.entry.key) {
        return None;
    }
    if change.removed { place(&change.entry).map(Change::Gone) } else { put(&change.entry) }
}

fn put(entry: &Entry) -> Option<Change> {
    Some(Change::Put(place(entry)?, encode::decode(entry).ok()?))
}

/// Where the object of an entry is: its key says it.
fn place(entry: &Entry) -> Option<Place> {
    crate::inside::place(entry)
}

/// Base64 as kubeconfigs have it.
pub fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
