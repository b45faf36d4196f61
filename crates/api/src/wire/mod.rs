//! Protobuf request bodies: `k8s\0`, an envelope with apiVersion and kind, and the object inside it.
//!
//! One decoder for every kind: it walks the wire and the type graph together, and makes the `Value` that the same
//! object would be in JSON. Go writes many zero values that its JSON leaves out: `schema::normalize` drops those.
//! We never answer in protobuf, so nothing here encodes.
//!
//! Limits: messages 127 deep, 500,000 values. No input panics.

mod reader;
mod special;

use serde_json::{Map, Value};

use crate::decode::{DEPTH_MAX, DecodeError, refuse_object};
use crate::schema::{Field, Struct, Type, of_kind, zero_value};
use crate::status::Status;
use reader::{Raw, Reader, bytes, number, text, wrong};

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// How every body begins.
const MAGIC: &[u8] = b"k8s\0";
/// Values made of one body.
const VALUES_MAX: usize = 500_000;

/// What stands around an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Such as `apps/v1`; may be empty, then the request says it.
    pub api_version: String,
    /// Such as `Deployment`; may be empty, then the request says it.
    pub kind: String,
    /// The object.
    pub raw: &'a [u8],
}

/// Takes in a body for a request that wants an object of this version and kind. The value has its `apiVersion` and
/// `kind`, as sent; it is not yet normalised.
pub fn parse(body: &[u8], api_version: &str, kind: &str) -> Result<Value, Status> {
    let mut envelope = open(body).map_err(|error| error.refuse(kind, body))?;
    if envelope.kind.is_empty() {
        (envelope.api_version, envelope.kind) = (api_version.into(), kind.into());
    }
    let version = envelope.api_version.rsplit('/').next().unwrap_or("").to_owned();
    let refuse = |error: &str| {
        Status::bad_request(format!(
            "{} in version \"{version}\" cannot be handled as a {kind}: {error}",
            envelope.kind
        ))
    };
    let group = envelope.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let of = of_kind(group, &version, &envelope.kind).ok_or_else(|| {
        refuse(&format!(
            "no kind {:?} is registered for version {:?} in scheme \"pkg/runtime/scheme.go:111\"",
            envelope.kind, envelope.api_version
        ))
    })?;
    let mut map = match object(of.get(), envelope.raw) {
        Ok(map) => map,
        Err(error) if envelope.kind == kind => return Err(refuse_object(kind, &version, &error.to_string())),
        Err(error) => return Err(refuse(&error.to_string())),
    };
    map.insert("apiVersion".into(), envelope.api_version.into());
    map.insert("kind".into(), envelope.kind.into());
    Ok(Value::Object(map))
}

/// Opens a body.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    if body.is_empty() {
        return Err(DecodeError::Wire("empty data".into()));
    }
    let Some(rest) = body.strip_prefix(MAGIC) else {
        let words = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        return Err(DecodeError::Wire(words.into()));
    };
    if rest.is_empty() {
        return Err(DecodeError::Wire("empty body".into()));
    }
    envelope(rest).map_err(DecodeError::Wire)
}

