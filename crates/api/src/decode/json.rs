//! JSON into a `Value`, noticing keys that are there twice.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::{DUPLICATES_MAX, DecodeError, Decoded, Duplicate, scan};

pub(super) fn parse(body: &[u8]) -> Result<Decoded, DecodeError> {
    // Go takes bytes that are not UTF-8 for the replacement character.
    let text = match std::str::from_utf8(body) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(body),
    };
    read(&text).map_err(|error| {
        let words = scan::first_error(body).unwrap_or_else(|| error.to_string());
        DecodeError::Json(words)
    })
}

/// The same without the words for what is wrong.
pub(super) fn read(text: &str) -> Result<Decoded, serde_json::Error> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    let seed = Seed { at: &Place::Root, duplicates: &mut duplicates };
    let value = seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value))?;
    Ok(Decoded { value, duplicates })
}

/// Where the reader stands; on the stack, written out only for a duplicate.
enum Place<'a> {
    Root,
    Key(&'a Self, &'a str),
    Index(&'a Self, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Place::Root, key) => f.write_str(key),
            Self::Key(up, key) => write!(f, "{up}.{key}"),
            Self::Index(up, index) => write!(f, "{up}[{index}]"),
        }
    }
}

struct Seed<'a> {
    at: &'a Place<'a>,
    duplicates: &'a mut Vec<Duplicate>,
}

impl Seed<'_> {
    fn duplicate(&mut self, key: &str) {
        let found = Duplicate::Json(Place::Key(self.at, key).to_string());
        if self.duplicates.len() < DUPLICATES_MAX && !self.duplicates.contains(&found) {
            self.duplicates.push(found);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let at = Place::Index(self.at, items.len());
            match list.next_element_seed(Seed { at: &at, duplicates: &mut *self.duplicates })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }
    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let at = Place::Key(self.at, &key);
            let value = entries.next_value_seed(Seed { at: &at, duplicates: &mut *self.duplicates })?;
            match map.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(value);
                }
                Entry::Occupied(mut place) => {
                    self.duplicate(place.key());
                    place.insert(value);
                }
            }
        }
        Ok(Value::Object(map))
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, _: D) -> Result<Value, D::Error> {
        Err(D::Error::custom("not JSON"))
    }
}
