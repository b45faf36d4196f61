//! One walk over an object: is it of the right JSON types, what does its struct not know, and what would be left of
//! it after Go had decoded and encoded it.
//!
//! Sentences are those of Kubernetes' JSON decoder. Nothing is allocated while nothing is wrong.

use serde_json::{Map, Number, Value};

use super::at::{At, Step};
use super::quantity::Quantity;
use super::time::{self, Precision};
use super::{Field, SchemaOr, Struct, Type, bytes, props};

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first value of a wrong type: `json: cannot unmarshal string into Go struct field …`. The object must be refused.
    pub error: Option<String>,
    /// Fields the struct does not know: `unknown field "spec.foo"`, each once.
    pub unknown: Vec<String>,
}

impl Report {
    /// Whether nothing was wrong.
    pub const fn is_clean(&self) -> bool {
        self.error.is_none() && self.unknown.is_empty()
    }
}

/// Values inside each other; what decoders let through is less.
const DEPTH_MAX: usize = 512;
/// Unknown fields reported of one object, as in Kubernetes.
const UNKNOWN_MAX: usize = 100;

/// Checks an object and leaves it alone. `normalize` is cheaper where the object may be changed.
pub fn check(of: &Struct, object: &Value) -> Report {
    normalize(of, &mut object.clone())
}

/// Checks an object and makes it what Go's decoder would: unknown fields, nulls and empty values of `omitempty`
/// fields dropped; quantities, times and base64 written canonically.
pub fn normalize(of: &Struct, object: &mut Value) -> Report {
    let mut walk = Walk::default();
    match object {
        Value::Object(map) => walk.fields(of, map, &At::ROOT),
        other => walk.error = Some(At::ROOT.mismatch(word(other), &At::struct_type(of))),
    }
    walk.unknown.dedup();
    Report { error: walk.error, unknown: walk.unknown }
}

#[derive(Default)]
struct Walk {
    error: Option<String>,
    unknown: Vec<String>,
    depth: usize,
    /// Inside a CRD's nested schemas Kubernetes is not strict.
    lenient: bool,
}

impl Walk {
    fn fields(&mut self, of: &Struct, map: &mut Map<String, Value>, at: &At<'_>) {
        if self.depth >= DEPTH_MAX {
            self.fail(|| "exceeded max depth".into());
            return;
        }
        self.depth += 1;
        let mut dropped = false;
        for (name, value) in map.iter_mut() {
            match of.field(name) {
                Some(field) => dropped |= self.field(of, field, value, at),
                None if of.preserve_unknown => {}
                None => {
                    self.unknown(&at.then(Step::Unknown(name)));
                    *value = Value::Null;
                    dropped = true;
                }
            }
        }
        if dropped {
            map.retain(|name, value| {
                !value.is_null() || of.field(name).map_or(of.preserve_unknown, |f| f.nullable)
            });
        }
        self.depth -= 1;
    }

    /// Walks one field; true when it is to be dropped, and is null then.
    fn field(&mut self, of: &Struct, field: &Field, value: &mut Value, at: &At<'_>) -> bool {
        if value.is_null() {
            return !field.nullable;
        }
        self.value(&field.ty, value, &at.then(Step::Field(of, field)));
        if field.go.omit_empty && !field.go.pointer && empty(&field.ty, value) {
            *value = Value::Null;
        }
        value.is_null()
    }

