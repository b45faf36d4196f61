//! Values of CEL: what an object's schema makes of its JSON, and what expressions make of that.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::go_duration;
use crate::crd::formats;
use crate::crd::schema::Schema;

/// A value. Parts of the object are borrowed; what expressions make is shared.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A text.
    Text(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list an expression made.
    List(Arc<Vec<Self>>),
    /// A map an expression made.
    Map(Arc<BTreeMap<Key, Self>>),
    /// An object or map of the resource.
    Object(&'a Map<String, Value>, Option<&'a Schema>),
    /// A list of the resource.
    Array(&'a [Value], Option<&'a Schema>),
    /// A span of time, in nanoseconds.
    Duration(i64),
    /// A point in time, in nanoseconds since 1970.
    Timestamp(i128),
    /// Something that may be absent.
    Optional(Option<Arc<Self>>),
    /// A quantity such as `100m`, in units of 10⁻⁹.
    Quantity(i128),
    /// An address.
    Ip(IpAddr),
    /// An address with a prefix length.
    Cidr(IpAddr, u8),
    /// A URL, as written.
    Url(Arc<str>),
    /// A named format, such as `dns1123Label`.
    Format(Arc<str>),
    /// A type.
    Type(&'static str),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A truth value.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
    Text(Arc<str>),
}

impl<'a> Val<'a> {
    /// What the schema makes of a value.
    pub fn of(value: &'a Value, schema: Option<&'a Schema>) -> Self {
        let (ty, format) = schema.map_or(("", ""), |s| (s.ty.as_str(), s.format.as_str()));
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) if ty == "number" => Self::Double(n.as_f64().unwrap_or(f64::NAN)),
            Value::Number(n) => match (n.as_i64(), n.as_f64()) {
                (Some(int), _) => Self::Int(int),
                (None, Some(double)) if ty == "integer" => Self::Int(double as i64),
                (None, double) => Self::Double(double.unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::text_of(text, if ty == "string" { format } else { "" }),
            Value::Array(items) => Self::Array(items, schema.and_then(|s| s.items.as_deref())),
            Value::Object(map) => Self::Object(map, schema),
        }
    }

    fn text_of(text: &str, format: &str) -> Self {
        let special = match format {
            "date-time" if formats::matches(format, text) => timestamp(text),
            "date" => timestamp(&format!("{text}T00:00:00Z")),
            "duration" => go_duration(text).map(Self::Duration),
            "byte" => {
                use base64::Engine as _;
                base64::engine::general_purpose::STANDARD.decode(text).ok().map(|b| Self::Bytes(b.into()))
            }
            _ => None,
        };
        special.unwrap_or_else(|| Self::Text(text.into()))
    }

    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// A list.
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(items))
    }

    /// The name of its type, as errors and `type()` show it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) | Self::Array(..) => "list",
            Self::Map(_) | Self::Object(..) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Type(_) => "type",
        }
    }

    /// Its items, when it is a list.
    pub fn items(&self) -> Option<Vec<Self>> {
        match self {
            Self::List(items) => Some(items.to_vec()),
            Self::Array(items, schema) => Some(items.iter().map(|item| Val::of(item, *schema)).collect()),
            _ => None,
        }
    }

    /// Its keys and values, when it is a map or an object.
    pub fn entries(&self) -> Option<Vec<(Key, Self)>> {
        match self {
            Self::Map(map) => Some(map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()),
            Self::Object(map, schema) => Some(
                map.iter()
                    .map(|(name, value)| {
                        let child = schema.and_then(|s| s.child(name));
                        (Key::Text(name.as_str().into()), Val::of(value, child))
                    })
                    .collect(),
            ),
            _ => None,
        }
    }

    /// How many items, entries, characters or bytes it has.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::Text(text) => Some(text.chars().count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(items) => Some(items.len()),
            Self::Array(items, _) => Some(items.len()),
            Self::Map(map) => Some(map.len()),
            Self::Object(map, _) => Some(map.len()),
            _ => None,
        }
    }

    /// The value under a key of a map.
    pub fn at_key(&self, key: &Key) -> Option<Self> {
        match (self, key) {
            (Self::Map(map), key) => map.get(key).cloned(),
            (Self::Object(map, schema), Key::Text(name)) => {
                let child = schema.and_then(|s| s.child(name));
                map.get(&**name).map(|value| Val::of(value, child))
            }
            _ => None,
        }
    }

    /// The order of two values that have one.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            (Self::Quantity(a), Self::Quantity(b)) => Some(a.cmp(b)),
            _ => numbers(self, other),
        }
    }

    /// Whether two values are equal. Values of different types are not.
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, n), Self::Cidr(b, m)) => (a, n) == (b, m),
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (a, b) => a.is_none() && b.is_none(),
            },
            (Self::Array(a, _), Self::Array(b, _)) => a == b || self.same_items(other),
            (Self::Object(a, _), Self::Object(b, _)) => a == b || self.same_entries(other),
            (a, b) if a.items().is_some() && b.items().is_some() => self.same_items(other),
            (a, b) if a.entries().is_some() && b.entries().is_some() => self.same_entries(other),
            (a, b) => a.order(b) == Some(Ordering::Equal),
        }
    }

    fn same_items(&self, other: &Self) -> bool {
        let (a, b) = (self.items().unwrap_or_default(), other.items().unwrap_or_default());
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.equals(b))
    }

    fn same_entries(&self, other: &Self) -> bool {
        let a = self.entries().unwrap_or_default();
        a.len() == other.size().unwrap_or(0)
            && a.iter().all(|(key, value)| other.at_key(key).is_some_and(|found| found.equals(value)))
    }

    /// The value as a key of a map.
    pub fn to_key(&self) -> Option<Key> {
        match self {
            Self::Bool(b) => Some(Key::Bool(*b)),
            Self::Int(i) => Some(Key::Int(*i)),
            Self::Uint(u) => i64::try_from(*u).ok().map(Key::Int),
            Self::Text(text) => Some(Key::Text(text.clone())),
            _ => None,
        }
    }
}

impl Key {
    /// The key as a value.
    pub fn to_val(&self) -> Val<'static> {
        match self {
            Self::Bool(b) => Val::Bool(*b),
            Self::Int(i) => Val::Int(*i),
            Self::Text(text) => Val::Text(text.clone()),
        }
    }
}

fn numbers(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    match (a, b) {
        (Val::Double(_), _) | (_, Val::Double(_)) => as_f64(a)?.partial_cmp(&as_f64(b)?),
        _ => Some(as_i128(a)?.cmp(&as_i128(b)?)),
    }
}

fn as_f64(value: &Val<'_>) -> Option<f64> {
    match value {
        Val::Int(i) => Some(*i as f64),
        Val::Uint(u) => Some(*u as f64),
        Val::Double(d) => Some(*d),
        _ => None,
    }
}

fn as_i128(value: &Val<'_>) -> Option<i128> {
    match value {
        Val::Int(i) => Some(i128::from(*i)),
        Val::Uint(u) => Some(i128::from(*u)),
        _ => None,
    }
}

/// An RFC 3339 time.
pub fn timestamp(text: &str) -> Option<Val<'static>> {
    text.parse::<jiff::Timestamp>().ok().map(|t| Val::Timestamp(t.as_nanosecond()))
}
