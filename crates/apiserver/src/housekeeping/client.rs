//! What housekeeping needs of the API: one small trait, so that it runs on the real server and on a model in tests.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use landfall_api::Status;
use serde_json::Value;

/// One kind that can be looked at, by the version it is stored in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for core.
    pub group: Arc<str>,
    /// Kind name, such as `ConfigMap`.
    pub kind: Arc<str>,
    /// Resource name, such as `configmaps`.
    pub plural: Arc<str>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether its objects can be deleted by clients; a read-only view's cannot.
    pub deletable: bool,
}

/// Where one object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// API group.
    pub group: Arc<str>,
    /// Resource name.
    pub plural: Arc<str>,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Place {
    /// From its parts.
    pub fn new(group: &str, plural: &str, namespace: &str, name: &str) -> Self {
        Self { group: group.into(), plural: plural.into(), namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        write!(f, "{group}/{}/{}/{}", self.plural, self.namespace, self.name)
    }
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub enum Event {
    /// It is there, new or changed.
    Put(Place, Arc<Value>),
    /// It is gone; the last that was seen of it.
    Gone(Place, Arc<Value>),
    /// Everything that was there when the stream began has been yielded.
    Synced,
}

/// What happens to an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

/// How an object is deleted.
#[derive(Clone, Debug)]
pub struct Delete {
    /// Only if it has this uid.
    pub uid: Arc<str>,
    /// Only if it is at this resourceVersion; empty for any.
    pub resource_version: String,
    /// What happens to its dependents.
    pub propagation: Propagation,
}

/// Which part of an object an update changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but the status.
    Main,
    /// `/status`.
    Status,
    /// `/finalize`: a namespace's `spec.finalizers`.
    Finalize,
}

/// The API as housekeeping uses it, with all rights, past authorisation and below no rate limit.
///
/// Reads see every write acknowledged before them, through any hub. Updates carry the `resourceVersion` they were read
/// at and fail with `Conflict` when the object has changed since. Everything may fail; callers try again later.
pub trait ObjectClient: Send + Sync + 'static {
    /// Every stored kind, once each, built-in and custom.
    fn resources(&self) -> Vec<Resource>;
    /// One object.
    fn get(&self, place: Place) -> BoxFuture<'_, Result<Arc<Value>, Status>>;
    /// All objects of a kind in a namespace; in all of them when it is empty.
    fn list(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
    ) -> BoxFuture<'_, Result<Vec<Arc<Value>>, Status>>;
    /// Creates an object.
    fn create(&self, place: Place, object: Value) -> BoxFuture<'_, Result<(), Status>>;
    /// Replaces part of an object.
    fn update(&self, place: Place, object: Value, part: Part) -> BoxFuture<'_, Result<(), Status>>;
    /// Deletes an object, or begins to.
    fn delete(&self, place: Place, how: Delete) -> BoxFuture<'_, Result<(), Status>>;
    /// Everything there is, then every change, in order.
    fn watch(&self) -> Result<Box<dyn Events>, Status>;
}

/// A stream of events for all kinds.
pub trait Events: Send {
    /// Waits for the next events, at least one. A call may be dropped and made again; no event is lost by that. An error
    /// ends the stream; it is opened again from the start.
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Event>, Status>>;
}
