//! One step of a path in a field set: a field, a list item by key or value, or an index.

use std::cmp::Ordering;
use std::fmt::{self, Display, Write as _};

use serde_json::{Map, Value};

/// How a child is found in the thing that holds it.
#[derive(Clone, Debug)]
pub enum Element {
    /// A field of an object: `f:name`.
    Field(Box<str>),
    /// The list item whose key fields have these values, sorted by name: `k:{"name":"x"}`.
    Key(Box<[(Box<str>, Value)]>),
    /// The item of a set that is this scalar: `v:"x"`.
    Value(Box<Value>),
    /// An item by its place: `i:0`. Read from old objects; never made.
    Index(i64),
}

impl Element {
    /// The field of that name.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// The name, when it is a field.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Field(name) => Some(name),
            Self::Key(_) | Self::Value(_) | Self::Index(_) => None,
        }
    }

    /// The text in a FieldsV1 document.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => encode_field(name),
            Self::Key(pairs) => {
                let mut text = String::with_capacity(48);
                text.push_str("k:{");
                for (at, (name, value)) in pairs.iter().enumerate() {
                    text.push_str(if at == 0 { "" } else { "," });
                    push_text(&mut text, name);
                    text.push(':');
                    match value {
                        Value::String(value) => push_text(&mut text, value),
                        other => text.push_str(&other.to_string()),
                    }
                }
                text.push('}');
                text
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Reads the text of a FieldsV1 document. `Ok(None)` for kinds of a later version, which are skipped.
    pub fn decode(text: &str) -> Result<Option<Self>, String> {
        let Some((kind, rest)) = split_kind(text)? else { return Ok(None) };
        let bad = |e: &dyn Display| format!("parsing key as path element: {e}");
        match kind {
            b'f' => Ok(Some(Self::Field(rest.into()))),
            b'v' => serde_json::from_str(rest).map(|v| Some(Self::Value(Box::new(v)))).map_err(|e| bad(&e)),
            b'i' => rest.parse().map(|i| Some(Self::Index(i))).map_err(|e| bad(&e)),
            b'k' => {
                let map: Map<String, Value> = serde_json::from_str(rest).map_err(|e| bad(&e))?;
                let mut pairs: Vec<_> = map.into_iter().map(|(k, v)| (k.into_boxed_str(), v)).collect();
                pairs.sort_by(|a, b| a.0.cmp(&b.0));
                Ok(Some(Self::Key(pairs.into())))
            }
            _ => Ok(None),
        }
    }

    const fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// `f:name`.
pub fn encode_field(name: &str) -> String {
    let mut text = String::with_capacity(name.len().saturating_add(2));
    text.push_str("f:");
    text.push_str(name);
    text
}

/// Adds a JSON text; names rarely need escapes.
fn push_text(out: &mut String, text: &str) {
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\' && b != 0x7f) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

fn split_kind(text: &str) -> Result<Option<(u8, &str)>, String> {
    let bytes = text.as_bytes();
    match bytes {
        [_, b':', ..] => Ok(text.get(2..).map(|rest| (bytes[0], rest))),
        [] | [_] => Err("key must be 2 characters long:".into()),
        _ => Err(format!("missing colon: {text}")),
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_pairs(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

/// As conflicts and errors show it: `.spec`, `[name="x"]`, `[="x"]`, `[0]`.
impl Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(pairs) => {
                f.write_char('[')?;
                for (at, (name, value)) in pairs.iter().enumerate() {
                    write!(f, "{}{name}={value}", if at == 0 { "" } else { "," })?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn compare_pairs(a: &[(Box<str>, Value)], b: &[(Box<str>, Value)]) -> Ordering {
    for ((a_name, a_value), (b_name, b_value)) in a.iter().zip(b) {
        let order = a_name.cmp(b_name).then_with(|| compare_values(a_value, b_value));
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// A total order over JSON: numbers, texts, booleans, lists, objects, null.
pub fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let first = a.iter().zip(b).map(|(a, b)| compare_values(a, b)).find(|order| order.is_ne());
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pairs = a.iter().zip(b);
            let orders = pairs.map(|((ak, av), (bk, bv))| ak.cmp(bk).then_with(|| compare_values(av, bv)));
            orders.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

const fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(a: &serde_json::Number, b: &serde_json::Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => match (a.as_u64(), b.as_u64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)),
        },
    }
}

/// Equality of JSON where `1` equals `1.0`, as server-side apply sees it.
pub fn equal_values(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_values(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|other| equal_values(v, other)))
        }
        _ => a == b,
    }
}