fn envelope(body: &[u8]) -> Result<Envelope<'_>, String> {
    let mut envelope = Envelope { api_version: String::new(), kind: String::new(), raw: &[] };
    let mut reader = Reader::new(body);
    while let Some((field, raw)) = reader.next()? {
        match field {
            1 => {
                let mut meta = Reader::new(bytes(raw, "typeMeta")?);
                while let Some((field, raw)) = meta.next()? {
                    match field {
                        1 => envelope.api_version = text(raw, "apiVersion")?,
                        2 => envelope.kind = text(raw, "kind")?,
                        _ => {}
                    }
                }
            }
            2 => envelope.raw = bytes(raw, "raw")?,
            3 if !bytes(raw, "contentEncoding")?.is_empty() => {
                return Err("the body's contentEncoding is not supported".into());
            }
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes a message of a struct.
pub fn object(of: &Struct, raw: &[u8]) -> Result<Map<String, Value>, DecodeError> {
    let mut map = Map::new();
    Decoder::default().message(of, 0, raw, &mut map).map_err(DecodeError::Wire)?;
    Ok(map)
}

#[derive(Default)]
struct Decoder {
    depth: usize,
    values: usize,
}

impl Decoder {
    /// Fields of a message into `map`; `via` is the inlined message being read, 0 for the struct's own.
    fn message(
        &mut self,
        of: &Struct,
        via: u32,
        raw: &[u8],
        map: &mut Map<String, Value>,
    ) -> Result<(), String> {
        self.enter()?;
        let mut reader = Reader::new(raw);
        while let Some((tag, raw)) = reader.next()? {
            if let Some(field) = of.by_number(via, tag) {
                self.field(field, raw, map)?;
            } else if via == 0 && of.fields.iter().any(|f| f.via == tag) {
                self.message(of, tag, bytes(raw, "inlined")?, map)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self) -> Result<(), String> {
        if self.depth >= DEPTH_MAX {
            return Err("exceeded max depth".into());
        }
        self.depth += 1;
        Ok(())
    }

    fn count(&mut self) -> Result<(), String> {
        self.values += 1;
        if self.values > VALUES_MAX { Err("too many values".into()) } else { Ok(()) }
    }

    fn field(&mut self, field: &Field, raw: Raw<'_>, map: &mut Map<String, Value>) -> Result<(), String> {
        let name = &*field.name;
        match &field.ty {
            Type::List(list) if list.wrapped => {
                let items = self.wrapped(&list.item, raw, name)?;
                map.insert(name.into(), items);
            }
            Type::List(list) => {
                let items = map.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(items) = items {
                    self.items(&list.item, raw, name, items)?;
                }
            }
            Type::Map(of) => {
                let (key, value) = self.entry(&of.value, bytes(raw, name)?, name)?;
                let entries = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(entries) = entries {
                    entries.insert(key, value);
                }
            }
            Type::Struct(of) => {
                // A message that comes in parts is the sum of its parts.
                let whole = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(whole) = whole {
                    self.count()?;
                    self.message(of.get(), 0, bytes(raw, name)?, whole)?;
                }
            }
            ty => {
                let value = self.value(ty, raw, name)?;
                map.insert(name.into(), value);
            }
        }
        Ok(())
    }

    /// One value that is not a list or map of its own.
    fn value(&mut self, ty: &Type, raw: Raw<'_>, name: &str) -> Result<Value, String> {
        self.count()?;
        Ok(match ty {
            Type::Bool => Value::Bool(number(raw, name)? != 0),
            // Negative numbers are sent sign-extended to 64 bits: the low ones count.
            Type::Int32 => Value::from(number(raw, name)? as i32),
            Type::Int64 => Value::from(number(raw, name)? as i64),
            Type::Double => match raw {
                Raw::Fixed64(bits) => special::double(bits)?,
                other => return Err(wrong(other, name)),
            },
            Type::String => Value::String(text(raw, name)?),
            Type::Bytes => special::base64(bytes(raw, name)?),
            Type::IntOrString => special::int_or_string(bytes(raw, name)?)?,
            Type::Quantity => special::quantity(bytes(raw, name)?)?,
            Type::Time => special::time(bytes(raw, name)?)?,
            Type::MicroTime => special::micro_time(bytes(raw, name)?)?,
            Type::Any => self.any(bytes(raw, name)?)?,
            Type::SchemaOr(or) => self.schema_or(*or, bytes(raw, name)?)?,
            Type::Struct(of) => {
                let mut map = Map::new();
                self.message(of.get(), 0, bytes(raw, name)?, &mut map)?;
                Value::Object(map)
            }
            Type::List(list) => self.wrapped(&list.item, raw, name)?,
            Type::Map(_) => return Err(format!("a map inside {name}")),
        })
    }

    /// One occurrence of a repeated field: one item, or numbers packed together.
    fn items(&mut self, ty: &Type, raw: Raw<'_>, name: &str, items: &mut Vec<Value>) -> Result<(), String> {
        let packable = matches!(ty, Type::Bool | Type::Int32 | Type::Int64 | Type::Double);
        let Raw::Bytes(packed) = raw else {
            items.push(self.value(ty, raw, name)?);
            return Ok(());
        };
        if !packable {
            items.push(self.value(ty, raw, name)?);
            return Ok(());
        }
        let mut reader = Reader::new(packed);
        while !reader.is_empty() {
            let raw = match ty {
                Type::Double => Raw::Fixed64(reader.fixed64()?),
                _ => Raw::Varint(reader.varint()?),
            };
            items.push(self.value(ty, raw, name)?);
        }
        Ok(())
    }

    /// A list that is a message of its own, with the items in field 1.
    fn wrapped(&mut self, ty: &Type, raw: Raw<'_>, name: &str) -> Result<Value, String> {
        let mut items = Vec::new();
        let mut reader = Reader::new(bytes(raw, name)?);
        while let Some((field, raw)) = reader.next()? {
            if field == 1 {
                self.items(ty, raw, name, &mut items)?;
            }
        }
        Ok(Value::Array(items))
    }

    /// An entry of a map: key in field 1, value in field 2.
    fn entry(&mut self, ty: &Type, raw: &[u8], name: &str) -> Result<(String, Value), String> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(raw);
        while let Some((field, raw)) = reader.next()? {
            match field {
                1 => key = text(raw, "mapkey")?,
                2 => value = Some(self.value(ty, raw, name)?),
                _ => {}
            }
        }
        Ok((key, value.unwrap_or_else(|| zero_value(ty))))
    }
}
