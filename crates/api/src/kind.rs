//! `Kind`: one row of the table of served kinds, and `Rules`: what is particular about one kind.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::field::ErrorList;
use crate::schema::StructRef;

/// Text that is static for built-in kinds and owned for custom ones.
pub type Text = Cow<'static, str>;

/// Whether objects live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One namespace each.
    Namespaced,
    /// The whole cluster (federation).
    Cluster,
}

/// One served kind in one version.
#[derive(Clone)]
pub struct Kind {
    /// API group; empty for core.
    pub group: Text,
    /// Served version.
    pub version: Text,
    /// Kind name, such as `Service`.
    pub kind: Text,
    /// List kind, such as `ServiceList`.
    pub list_kind: Text,
    /// Resource name, such as `services`.
    pub plural: Text,
    /// Such as `service`.
    pub singular: Text,
    /// Such as `svc`.
    pub short_names: Vec<Text>,
    /// Such as `all`.
    pub categories: Vec<Text>,
    /// Where its objects live.
    pub scope: Scope,
    /// The verbs it serves, sorted; empty for virtual kinds (reviews) that only take `create`.
    pub verbs: &'static [&'static str],
    /// Subresources it has.
    pub sub: Subresources,
    /// The group and plural its objects are stored under; differs where one store serves two groups (events).
    pub stored_as: (Text, Text),
    /// The version objects are stored in; equal to `version` for most.
    pub storage_version: Text,
    /// Its shape.
    pub schema: StructRef,
    /// Whether `metadata.generation` is kept and rises when anything outside metadata and status changes.
    pub has_generation: bool,
    /// Whether strategic merge patches are accepted (not for custom resources).
    pub strategic: bool,
    /// Fields a field selector may name besides `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<Text>,
    /// How long its objects live, in seconds; 0 for ever (events: 3600).
    pub ttl_s: u32,
    /// What is particular about it.
    pub rules: Arc<dyn Rules>,
    /// How `kubectl get` shows it.
    pub printer: Arc<dyn Printer>,
}

/// The subresources of a kind.
#[derive(Clone, Debug, Default)]
pub struct Subresources {
    /// `/status`.
    pub status: bool,
    /// `/scale`.
    pub scale: Option<ScalePaths>,
    /// `/finalize` (namespaces).
    pub finalize: bool,
    /// `/token` (service accounts).
    pub token: bool,
    /// `/binding`, `/eviction` and `/log` (pods of members).
    pub eviction: bool,
    /// `/approval` (requests for certificates).
    pub approval: bool,
}

/// Where a kind keeps what `/scale` shows; JSON pointers such as `/spec/replicas`.
#[derive(Clone, Debug)]
pub struct ScalePaths {
    /// Wanted replicas.
    pub spec: Text,
    /// Seen replicas.
    pub status: Text,
    /// The selector, a text or a LabelSelector; empty for none.
    pub selector: Text,
}

/// What is particular about one kind. All functions are pure; objects are complete and of the right JSON types.
pub trait Rules: Send + Sync {
    /// Fills in what Kubernetes would default.
    fn default(&self, _object: &mut Value) {}
    /// Before validation of a create: clears what a user may not set (status is cleared by the server already).
    fn prepare_create(&self, _object: &mut Value) {}
    /// Before validation of an update: carries over what a user may not change silently.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}
    /// Before a delete, when deletion has not begun: adds what the object must wait for (a CRD's finalizer). `now` is
    /// the time in RFC 3339.
    fn prepare_delete(&self, _object: &mut Value, _now: &str) {}
    /// Custom resources only: drops what their schema does not know, in place of [`crate::schema`]'s own walk, and
    /// gives the dropped paths (`spec.x`) in order. `None`: the kind's type graph decides.
    fn prune(&self, _object: &mut Value) -> Option<Vec<String>> {
        None
    }
    /// Whether `validate_update` judges the new object too, so that `validate` is not called for an update. Kinds
    /// that tolerate what was wrong before (custom resources, CRDs) do.
    fn update_alone(&self) -> bool {
        false
    }
    /// What is wrong with a new object. `metadata` in general is checked by the server.
    fn validate(&self, object: &Value) -> ErrorList;
    /// What is wrong with a new object that would be left alone in an old one; called after `validate`, on create only.
    fn validate_create(&self, _object: &Value) -> ErrorList {
        ErrorList::new()
    }
    /// What is wrong with a change; called after `validate` of the new object gave its part.
    fn validate_update(&self, _object: &Value, _old: &Value) -> ErrorList {
        ErrorList::new()
    }
    /// What is wrong with a change of status.
    fn validate_status(&self, _object: &Value, _old: &Value) -> ErrorList {
        ErrorList::new()
    }
    /// What is wrong with an approval or a denial.
    fn validate_approval(&self, _object: &Value, _old: &Value) -> ErrorList {
        ErrorList::new()
    }
    /// Whether a name is right, with Kubernetes' sentences when it is not; `prefix` when it is a generateName.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String>;
    /// What is said with every answer of a deprecated version.
    fn deprecation(&self) -> Option<String> {
        None
    }
    /// Warnings sent along with a create or update.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }
}

/// How `kubectl get` shows a kind.
pub trait Printer: Send + Sync {
    /// The columns, in order.
    fn columns(&self) -> Vec<Column>;
    /// The cells of one row, one per column. `now_s`: seconds since 1970, for ages.
    fn row(&self, object: &Value, now_s: i64) -> Vec<Value>;
    /// The row's conditions, such as `Completed` for a pod that has finished; none for most.
    fn conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: Text,
    /// `string`, `integer`, `boolean`, `date`, `number`.
    pub ty: Text,
    /// `name` for the first column, `date-time`, or empty.
    pub format: Text,
    /// What it shows.
    pub description: Text,
    /// 0: always shown; above: only with `-o wide`.
    pub priority: i32,
}

impl Column {
    /// The usual first column.
    pub const NAME: Self = Self {
        name: Cow::Borrowed("Name"),
        ty: Cow::Borrowed("string"),
        format: Cow::Borrowed("name"),
        description: Cow::Borrowed(
            "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
        ),
        priority: 0,
    };
    /// The usual last column.
    pub const AGE: Self = Self {
        name: Cow::Borrowed("Age"),
        ty: Cow::Borrowed("string"),
        format: Cow::Borrowed(""),
        description: Cow::Borrowed("How long ago the object was made."),
        priority: 0,
    };
}
