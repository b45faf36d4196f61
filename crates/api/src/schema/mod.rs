//! Shapes of objects: one type graph for built-in kinds and custom resources.
//!
//! Strict validation, strategic merge, server-side apply, protobuf and OpenAPI all walk this graph.
//! Built-in structs are made on first use from `k8s-openapi` and our table of facts; custom ones from a CRD.

mod at;
mod build;
mod bytes;
mod facts;
pub mod quantity;
pub mod time;
mod walk;

use std::sync::{Arc, OnceLock};

use serde_json::Value;

pub use build::from_json_schema;
pub use walk::{Report, check, complete, normalize};
pub(crate) use walk::{whole as write_whole, word as json_word, zero as zero_value};

/// The type of one value.
#[derive(Clone, Debug, Default)]
pub enum Type {
    /// Any JSON; what is inside is kept and not checked (RawExtension, JSON).
    #[default]
    Any,
    /// `true` or `false`.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Double,
    /// Text.
    String,
    /// Base64 text; raw bytes on the wire.
    Bytes,
    /// A number or a text.
    IntOrString,
    /// A resource quantity such as `100m`; a number is accepted too.
    Quantity,
    /// An RFC 3339 time in seconds.
    Time,
    /// An RFC 3339 time in microseconds.
    MicroTime,
    /// An object with known fields.
    Struct(StructRef),
    /// An object with any keys and values of one type.
    Map(Arc<MapType>),
    /// A list.
    List(Arc<ListType>),
    /// A schema inside a CRD, or something shorter in its place.
    SchemaOr(SchemaOr),
}

/// What may stand where a CRD's schema has a schema of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOr {
    /// A schema, or whether anything is allowed (`additionalProperties`).
    Bool,
    /// A schema, or a list of them (`items`).
    Schemas,
    /// A schema, or a list of texts (`dependencies`).
    Strings,
}

/// An object with known fields.
#[derive(Debug, Default)]
pub struct Struct {
    /// Full name such as `io.k8s.api.core.v1.ServicePort`; empty for parts of a custom resource.
    pub name: Box<str>,
    /// The fields, sorted by name.
    pub fields: Box<[Field]>,
    /// Owned as a whole by server-side apply (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Unknown fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// A whole object with apiVersion, kind and metadata (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
}

impl Struct {
    /// The field of that JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|f| (*f.name).cmp(name)).ok().map(|at| &self.fields[at])
    }
    /// The field of that protobuf number; `via` is the inlined message it stands in, 0 for none.
    pub fn by_number(&self, via: u32, number: u32) -> Option<&Field> {
        self.fields.iter().find(|f| f.number == number && f.via == via)
    }
}

/// One field of a struct.
#[derive(Debug, Default)]
pub struct Field {
    /// Its JSON name.
    pub name: Box<str>,
    /// Its type.
    pub ty: Type,
    /// Whether OpenAPI lists it as required.
    pub required: bool,
    /// Whether an explicit `null` is a value of its own (CRDs only).
    pub nullable: bool,
    /// Protobuf field number; 0 when there is none.
    pub number: u32,
    /// Protobuf number of the inlined message that holds it; 0 when it stands in the struct's own message.
    pub via: u32,
    /// What Go's JSON encoder does with it; only for built-in structs.
    pub go: Go,
    /// How strategic merge treats it.
    pub patch: Patch,
    /// The default that OpenAPI declares.
    pub default: Option<Value>,
}

/// How Kubernetes' own Go code holds a field: it decides which empty values clients see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Go {
    /// Its Go type as Go prints it, without the pointer: `[]v1.ServicePort`; empty when not known.
    pub ty: Box<str>,
    /// The Go struct it is inlined from; empty for none.
    pub inlined: Box<str>,
    /// A pointer: zero is a value of its own and kept.
    pub pointer: bool,
    /// Left out when empty. Structs are never empty in this sense.
    pub omit_empty: bool,
    /// Left out when zero, structs too.
    pub omit_zero: bool,
}

/// The patch strategy of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists are merged, not replaced.
    pub merge: bool,
    /// `retainKeys`.
    pub retain_keys: bool,
    /// A struct or map is replaced as a whole.
    pub replace: bool,
    /// The key that list items are merged by; empty for lists of scalars.
    pub merge_key: Box<str>,
}

/// A map with free keys.
#[derive(Debug, Default)]
pub struct MapType {
    /// The type of its values.
    pub value: Type,
    /// Owned as a whole by server-side apply.
    pub atomic: bool,
}

/// A list and how its items are told apart.
#[derive(Debug, Default)]
pub struct ListType {
    /// The type of its items.
    pub item: Type,
    /// Whether items have an identity.
    pub identity: Identity,
    /// On the wire the list is a message of its own (`ExtraValue`).
    pub wrapped: bool,
}

/// How server-side apply tells list items apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Identity {
    /// Not at all: the list is owned as a whole.
    #[default]
    Atomic,
    /// By value: a set of scalars.
    Set,
    /// By these fields of each item; each with the default used when the item lacks it.
    Keys(Box<[(Box<str>, Option<Value>)]>),
}

/// A struct by reference: built-in structs refer to each other by name and are made on first use (some are recursive).
#[derive(Clone, Debug)]
pub struct StructRef(Inner);

#[derive(Clone, Debug)]
enum Inner {
    Owned(Arc<Struct>),
    Named { name: Arc<str>, cell: Arc<OnceLock<&'static Struct>> },
}

impl StructRef {
    /// A struct that belongs to this graph alone.
    pub fn owned(item: Struct) -> Self {
        Self(Inner::Owned(Arc::new(item)))
    }
    /// A built-in struct, looked up on first use.
    pub fn named(name: &str) -> Self {
        Self(Inner::Named { name: name.into(), cell: Arc::default() })
    }
    /// The struct itself. A built-in name that does not exist gives a struct that keeps everything.
    pub fn get(&self) -> &Struct {
        match &self.0 {
            Inner::Owned(item) => item,
            Inner::Named { name, cell } => cell.get_or_init(|| builtin(name)),
        }
    }
}

/// The built-in struct of that full name, made on first use; one that keeps everything when there is none.
pub fn builtin(name: &str) -> &'static Struct {
    static UNKNOWN: OnceLock<Struct> = OnceLock::new();
    facts::find(name)
        .unwrap_or_else(|| UNKNOWN.get_or_init(|| Struct { preserve_unknown: true, ..Struct::default() }))
}

/// The struct of a built-in kind, if there is one; `DeleteOptions` and `Status` exist in every group.
pub fn of_kind(group: &str, version: &str, kind: &str) -> Option<StructRef> {
    facts::name_of(group, version, kind).map(|name| StructRef::named(&name))
}

/// The full names of all built-in structs, sorted.
pub fn builtin_names() -> Vec<String> {
    facts::names()
}

/// The struct of a CRD's schemas.
pub(crate) fn props() -> &'static Struct {
    builtin("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
}