    fn value(&mut self, ty: &Type, value: &mut Value, at: &At<'_>) {
        match (ty, value) {
            (Type::Any, _) | (Type::Bool, Value::Bool(_)) | (Type::String, Value::String(_)) => {}
            (Type::Struct(of), Value::Object(map)) => self.fields(of.get(), map, at),
            (Type::List(list), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.element(&list.item, item, &at.then(Step::Index(index)));
                }
            }
            (Type::Map(map), Value::Object(entries)) => {
                for (key, entry) in entries.iter_mut() {
                    self.element(&map.value, entry, &at.then(Step::Key(key)));
                }
            }
            (Type::Int32, value) => self.integer(value, true, at),
            (Type::Int64, value) => self.integer(value, false, at),
            (Type::Double, Value::Number(number)) => whole(number),
            (Type::IntOrString, value) => {
                if !value.is_string() {
                    self.integer(value, true, at);
                }
            }
            (Type::Bytes, Value::String(text)) => self.replace(text, bytes::canonical),
            (Type::Quantity, value) => self.quantity(value),
            (Type::Time, value) => self.time(value, Precision::Seconds, at),
            (Type::MicroTime, value) => self.time(value, Precision::Micros, at),
            (Type::SchemaOr(or), value) => self.schema_or(*or, value),
            (ty, value) => self.mismatch(at, word(value), &at.go_type(ty)),
        }
    }

    /// An item of a list or an entry of a map: null is the zero value there.
    fn element(&mut self, ty: &Type, value: &mut Value, at: &At<'_>) {
        if value.is_null() && at.is_builtin() {
            *value = zero(ty);
        } else {
            self.value(ty, value, at);
        }
    }

    fn integer(&mut self, value: &mut Value, narrow: bool, at: &At<'_>) {
        let ty = if narrow { "int32" } else { "int64" };
        let Value::Number(number) = value else { return self.mismatch(at, word(value), ty) };
        let fits = number.as_i64().is_some_and(|n| !narrow || i32::try_from(n).is_ok());
        if !fits && number.as_f64() == Some(0.0) && number.to_string() == "-0.0" {
            *value = Value::from(0);
        } else if !fits {
            let what = format!("number {number}");
            self.mismatch(at, &what, ty);
        }
    }

    fn quantity(&mut self, value: &mut Value) {
        let made = match &*value {
            Value::String(text) => match Quantity::canonical(text.trim()) {
                Ok(made) if made == text.as_str() => return,
                Ok(made) => Ok(made.into_owned()),
                Err(error) => Err(error),
            },
            other => Quantity::canonical(&other.to_string()).map(std::borrow::Cow::into_owned),
        };
        match made {
            Ok(made) => *value = Value::String(made),
            Err(error) => self.fail(|| error.to_string()),
        }
    }

    fn time(&mut self, value: &mut Value, precision: Precision, at: &At<'_>) {
        let Value::String(text) = value else { return self.mismatch(at, word(value), "string") };
        self.replace(text, |text| time::canonical(text, precision));
        if text.starts_with("0001-01-01T00:00:00") {
            // Go's zero time, which it writes as null.
            *value = Value::Null;
        }
    }

    fn replace(&mut self, text: &mut String, canonical: impl Fn(&str) -> Result<Option<String>, String>) {
        match canonical(text) {
            Ok(None) => {}
            Ok(Some(made)) => *text = made,
            Err(error) => self.fail(|| error),
        }
    }

    /// A schema inside a CRD, or what may stand in its place. Kubernetes decodes these apart, and not strictly.
    fn schema_or(&mut self, or: SchemaOr, value: &mut Value) {
        let lenient = std::mem::replace(&mut self.lenient, true);
        let props = props();
        match (or, value) {
            (_, Value::Object(map)) => self.fields(props, map, &At::ROOT),
            (SchemaOr::Schemas, Value::Array(items)) => {
                for item in items {
                    match item {
                        Value::Object(map) => self.fields(props, map, &At::ROOT),
                        other => self.mismatch(&At::ROOT, word(other), &At::struct_type(props)),
                    }
                }
            }
            (SchemaOr::Strings, Value::Array(items)) => {
                if let Some(other) = items.iter().find(|item| !item.is_string()) {
                    self.mismatch(&At::ROOT, word(other), "string");
                }
            }
            (SchemaOr::Bool, Value::Bool(_)) => {}
            (SchemaOr::Bool, _) => self.fail(|| "boolean or JSON schema expected".into()),
            (_, other) => *other = Value::Null,
        }
        self.lenient = lenient;
    }

    fn unknown(&mut self, at: &At<'_>) {
        if !self.lenient && self.unknown.len() < UNKNOWN_MAX {
            self.unknown.push(format!("unknown field \"{at}\""));
        }
    }

    fn mismatch(&mut self, at: &At<'_>, what: &str, ty: &str) {
        self.fail(|| at.mismatch(what, ty));
    }

    /// Only the first error is kept.
    fn fail(&mut self, error: impl FnOnce() -> String) {
        if self.error.is_none() {
            self.error = Some(error());
        }
    }
}

