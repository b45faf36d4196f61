//! Messages that are not objects in JSON: times, quantities, numbers-or-texts, raw JSON, schemas-or-something.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use super::reader::{Reader, bytes, number, text};
use super::{Decoder, MAGIC, envelope};
use crate::decode::parse_json;
use crate::schema::time::{Precision, write};
use crate::schema::{SchemaOr, of_kind, props};

pub(super) fn double(bits: u64) -> Result<Value, String> {
    Number::from_f64(f64::from_bits(bits)).map(Value::Number).ok_or_else(|| "json: unsupported value".into())
}

pub(super) fn base64(bytes: &[u8]) -> Value {
    Value::String(STANDARD.encode(bytes))
}

/// `{type: 0 number, 1 text; intVal; strVal}`.
pub(super) fn int_or_string(raw: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut whole, mut words) = (false, 0i32, String::new());
    let mut reader = Reader::new(raw);
    while let Some((field, raw)) = reader.next()? {
        match field {
            1 => is_text = number(raw, "type")? != 0,
            2 => whole = number(raw, "intVal")? as i32,
            3 => words = text(raw, "strVal")?,
            _ => {}
        }
    }
    Ok(if is_text { Value::String(words) } else { Value::from(whole) })
}

/// `{string}`.
pub(super) fn quantity(raw: &[u8]) -> Result<Value, String> {
    let mut words = String::new();
    let mut reader = Reader::new(raw);
    while let Some((field, raw)) = reader.next()? {
        if field == 1 {
            words = text(raw, "string")?;
        }
    }
    Ok(Value::String(if words.is_empty() { "0".into() } else { words }))
}

/// `{seconds, nanos}`; empty is no time at all. Kubernetes forgets the nanoseconds.
pub(super) fn time(raw: &[u8]) -> Result<Value, String> {
    moment(raw, Precision::Seconds)
}

/// `{seconds, nanos}` to the microsecond.
pub(super) fn micro_time(raw: &[u8]) -> Result<Value, String> {
    moment(raw, Precision::Micros)
}

fn moment(raw: &[u8], precision: Precision) -> Result<Value, String> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0i64, 0i32);
    let mut reader = Reader::new(raw);
    while let Some((field, raw)) = reader.next()? {
        match field {
            1 => seconds = number(raw, "seconds")? as i64,
            2 => nanos = number(raw, "nanos")? as i32,
            _ => {}
        }
    }
    let outside = || "Time.MarshalJSON: year outside of range [0,9999]".to_owned();
    let timestamp = match precision {
        Precision::Seconds => Timestamp::from_second(seconds),
        Precision::Micros => Timestamp::new(seconds, nanos - nanos % 1000),
    };
    let timestamp = timestamp.map_err(|_| outside())?;
    let words = write(timestamp, precision);
    if words.starts_with('-') { Err(outside()) } else { Ok(Value::String(words)) }
}

impl Decoder {
    /// `{raw}`: JSON, or an envelope of its own.
    pub(super) fn any(&mut self, raw: &[u8]) -> Result<Value, String> {
        let mut inner: &[u8] = &[];
        let mut reader = Reader::new(raw);
        while let Some((field, raw)) = reader.next()? {
            if field == 1 {
                inner = bytes(raw, "raw")?;
            }
        }
        match inner.strip_prefix(MAGIC) {
            Some(rest) => self.embedded(rest),
            None if inner.is_empty() => Ok(Value::Null),
            None => parse_json(inner).map(|decoded| decoded.value).map_err(|error| error.to_string()),
        }
    }

    /// An object in an envelope inside another object.
    fn embedded(&mut self, body: &[u8]) -> Result<Value, String> {
        let envelope = envelope(body)?;
        let (group, version) = envelope.api_version.rsplit_once('/').unwrap_or(("", &envelope.api_version));
        let of = of_kind(group, version, &envelope.kind).ok_or_else(|| {
            format!("no kind {:?} is registered for version {:?}", envelope.kind, envelope.api_version)
        })?;
        let mut map = Map::new();
        self.message(of.get(), 0, envelope.raw, &mut map)?;
        map.insert("apiVersion".into(), envelope.api_version.into());
        map.insert("kind".into(), envelope.kind.into());
        Ok(Value::Object(map))
    }

    /// A schema inside a CRD, or what stands in its place.
    pub(super) fn schema_or(&mut self, or: SchemaOr, raw: &[u8]) -> Result<Value, String> {
        let (mut schema, mut allows, mut items) = (None, false, Vec::new());
        let mut reader = Reader::new(raw);
        while let Some((field, raw)) = reader.next()? {
            match (or, field) {
                (SchemaOr::Bool, 1) => allows = number(raw, "allows")? != 0,
                (SchemaOr::Bool, 2) | (SchemaOr::Schemas | SchemaOr::Strings, 1) => {
                    schema = Some(self.props(bytes(raw, "schema")?)?);
                }
                (SchemaOr::Schemas, 2) => items.push(self.props(bytes(raw, "jSONSchemas")?)?),
                (SchemaOr::Strings, 2) => items.push(Value::String(text(raw, "property")?)),
                _ => {}
            }
        }
        Ok(match (or, schema) {
            (SchemaOr::Bool, None) => Value::Bool(allows),
            (_, _) if !items.is_empty() => Value::Array(items),
            (_, schema) => schema.unwrap_or(Value::Null),
        })
    }

    fn props(&mut self, raw: &[u8]) -> Result<Value, String> {
        self.count()?;
        let mut map = Map::new();
        self.message(props(), 0, raw, &mut map)?;
        Ok(Value::Object(map))
    }
}
