//! Admission: what the surroundings of a server add to objects or refuse before they are validated.
//!
//! The federation refuses what no schema can. A simulated member allocates addresses of Services and completes Pods here.

use landfall_api::{Kind, Status};
use landfall_store::Snapshot;
use serde_json::Value;

/// A right that a write needs besides its own.
#[derive(Clone, Copy, Debug)]
pub struct Also {
    /// What is done.
    pub verb: &'static str,
    /// To what: the group.
    pub group: &'static str,
    /// And the plural.
    pub resource: &'static str,
    /// What the object asks for.
    pub why: &'static str,
}

/// What is asked before an object is validated and stored. It may be asked again for the same write.
pub trait Admission: Send + Sync {
    /// About a new object, after defaulting.
    fn create(&self, state: &Snapshot, kind: &Kind, object: &mut Value) -> Result<(), Status>;
    /// About a changed object; not about changes of its status.
    fn update(&self, state: &Snapshot, kind: &Kind, object: &mut Value, old: &Value) -> Result<(), Status>;
    /// What somebody must be allowed to do besides, because an object asks for it on their behalf.
    fn also(&self, _kind: &Kind, _object: &Value, _old: Option<&Value>) -> Option<Also> {
        None
    }
    /// Luck for the uid of an object under this key of the store, or for the end of a generated name; none for chance, which
    /// nobody can foretell. Only simulations give any.
    fn luck(&self, _about: &str) -> Option<u128> {
        None
    }
}