/// Adds what Go always writes: fields without `omitempty`, and structs, which it never takes for empty.
///
/// Only built-in structs have such fields. After this, an object looks as Kubernetes would serve it.
pub fn complete(of: &Struct, object: &mut Value) {
    if let Value::Object(map) = object {
        complete_fields(of, map, 0);
    }
}

fn complete_fields(of: &Struct, map: &mut Map<String, Value>, depth: usize) {
    if depth >= DEPTH_MAX {
        return;
    }
    for (name, value) in map.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()) {
        if let Some(field) = of.field(name) {
            complete_value(&field.ty, value, depth);
        }
    }
    for field in of.fields.iter().filter(|field| always(field)) {
        if !map.contains_key(&*field.name) {
            let mut value = unset(field);
            complete_value(&field.ty, &mut value, depth);
            map.insert(field.name.clone().into(), value);
        }
    }
}

/// What Go writes for a field that is not set: nil pointers, lists, maps and bytes are null.
fn unset(field: &Field) -> Value {
    match field.ty {
        Type::List(_) | Type::Map(_) | Type::Bytes => Value::Null,
        _ if field.go.pointer => Value::Null,
        _ => zero(&field.ty),
    }
}

fn complete_value(ty: &Type, value: &mut Value, depth: usize) {
    match (ty, value) {
        (Type::Struct(of), Value::Object(map)) => complete_fields(of.get(), map, depth + 1),
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| complete_value(&list.item, item, depth + 1));
        }
        (Type::Map(of), Value::Object(map)) => {
            map.values_mut().for_each(|entry| complete_value(&of.value, entry, depth + 1));
        }
        _ => {}
    }
}

/// Whether Go writes a field that is not set. Only of built-in structs is it known.
fn always(field: &Field) -> bool {
    let by_value = !field.go.pointer
        && matches!(
            field.ty,
            Type::Struct(_) | Type::Quantity | Type::IntOrString | Type::Time | Type::MicroTime | Type::Any
        );
    !field.go.ty.is_empty() && !field.go.omit_zero && (!field.go.omit_empty || by_value)
}

/// The JSON of Go's zero value.
pub(crate) fn zero(ty: &Type) -> Value {
    match ty {
        Type::Bool => Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => Value::from(0),
        Type::String | Type::Bytes => Value::String(String::new()),
        Type::Quantity => Value::String("0".into()),
        Type::Struct(_) | Type::Map(_) => Value::Object(Map::new()),
        Type::List(_) => Value::Array(Vec::new()),
        Type::Any | Type::Time | Type::MicroTime | Type::SchemaOr(_) => Value::Null,
    }
}

/// What `omitempty` leaves out; structs and what Go holds as structs are never empty.
fn empty(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (Type::Struct(_) | Type::Quantity | Type::IntOrString | Type::Any | Type::SchemaOr(_), _) => false,
        (_, Value::Bool(b)) => !b,
        (_, Value::Number(n)) => n.as_f64() == Some(0.0),
        (_, Value::String(s)) => s.is_empty(),
        (_, Value::Array(a)) => a.is_empty(),
        (_, Value::Object(o)) => o.is_empty(),
        (_, Value::Null) => true,
    }
}

/// Go writes `1`, not `1.0`.
pub(crate) fn whole(number: &mut Number) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.is_f64()
        && let Some(float) = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < EXACT)
    {
        // Exact: the check above leaves only whole numbers below 2^53.
        *number = Number::from(float as i64);
    }
}

/// The kind of a JSON value in Go's words.
pub(crate) const fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
