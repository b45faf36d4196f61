//! The kinds whose replicas are divided, and where they keep their numbers.

use serde_json::Value;

use super::preferences::{Preferences, PreferencesError};

/// One kind whose replicas are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalable {
    /// Its kind.
    pub kind: &'static str,
    /// The field of `spec` with the number that is divided.
    pub field: &'static str,
    /// Federation v1's annotation with the preferences.
    pub annotation: &'static str,
}

/// All of them. Federation v1 had no ReplicationController; it reads what a ReplicaSet reads.
pub const SCALABLES: &[Scalable] = &[
    Scalable {
        kind: "ReplicaSet",
        field: "replicas",
        annotation: "federation.kubernetes.io/replica-set-preferences",
    },
    Scalable {
        kind: "ReplicationController",
        field: "replicas",
        annotation: "federation.kubernetes.io/replica-set-preferences",
    },
    Scalable {
        kind: "Deployment",
        field: "replicas",
        annotation: "federation.kubernetes.io/deployment-preferences",
    },
    Scalable { kind: "Job", field: "parallelism", annotation: "federation.kubernetes.io/job-preferences" },
];

impl Scalable {
    /// The row of a kind, if its replicas are divided.
    pub fn of(kind: &str) -> Option<&'static Self> {
        SCALABLES.iter().find(|row| row.kind == kind)
    }

    /// How many a federated object asks for; one when it does not say.
    pub fn wanted(&self, object: &Value) -> u32 {
        let number = object.get("spec").and_then(|spec| spec.get(self.field)).and_then(Value::as_i64);
        u32::try_from(number.unwrap_or(1)).unwrap_or(0)
    }

    /// The preferences a federated object carries; evenly when it carries none.
    pub fn preferences(&self, object: &Value) -> Result<Preferences, PreferencesError> {
        let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
        match annotations.and_then(|a| a.get(self.annotation)).and_then(Value::as_str) {
            Some(text) => Preferences::read(text),
            None => Ok(Preferences::default()),
        }
    }

    /// Writes a shard's number; none takes the field away, so that someone else may keep it.
    pub fn set(&self, shard: &mut Value, number: Option<u32>) {
        let Some(spec) = shard.get_mut("spec").and_then(Value::as_object_mut) else { return };
        match number {
            Some(number) => _ = spec.insert(self.field.to_owned(), number.into()),
            None => _ = spec.remove(self.field),
        }
    }
}
